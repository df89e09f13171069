"""The signals of hop 0, against the plain formulas."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from world import a_step

from mnemo.config import Config
from mnemo.english.forms import form_of
from mnemo.english.words import index_terms
from mnemo.index.corpus import CorpusView, Side
from mnemo.index.corpus_writer import Corpus
from mnemo.index.documents import node_document, step_sides
from mnemo.index.pieces import CHAT, DOCUMENT, NOTE
from mnemo.recall.request import RecallRequest, RecallRun
from mnemo.recall.score import EXPECTED, WEIGHTS, ask
from mnemo.recall.search import HopZero, hop_zero
from mnemo.runtime.clock import Breather
from mnemo.values.filters import Filters
from mnemo.values.graph import Semantic
from mnemo.values.vectors import passage_key

WIDTH = 8
Turn = tuple[str, str, str]
"""Thread, speaker, text."""

CHATS: list[Turn] = [
    ("t1", "ana", "the bees swarm in the orchard"),
    ("t2", "bo", "the boat needs paint"),
    ("t1", "bo", "call the keeper then?"),
    ("t1", "ana", "the keeper of bees came"),
    ("t2", "ana", "paint the boat blue, not red"),
    ("t2", "bo", "a red boat is a fast boat"),
]
QUERY = "bees of the red boat"
PAD = " ".join(f"pad{n}" for n in range(90))
"""Words that nobody asks for, enough for a long turn and for a document."""


def vector_of(number: int) -> NDArray[np.float32]:
    """A unit vector that belongs to a number."""
    row = np.random.default_rng(number).normal(size=WIDTH).astype(np.float32)
    return np.asarray(row / np.linalg.norm(row), np.float32)


ASKED = vector_of(7_777)


def corpus_of(turns: Sequence[Turn], *, with_vectors: bool = True, gap: float = 60.0) -> Corpus:
    """The turns, *gap* seconds apart."""
    corpus, breather = Corpus(dimensions=WIDTH), Breather()
    for number, (thread, actor, text) in enumerate(turns):
        at = gap * number
        side = Side(
            key=str(number),
            id=str(number),
            text=text,
            meaning=text,
            first=at,
            last=at,
            chain=thread,
            actor=actor,
            acted=False,
            asks=text.endswith("?"),
            form=form_of(text),
        )
        corpus.add_side(side, breather)
        if with_vectors:
            corpus.add_vectors({str(number): vector_of(number)})
    return corpus


def view_of(turns: Sequence[Turn], **how: Any) -> CorpusView:
    """What the corpus of *turns* shows."""
    return corpus_of(turns, **how).view(1, Breather())


def asked(view: CorpusView, query: str, **others: Any) -> HopZero:
    """What *query* finds among all documents."""
    config = Config(recall={"agent_actors": {"robot"}})
    given = {"types": ("episodic", "semantic"), "k": 100} | others
    run = RecallRun(RecallRequest(query=query, **given), datetime(2026, 1, 1, tzinfo=UTC), 1.0)
    return hop_zero(view, ask(query).embedded(ASKED[np.newaxis]), run, config)


def part(view: CorpusView, query: str, signal: str, **others: Any) -> list[float]:
    """What *signal* adds to the score of each turn."""
    values = asked(view, query, **others).hits["episodic"].parts[signal]
    return [float(value) for value in values]


# ── Words ────────────────────────────────────────────────────────────────────────────


def terms_of(text: str) -> list[str]:
    return list(index_terms(text))


def shares(documents: Sequence[Sequence[str]], query: str, idf_over: Sequence[Sequence[str]]):
    """BM25 as a share of the idf of all of the query's terms, written out."""
    counts = [Counter(document) for document in documents]
    mean = sum(map(len, documents)) / len(documents)
    asked_for = set(terms_of(query))
    rarity = {}
    for term in asked_for:
        holding = sum(term in document for document in idf_over)
        rarity[term] = math.log(1 + (len(idf_over) - holding + 0.5) / (holding + 0.5))
    whole = sum(rarity.values())
    found = []
    for count, document in zip(counts, documents, strict=True):
        norm = 1.2 * (1 - 0.75 + 0.75 * len(document) / mean)
        score = sum(rarity[t] * count[t] * 2.2 / (count[t] + norm) for t in asked_for)
        found.append(min(score / whole, 1.0))
    return np.asarray(found)


