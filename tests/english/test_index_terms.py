"""Index terms: stems, and the irregular forms of English."""

import pytest

from mnemo.english.words import index_terms


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("When did Ana go?", "Ana went"),
        ("Has Ana been writing?", "Ana had written"),
        ("the child", "the children"),
        ("Caroline", "Caroline's"),
        ("hiking", "hikes"),
    ],
)
def test_forms_of_one_word_are_one_term(asked, told):
    """What a question asks in one form is found in another."""
    shared = [term for term in index_terms(told) if term in set(index_terms(asked))]
    assert shared == list(index_terms(told))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a rose", "rose"), ("a bit", "bit"), ("the wound", "wound"), ("20.04", "20.04")],
)
def test_words_of_their_own_are_left_alone(text, expected):
    """A form that is also another common word keeps its own term."""
    assert list(index_terms(text)) == [expected]


def test_order_and_repeats_are_kept():
    """Pairs of neighbours are read from the order."""
    assert list(index_terms("went home, come home")) == ["go", "home", "come", "home"]
