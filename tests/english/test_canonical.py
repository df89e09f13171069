"""Facts in their speaker's words, read clause by clause in the third person."""

import pytest

from mnemo.english.canonical import canonical_clauses, said_by, speaker_of, words_of
from mnemo.english.slots import claims


@pytest.mark.parametrize(
    ("said", "clauses"),
    [
        ("I quit the hospital, I now teach biology.",
         ("Nora quit the hospital", "Nora now teaches biology.")),
        ("We've moved to York.", ("Nora has moved to York.",)),
        ("My rent is 900 and our cat is old", ("Nora's rent is 900", "Nora's cat is old")),
        ("im no longer vegetarian", ("Nora is no longer vegetarian",)),
        ("i dont eat meat", ("Nora doesn't eat meat",)),
        ("I'd love it if I'd known", ("Nora would love it if Nora had known",)),
        ("Got a job at Acme.", ("Nora got a job at Acme.",)),
        ("My sister Eva lives in Lyon. She teaches.",
         ("Nora's sister Eva lives in Lyon.", "She teaches.")),
        ("My address: 12 Elm Street", ("Nora's address: 12 Elm Street",
                                       "Nora's address is 12 Elm Street")),
    ],
)  # fmt: skip
def test_a_speakers_words_are_read_in_the_third_person(said, clauses):
    """ "I" and "we" are the speaker, verbs agree, and each clause stands for itself."""
    assert canonical_clauses(said_by("Nora", said)) == clauses


def test_a_labelled_value_is_a_sentence():
    """A label is no speaker; what stands behind it is its value."""
    assert "The deadline is March 10" in canonical_clauses("Deadline: March 10")


def test_what_nobody_says_is_its_own_clause():
    """A proposition in the third person is read as it stands."""
    assert canonical_clauses("Bo has a budget, and Ana too.") == ("Bo has a budget, and Ana too.",)
    assert speaker_of("Bo has a budget.") is None


def test_a_speaker_and_the_words_are_told_apart():
    """Names of several words, and words with a colon of their own."""
    told = said_by("Dr. Ana Silva", "Note: I moved")
    assert (speaker_of(told), words_of(told)) == ("Dr. Ana Silva", "Note: I moved")


@pytest.mark.parametrize(
    ("said", "slots"),
    [
        ("I quit, I now work at Acme.", {"nora employer"}),
        ("My budget is 2000 euros.", {"nora budget"}),
        ("We moved to York!", {"nora residence"}),
    ],
)
def test_slots_are_read_from_the_speakers_words(said, slots):
    """What the text says of its speaker fills the same slots as the third person does."""
    assert slots <= {claim.slot for claim in claims(said_by("Nora", said))}
