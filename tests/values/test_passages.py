"""A long text is cut into few overlapping passages, each of them with a key of its own."""

from itertools import pairwise

import pytest
from real_texts import TEXTS

from mnemo.values.vectors import (
    MOST_PASSAGES,
    keyed_passages,
    owner_of_vector,
    passage_place,
    passages,
    vector_keys,
)

WORDS = " ".join(f"word{number}" for number in range(400))


def test_a_short_text_is_one_passage():
    """So is any text of an embedder that reads it whole."""
    assert passages("Ana keeps bees.", 225) == ["Ana keeps bees."]
    assert passages("", 225) == [""]
    assert passages(WORDS, None) == [WORDS]


def test_passages_overlap_and_leave_no_word_out():
    """Every word stands whole in one of them, and neighbours share some."""
    parts = passages(WORDS, 225)
    assert 3 <= len(parts) <= MOST_PASSAGES
    assert {word for part in parts for word in part.split()} == set(WORDS.split())
    for one, other in pairwise(parts):
        assert len(set(one.split()) & set(other.split())) >= 10


def test_of_a_very_long_text_they_are_chosen_evenly():
    """Eight of equal length, the first at its beginning and the last at its end."""
    text = " ".join(f"{number:05}" for number in range(4_000))
    parts = passages(text, 225)
    assert len(parts) == MOST_PASSAGES
    begins = [int(part.split()[0]) for part in parts]
    gaps = [later - earlier for earlier, later in pairwise(begins)]
    assert begins[0] == 0
    assert parts[-1].endswith("03999")
    assert max(gaps) - min(gaps) <= 2


@pytest.mark.parametrize("text", ["猫" * 700, "x" * 9_000, "a\n" * 3_000, ". " * 500])
def test_text_without_words_is_cut_all_the_same(text):
    """Nothing is empty, and the beginning and the end are there."""
    parts = passages(text, 225)
    assert 1 < len(parts) <= MOST_PASSAGES
    assert all(part.strip() for part in parts)
    assert text.startswith(parts[0])
    assert text.endswith(parts[-1])


def test_the_first_passage_of_a_passage_is_itself():
    """So its vector is the same, whether the embedder or mnemo cuts."""
    for text in TEXTS:
        for part in passages(text * 3, 225):
            assert passages(part, 225) == [part]


def test_keys_lead_back_to_their_documents():
    """The first passage has the document's key; sides and nodes are told apart."""
    keys = list(keyed_passages("n1/observation", WORDS, 225))
    assert keys[:2] == ["n1/observation", "n1/observation#1"]
    assert keys == vector_keys(["n1/observation"])[: len(keys)]
    assert [passage_place(key)[1] for key in keys] == list(range(len(keys)))
    assert {owner_of_vector(key) for key in keys} == {("n1", True)}
    assert owner_of_vector("fact#7") == ("fact", False)
    assert owner_of_vector("fact#8") == ("fact#8", False)
