"""The form of what was said."""

import pytest

from mnemo.english.forms import DATE, FIRST, NUMBER, PLACE, form_of


@pytest.mark.parametrize(
    ("said", "form"),
    [
        ("I’ve been there", FIRST),
        ("Your turn?", 0),
        ("we left yesterday, in 2023", FIRST | DATE | NUMBER),
        ("it took (two) hours", NUMBER),
        ("Then Ada came", 0),
        ("a house in Porto", PLACE),
        ("in the end, at I don't know whose", FIRST),
        ("Only. Sentences. Begin.", 0),
        ("", 0),
        ("猫が好きです", 0),
        ("\ud800 \0", 0),
    ],
)
def test_the_form_of_what_was_said(said, form):
    """Each bit stands for words or signs that are there, in any case and with any apostrophe."""
    assert form_of(said) == form
