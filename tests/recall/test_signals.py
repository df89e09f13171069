"""The signals of hop 0, against the plain formulas."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from mnemo.index.corpus_writer import Corpus
from mnemo.index.documents import node_document
from mnemo.recall.question import ask
from mnemo.recall.signals import FEW, StepWeights, node_hits, restated_scores, step_hits
from mnemo.runtime.clock import Breather
from mnemo.runtime.text import terms, words
from mnemo.values.corpus import Side, StepsView
from mnemo.values.graph import Semantic

SAID = [
    ("s1", "ana", "the bees swarm in the orchard"),
    ("s2", "bo", "the boat needs paint"),
    ("s1", "bo", "call the keeper then?"),
    ("s1", "ana", "the keeper of bees came"),
    ("s2", "ana", "paint the boat blue, not red"),
    ("s2", "bo", "a red boat is a fast boat"),
] * 4
QUERY = "bees of the red boat"


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
        chain=session,
        actor=actor,
        acted=False,
        asks=text.endswith("?"),
    )


def bm25(
    documents: Sequence[Sequence[str]], query: Sequence[str], b: float = 0.75
) -> NDArray[np.float64]:
    """Okapi BM25, k1 1.2, written out."""
    counts = [Counter(document) for document in documents]
    mean = sum(map(len, documents)) / len(documents)
    scores = np.zeros(len(documents))
    for term in set(query):
        holding = sum(term in count for count in counts)
        rarity = math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
        for number, count in enumerate(counts):
            length = 1.2 * (1 - b + b * len(documents[number]) / mean)
            scores[number] += rarity * count[term] * 2.2 / (count[term] + length)
    return scores


def standard(values: NDArray[np.floating]) -> NDArray[np.floating]:
    spread: NDArray[np.floating] = (values - values.mean()) / values.std()
    return spread


def previous_of(number: int) -> int | None:
    before = [n for n in range(number) if SAID[n][0] == SAID[number][0]]
    return before[-1] if before else None


def scores_of(steps: StepsView, question: object = None, **weights: float) -> NDArray[np.float32]:
    chosen = StepWeights(**weights)
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


def test_length_counts_as_much_as_b_says(steps: StepsView) -> None:
    """b: with 0 a long document that holds the words is as good as a short one."""
    expected = standard(bm25(DOCUMENTS, QUERIED, b=0.0))
    assert np.allclose(scores_of(steps, own=1.0, b=0.0), expected, atol=1e-4)


def test_words_side_by_side_count_more(steps: StepsView) -> None:
    """pairs: neighbours of the query that are neighbours in a document are a term of their own."""
    query = "a red boat, or a boat blue"
    pairs = [("red", "boat"), ("boat", "boat"), ("boat", "blue")]
    held = [Counter(pairwise(document)) for document in DOCUMENTS]
    mean = sum(map(len, DOCUMENTS)) / len(DOCUMENTS)
    expected = bm25(DOCUMENTS, list(terms(query)))
    for pair in pairs:
        weight = sum(_rarity(term) for term in pair)
        for number, document in enumerate(DOCUMENTS):
            length = 1.2 * (1 - 0.75 + 0.75 * len(document) / mean)
            count = held[number][pair]
            expected[number] += 0.5 * weight * count * 2.2 / (count + length)
    found = scores_of(steps, ask(query), own=1.0, pairs=0.5)
    assert np.allclose(found, standard(expected), atol=1e-4)


def _rarity(term: str) -> float:
    holding = sum(term in document for document in DOCUMENTS)
    return math.log(1 + (len(DOCUMENTS) - holding + 0.5) / (holding + 0.5))


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


def test_the_next_but_one_lends_a_share(steps: StepsView) -> None:
    """second: of the better sum two steps before or after, if it is positive."""
    own = scores_of(steps, own=1.0)
    expected = own.copy()
    for number in range(len(SAID)):
        before, after = previous_of(number), next_of(number)
        far = [previous_of(before) if before is not None else None]
        far.append(next_of(after) if after is not None else None)
        expected[number] += 0.2 * max(0.0, *(float(own[n]) for n in far if n is not None), 0.0)
    assert np.allclose(scores_of(steps, own=1.0, second=0.2), expected, atol=1e-4)


def test_a_turn_after_a_question_inherits_what_was_asked(steps: StepsView) -> None:
    """reply: a share of the previous sum where that ends as a question."""
    question = ask("Who will call the keeper?")
    own = scores_of(steps, question, own=1.0)
    expected = own.copy()
    for number in range(len(SAID)):
        before = previous_of(number)
        if before is not None and SAID[before][2].endswith("?"):
            expected[number] += 0.3 * max(0.0, float(own[before]))
    found = scores_of(steps, question, own=1.0, reply=0.3)
    assert not np.allclose(expected, own)
    assert np.allclose(found, expected, atol=1e-4)


def test_what_the_agent_replied_to_inherits_from_the_reply(steps: StepsView) -> None:
    """replied: a share of the agent's next sum, for those who are not the agent."""
    own = scores_of(steps, own=1.0)
    expected = own.copy()
    for number, (_, actor, _) in enumerate(SAID):
        after = next_of(number)
        if after is not None and actor == "ana" and SAID[after][1] == "bo":
            expected[number] += 0.3 * max(0.0, float(own[after]))
    assert not np.allclose(expected, own)
    assert np.allclose(scores_of(steps, own=1.0, replied=0.3), expected, atol=1e-4)


