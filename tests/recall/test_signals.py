"""The signals of hop 0, against the plain formulas."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from mnemo._clock import Breather
from mnemo._text import terms, words
from mnemo.graph.corpus import Corpus, Side, StepsView
from mnemo.recall.question import ask
from mnemo.recall.signals import FEW, StepWeights, step_hits

SAID = [
    ("s1", "ana", "the bees swarm in the orchard"),
    ("s2", "bo", "the boat needs paint"),
    ("s1", "bo", "call the keeper then?"),
    ("s1", "ana", "the keeper of bees came"),
    ("s2", "ana", "paint the boat blue, not red"),
    ("s2", "bo", "a red boat is a fast boat"),
] * 4
QUERY = "bees of the red boat"
NONE = dict.fromkeys(StepWeights.__dataclass_fields__, 0.0)


@pytest.fixture
def steps() -> StepsView:
    """Twenty-four sides in two sessions, all with random vectors."""
    corpus, breather = Corpus(dimensions=8), Breather()
    for number, (session, actor, text) in enumerate(SAID):
        corpus.add_side(_side(number, session, actor, text), breather)
    vectors = np.random.default_rng(0).normal(size=(len(SAID), 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    corpus.add_vectors({str(n): v for n, v in enumerate(vectors)})
    return corpus.view(1, breather).steps


def _side(number: int, session: str, actor: str, text: str) -> Side:
    return Side(
        key=str(number),
        id=str(number),
        text=text,
        meaning=text,
        session_id=session,
        actor=actor,
        acted=False,
        asks=text.endswith("?"),
    )


def bm25(documents: Sequence[Sequence[str]], query: Sequence[str]) -> NDArray[np.float64]:
    """Okapi BM25, k1 1.2, b 0.75, written out."""
    counts = [Counter(document) for document in documents]
    mean = sum(map(len, documents)) / len(documents)
    scores = np.zeros(len(documents))
    for term in set(query):
        holding = sum(term in count for count in counts)
        rarity = math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
        for number, count in enumerate(counts):
            length = 1.2 * (1 - 0.75 + 0.75 * len(documents[number]) / mean)
            scores[number] += rarity * count[term] * 2.2 / (count[term] + length)
    return scores


def standard(values: NDArray[np.floating]) -> NDArray[np.floating]:
    spread: NDArray[np.floating] = (values - values.mean()) / values.std()
    return spread


def previous_of(number: int) -> int | None:
    before = [n for n in range(number) if SAID[n][0] == SAID[number][0]]
    return before[-1] if before else None


def scores_of(steps: StepsView, question: object = None, **weights: float) -> NDArray[np.float32]:
    chosen = StepWeights(**{**NONE, **weights})
    asked = question or ask(QUERY)
    hits = step_hits(steps, asked, steps.alive, chosen, frozenset({"bo"}), 1.0)  # type: ignore[arg-type]
    assert not hits.absolute
    return hits.scores


DOCUMENTS = [list(terms(text)) for _, _, text in SAID]
QUERIED = list(terms(QUERY))


def test_the_own_signal_is_bm25(steps: StepsView) -> None:
    """b: BM25 of each document, brought to mean 0 and deviation 1."""
    expected = standard(bm25(DOCUMENTS, QUERIED))
    assert np.allclose(scores_of(steps, own=0.7), expected, atol=1e-4)


def test_the_joined_signal_is_bm25_of_two_documents(steps: StepsView) -> None:
    """w: each document together with the one before it in its session."""
    joined = []
    for number, document in enumerate(DOCUMENTS):
        before = previous_of(number)
        joined.append([*([] if before is None else DOCUMENTS[before]), *document])
    expected = standard(bm25(joined, QUERIED))
    assert np.allclose(scores_of(steps, joined=1.0), expected, atol=1e-4)


def test_the_session_signal_is_bm25_of_whole_sessions(steps: StepsView) -> None:
    """s: the session's text as one document, given to each of its steps."""
    sessions = [
        [term for n, (own, _, _) in enumerate(SAID) if own == name for term in DOCUMENTS[n]]
        for name in ("s1", "s2")
    ]
    per_session = bm25(sessions, QUERIED)
    spread = np.asarray([per_session[int(name == "s2")] for name, _, _ in SAID])
    assert np.allclose(scores_of(steps, session=1.0), standard(spread), atol=1e-4)


def test_the_joined_cosine_is_that_of_the_sum(steps: StepsView) -> None:
    """v: the vector of a document and the one before it, added up and brought to length 1."""
    query = np.eye(8, dtype=np.float32)[:1]
    question = ask(QUERY).embedded(query)
    order = np.argsort(steps.vector_documents)
    vectors = steps.vectors[order]
    expected = []
    for number, vector in enumerate(vectors):
        before = previous_of(number)
        together = vector + (0 if before is None else vectors[before])
        expected.append(float(together[0] / np.linalg.norm(together)))
    found = scores_of(steps, question, joined_cosine=1.0)
    assert np.allclose(found, standard(np.asarray(expected)), atol=1e-4)


def test_the_better_neighbour_lends_a_share(steps: StepsView) -> None:
    """nb: 0.2 of the better neighbour's sum is added, if it is positive."""
    own = scores_of(steps, own=1.0)
    expected = own.copy()
    for number in range(len(SAID)):
        following = [n for n in range(len(SAID)) if previous_of(n) == number]
        around = [n for n in (previous_of(number), *following) if n is not None]
        expected[number] += 0.2 * max(0.0, *(float(own[n]) for n in around))
    assert np.allclose(scores_of(steps, own=1.0, neighbour=0.2), expected, atol=1e-4)


def test_priors_are_added_where_they_apply(steps: StepsView) -> None:
    """A named actor, a question mark, the length, and not being the agent."""
    lengths = standard(np.log([len(words(text)) for _, _, text in SAID]))
    named = np.asarray([actor == "ana" for _, actor, _ in SAID])
    asks = np.asarray([text.endswith("?") for _, _, text in SAID])
    question = ask("What of Ana's red boat?")
    found = scores_of(steps, question, named=0.4, asks=-0.2, length=0.15, observation=1.0)
    expected = 0.4 * named - 0.2 * asks + 0.15 * lengths + 1.0 * named
    assert np.allclose(found, expected, atol=1e-4)


def test_few_documents_are_measured_absolutely(steps: StepsView) -> None:
    """Below twenty, relevance is the mean of the positive cosine and the share of an ideal BM25."""
    few = steps.alive & (np.arange(steps.count) < FEW - 1)
    weights = StepWeights.for_short(1.0)
    hits = step_hits(steps, ask("red boat"), few, weights, frozenset(), 1.0)
    assert hits.absolute
    assert np.all(np.isneginf(hits.scores[~few]))
    assert 0 < hits.relevance(range(FEW - 1), 3.0) <= 1
    assert hits.relevance([steps.count - 1], 3.0) == 0


def test_what_is_not_eligible_does_not_count(steps: StepsView) -> None:
    """Means, deviations and rarities are those of the eligible documents alone."""
    ok = steps.alive & (np.arange(steps.count) < 22)
    chosen = StepWeights(**{**NONE, "own": 1.0})
    found = step_hits(steps, ask(QUERY), ok, chosen, frozenset(), 1.0).scores
    expected = standard(bm25(DOCUMENTS[:22], QUERIED))
    assert np.allclose(found[:22], expected, atol=1e-4)
    assert np.all(np.isneginf(found[22:]))
