"""What a later statement closes of an earlier one: another value, or an end without any."""

import json
from pathlib import Path

import pytest
from helpers import contradict

from mnemo.english.canonical import said_by
from mnemo.english.endings import ending_keys, ends, standing_keys
from mnemo.english.sentences import sentences
from mnemo.english.slots import claim_keys, outdates, rival_keys

PAIRS = Path(__file__).parents[1] / "data" / "closings.json"


def facts(message: str, speaker: str = "Nora") -> list[str]:
    """The facts of a message, in its speaker's words."""
    return [said_by(speaker, sentence) for sentence in sentences(message)]


def closes(newer: str, older: str, *, by: str = "Nora") -> bool:
    """Whether a fact of *newer*, said by *by*, closes one of *older*, said by Nora."""
    return any(outdates(new, old) for new in facts(newer, by) for old in facts(older))


def test_most_closings_of_labelled_pairs_are_right():
    """Of pairs labelled by hand, few that hold both are closed, and most that changed are."""
    pairs = json.loads(PAIRS.read_text("utf-8"))
    closed = [pair for pair in pairs if closes(pair["newer"], pair["older"])]
    right = sum(pair["changed"] for pair in closed)
    assert right / len(closed) >= 0.95
    assert right / sum(pair["changed"] for pair in pairs) >= 0.9


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("I have a red Honda car.", "I sold the car."),
        ("We bought a boat.", "We got rid of our boat."),
        ("I go to a choir every Monday.", "I quit the choir."),
        ("We use Jest.", "We replaced Jest with Vitest."),
        ("The shop uses Oracle for stock.", "I migrated the shop from Oracle to SQLite."),
        ("I use Trello for chores.", "I moved everything from Trello to a notebook."),
        ("I have a red Honda car.", "I sold the Honda, bought a second-hand bike."),
        ("I play chess at a club called Rook.", "I quit Rook, the evenings were too long."),
        ("I'm writing an essay on Kant.", "I finished the essay."),
        ("The boiler is broken.", "The boiler is fixed."),
        ("Our trip to Rome is in May.", "The trip to Rome was cancelled."),
        ("We have a cat called Miso.", "Miso died."),
        ("I'm looking for a piano teacher.", "I found a piano teacher."),
    ],
)
def test_an_end_closes_what_it_is_the_end_of(older, newer):
    """Also without a new value; it is found by its keys, and what it ends does not close it."""
    (old,), (new,) = facts(older), facts(newer)
    assert ends(new, old)
    assert set(rival_keys(new)) & set(claim_keys(old))
    assert set(rival_keys(old)) & set(claim_keys(new))
    assert not outdates(old, new)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("I have a car.", "I sold my car seat."),
        ("I have a car and a bike.", "I never sold the car."),
        ("I have a boat.", "I might have sold the boat by then."),
        ("I want a boat.", "I sold my boat."),
        ("Our trip to Rome is in May.", "The trip to Oslo was cancelled."),
        ("I have a meeting on Friday.", "The meeting on Monday is cancelled."),
        ("My essay is about Kant.", "I finished the essay."),
        ("The boiler is new.", "The boiler is fixed."),
        ("My daughter Eva plays chess.", "My son Max died."),
        ("I have three children.", "I have a daughter."),
        ("I have a client in Bonn.", "I have a client in Kiel now."),
        ("I'm allergic to nuts.", "I'm allergic to pollen too."),
        ("I play tennis.", "I play squash now."),
        ("I keep a bike in the cellar.", "I moved the sofa from the cellar to the attic."),
        ("I have a boat.", "I sold the car, kept the boat."),
        ("I left my keys at the gym.", "I left the gym at nine."),
    ],
)
def test_an_end_of_something_else_closes_nothing(older, newer):
    """Another thing, another plan, a wish, a denial, and one more of many."""
    assert not closes(newer, older)


def test_an_end_is_of_who_says_it():
    """Bo's car is not Nora's; a name is whose it is."""
    assert closes("I sold the car.", "I have a car.")
    assert not closes("I sold the car.", "I have a car.", by="Bo")
    assert closes("Nora sold the car.", "I have a car.", by="Bo")


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("The door is locked.", "The door is open now."),
        ("The backup runs at 2.", "The backup now runs at 4."),
        ("We deploy on Fridays.", "We deploy on Mondays now."),
        ("I take the train to work.", "I take the bus instead."),
    ],
)
def test_another_way_replaces_the_first_where_one_says_now(older, newer):
    """Without a word of change both may hold."""
    assert closes(newer, older)
    assert not closes(newer.replace(" now", "").replace(" instead", ""), older)


def test_what_neither_ends_nor_stands_has_no_keys():
    """What is past and asked is in nobody's way."""
    for text in ("Nora: I went to Rome in May.", "Nora: Did you sell the car?", ""):
        assert (ending_keys(text), standing_keys(text)) == ((), ())


def test_a_third_person_fact_is_read_like_the_speakers_words():
    """Facts by hand and of models are in the third person."""
    assert contradict("Nora lives in Leeds.", "Nora: We moved to York last weekend!")
    assert ends("Nora sold the car.", "Nora: I have a car.")


def test_what_a_later_sentence_adds_ends_no_fact():
    """The cat stays when who wanted a kitten dies; the dog behind a comma is the dog."""
    kittens = "Nora: I am keeping the cat. Josie wants two of the kittens."
    assert not ends("Josie died on Monday.", kittens)
    assert ends("Josie died on Monday.", "Josie wants two of the kittens.")
    assert ends("Rex died last week.", "Nora: I have a dog, Rex, and a cat.")
    assert not ends("Rex died last week.", "Nora: I have a cat, Tom, and a dog, Bo.")
