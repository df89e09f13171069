"""A document that was gathered with a few others has the score that it has among all."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

import numpy as np
import pytest

from mnemo.config import Config
from mnemo.index import at_rest
from mnemo.index.corpus import CorpusView, Side, thread_chain
from mnemo.index.documents import node_document
from mnemo.index.held import Held
from mnemo.index.large import LargeView, Segment, without_replaced
from mnemo.index.pieces import CHAT, DOCUMENT, NOTE
from mnemo.index.segment_rows import Kept
from mnemo.index.segments import CHAINS, Chain, digest_of, unpacked
from mnemo.recall import gather, grouped
from mnemo.recall.gather import GatheredView, gathered
from mnemo.recall.request import RecallRequest, RecallRun
from mnemo.recall.score import RecallQuestion, ask, eligible_steps
from mnemo.recall.search import HopZero, hop_zero
from mnemo.runtime.clock import Breather
from mnemo.values.feed import FeedCursor
from mnemo.values.filters import Filters
from mnemo.values.graph import Edge, EdgeKind, Node, NodeType, Procedural, Semantic, Tag
from mnemo.values.vectors import passage_key

WIDTH = 12
VOCABULARY = [f"word{n}" for n in range(120)]
PARTS, TURNS = 3, 360
CLOSE = 1e-5
Chosen = dict[NodeType, np.ndarray]
Act = Callable[[Held], object]
"""What happens to what is held: something is added, written anew, or removed."""


# ── A store of everything ────────────────────────────────────────────────────────────


class Story:
    """What is said in one store, as acts on a corpus; each belongs to the part it is put in."""

    def __init__(self, seed: int) -> None:
        self.chance = np.random.default_rng(seed)
        self.acts = list[tuple[int, Act]]()
        self.asked = self.vector()
        self.of_message = dict[str, int]()
        self.repeated = set[str]()
        self.facts = list[str]()
        at = 0.0
        for number in range(TURNS):
            part, before = (PARTS * n // TURNS for n in (number, number - 1))
            # Pieces of talk end where segments end.
            at += self.pause() if part == before else 30_000
            self.turn(number, part, at)
        self.acts.sort(key=itemgetter(0))

    def pause(self) -> float:
        return float(self.chance.choice([60, 60, 60, 60, 30_000]))

    def words(self, count: int) -> str:
        weights = 1 / np.arange(1, len(VOCABULARY) + 1)
        return " ".join(self.chance.choice(VOCABULARY, count, p=weights / weights.sum()))

    def vector(self) -> np.ndarray:
        """One that is the same in a byte for each number."""
        row = self.chance.standard_normal(WIDTH) + 0.3
        row /= np.linalg.norm(row)
        scale = np.abs(row).max() / 127
        return (np.rint(row / scale) * scale).astype(np.float32)

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
            self.act(part, lambda held, side=side: held.corpus.add_side(side, Breather()))
            if not self.one_in(8):
                passages = range(2 if self.one_in(3) else 1)
                rows = {passage_key(side.key, n): self.vector() for n in passages}
                self.act(part, lambda held, rows=rows: held.corpus.add_vectors(rows))
        if self.one_in(6):
            self.repeated.add(id)
            repeated = ("step" + id, id, f"s{number % 3}", number + 1)
            self.act(part, lambda held: held.corpus.steps.add_repeat(*repeated))
        if self.one_in(3):
            self.made(number, part)
        if self.one_in(20):
            gone = f"m{self.chance.integers(number + 1)}"
            if gone not in self.repeated:  # A step that took its place is read anew before.
                self.act(self.of_message[gone], lambda held: held.remove([gone]))

    def made(self, number: int, part: int) -> None:
        """A fact, an instruction or a tag, that rests on steps said before or on nothing."""
        of = self.chance.integers(max(0, number - 9), number + 1, 2)
        steps = () if self.one_in(4) else tuple(dict.fromkeys(f"m{n}" for n in of))
        kind, words = self.chance.integers(4), self.words(6)
        id = f"n{number}"
        node = Semantic(words, id=id)
        if kind == 0:
            node = Procedural(words, "do it", id=id)
        elif kind == 1:
            node, steps = Tag(f"{words} {number}", id=id), ()
        elif self.facts and self.one_in(6):
            # One that was there is written anew, maybe in a later part.
            id = self.facts.pop(int(self.chance.integers(len(self.facts))))
            node = replace(node, id=id)
        else:
            self.facts.append(id)
        bare = node_document(node, {"steps": steps}, born=number + 1)
        made = replace(bare, vector=self.vector())

        def put(held: Held) -> None:
            held.corpus.put(made, Breather())
            held.hide("nodes", [made.id])

        self.act(part, put)

    def act(self, part: int, act: Act) -> None:
        self.acts.append((part, act))

    def view(self, segments: int = 0) -> CorpusView:
        """A view of everything; of the first parts, so many are in large segments."""
        held = Held(WIDTH, 8)
        for part in range(PARTS):
            for _, act in (one for one in self.acts if one[0] == part):
                act(held)
            if part < segments:
                for chain in CHAINS:
                    seal(held, chain)
        return held.corpus.view(1, Breather(), held.large)


def seal(held: Held, chain: Chain) -> None:
    """Put what is in memory in a large segment; nothing waits for a vector."""
    for key in [key for key, _ in held.corpus.owed.items()]:
        held.corpus.owed.take(key)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(at_rest, "LARGE", held.corpus.documents)
        patch.setattr(at_rest, "EXACT", 0)
        patch.setattr(at_rest, "_united", None)
        cursor = FeedCursor(revision=2 * TURNS)
        known = {"repo": 1, "reading": "", "least": 1}
        made = at_rest.large_segment(held, chain, cursor, **known)
    assert made is not None
    head, batches = unpacked(made[1])
    listed = Kept(len(held.listed[chain]) + 1, head.documents, head.until, digest_of(made[1]))
    held.large[chain] = without_replaced([*held.large[chain], Segment.of(head, batches)])
    held.listed[chain] = (*held.listed[chain], listed)
    at_rest.shed(held, chain, head.until)


def asked(view: CorpusView, question: RecallQuestion, filters: Filters) -> HopZero:
    """What *question* finds at hop 0."""
    request = RecallRequest(
        query=question.query,
        filters=filters,
        types=("episodic", "semantic", "procedural", "tag"),
        k=20,
    )
    run = RecallRun(request, datetime(2026, 1, 1, tzinfo=UTC), 0.7)
    config = Config(recall={"agent_actors": {"robot"}})
    return hop_zero(view, question, run, config)


# ── Some of it ───────────────────────────────────────────────────────────────────────


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not asked for by id is gathered sparingly."""
    monkeypatch.setattr(gather, "EXACT", 0)
    for name, value in (("BEST", 5), ("TALKS", 1)):
        monkeypatch.setattr(grouped, name, value)


