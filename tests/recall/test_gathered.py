"""A document that was gathered with a few others has the score that it has among all."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from mnemo.config import Config
from mnemo.index.corpus import CorpusView, Side, Whole, thread_chain
from mnemo.index.corpus_writer import Corpus
from mnemo.index.documents import node_document
from mnemo.index.gather import GatheredView, gathered, with_other_sides
from mnemo.index.pieces import CHAT, DOCUMENT, NOTE
from mnemo.index.shares import held, of_pieces, rarity_of, shares
from mnemo.recall.request import RecallRequest, RecallRun
from mnemo.recall.score import ask
from mnemo.recall.search import HopZero, hop_zero
from mnemo.runtime.clock import Breather
from mnemo.values.filters import Filters
from mnemo.values.graph import Edge, EdgeKind, Node, NodeType, Procedural, Semantic, Tag
from mnemo.values.vectors import passage_key

WIDTH = 12
VOCABULARY = [f"word{n}" for n in range(120)]
TURNS = 240
CLOSE = 1e-5
Chosen = dict[NodeType, np.ndarray]
Act = Callable[[Corpus], object]
"""What happens to a corpus: something is added, or removed."""


# ── A store of everything ────────────────────────────────────────────────────────────


class Story:
    """What is said in one store, as acts on a corpus; each belongs to the part it is put in."""

    def __init__(self, seed: int) -> None:
        self.chance = np.random.default_rng(seed)
        self.acts = list[tuple[int, Act]]()
        self.asked = self.vector()
        self.of_message = dict[str, int]()
        at = 0.0
        for number in range(TURNS):
            self.turn(number, part=2 * number // TURNS, at=(at := at + self.pause()))

    def pause(self) -> float:
        return float(self.chance.choice([60, 60, 60, 60, 30_000]))

    def words(self, count: int) -> str:
        weights = 1 / np.arange(1, len(VOCABULARY) + 1)
        return " ".join(self.chance.choice(VOCABULARY, count, p=weights / weights.sum()))

    def vector(self) -> np.ndarray:
        row = self.chance.standard_normal(WIDTH) + 0.3
        return (row / np.linalg.norm(row)).astype(np.float32)

    def one_in(self, many: int) -> bool:
        return not self.chance.integers(many)

    def turn(self, number: int, part: int, at: float) -> None:
        """Something is said, and maybe something is made of it, repeats it, or goes."""
        chain, actors, least = [
            ("a session", ["ana", "bo"], 4),
            (f"s{number % 3}", ["ana", "robot"], 4),
            (thread_chain("notes"), ["ana"], 8),
            (thread_chain("documents"), ["ana"], 100),
        ][self.chance.integers(4)]
        id, acts = f"m{number}", [False, True] if self.one_in(3) else [False]
        self.of_message[id] = part
        for acted in acts:
            text = self.words(int(self.chance.integers(least, 2 * least)))
            metadata = {"colour": str(self.chance.choice(["red", "blue"]))}
            side = Side(
                key=f"{id}/{acted}",
                id=id,
                text=text,
                meaning=text,
                first=at,
                last=at,
                chain=chain,
                actor="agent" if acted else str(self.chance.choice(actors)),
                acted=acted,
                asks=self.one_in(4),
                form=int(self.chance.integers(16)),
                born=number + 1,
                thread_id=chain[1:] if chain.startswith("\0") else None,
                metadata=None if self.one_in(3) else metadata,
            )
            self.act(part, lambda corpus, side=side: corpus.add_side(side, Breather()))
            if not self.one_in(8):
                passages = range(2 if self.one_in(3) else 1)
                rows = {passage_key(side.key, n): self.vector() for n in passages}
                self.act(part, lambda corpus, rows=rows: corpus.add_vectors(rows))
        if self.one_in(6):
            repeated = ("step" + id, id, f"s{number % 3}", number)
            self.act(part, lambda corpus: corpus.steps.add_repeat(*repeated))
        if self.one_in(3):
            self.made(number, part)
        if self.one_in(20):
            gone = f"m{self.chance.integers(number + 1)}"
            self.act(self.of_message[gone], lambda corpus: corpus.remove([gone]))

    def made(self, number: int, part: int) -> None:
        """A fact, an instruction or a tag, that rests on steps said before or on nothing."""
        of = self.chance.integers(max(0, number - 9), number + 1, 2)
        steps = () if self.one_in(4) else tuple(dict.fromkeys(f"m{n}" for n in of))
        kind, words = self.chance.integers(4), self.words(6)
        node = Semantic(words, id=f"n{number}")
        if kind == 0:
            node = Procedural(words, "do it", id=f"n{number}")
        elif kind == 1:
            node, steps = Tag(f"{words} {number}", id=f"n{number}"), ()
        made = replace(node_document(node, {"steps": steps}), vector=self.vector())
        self.act(part, lambda corpus: corpus.put(made, Breather()))

    def act(self, part: int, act: Act) -> None:
        self.acts.append((part, act))

    def view(self, *parts: int) -> CorpusView:
        """A view of a corpus of *parts*."""
        corpus = Corpus(dimensions=WIDTH, passage_tokens=8)
        for part, act in self.acts:
            if part in parts:
                act(corpus)
        return corpus.view(1, Breather())


def asked(view: CorpusView, story: Story, query: str, filters: Filters) -> HopZero:
    """What *query* finds at hop 0."""
    request = RecallRequest(
        query=query, filters=filters, types=("episodic", "semantic", "procedural", "tag"), k=20
    )
    run = RecallRun(request, datetime(2026, 1, 1, tzinfo=UTC), 0.7)
    config = Config(recall={"agent_actors": {"robot"}})
    return hop_zero(view, ask(query).embedded(story.asked[np.newaxis]), run, config)


# ── Some of it ───────────────────────────────────────────────────────────────────────


def some_of(view: CorpusView, story: Story) -> Chosen:
    """A third of all, with what belongs to it, and two neighbours on either side."""
    steps, pieces = view.steps, view.steps.pieces
    chosen = {kind: thinned(one.count, story) for kind, one in view.nodes.items()}
    said = thinned(steps.count, story)
    for kind, pairs in view.behind.items():
        chosen[kind] = np.union1d(chosen[kind], pairs[np.isin(pairs[:, 1], said), 0])
        said = np.union1d(said, pairs[np.isin(pairs[:, 0], chosen[kind]), 1])
    for _ in range(2):
        said = np.union1d(said, np.concatenate((pieces.previous[said], pieces.next[said])))
    said = with_other_sides(steps, said[said >= 0])
    return {"episodic": said} | {kind: numbers.astype(np.int32) for kind, numbers in chosen.items()}


def thinned(count: int, story: Story) -> np.ndarray:
    return np.flatnonzero(story.chance.random(count) < 1 / 3)


def complete(view: CorpusView, chosen: Chosen) -> Iterator[tuple[NodeType, np.ndarray]]:
    """The chosen documents of which everything that counts in their score is chosen."""
    pieces, said = view.steps.pieces, chosen["episodic"]
    around = [one[said] for one in (pieces.previous, pieces.next)]
    inside = np.all([np.isin(one, said) | (one < 0) for one in around], axis=0)
    good = said[inside]
    for kind, numbers in chosen.items():
        if kind in view.behind:
            node, step = view.behind[kind].T
            lacking = node[~np.isin(step, good) & view.steps.alive[step]]
            numbers = numbers[~np.isin(numbers, lacking)]
            good = good[~np.isin(good, step[~np.isin(node, chosen[kind])])]
        if kind != "episodic":
            yield kind, numbers
    yield "episodic", good


def whole_for(view: CorpusView, query: str, end: float, said: np.ndarray) -> Whole:
    """What the sides *said* are scored with, of what *view* holds."""
    terms = ask(query).terms
    whole = view.whole(terms, end)
    rarity = rarity_of(terms, whole.totals)
    own = held(view.steps, rarity, whole.pieces.exists)
    session = shares(of_pieces(own, whole.pieces), whole.totals.means["piece"])
    return Whole(
        whole.totals,
        whole.pieces.among(said),
        session[np.maximum(whole.pieces.piece, 0)][said],
    )


def placed(view: CorpusView, part: CorpusView, chosen: Chosen) -> Chosen:
    """The chosen documents of *view* that *part* holds, as it numbers them."""
    found: Chosen = {}
    for kind, numbers in chosen.items():
        one, other = view.of_type(kind), part.of_type(kind)
        assert one is not None
        assert other is not None
        place: dict[tuple[str, int], int] = {}
        for number, id in enumerate(other.ids):
            place[id, other.ids[:number].count(id)] = number
        keys = [(one.ids[n], one.ids[:n].count(one.ids[n])) for n in numbers.tolist()]
        found[kind] = np.array([place[key] for key in keys if key in place], np.int32)
    return found


def links(view: CorpusView, story: Story) -> dict[NodeType, list[tuple[str, str]]]:
    """Ids of all nodes and of the steps behind them that are of two parts."""
    found: dict[NodeType, list[tuple[str, str]]] = {}
    for kind, pairs in view.behind.items():
        ids = {(view.nodes[kind].ids[n], view.steps.ids[s]) for n, s in pairs.tolist()}
        part = {id: story.of_message["m" + id.strip("stepmn")] for pair in ids for id in pair}
        found[kind] = sorted(pair for pair in ids if part[pair[0]] != part[pair[1]])
    return found


def same(all_of_it: HopZero, part: HopZero, kind: NodeType, chosen: Chosen, good: np.ndarray):
    """Compare what the documents *good* have in both."""
    one, other = all_of_it.hits[kind], part.hits[kind]
    at = np.searchsorted(chosen[kind], good)
    fields: Mapping[str, tuple[Any, Any]] = {
        name: (getattr(one, name), getattr(other, name))
        for name in ("scores", "match", "cosines", "near", "words", "is_note")
    }
    fields = {**fields, **{name: (one.parts[name], other.parts[name]) for name in one.parts}}
    for name, (values, others) in fields.items():
        near = np.isclose(values[good], others[at], rtol=0, atol=CLOSE)
        wrong = [(int(good[n]), values[good][n], others[at][n]) for n in np.flatnonzero(~near)]
        assert not wrong, (kind, name, wrong[:5])


def story_filters(view: CorpusView) -> Sequence[Filters]:
    half = datetime.fromtimestamp(float(np.median(view.steps.first)), UTC)
    return (
        Filters.checked(),
        Filters.checked(until=half),
        Filters.checked(actor="bo"),
        Filters.checked(where={"colour": "red"}),
        Filters.checked(session_id="s1"),
        Filters.checked(thread_id="notes"),
    )


# ── Tests ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_what_is_gathered_scores_as_in_the_whole(seed: int, in_parts: bool) -> None:
    """From one view or from two, whatever the filters, each signal of it is the same."""
    story = Story(seed)
    view = story.view(0, 1)
    assert {*view.steps.pieces.kind[view.steps.alive]} == {NOTE, CHAT, DOCUMENT}
    parts = [story.view(0), story.view(1)] if in_parts else [view]
    for number, filters in enumerate(story_filters(view)):
        query = story.words(4) + ["", " where did you say", " how long have I"][number % 3]
        end = filters.until.timestamp() if filters.until else np.inf
        chosen = some_of(view, story)
        assert 0 < len(chosen["episodic"]) < view.steps.count
        whole = whole_for(view, query, end, chosen["episodic"])
        given = [(part, placed(view, part, chosen)) for part in parts]
        crossing = links(view, story) if in_parts else {}
        some = gathered(given, whole, like=view, links=crossing)
        assert list(some.steps.ids) == [view.steps.ids[n] for n in chosen["episodic"]]
        everything, found = (asked(one, story, query, filters) for one in (view, some))
        assert everything.evidence["size"] == found.evidence["size"]
        compared = 0
        for kind, good in complete(view, chosen):
            if kind in everything.hits:
                same(everything, found, kind, chosen, good)
                compared += len(good)
        assert compared > 20


def test_what_was_gathered_is_found_under_all_its_names() -> None:
    """A step that repeats a message, its session, its actor and its metadata are there."""
    story = Story(3)
    view = story.view(0, 1)
    every = np.arange(view.steps.count, dtype=np.int32)[1:]
    whole = whole_for(view, "word1", np.inf, every)
    some = gathered([(view, {"episodic": every})], whole, like=view)
    assert isinstance(some, GatheredView)
    assert view.steps.aliases
    for step, message in view.steps.aliases.items():
        if message in some.steps.documents:
            assert [some.steps.ids[n] for n in some.steps.of(step)] == [
                view.steps.ids[n] for n in view.steps.of(step)
            ]
            assert some.steps.repeats[message] == view.steps.repeats[message]
    for name in ("session", "thread"):
        chains = [{n: c for c, n in one.steps.chains.items()} | {-1: None} for one in (some, view)]
        assert [chains[0][n] for n in getattr(some.steps, name).tolist()] == [
            chains[1][n] for n in getattr(view.steps, name)[1:].tolist()
        ]
    assert [some.steps.actors[n] for n in some.steps.told_by.tolist()] == [
        view.steps.actors[n] for n in view.steps.told_by[1:].tolist()
    ]
    red = Filters.checked(where={"colour": "red"}).where
    held_by = [one.facets.holding(red)[one.metadata] for one in (some.steps, view.steps)]
    assert held_by[0].tolist() == held_by[1][1:].tolist()


async def test_nodes_that_are_not_in_memory_are_read_at_once(make_world: Any) -> None:
    """What was found, what led to it and what has ended is read from the store, in few reads."""
    world = await make_world(config=Config(scoring={"semantic": {"top_k": 1}}))
    said = [await world.say(f"Ana paints her boat {colour}.") for colour in ("red", "blue")]
    new = Semantic("Ana paints her boat blue.")
    old = Semantic("Ana paints her boat red.", valid_to=said[1].at, superseded_by=new.id)
    tag, beyond = Tag("boat"), Semantic("Mara sells varnish on Sundays.")
    others = [Semantic(f"The boat of Ana lies at pier {number}.") for number in (5, 6)]
    edges = [Edge(tag.id, fact.id, EdgeKind.MEMBERSHIP) for fact in (old, new, beyond)]
    edges += [
        Edge(fact.id, step.node_id, EdgeKind.PROVENANCE)
        for fact, step in ((old, said[0]), (new, said[1]))
    ]
    await world.commit(old, new, tag, beyond, *others, steps=said, edges=edges)
    await world.embedded()
    await world.clock.advance(3_600)
    query = "which colour is the boat of Ana?"
    expected = await world.recall.recall(query, k=2, max_hops=1)
    view, reads = await world.index.corpus(), list[int]()

    async def without_nodes(**_: object) -> CorpusView:
        bare = {kind: replace(one, nodes=[None] * one.count) for kind, one in view.nodes.items()}
        return replace(view, nodes=bare)

    nodes_of = world.graph.nodes

    async def counted(ids: Sequence[str], **how: Any) -> list[Node]:
        reads.append(len(ids))
        return await nodes_of(ids, **how)

    world.index.corpus, world.graph.nodes = without_nodes, counted
    found = await world.recall.recall(query, k=2, max_hops=1)
    assert found.candidates == expected.candidates
    assert any(candidate.valid_to for candidate in found.candidates)
    assert found.trace.found == expected.trace.found == {"initial": 4, "multi_hop 1": 1}
    assert 1 <= len(reads) <= 4


def test_nothing_chosen_is_an_empty_view() -> None:
    """Parts of which nothing was chosen leave nothing to find."""
    view = Story(1).view(0, 1)
    whole = whole_for(view, "word1", np.inf, np.zeros(0, np.int32))
    assert gathered([(view, {}), (view, {})], whole, like=view).is_empty