OWN = [terms_of(text) for _, _, text in CHATS]


def previous(number: int) -> int | None:
    before = [n for n in range(number) if CHATS[n][0] == CHATS[number][0]]
    return before[-1] if before else None


def test_words_are_a_share_of_what_all_of_the_question_could_have():
    """BM25 of the turn itself, as a share."""
    expected = WEIGHTS["words"][CHAT] * shares(OWN, QUERY, OWN)
    assert part(view_of(CHATS), QUERY, "words") == pytest.approx(expected.tolist(), abs=1e-5)


def test_joined_words_are_those_of_the_turn_and_the_one_before():
    """As one document, weighed by the idf of single turns."""
    joined = []
    for number, own in enumerate(OWN):
        before = previous(number)
        joined.append([*([] if before is None else OWN[before]), *own])
    expected = WEIGHTS["joined"][CHAT] * shares(joined, QUERY, OWN)
    assert part(view_of(CHATS), QUERY, "joined") == pytest.approx(expected.tolist(), abs=1e-5)


def test_session_words_are_those_of_the_whole_piece():
    """All turns of the piece as one document, weighed by the idf of single turns."""
    names = ["t1", "t2"]
    pieces: list[list[str]] = [[], []]
    for own, (thread, _, _) in zip(OWN, CHATS, strict=True):
        pieces[names.index(thread)] += own
    by_piece = WEIGHTS["session"][CHAT] * shares(pieces, QUERY, OWN)
    expected = [by_piece[names.index(thread)] for thread, _, _ in CHATS]
    assert part(view_of(CHATS), QUERY, "session") == pytest.approx(expected, abs=1e-5)


def test_one_idf_counts_turns_and_facts_whatever_is_filtered():
    """A word that many facts have says less of a turn; a filter on who speaks changes nothing."""
    corpus = corpus_of(CHATS)
    for number in range(9):
        fact = Semantic(f"the bees of hive {number}", id=f"f{number}")
        corpus.put(replace(node_document(fact, {}), vector=vector_of(number)), Breather())
    view = corpus.view(1, Breather())
    facts = [terms_of(f"the bees of hive {number}") for number in range(9)]
    expected = WEIGHTS["words"][CHAT] * shares(OWN, QUERY, [*OWN, *facts])
    for only in (Filters.checked(), Filters.checked(actor="bo")):
        told = part(view, QUERY, "words", filters=only)
        assert told == pytest.approx(expected.tolist(), abs=1e-5)


# ── Vectors ──────────────────────────────────────────────────────────────────────────


def test_a_text_without_a_vector_yet_stands_before_near_texts_of_other_words():
    """What is being embedded, maybe by another process, is found by its words meanwhile."""
    notes = [("t1", "ana", f"the keel number {n} needs paint") for n in range(20)]
    corpus = corpus_of([*notes, ("t1", "ana", QUERY)], with_vectors=False, gap=1e6)
    for n in range(20):
        aside = vector_of(n) - (vector_of(n) @ ASKED) * ASKED
        row = (0.35 if n % 2 else -0.35) * ASKED + aside / np.linalg.norm(aside)
        corpus.add_vectors({str(n): row / np.linalg.norm(row)})
    found = asked(corpus.view(1, Breather()), QUERY).found
    assert found[0].id == "20"


def centred(vector: NDArray[np.float32], centre: NDArray[np.float32]) -> NDArray[np.float32]:
    shifted = vector - centre
    return np.asarray(shifted / np.linalg.norm(shifted))


