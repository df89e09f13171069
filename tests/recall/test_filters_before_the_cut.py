"""Filters decide who takes part, before anything is scored or cut."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemo.config import Config
from mnemo.index.corpus_writer import Corpus
from mnemo.index.documents import node_document
from mnemo.recall.hop_zero import HopZero, hop_zero
from mnemo.recall.question import ask
from mnemo.runtime.clock import Breather
from mnemo.values.corpus import CorpusView, Side
from mnemo.values.filters import Filters, Window
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
bounds = st.tuples(
    st.one_of(st.none(), st.integers(0, 250)), st.one_of(st.none(), st.integers(150, 400))
)


def moment(hour: int) -> datetime:
    """The time *hour* hours after the beginning."""
    return BEGIN + timedelta(hours=hour)


def vector_of(number: int) -> np.ndarray:
    """A unit vector that belongs to the turn of that number, whatever else is stored."""
    row = np.random.default_rng(number).standard_normal(WIDTH)
    return (row / np.linalg.norm(row)).astype(np.float32)


def repository(said: list[Said], window: Window | None) -> CorpusView:
    """What of *said* lies inside *window*, and nothing else; without one, everything."""
    corpus, breather = Corpus(dimensions=WIDTH), Breather()
    for number, one in enumerate(said):
        at = moment(one.hour)
        text = f"{one.actor}: {' '.join(one.words)}"
        inside = window is None or window.holds(at)
        if inside:
            corpus.add_side(side(number, one, text), breather)
            corpus.add_vectors({f"{number}": vector_of(number)})
        if one.told and inside and (window is None or holds_at_the_end(one, window)):
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


def holds_at_the_end(one: Said, window: Window) -> bool:
    """Whether a fact is neither superseded now nor at the end that is asked for."""
    if window.until is None:
        return one.ended is None
    return one.ended is None or moment(one.ended) > window.until


def found(view: CorpusView, window: Window, query: str, types: tuple[NodeType, ...]) -> HopZero:
    """What *query* finds at hop 0."""
    vectors = vector_of(7_777)[np.newaxis]
    return hop_zero(
        view,
        ask(query).embedded(vectors),
        searched=types,
        routes=(),
        filters=Filters(window=window),
        unwanted=frozenset(),
        config=Config(),
        dense_weight=0.6,
    )


@settings(max_examples=60)
@given(said=turns, bounds=bounds, query=st.sampled_from([QUERY, DATED]))
def test_a_filtered_recall_is_that_of_a_filtered_repository(
    said: list[Said], bounds: tuple[int | None, int | None], query: str
) -> None:
    """Same candidates of the same relevance at hop 0, whatever lies outside the window."""
    since, until = (moment(hour) if hour is not None else None for hour in bounds)
    if since and until and since > until:
        since, until = until, since
    window = Window(since, until)
    everything = repository(said, None)
    only = repository(said, window)
    for types in (("semantic", "episodic"), ("episodic",), ("semantic",)):
        one = found(everything, window, query, types)
        other = found(only, window, query, types)
        seen = {(f.type, f.id): f.relevance for f in one.found}
        expected = {(f.type, f.id): f.relevance for f in other.found}
        assert seen.keys() == expected.keys()
        assert np.allclose([seen[k] for k in expected], list(expected.values()), atol=1e-3)
        assert {f.type for f in one.found} <= set(types)