def some_of(view: CorpusView, story: Story) -> list[str]:
    """Ids of a third of what is alive."""
    alive = np.flatnonzero(view.steps.alive)
    return [view.steps.ids[n] for n in alive[story.chance.random(len(alive)) < 1 / 3].tolist()]


def large_view(story: Story, segments: int) -> LargeView:
    large = story.view(segments)
    assert isinstance(large, LargeView)
    return large


def gathered_from(view: CorpusView, some: GatheredView) -> Chosen:
    """Which documents of *view* are those of *some*, in which both sides of a step are."""
    steps, ids = view.steps, {*some.steps.ids}
    said = [n for n in np.flatnonzero(steps.alive).tolist() if steps.ids[n] in ids]
    assert [steps.ids[n] for n in said] == list(some.steps.ids)
    assert steps.acted[said].tolist() == some.steps.acted.tolist()
    chosen: Chosen = {"episodic": np.array(said, np.int32)}
    for kind, one in view.nodes.items():
        chosen[kind] = np.array([one.of(id)[0] for id in some.nodes[kind].ids], np.int32)
    return chosen


def complete(view: CorpusView, chosen: Chosen, end: float) -> Iterator[tuple[NodeType, np.ndarray]]:
    """The chosen documents of which everything that counts in their score is chosen."""
    pieces, said = view.steps.pieces_until(end), chosen["episodic"]
    around = [one[said] for one in (pieces.previous, pieces.next)]
    good = said[np.all([np.isin(one, said) | (one < 0) for one in around], axis=0)]
    yield "episodic", good
    for kind, numbers in chosen.items():
        if kind in view.behind:
            node, step = view.behind[kind].T
            lacking = node[~np.isin(step, good) & view.steps.alive[step]]
            numbers = numbers[~np.isin(numbers, lacking)]
        if kind != "episodic":
            yield kind, numbers


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


