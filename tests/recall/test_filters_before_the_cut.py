"""Filters decide who takes part, before anything is cut, and change no score."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemo.config import Config
from mnemo.index.corpus import CorpusView, Side
from mnemo.index.corpus_writer import Corpus
from mnemo.index.documents import node_document
from mnemo.recall.request import RecallRequest, RecallRun
from mnemo.recall.result import GROUPS
from mnemo.recall.score import ask, eligible_steps
from mnemo.recall.search import HopZero, hop_zero
from mnemo.runtime.clock import Breather
from mnemo.values.filters import Filters
from mnemo.values.graph import NodeType, Semantic

WIDTH = 16
BEGIN = datetime(2024, 3, 1, 9, tzinfo=UTC)
WORDS = [
    "bees",
    "boat",
    "red",
    "paint",
    "orchard",
    "keeper",
    "came",
    "fast",
    "blue",
    "swarm",
    "needs",
    "call",
    "harbour",
]
QUERY = "the red boat and the bees"
DATED = "the red boat in March 2024"


@dataclass(frozen=True)
class Said:
    """One turn: when in hours, by whom, in which session, and a fact drawn from it or not."""

    hour: int
    actor: str
    session: str
    words: tuple[str, ...]
    told: bool
    ended: int | None


turns = st.lists(
    st.builds(
        Said,
        hour=st.integers(0, 400),
        actor=st.sampled_from(["ana", "bo", "agent"]),
        session=st.sampled_from(["s1", "s2", "s3"]),
        words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(tuple),
        told=st.booleans(),
        ended=st.one_of(st.none(), st.integers(0, 400)),
    ),
    min_size=2,
    max_size=90,
).map(lambda said: sorted(said, key=lambda one: one.hour))
NO_FILTERS = Filters.checked()


def moment(hour: int) -> datetime:
    """The time *hour* hours after the beginning."""
    return BEGIN + timedelta(hours=hour)


def vector_of(number: int) -> np.ndarray:
    """A unit vector that belongs to the turn of that number, whatever else is stored."""
    row = np.random.default_rng(number).standard_normal(WIDTH)
    return (row / np.linalg.norm(row)).astype(np.float32)


def repository(said: list[Said]) -> CorpusView:
    """Everything that was said, and the facts that were drawn from it."""
    corpus, breather = Corpus(dimensions=WIDTH), Breather()
    for number, one in enumerate(said):
        at = moment(one.hour)
        text = f"{one.actor}: {' '.join(one.words)}"
        corpus.add_side(side(number, one, text), breather)
        corpus.add_vectors({f"{number}": vector_of(number)})
        if one.told:
            ended = moment(one.ended) if one.ended is not None else None
            fact = Semantic(text, id=f"f{number}", valid_from=at, valid_to=ended)
            details = {"latest_at": at, "steps": (str(number),)}
            document = replace(node_document(fact, details), vector=vector_of(number + 1_000))
            corpus.put(document, breather)
    return corpus.view(1, breather)


def side(number: int, one: Said, text: str) -> Side:
    """The observation of a turn."""
    at = moment(one.hour).timestamp()
    return Side(
        key=str(number),
        id=str(number),
        text=text,
        meaning=text,
        first=at,
        last=at,
        chain=one.session,
        actor=one.actor,
        acted=False,
        asks=False,
    )


def found(view: CorpusView, filters: Filters, query: str, types: tuple[NodeType, ...]) -> HopZero:
    """What *query* finds at hop 0."""
    vectors = vector_of(7_777)[np.newaxis]
    request = RecallRequest(query=query, filters=filters, types=types, k=500)
    run = RecallRun(request, datetime(2026, 1, 1, tzinfo=UTC), 0.6)
    return hop_zero(view, ask(query).embedded(vectors), run, Config())


filters = st.one_of(
    st.integers(0, 400).map(lambda hour: Filters.checked(since=moment(hour))),
    st.sampled_from(["ana", "bo", "agent"]).map(lambda actor: Filters.checked(actor=actor)),
    st.sampled_from(["s1", "s2", "s3"]).map(lambda id: Filters.checked(session_id=id)),
)


@settings(max_examples=60)
@given(said=turns, only=filters, query=st.sampled_from([QUERY, DATED]))
def test_a_filter_chooses_and_changes_no_score(said, only, query):
    """What passes has the relevance that it has among everything."""
    view = repository(said)
    for types in (("episodic",), ("semantic",)):
        every = found(view, NO_FILTERS, query, types).found
        chosen = found(view, only, query, types).found
        passing = {f.id for f in chosen}
        if types == ("episodic",):
            steps = eligible_steps(view.steps, only)
            assert passing == {view.steps.ids[d] for d in np.flatnonzero(steps)}
        whole = {f.id: f.relevance for f in every}
        for one in chosen:
            assert one.relevance == pytest.approx(whole[one.id], abs=1e-5)


@settings(max_examples=60)
@given(said=turns, hour=st.integers(0, 400))
def test_a_question_of_a_time_does_not_know_what_came_later(said, hour):
    """With ``until`` steps have the scores that they had when nothing else was said yet."""
    until = Filters.checked(until=moment(hour))
    one = found(repository([replace(s, told=False) for s in said]), until, QUERY, ("episodic",))
    before = [replace(s, told=False) for s in said if s.hour <= hour]
    other = found(repository(before), NO_FILTERS, QUERY, ("episodic",))
    seen = {f.id: parts_but_centred(one, f.id) for f in one.found}
    expected = {f.id: parts_but_centred(other, f.id) for f in other.found}
    assert seen.keys() == expected.keys()
    for id, parts in expected.items():
        assert seen[id] == pytest.approx(parts, abs=1e-6)


def parts_but_centred(zero: HopZero, id: str) -> dict[str, float]:
    """What adds up to the score of *id*, but for cosines: the centre is that of today."""
    parts = zero.hits["episodic"].parts_of(id)
    return {name: value for name, value in parts.items() if name not in GROUPS["meaning"]}
