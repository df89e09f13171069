"""No text that is pasted into a conversation holds up the search for cues."""

import time

import pytest

from mnemo.notes.cues import Phrases, corrects, prefers, requests_in


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    ["please ", "remember this. ", "x and remember that ", " ", ". ", '"', "'a", "`", "a\n",
     "great. ", "is a ", "make sure ", "not a b ", "- ", "it is a "],
)  # fmt: skip
@pytest.mark.long
def test_the_time_does_not_grow_faster_than_the_text(piece):
    """A hundred thousand characters of any one thing are looked through in a moment."""
    text = piece * (100_000 // len(piece)) + " Remember that!"
    began = time.process_time()
    for search in (requests_in, corrects, prefers):
        search(text, Phrases())
    assert time.process_time() - began < 2