@pytest.mark.parametrize("segments", range(1, PARTS + 1))
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.usefixtures("few")
def test_what_is_gathered_scores_as_in_the_whole(seed: int, segments: int) -> None:
    """From segments and what is behind them, whatever the filters, each signal is the same."""
    story = Story(seed)
    view, large = story.view(), large_view(story, segments)
    assert {*view.steps.pieces.kind[view.steps.alive]} == {NOTE, CHAT, DOCUMENT}
    for number, filters in enumerate(story_filters(view)):
        query = story.words(4) + ["", " where did you say", " how long have I"][number % 3]
        question = ask(query).embedded(story.asked[np.newaxis])
        end = filters.until.timestamp() if filters.until else np.inf
        some = gathered(large, [question], filters, some_of(view, story))
        chosen = gathered_from(view, some)
        said = chosen["episodic"]
        assert 0 < len(said) < np.count_nonzero(view.steps.alive)
        assert some.eligible.tolist() == eligible_steps(view.steps, filters)[said].tolist()
        everything, found = (asked(one, question, filters) for one in (view, some))
        assert everything.evidence["size"] == found.evidence["size"]
        compared = 0
        for kind, good in complete(view, chosen, end):
            if kind in everything.hits:
                same(everything, found, kind, chosen, good)
                compared += len(good)
        assert compared > 20


def test_what_was_gathered_is_found_under_all_its_names() -> None:
    """A step that repeats a message, and its actor are there."""
    story = Story(3)
    view = story.view()
    some = gathered(large_view(story, 2), [ask("word1")], Filters.checked())
    said = gathered_from(view, some)["episodic"]
    assert len(said) == np.count_nonzero(view.steps.alive)
    repeats = {id: steps for id, steps in view.steps.repeats.items() if view.steps.of(id) and steps}
    assert dict(some.steps.repeats) == repeats
    for step, message in view.steps.aliases.items():
        if message in some.steps.documents:
            assert some.steps.of(step) == some.steps.of(message) != ()
    actors = [view.steps.actors[n] for n in view.steps.actor[said].tolist()]
    assert [some.steps.actors[n] for n in some.steps.actor.tolist()] == actors


@pytest.mark.usefixtures("few")
def test_an_id_that_is_read_alone_stands_for_both_sides_of_a_step() -> None:
    """Ids are read when they are asked for, and give the documents that all of them would give."""
    story = Story(1)
    view = large_view(story, PARTS)
    question = ask(story.words(4)).embedded(story.asked[np.newaxis])
    known = gathered(view, [question], Filters.checked(), some_of(story.view(), story)).steps.ids
    assert isinstance(known, gather._Ids)
    documents = dict[str, tuple[int, ...]]()
    for number, id in enumerate(known):
        documents[id] = (*documents.get(id, ()), number)
    assert {1, 2} == {*map(len, documents.values())}
    alone = gather._Ids(known._group)
    for number in story.chance.permutation(len(known)).tolist():
        id = alone[number]
        assert alone.documents[id] == documents[id]
    asked = gather._Ids(known._group)
    assert [asked.documents.get(id) for id in documents] == [*documents.values()]
    assert asked.documents.get("nobody") is None


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


def test_where_nothing_matches_no_step_is_found() -> None:
    """Segments of which nothing was chosen leave none to find."""
    question, filters = ask("word1"), Filters.checked(actor="nobody")
    some = gathered(large_view(Story(1), 2), [question], filters)
    assert not some.steps.count
    assert "episodic" not in {found.type for found in asked(some, question, filters).found}


@pytest.mark.usefixtures("few")
def test_what_is_gathered_for_two_questions_scores_for_both() -> None:
    """As a plan that is refined asks: each by its own words and vectors."""
    story = Story(3)
    view, large = story.view(), large_view(story, 2)
    questions = [ask(story.words(4)).embedded(story.vector()[np.newaxis]) for _ in range(2)]
    filters = Filters.checked()
    some = gathered(large, questions, filters, some_of(view, story))
    chosen = gathered_from(view, some)
    for question in questions:
        everything, found = (asked(one, question, filters) for one in (view, some))
        for kind, good in complete(view, chosen, np.inf):
            if kind in everything.hits:
                same(everything, found, kind, chosen, good)