def next_of(number: int) -> int | None:
    following = [n for n in range(len(SAID)) if previous_of(n) == number]
    return following[0] if following else None


def test_a_step_inherits_from_the_fact_that_restates_it(steps: StepsView) -> None:
    """restated: a share of the best positive score among the facts behind which it stands."""
    own = scores_of(steps, own=1.0)
    restated = np.zeros(steps.count, np.float32)
    restated[3] = 2.0
    weights = StepWeights(own=1.0, restated=0.2)
    hits = step_hits(steps, ask(QUERY), steps.alive, weights, frozenset(), 1.0, restated)
    assert np.allclose(hits.scores - own, 0.2 * restated, atol=1e-4)


@pytest.mark.parametrize(
    ("query", "meant"),
    [("What did you say of my red boat?", "bo"), ("How red is my boat?", "ana"), ("Red boat?", "")],
)
def test_i_and_you_name_a_side(steps: StepsView, query: str, meant: str) -> None:
    """I and my mean those who are not the agent; what did you … means the agent."""
    added = scores_of(steps, ask(query), own=1.0, named=0.4) - scores_of(steps, ask(query), own=1.0)
    assert np.allclose(added, [0.4 * (actor == meant) for _, actor, _ in SAID], atol=1e-4)


def test_the_role_prior_rests_where_the_agents_words_are_asked_for(steps: StepsView) -> None:
    """observation: not added to a question for what the agent said."""
    for query, added in (("What did you say of the boat?", 0.0), ("What of the boat?", 1.0)):
        plain = scores_of(steps, ask(query), own=1.0)
        found = scores_of(steps, ask(query), own=1.0, observation=1.0)
        assert np.allclose(found - plain, [added * (a == "ana") for _, a, _ in SAID], atol=1e-4)


def test_i_names_nobody_where_there_is_no_agent(steps: StepsView) -> None:
    """Among people there are no two sides."""
    question = ask("Is my boat red?")
    weights = StepWeights(own=1.0, named=0.4)
    hits = step_hits(steps, question, steps.alive, weights, frozenset(), 1.0)
    assert np.allclose(hits.scores, scores_of(steps, question, own=1.0), atol=1e-6)


def test_facts_hand_their_best_positive_score_to_steps() -> None:
    """Of two facts behind one step the better counts; one below the mean does not."""
    corpus, breather = Corpus(dimensions=8), Breather()
    for number in range(3):
        corpus.add_side(_side(number, "s1", "ana", f"word{number}"), breather)
    for number in range(24):
        told = "the red boat" if number == 0 else f"red {number}" if number == 1 else f"w{number}"
        steps_behind = (str(min(number // 2, 2)), "unknown")
        fact = Semantic(told, id=f"f{number}")
        corpus.put(replace(node_document(fact, {}), steps=steps_behind), breather)
    view = corpus.view(1, breather)
    facts = view.nodes["semantic"]
    hits = node_hits(facts, ask("red boat"), facts.alive, 1.0)
    scores = restated_scores(hits, view.restated, 3)
    assert scores is not None
    assert scores[0] == hits.scores.max() > 0
    assert scores[1:].tolist() == [0, 0]
    few = node_hits(facts, ask("red boat"), facts.alive & (np.arange(24) < FEW - 1), 1.0)
    assert restated_scores(few, view.restated, 3) is None


def test_a_fact_that_came_before_its_step_finds_it_later() -> None:
    """The pages of a feed may bring a fact first; both sides of its step are joined to it."""
    corpus, breather = Corpus(dimensions=8), Breather()
    corpus.put(replace(node_document(Semantic("told"), {}), steps=("9",)), breather)
    assert not len(corpus.view(1, breather).restated)
    for part in ("observation", "action"):
        side = replace(_side(9, "s1", "ana", part), key=f"9/{part}")
        corpus.add_side(side, breather)
    assert corpus.view(2, breather).restated.tolist() == [[0, 0], [0, 1]]


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
    chosen = StepWeights(own=1.0)
    found = step_hits(steps, ask(QUERY), ok, chosen, frozenset(), 1.0).scores
    expected = standard(bm25(DOCUMENTS[:22], QUERIED))
    assert np.allclose(found[:22], expected, atol=1e-4)
    assert np.all(np.isneginf(found[22:]))