def test_a_cosine_is_taken_less_the_centre():
    """Of what was said and of the question alike."""
    centre = np.sum([vector_of(n) for n in range(6)], axis=0) / (6 + 200)
    about = centred(ASKED, centre)
    expected = [
        WEIGHTS["cosine"][CHAT] * float(centred(vector_of(n), centre) @ about) for n in range(6)
    ]
    assert part(view_of(CHATS), QUERY, "cosine") == pytest.approx(expected, abs=1e-5)


def test_the_window_has_half_of_each_neighbour():
    """The cosine of the turn and half of those before and after it, in its piece."""
    centre = np.sum([vector_of(n) for n in range(6)], axis=0) / (6 + 200)
    own = [centred(vector_of(n), centre) for n in range(6)]
    sums = [vector.copy() for vector in own]
    for number in range(6):
        before = previous(number)
        if before is not None:
            sums[number] += own[before] / 2
            sums[before] += own[number] / 2
    about = centred(ASKED, centre)
    expected = [WEIGHTS["window"][CHAT] * float(s @ about) / np.linalg.norm(s) for s in sums]
    assert part(view_of(CHATS), QUERY, "window") == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("known", [(), (1, 2, 4)])
def test_a_text_without_a_vector_is_as_near_as_its_words_let_expect(known):
    """
    With all words of the question as near as the nearest that has a vector, or as ``EXPECTED``; its
    window of neighbours is not known either.
    """
    corpus = corpus_of(CHATS, with_vectors=False)
    corpus.add_vectors({str(number): vector_of(number) for number in known})
    view = corpus.view(1, Breather())
    words = np.array(part(view, QUERY, "words")) / WEIGHTS["words"][CHAT]
    left = [number for number in range(len(CHATS)) if number not in known]
    assert words[left].max() > 0
    cosines = np.array(part(view, QUERY, "cosine")) / WEIGHTS["cosine"][CHAT]
    nearest = max([EXPECTED, *cosines[list(known)]])
    assert (nearest > EXPECTED) == bool(known)
    for signal in ("cosine", "window"):
        expected = WEIGHTS[signal][CHAT] * nearest * words[left]
        assert np.array(part(view, QUERY, signal))[left] == pytest.approx(expected, abs=1e-5)


def test_what_is_expected_of_a_fact_raises_no_step():
    """The step's own cosine says more than the words of a fact that has no vector yet."""
    corpus = corpus_of([("t", "ana", "the red boat"), *CHATS], with_vectors=False)
    corpus.add_vectors({"0": -ASKED})
    corpus.put(node_document(Semantic("the red boat", id="f"), {"steps": ["0"]}), Breather())
    zero = asked(corpus.view(1, Breather()), QUERY)
    fact, step = zero.hits["semantic"], zero.hits["episodic"]
    assert fact.near[0] == pytest.approx(EXPECTED * float(fact.words[0]))
    assert step.near[0] < 0 < fact.near[0]
    assert "restated" not in step.parts_of("0")


@pytest.mark.parametrize(("speakers", "best"), [("ab", False), ("a", False), ("", True)])
def test_of_a_document_the_first_passage_counts(speakers, best):
    """Of a long turn in a chat the best passage does."""
    text = f"{PAD} red"
    turns = [("t", speakers[n % len(speakers)], text) for n in range(2)] if speakers else []
    turns = turns or [("t", "ab"[n % 2], text if n == 0 else "red") for n in range(3)]
    corpus, breather = Corpus(dimensions=WIDTH, passage_tokens=40), Breather()
    for number, (thread, actor, said) in enumerate(turns):
        side = Side(
            key=str(number), id=str(number), text=said, meaning=said, first=0.0, last=0.0,
            chain=thread, actor=actor, acted=False, asks=False,
        )  # fmt: skip
        keys = corpus.add_side(side, breather)
        vectors = dict.fromkeys(keys, -ASKED)
        corpus.add_vectors(vectors | {passage_key("0", 1): ASKED} if number == 0 else vectors)
    view = corpus.view(1, breather)
    assert (view.steps.pieces.kind[0] == CHAT) == best
    assert (part(view, "red", "cosine")[0] > 0) == best


