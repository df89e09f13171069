"""What is kept of facts: clean, supported, distinct, not too many."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from helpers import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from world import a_step

from mnemo.english.similarity import same_claim_guard
from mnemo.extraction.by_model import StoredFacts
from mnemo.extraction.facts import clean_facts, concepts_of, distinct_facts, most_facts
from mnemo.values.graph import Node, Semantic
from mnemo.values.steps import Fact, Step

MakeStep = Callable[..., Step]


@pytest.fixture
def steps(make_step: MakeStep) -> list[Step]:
    """Three turns about a move, a cat and a budget."""
    return [
        make_step(3, "I moved to Lisbon last spring"),
        make_step(4, "The cat is called Miso and likes tuna"),
        make_step(5, "My budget is 2000 euros", "noted the budget"),
    ]


def one(fact: Fact, steps: Sequence[Step]) -> Fact:
    (whole,) = clean_facts([fact], steps).facts
    return whole


@pytest.mark.parametrize(
    "text",
    [
        "He likes tea",
        "  they live in Rome",
        "It's broken",
        "“This is the one”",
        "That restaurant closed",
        "I moved to Lisbon",
        "My budget is 2000 euros",
        "WE ARE HERE",
        "",
        " \n\t",
        "...",
    ],
)
def test_a_fact_that_cannot_stand_alone_is_dropped_and_counted(text, steps):
    """Blank facts and those with a leading pronoun go alone; the others stay."""
    clean = clean_facts([Fact(proposition=text), Fact(proposition="Bo likes tea")], steps)
    assert [fact.proposition for fact in clean.facts] == ["Bo likes tea"]
    assert clean.dropped == 1


@pytest.mark.parametrize(
    "text",
    ["IT of Acme is in Porto", "I/O errors stop the build", "Iris likes tea", "Theyer is a town"],
)
def test_a_name_that_looks_like_a_pronoun_is_kept(text, steps):
    """Acronyms and compounds stand alone."""
    assert one(Fact(proposition=text), steps).proposition == text


def test_a_proposition_is_one_storable_line(steps):
    """Line breaks and what no store can hold are gone."""
    assert (
        one(Fact(proposition=" Bo\n likes\ttea\ud800 "), steps).proposition == "Bo likes tea\ufffd"
    )


@pytest.mark.parametrize(("given", "kept"), [(1.7, 1.0), (-1.0, 0.0), (0.4, 0.4)])
def test_a_confidence_is_clamped(given, kept, steps):
    """Confidence lies in [0, 1] whatever an extractor says."""
    assert one(Fact(proposition="Bo likes tea", confidence=given), steps).confidence == kept


def test_steps_outside_the_trajectory_are_dropped(steps):
    """A fact rests only on steps that were looked at."""
    assert one(Fact(proposition="Bo likes tea", steps=(9, 5, 3, 5)), steps).steps == (3, 5)


def test_a_fact_without_steps_rests_on_those_that_share_its_words(steps):
    """The step that says most of the fact's words is its source; one with a stray word is not."""
    fact = Fact(proposition="The cat Miso likes tuna from Lisbon", steps=(77,))
    assert one(fact, steps).steps == (4,)


def test_a_fact_without_steps_rests_on_three_at_most(make_step):
    """Equal steps do not all become sources; the earliest three do."""
    steps = [make_step(i, "Miso likes tuna") for i in range(6)]
    assert one(Fact(proposition="Miso likes tuna"), steps).steps == (0, 1, 2)


def test_every_fact_has_a_step(steps):
    """A fact in words of its own still rests on something."""
    assert one(Fact(proposition="Zebras graze"), steps).steps == (3, 4, 5)


def test_concepts_are_trimmed_and_told_apart_by_their_label(steps):
    """Type labels, blanks, sentences and repeats are no concepts; the first spelling stays."""
    given = (
        "Database",
        " database ",
        "person",
        "",
        "x" * 81,
        "SQL  tuning",
        "a",
        "b",
        "c",
        "d",
        "e",
    )
    fact = Fact(proposition="Bo tunes the database", concepts=given)
    assert one(fact, steps).concepts == ("Database", "SQL tuning", "a", "b", "c", "d")


