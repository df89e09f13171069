"""Words of change and the typed values of a sentence."""

import pytest

from mnemo.english.asked import KINDS, VALUES, kinds_of, values_of


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("We moved to York last weekend!", {"change", "begin"}),
        ("I quit the hospital", {"end"}),
        ("Rent went up to 900", {"change"}),
        ("I'm learning Greek as well", {"more"}),
        ("Der Termin wurde abgesagt", {"end"}),
        ("La reunión ha cambiado", {"change"}),
        ("我搬到上海了", {"change"}),
        ("Forget the motorbike, I want a sofa", {"end"}),
        ("The flight got rebooked", {"change"}),
        ("Don't forget the milk, I always forget the bread", set()),
        ("I live in Leeds", set()),
        ("The newest knowledge is endless", set()),
    ],
)
def test_words_of_change_are_told_by_kind(text, kinds):
    """A word of change counts as a whole word, in capitals and with accents as without."""
    assert kinds_of(text) == kinds
    assert kinds_of(text.upper()) == kinds
    assert kinds <= set(KINDS)


def test_a_value_counts_in_its_type_alone():
    """An amount of money, a time and a day are no bare numbers as well."""
    found = values_of("Tuesday at 10:30, 40 euros or £35, room 12")
    assert found == {
        "money": {"40", "35"},
        "time": {"10:30"},
        "day": {"tuesday"},
        "number": {"12"},
    }
    assert set(found) == set(VALUES)


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("Standup is at ten from now on.", {"ten"}),
        ("Come at half past nine on Monday", {"halfpastnine"}),
        ("Lunch is at noon.", {"noon"}),
        ("I look at one of them, at ten people", set()),
    ],
)
def test_an_hour_in_words_is_a_time(text, times):
    """Where no noun follows that it counts."""
    assert values_of(text)["time"] == times


def test_a_sentence_without_values_has_none():
    """Every type is there, and empty."""
    assert not any(values_of("I live in Leeds").values())