# ── Kinds ────────────────────────────────────────────────────────────────────────────


def test_a_long_turn_of_a_chat_stands_for_itself():
    """Its joined and session words and its window are its own words and cosine."""
    turns = [("t", "ana", "red boat"), ("t", "bo", f"red {PAD[:400]}"), ("t", "ana", "red")]
    view = view_of(turns)
    assert view.steps.pieces.kind.tolist() == [CHAT] * 3
    assert view.steps.pieces.long.tolist() == [False, True, False]
    own = part(view, "red boat", "words")[1] / WEIGHTS["words"][CHAT]
    for signal in ("joined", "session"):
        assert part(view, "red boat", signal)[1] == pytest.approx(WEIGHTS[signal][CHAT] * own)
    cosine = part(view, "red boat", "cosine")[1] / WEIGHTS["cosine"][CHAT]
    assert part(view, "red boat", "window")[1] == pytest.approx(WEIGHTS["window"][CHAT] * cosine)


def test_a_fact_without_a_step_is_a_note():
    """Its score is that of a note of the same words and vector."""
    corpus = corpus_of([("t", "ana", "the red boat")])
    fact = node_document(Semantic("the red boat", id="f"), {})
    corpus.put(replace(fact, vector=vector_of(0)), Breather())
    zero = asked(corpus.view(1, Breather()), QUERY)
    node, step = zero.hits["semantic"], zero.hits["episodic"]
    assert node.are_notes("f")
    assert step.are_notes("0")
    assert node.parts_of("f") == pytest.approx(step.parts_of("0"), abs=1e-5)


@pytest.mark.parametrize(("turns", "kind"), [(1, NOTE), (2, CHAT)])
def test_a_fact_raises_its_step_by_a_share_of_what_it_says_better(turns, kind):
    """The step says "it is mine", the fact what it is; of notes a smaller share counts."""
    told = [("t", who, "it is mine") for who in ("ana", "bo")[:turns]]
    corpus = corpus_of(told, with_vectors=False)
    fact = node_document(Semantic("the red boat", id="f"), {"steps": ["0"]})
    corpus.put(fact, Breather())
    view = corpus.view(1, Breather())
    zero = asked(view, QUERY)
    expected = WEIGHTS["restated"][kind] * WEIGHTS["words"][kind] * zero.hits["semantic"].words[0]
    assert zero.hits["episodic"].parts_of("0")["restated"] == pytest.approx(float(expected))
    assert expected > 0


@pytest.mark.parametrize("behind", [("0", "1"), ("1", "0")])
def test_a_fact_of_a_note_and_a_turn_is_a_note_in_any_order(behind):
    """Its steps may be read in another order than they were stored in."""
    corpus = corpus_of([("n", "ana", "a boat"), ("t", "ana", "red boat"), ("t", "bo", "a boat")])
    fact = node_document(Semantic("the red boat", id="f"), {"steps": behind})
    corpus.put(fact, Breather())
    zero = asked(corpus.view(1, Breather()), QUERY)
    assert zero.hits["episodic"].is_note.tolist() == [True, False, False]
    assert zero.hits["semantic"].are_notes("f")