def test_missing_concepts_are_taken_from_the_proposition(steps):
    """Names and what the sentence is about; no number, no verb."""
    fact = Fact(proposition="The Eiffel Tower was painted by Bo in 1999", concepts=("place",))
    assert one(fact, steps).concepts == ("Eiffel Tower", "Bo")


def test_equal_wordings_become_one(steps):
    """Case, blanks and the final point aside; steps and concepts are united."""
    clean = clean_facts(
        [
            Fact(proposition="Bo likes tea", concepts=("tea",), steps=(3,), confidence=0.5),
            Fact(proposition="Ana likes tea", steps=(4,)),
            Fact(proposition="bo  likes TEA.", concepts=("Bo", "Tea"), steps=(5,), confidence=0.9),
        ],
        steps,
    )
    first, second = clean.facts
    assert (first.proposition, first.steps, first.confidence) == ("bo likes TEA.", (3, 5), 0.9)
    assert first.concepts == ("tea", "Bo")
    assert second.proposition == "Ana likes tea"


def rows(*degrees: float) -> NDArray[np.float32]:
    angles = np.deg2rad(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_near_wordings_become_one_with_the_longer_wording():
    """A cosine of 0.95 and above unites facts: 18 degrees do, 19 do not."""
    facts = [
        Fact(proposition="Bo likes tea", steps=(0,), replaces=("semantic-a",)),
        Fact(proposition="Bo likes green tea", steps=(1,), replaces=("semantic-b",)),
        Fact(proposition="Bo likes coffee", steps=(2,)),
    ]
    kept, _ = distinct_facts(facts, rows(0, 18, 37.1), same_claim=lambda a, b: True, limit=24)
    assert [known.fact.proposition for known in kept] == ["Bo likes green tea", "Bo likes coffee"]
    assert kept[0].fact.steps == (0, 1)
    assert kept[0].fact.replaces == ("semantic-a", "semantic-b")
    np.testing.assert_array_equal(kept[0].vector, rows(18)[0])


def test_the_guard_keeps_near_but_different_claims_apart():
    """Facts that differ in a number are two, however near they lie."""
    facts = [
        Fact(proposition="Bo's budget is 2000 euros"),
        Fact(proposition="Bo's budget is 3000 euros"),
    ]
    kept, _ = distinct_facts(facts, rows(0, 1), same_claim=same_claim_guard, limit=24)
    assert len(kept) == 2


def test_the_most_confident_facts_are_kept_in_their_order():
    """What exceeds the limit goes by confidence; what stays is not reordered."""
    facts = [
        Fact(proposition=f"fact {letter}", confidence=confidence)
        for letter, confidence in zip("abcd", (0.5, 0.9, 0.4, 0.7), strict=True)
    ]
    kept, left_out = distinct_facts(
        facts, rows(0, 40, 80, 120), same_claim=lambda a, b: True, limit=2
    )
    assert [known.fact.proposition for known in kept] == ["fact b", "fact d"]
    assert left_out == 2


@pytest.mark.parametrize(("steps", "most"), [(1, 24), (4, 24), (5, 48), (50, 312), (60, 360)])
def test_the_bound_grows_with_the_steps(steps, most):
    """Each four steps may give as many facts as one."""
    assert most_facts(24, steps) == most


@settings(max_examples=examples(50))
@given(
    st.lists(
        st.builds(
            Fact,
            proposition=st.text(max_size=40),
            concepts=st.lists(st.text(max_size=12), max_size=8).map(tuple),
            confidence=st.floats(allow_nan=False),
            steps=st.lists(st.integers(-1, 3), max_size=3).map(tuple),
        ),
        max_size=6,
    )
)
def test_whatever_is_kept_can_be_stored(facts):
    """Any text at all gives facts with a source, a confidence and a line of text, or none."""
    steps = [a_step(i) for i in range(2)]
    clean = clean_facts(facts, steps)
    assert len(clean.facts) + clean.dropped <= len(facts)
    for fact in clean.facts:
        assert fact.proposition.strip()
        assert fact.steps
        assert set(fact.steps) <= {0, 1}
        assert 0 <= fact.confidence <= 1
        assert len(fact.concepts) <= 6 * len(facts)


# ── What facts are found by, where nobody gave their concepts ─────────────────────────


@pytest.mark.parametrize(
    ("fact", "concepts"),
    [
        ("Ana: I paid 250 euros to Hofmann GmbH for `billing.py`.",
         ("Ana", "billing.py", "Hofmann GmbH")),
        ("Frau Brandt is promoted.", ("Frau Brandt",)),
        ("User's exam in pharmacology is on 18 March.", ("User", "exam")),
        ("User: We painted the kitchen yellow and white.", ("User",)),
        ("User: Loads of people came on the 18th.", ("User",)),
        ("Last Friday Bo moved to New York with v2.5 of it.", ("Bo", "New York")),
        ("The heat pump runs since 9 May.", ("heat pump",)),
    ],
)  # fmt: skip
def test_a_concept_is_a_name_or_what_the_fact_is_about(fact, concepts):
    """Names, identifiers and the subject; no colour, number, day or quantity."""
    assert concepts_of([fact]) == [concepts]


def test_another_noun_is_a_concept_where_two_facts_share_it():
    """Once it may be anything; twice it is a topic."""
    once = "Ana: I gave the cat a bath."
    again = "Ana: We walked home with the cat."
    assert concepts_of([once]) == [("Ana",)]
    assert concepts_of([once, again]) == [("Ana", "cat"), ("Ana", "cat")]


def test_a_fact_of_no_known_language_has_its_names():
    """Rules are English; what they do not know gives nothing and fails nothing."""
    assert concepts_of(["我昨天搬到了上海。", ""]) == [(), ()]


# ── Which stored facts a model is shown ───────────────────────────────────────────────


CLOSED = datetime(2024, 1, 1, tzinfo=UTC)


class Shelf:
    """A graph and an index in one, with facts in the order of their nearness."""

    def __init__(self, facts: Sequence[Semantic]) -> None:
        self.facts = {fact.id: fact for fact in facts}
        self.caught_up = False

    async def catch_up(self) -> int:
        self.caught_up = True
        return 1

    async def nearest(
        self, vectors: Any, *, type: str, threshold: float, limit: int = 12
    ) -> list[list[tuple[str, float]]]:
        assert self.caught_up
        assert (type, len(vectors)) == ("semantic", 1)
        return [[(id, 0.9) for id in list(self.facts)[:limit]]]

    async def nodes(self, ids: Sequence[str] | None = None, **_: Any) -> list[Node]:
        return [self.facts[id] for id in ids or ()]


async def shown(facts: Sequence[Semantic], embedder: Any, limit: int) -> list[str]:
    shelf: Any = Shelf(facts)
    nearby = StoredFacts(graph=shelf, index=shelf, embedder=embedder)
    return [fact.proposition for fact in await nearby("tea", limit)]


async def test_the_nearest_facts_are_shown_best_first(embedder):
    """No more than asked for."""
    facts = [Semantic(proposition=word, id=f"semantic-{word}") for word in "abcd"]
    assert await shown(facts, embedder, 3) == ["a", "b", "c"]


async def test_a_fact_that_no_longer_holds_is_not_shown(embedder):
    """It cannot be replaced again; the next one takes its place."""
    facts = [
        Semantic(proposition=word, id=f"semantic-{word}", valid_to=CLOSED if word == "a" else None)
        for word in "abc"
    ]
    assert await shown(facts, embedder, 2) == ["b", "c"]


async def test_an_empty_repository_shows_nothing(embedder):
    """And that is no error."""
    assert await shown([], embedder, 12) == []
