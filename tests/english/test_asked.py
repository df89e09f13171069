"""What a question asks for: an attribute, a kind of value, the person itself."""

import pytest

from mnemo.english.asked import asked_in


@pytest.mark.parametrize(
    ("question", "answer", "other"),
    [
        ("How much does she earn per hour?", "starting in June, 12.20/h", "bev retired, same day"),
        ("What did fixing the display cost?", "repaired the phone, 95 quid", "the screen cracked"),
        ("How old is she?", "hi, it's mel, 19, new in Cardiff", "I can have gran's old car"),
        ("When is the exam?", "it was moved to March 10", "the lecturer is ill"),
        ("What time does the bus leave?", "the coach goes at 9:15", "dad picks me up"),
        ("Who covers for Lars?", "cover: Ivana from platform", "the backend is done"),
        ("Was kostet die Wohnung?", "die Miete ist 900 Euro", "die Wohnung ist laut"),
        ("Cuando es el examen?", "el examen es el 2026-03-10", "el profesor esta enfermo"),
    ],
)
def test_an_answer_has_a_value_of_the_kind_that_is_asked_for(question, answer, other):
    """An amount, a number, a day, a time or a name."""
    assert asked_in(question).is_of_a_kind(answer)
    assert not asked_in(question).is_of_a_kind(other)


def test_a_question_without_a_kind_asks_for_none():
    """A yes-or-no question is answered by any text."""
    assert not asked_in("Is she in a relationship?").is_of_a_kind("we split on 3 May, 2 years in")


def test_a_statement_of_another_person_passes_by_a_question_about_the_speaker():
    """Unless the question names such a person, or asks who."""
    said = "My sister Ana lives in Porto"
    assert asked_in("Where does she live?").is_past_by(said)
    assert not asked_in("Where does her sister live?").is_past_by(said)
    assert not asked_in("Who lives in Porto?").is_past_by(said)
    assert not asked_in("Where does she live?").is_past_by("I live in Porto with my sister")


@pytest.mark.parametrize(
    ("question", "said", "is_past"),
    [
        ("What does the child eat?", "I can't eat shellfish myself", True),
        ("Can her husband's brother drive?", "I've never had a licence", True),
        ("What does the child eat?", "I give her oats in the morning", False),
        ("What does the child eat?", "I cook rice for Tilda", False),
        ("Who is the boss?", "I report to the board itself", False),
        ("What does the family car cost?", "I paid 9,000 for the car", False),
        ("Does the user have children?", "I live alone", False),
    ],
)
def test_what_tells_of_the_speaker_alone_passes_by_a_question_about_another(
    question, said, is_past
):
    """A pronoun or a name may be who is asked about."""
    assert asked_in(question).is_past_by(said) == is_past