MOVED: dict[str, tuple[list[Turn], str]] = {
    "cosine": ([("t", "ana", "one"), ("t", "ana", "two")], "boat"),
    "window": ([("t", "ana", "one"), ("t", "bo", "two"), ("t", "ana", "three")], "boat"),
    "words": ([("t", "ana", "the boat"), ("t", "ana", "the hive")], "boat"),
    "joined": ([("t", "ana", "the boat"), ("t", "bo", "yes"), ("t", "ana", "no")], "boat"),
    "session": ([(t, who, "a boat" if t == "t" else "no") for t in "tu" for who in "ab"], "boat"),
    "speaker": ([("t", "ana", "a boat"), ("t", "bo", "a boat")], "Which boat has Ana?"),
    "not the agent": ([("t", "ana", f"boat {PAD}"), ("t", "robot", f"boat {PAD}")], "boat"),
    "where: place": (
        [("t", "ana", "a boat at Faro"), ("t", "bo", "a boat far off")],
        "Where is it?",
    ),
    "how long: number": ([("t", "ana", "two hours"), ("t", "bo", "some rope")], "How long was it?"),
    "asks": ([("t", "ana", "a boat?"), ("t", "bo", "a boat")], "boat"),
    "length": ([("t", "ana", "a boat of wood and rope"), ("t", "bo", "boat")], "boat"),
    "first person": ([("t", "ana", "my boat"), ("t", "bo", "a boat")], "boat"),
    "date": ([("t", "ana", "a boat today"), ("t", "bo", "a boat here")], "boat"),
}
"""Signal → turns of which it moves some, and the question."""


@pytest.mark.parametrize("signal", [name for name in WEIGHTS if name != "restated"])
def test_each_signal_moves_the_turn_that_it_is_for(signal, monkeypatch):
    """Without it the scores differ by what it adds, and it adds more to one than to another."""
    turns, query = MOVED[signal]
    view = view_of(turns)
    adds = np.asarray(part(view, query, signal))
    assert len(set(adds.tolist())) > 1
    kinds = view.steps.pieces.kind
    assert not adds[[WEIGHTS[signal].get(int(kind), 0) == 0 for kind in kinds]].any()
    before = asked(view, query).hits["episodic"].scores
    monkeypatch.setitem(WEIGHTS, signal, dict.fromkeys((NOTE, CHAT, DOCUMENT), 0.0))
    after = asked(view, query).hits["episodic"].scores
    assert before - after == pytest.approx(adds, abs=1e-5)


def test_the_form_counts_only_where_it_is_asked_for():
    """A place for *where*, a number or a time for *how long*."""
    for signal, other in (("where: place", "Who is it?"), ("how long: number", "Where is it?")):
        turns, _ = MOVED[signal]
        assert part(view_of(turns), other, signal) == [0.0] * len(turns)


@pytest.mark.parametrize(
    ("query", "meant"),
    [("What did you say of my boat?", "robot"), ("How red is my boat?", "ana"), ("Red boat?", "")],
)
def test_i_and_you_name_a_side(query, meant):
    """I and my mean those who are not the agent; what did you … means the agent."""
    turns = [("t", "ana", "a boat"), ("t", "robot", "a red boat"), ("t", "ana", "yes")]
    added = part(view_of(turns), query, "speaker")
    expected = [WEIGHTS["speaker"][CHAT] * (actor == meant) for _, actor, _ in turns]
    assert added == pytest.approx(expected)


def test_i_names_nobody_where_there_is_no_agent():
    """Among people there are no two sides."""
    assert part(view_of(CHATS), "Is my boat red?", "speaker") == [0.0] * len(CHATS)


def test_the_agents_documents_are_no_worse_where_its_words_are_asked_for():
    """What did you suggest, of long messages."""
    turns, _ = MOVED["not the agent"]
    added = part(view_of(turns), "What boat did you suggest?", "not the agent")
    assert added == [0.0, 0.0]


# ── What vectors are made of ─────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("actor", "named"),
    [("Ana", True), ("user", False), ("User", False), ("Human", False), ("assistant", False)],
)
def test_the_vector_of_an_unnamed_speaker_is_of_the_bare_text(actor, named):
    """Of one with a name it begins with day and name, as what words are sought in does."""
    at = datetime(2024, 5, 14, 13, 56, tzinfo=UTC)
    step = a_step(0, "Bees swarm.", "Call the keeper.", at=at, actor=actor)
    observed, acted = step_sides(step, agent_name="Agent")
    assert observed.meaning == (observed.text if named else "Bees swarm.")
    assert observed.text == f"[Tuesday 14 May 2024 13:56] {actor}: Bees swarm."
    assert acted.meaning == "Call the keeper."
