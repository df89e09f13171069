"""Whatever happens to a large repository, its segments and the tail hold what the rows say."""

import gc
import json
import os
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import count
from typing import Any
from weakref import ref

import anyio
import numpy as np
import pytest
from helpers import examples
from hypothesis import HealthCheck, example, given, settings
from schedule_kit import ACTS, Schedule, happening
from segments_kit import (
    collect,
    few,
    holding,
    index_of,
    message,
    opened,
    segments_in,
    tell,
)

from mnemo import StoreError
from mnemo.index import at_rest, erased, keeper, segments, stored
from mnemo.index.held import NOTHING
from mnemo.index.large import LargeView, Sealed, SealedClaims, _Metadata
from mnemo.index.segments import hashes
from mnemo.runtime.traffic import CALM_WRITES, traffic
from mnemo.testing import HashingEmbedder
from mnemo.values.filters import Where

pytestmark = pytest.mark.usefixtures("small")


def rows_of_part(steps: Any, ids: Any, metadata: Any, terms: Any, vectors: Any) -> list[Any]:
    """The living documents of a segment or the tail."""
    chains, actors, held = [*steps.chains], [*steps.actors], dict[int, list[Any]]()
    first = min((steps.chains[chain] for chain in chains), default=0)
    for term in terms:
        if (read := steps.postings.read(term, steps.count)) is not None:
            for document, count in zip(*(part.tolist() for part in read), strict=True):
                held.setdefault(document, []).append((term, count))
    return [
        (
            *(ids[d], chains[steps.session[d] - first]),
            chains[steps.thread[d] - first] if steps.thread[d] >= first else None,
            *(actors[steps.actor[d]], actors[steps.told_by[d]]),
            *(bool(steps.acted[d]), bool(steps.asks[d]), int(steps.form[d])),
            *(float(steps.first[d]), float(steps.last[d]), float(steps.valid_to[d])),
            *(float(steps.lengths[d]), float(steps.log_words[d]), int(steps.passages[d])),
            *(int(steps.born[d]), bool(steps.by_hand[d]), metadata[steps.metadata[d] - first]),
            sorted(held.get(d, ())),
            vectors(d),
        )
        for d in np.flatnonzero(steps.alive).tolist()
    ]


def rows_of_view(view: Any) -> list[Any]:
    """All documents of steps and messages, as they are found."""
    tail = view.steps
    of_tail = rows_of_part(
        tail, tail.ids, tail.facets.texts, [*tail.postings._numbers],
        lambda d: tail.vectors_of(np.array([d]))[0],
    )  # fmt: skip
    # The numbers of names in the tail begin at 0.
    found = []
    for one in view.sealed if isinstance(view, LargeView) else ():
        names = one.batch.names
        found += rows_of_part(
            one.view, names["ids"], names["metadata"], names["terms"],
            lambda d, one=one: one.vectors_of(np.array([d]))[0],
        )  # fmt: skip
    return found + of_tail


def facts_of(view: Any) -> Any:
    """What each fact and instruction rests on, of what there is."""
    there = {row[0] for row in rows_of_view(view)}
    found = {}
    for kind, pairs in view.behind.items():
        resting = dict[str, set[str]]()
        for part in view.parts(kind):
            alive = np.flatnonzero(part.view.alive)
            if isinstance(part, SealedClaims):
                behind = part.behind(alive)
            elif isinstance(view, LargeView):
                behind = view.behind_tail(kind, alive)
            else:
                behind = [(n, view.steps.ids[d]) for n, d in pairs.tolist() if part.alive[n]]
            for number, step in behind:
                steps = {step, *view.aliases_of([step]).values()} & there
                resting.setdefault(part.named(np.array([number]))[0], set()).update(steps)
        found[kind] = {id: steps for id, steps in resting.items() if steps}
    return found


def nodes_of(view: Any) -> Any:
    """All nodes as they are found."""
    found = []
    for kind, part in [(one, part) for one in view.nodes for part in view.parts(one)]:
        columns, sealed = part.view, isinstance(part, Sealed)
        texts = [*part.batch.names["metadata"]] if sealed else columns.facets.texts
        terms = part.batch.names["terms"] if sealed else [*columns.postings._numbers]
        held = dict[int, list[Any]]()
        for term in terms:
            if (read := columns.postings.read(term, columns.count)) is not None:
                for document, count in zip(*(one.tolist() for one in read), strict=True):
                    held.setdefault(document, []).append((term, count))
        for number in np.flatnonzero(columns.alive).tolist():
            one = np.array([number])
            metadata = int(columns.metadata[number]) - sealed
            row = [float(getattr(columns, name)[number]) for name in COLUMNS]
            row += [texts[metadata] if metadata >= 0 else "{}", sorted(held.get(number, ()))]
            found.append((kind, *part.named(one), row, part.vectors_of(one)[0]))
    return sorted(found, key=lambda row: row[:2])


COLUMNS = ("first", "last", "valid_to", "lengths", "log_words", "by_hand", "passages")


def repeats_of(view: Any) -> set[tuple[str, str]]:
    """Steps that repeat a message, with its document."""
    there = {row[0] for row in rows_of_view(view)}
    if isinstance(view, LargeView):
        return {*view.repeats_of([*there], hashes(there))[0].items()}
    return {(step, id) for step, id in view.steps.aliases.items() if id in there}


async def same_as_in_memory(index: Any, memory: Any) -> None:
    """Check that *index* holds what reading everything gives."""
    await index.embed_waiting()
    anew = replace(index_of(memory, kept=False), agent_name=index.agent_name)
    await anew.embed_waiting()
    view, whole = await index.corpus(), await anew.corpus()
    ours, theirs = sorted(rows_of_view(view), key=key), sorted(rows_of_view(whole), key=key)
    assert [one[:-1] for one in ours] == [one[:-1] for one in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one[-1].shape == other[-1].shape
        assert np.abs(one[-1] - other[-1]).max(initial=0) < 0.01
    nodes, others = nodes_of(view), nodes_of(whole)
    assert [one[:-1] for one in nodes] == [one[:-1] for one in others]
    for one, other in zip(nodes, others, strict=True):
        assert one[-1].shape == other[-1].shape
        assert np.abs(one[-1] - other[-1]).max(initial=0) < 0.01
    assert repeats_of(view) == repeats_of(whole)
    assert facts_of(view) == facts_of(whole)
    # Of what expired some is counted until it leaves the segments.
    assert view.steps.centre == pytest.approx(whole.steps.centre, abs=0.03)


def key(row: Any) -> Any:
    return row[:2], row[5]


BEGUN = [("tell", 9, "t"), ("hear", 1, "t"), ("learn", 2, "hive"), ("collect", 4, "")]
BEGUN += [("seal", 0, ""), ("feed", 0, "t"), ("tell", 9, "u"), ("collect", 2, ""), ("seal", 0, "")]


HEARD = [("hear", 3, "t"), *(("delete", number, "episodic") for number in (0, 2, 4))]

EXPIRED = [("tell", 3, "u"), ("expire", 2, "t"), ("tell", 19, "u"), ("expire", 9, "t")]


@pytest.mark.slow
@given(acts=ACTS)
@example(acts=HEARD)
@example(acts=EXPIRED)
@settings(
    max_examples=examples(20), deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::hypothesis.errors.NonInteractiveExampleWarning")
async def test_whatever_happens_large_segments_hold_what_the_rows_say(begun, acts):
    """For who goes on, for who seals elsewhere, and for who begins."""
    with few(large=8, exact=12, least=3):
        async with opened(begun()) as (memory, repo):
            schedule = Schedule(memory, repo)
            other = index_of(memory, kept=True)
            for number, act in enumerate((*BEGUN, *acts)):
                if number == len(BEGUN):
                    assert all(map(len, schedule.index._held.large.values()))
                await schedule.do(*act)
                if act[0] != "tell":
                    await other.run()  # which reads anew what took the place of other documents
                    await same_as_in_memory(other, memory)
            for index in (schedule.index, other, index_of(memory, kept=True)):
                await index.run()
                await same_as_in_memory(index, memory)


@pytest.fixture
def many() -> Iterator[None]:
    """Twelve documents are many."""
    with few(large=8, exact=12):
        yield


async def sealing(memory: Any, repo: Any, messages: int = 30) -> Any:
    """An index that holds some messages in large segments."""
    await tell(repo, 0, messages)
    index = index_of(memory, kept=True)
    await index.embed_waiting()
    await index.seal()
    assert len(index._held.large["steps"]) >= 2
    return index


async def ids_of(index: Any) -> list[str]:
    """The documents that an index finds."""
    return sorted(row[0] for row in rows_of_view(await index.corpus()))


async def messages_of(repo: Any) -> list[str]:
    return [message.id for message in await repo.conversation("t").history()]


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("way", ["error", "cancelled"])
async def test_what_is_gone_is_not_found_where_segments_cannot_be_looked_up(
    place, way, monkeypatch
):
    """At once, and afterwards."""
    async with opened(place) as (memory, repo):
        index = await sealing(memory, repo)
        ids = await messages_of(repo)
        before = await ids_of(index)
        await repo.forget(message_ids=ids[:1], thread_id="t")
        kept = stored.StoredSegments.kept

        async def fail(*_: Any) -> Any:
            if way == "error":
                raise StoreError("locked")
            scope.cancel()
            await anyio.sleep_forever()

        monkeypatch.setattr(stored.StoredSegments, "kept", fail)
        with suppress(StoreError), anyio.CancelScope() as scope:
            await index.catch_up()
        assert {row[0] for row in rows_of_view(index._view)} < {*before}
        monkeypatch.setattr(stored.StoredSegments, "kept", kept)
        assert {*(await ids_of(index))} < {*before}
        await same_as_in_memory(index, memory)


@pytest.mark.usefixtures("many")
async def test_who_seals_does_not_go_on_with_what_was_replaced(place, monkeypatch):
    """What the index reads anew meanwhile has come further than what is being kept."""
    async with opened(place) as (memory, repo):
        index = await sealing(memory, repo)
        await tell(repo, 40, 42)
        await repo.conversation("t").append(
            [message(n, content=f"quagga {n}") for n in range(60, 65)]
        )
        await index.embed_waiting()
        ids = await messages_of(repo)
        put = stored.StoredSegments.put

        async def slow(*args: Any, large: Any = None) -> bool:
            done = await put(*args, large=large)
            if large is not None:
                return done
            monkeypatch.setattr(stored.StoredSegments, "put", put)
            await repo.forget(message_ids=ids[-5:], thread_id="t")
            await tell(repo, 70, 72)
            await index.renew()
            return done

        monkeypatch.setattr(stored.StoredSegments, "put", slow)
        await index.seal()
        assert not holding(place, b"quagga")
        await same_as_in_memory(index, memory)
        await same_as_in_memory(index_of(memory, kept=True), memory)


@pytest.mark.usefixtures("many")
async def test_segments_are_let_go_of_as_soon_as_others_serve(place):
    """Not when garbage is collected: a removed file takes its place as long as it is mapped."""
    async with opened(place) as (memory, repo):
        index = await sealing(memory, repo)
        gc.disable()
        try:
            await index.renew()
            before = [ref(one.sealed["steps"]) for one in index._held.large["steps"]]
            await index.renew()
            assert not [one for one in before if one()]
        finally:
            gc.enable()


@pytest.mark.parametrize("large", [False, True])
async def test_segments_are_made_while_others_forget(place, large):
    """Without what is forgotten while one is made; and with all else, also if that goes on."""
    with few(large=8, exact=12) if large else nullcontext():
        async with opened(place) as (memory, repo):
            await tell(repo, 0, 30)
            facts = [await repo.add_memory(f"Zoë keeps quagga {number}") for number in range(12)]
            index = index_of(memory, kept=True)
            await index.embed_waiting()
            ids, numbers, gone = await messages_of(repo), count(), list[str]()

            async def forget() -> None:
                number = next(numbers)
                message, fact = ids[3 * number], facts[number].id
                await repo.forget(message_ids=[message], thread_id="t")
                await repo.forget(memory_ids=[fact])
                gone.extend((message, fact))

            with happening(forget, 9):
                await index.seal()
            kept = sum(row[1] for row in segments_in(place))
            assert kept >= 42 - len(gone) - (7 if large else 0)
            assert all(index._held.large.values()) == large
            assert not [id for id in gone if holding(place, id.encode())]
            await same_as_in_memory(index, memory)
            await same_as_in_memory(index_of(memory, kept=True), memory)


@pytest.mark.parametrize("large", [False, True])
async def test_who_reads_in_another_way_is_left_alone_in_the_end(place, monkeypatch, large):
    """Segments that somebody else makes anew again and again are not written in turn."""
    with few(large=8, exact=12) if large else nullcontext():
        async with opened(place) as (memory, repo):
            await collect(repo, "s", 10)
            await tell(repo, 0, 8)
            own = index_of(memory, kept=True)
            await own.embed_waiting()
            both = own, replace(own, agent_name="Robot")
            written, put = list[int](), stored.StoredSegments.put

            async def counted(
                self: Any, head: Any, segment: bytes, *more: Any, **named: Any
            ) -> bool:
                written.append(len(segment))
                return await put(self, head, segment, *more, **named)

            monkeypatch.setattr(stored.StoredSegments, "put", counted)
            sizes = list[int]()
            for _ in range(5):
                for index in both:
                    assert index.let_go()
                    await index.corpus()
                    await index.seal()
                    await same_as_in_memory(index, memory)
                sizes.append(sum(written))
            assert sizes[0]
            assert {*sizes[2:]} == {sizes[-1]}


@pytest.mark.usefixtures("many")
async def test_who_seals_rests_where_others_write(place, monkeypatch):
    """After each segment, large ones and others, and answers meanwhile."""
    async with opened(place) as (memory, repo):
        await tell(repo, 0, 30)
        index, rested, kept = index_of(memory, kept=True), list[int](), list[int]()
        await index.embed_waiting()
        put, sleep = stored.StoredSegments.put, anyio.sleep

        async def busy(*args: Any, large: Any = None) -> bool:
            for _ in range(CALM_WRITES + 1):
                traffic().passed()
            kept.append(large is not None)
            return await put(*args, large=large)

        async def rest(seconds: float) -> None:
            if seconds and index._sealing.taken:
                rested.append(len(kept))
                assert len(await ids_of(index)) == 30
            await sleep(0)

        monkeypatch.setattr(stored.StoredSegments, "put", busy)
        monkeypatch.setattr(anyio, "sleep", rest)
        await index.seal()
        assert kept.count(True) >= 2
        assert kept.count(False) == 1
        # Others sleep, too, where the store is a server.
        assert [*dict.fromkeys(filter(None, rested))] == [*range(1, len(kept) + 1)]


@pytest.mark.usefixtures("many")
async def test_who_seals_leaves_alone_what_was_read_anew_meanwhile(place, monkeypatch):
    """Also where others have kept in another way what it held before."""
    async with opened(place) as (memory, repo):
        index = await sealing(memory, repo)

        async def refused(*_: Any) -> bool:
            await index.renew()
            return False

        monkeypatch.setattr(keeper.Keeper, "keep", refused)
        await index.seal()
        assert index.statistics().documents == 30
        await same_as_in_memory(index, memory)


@pytest.mark.usefixtures("many")
async def test_segments_that_are_rewritten_meanwhile_are_no_damage(place, monkeypatch, caplog):
    """Whoever opens them looks again."""
    async with opened(place) as (memory, repo):
        await sealing(memory, repo)
        ids, read = await messages_of(repo), stored.StoredSegments.read
        before = segments_in(place)

        async def late(self: Any) -> Any:
            monkeypatch.setattr(stored.StoredSegments, "read", read)
            found = await read(self)
            await repo.forget(message_ids=ids[:2], thread_id="t")
            return found

        monkeypatch.setattr(stored.StoredSegments, "read", late)
        index = index_of(memory, kept=True)
        await index.catch_up()
        assert len(index._held.large["steps"]) == len(before) - 1 == len(segments_in(place)) - 1
        assert "read anew" not in caplog.text
        await same_as_in_memory(index, memory)


@pytest.mark.usefixtures("many")
async def test_a_step_takes_the_place_of_a_message_in_a_segment_at_once(place):
    """Also where the step is in memory."""
    async with opened(place) as (memory, repo):
        index = await sealing(memory, repo)
        fed = await repo.start_session("look", session_id="fed")
        await repo.conversation("t").feed(fed, from_seq=0)
        with anyio.fail_after(30):
            while len(index._corpus.steps.repeats) < 3:
                await index.catch_up()
        store = memory._store.transcript("r")
        await store.writing(lambda tx: tx.erase("t", [0, 1]))
        assert await ids_of(index) == await ids_of(index_of(memory, kept=False))
        await same_as_in_memory(index, memory)


def places_in(segment: bytes) -> list[int]:
    """Where the arrays of a segment that have bytes and that questions read begin."""
    batch = segments.unpacked(segment)[1]["steps"]
    names = [part for some in batch.names.values() for part in (some._begins, some._text)]
    found = [*batch.columns.stored.values(), *names]
    # No question of these tests asks for steps by their ids.
    found += [part for kind, some in batch.names.items() if kind != "ids" for part in some._found]
    begin = len(segment) - len(found[0]._body.bytes)
    return sorted({begin + one._at for one in found if one.size})


@pytest.mark.slow
@pytest.mark.usefixtures("many")
@pytest.mark.parametrize("removable", [True, pytest.param(False, marks=pytest.mark.long)])
async def test_a_damaged_file_is_made_anew_wherever_it_is_read(tmp_path, removable, monkeypatch):
    """Recall answers as before, and does not fail; whatever a question reads of it first."""
    monkeypatch.setattr(segments, "_BLOCK", 64)
    place, folder = tmp_path / "m.db", tmp_path / "m.db.index"
    questions = ("honey of the hive in winter 7?", "bees", "something else")

    async def answers(repo: Any) -> list[str]:
        found = [await repo.recall(question, k=8) for question in questions]
        return [result.as_text() for result in found]

    async with opened(place) as (memory, repo):
        await sealing(memory, repo)
        expected = await answers(repo)
        files = {file: file.read_bytes() for file in folder.iterdir() if len(file.name) == 40}
    first, whole = next(iter(files.items()))
    if not removable:

        def refuse(path: Any, **_: Any) -> None:
            raise PermissionError

        monkeypatch.setattr(os, "unlink", refuse)
    for at in places_in(whole):
        damaged = bytearray(whole)
        damaged[at] ^= 0x11
        first.write_bytes(damaged)
        async with opened(place) as (_, repo):
            assert await answers(repo) == expected
            assert len(repo._parts.index._held.large["steps"]) == len(files)
            assert await answers(repo) == expected
        assert not removable or first.read_bytes() == whole


@pytest.mark.usefixtures("many")
async def test_what_was_let_go_is_not_sealed(place):
    """Nor read for it; and what stands for nothing holds nothing."""
    async with opened(place) as (memory, repo):
        index = await sealing(memory, repo)
        assert index.let_go()
        await index.seal()
        assert not index.is_held
        assert not any(NOTHING.large.values())
        await same_as_in_memory(index, memory)


@pytest.mark.usefixtures("many")
async def test_steps_take_the_place_of_expired_messages_beside_large_segments(place, monkeypatch):
    """At once, where these wait in segments and where they have left them; the segments stay."""
    monkeypatch.setattr(erased, "MOST_WAITING", 2)
    monkeypatch.setattr(erased, "ALONE", 2)
    async with opened(place) as (memory, repo):
        await tell(repo, 0, 6)
        fed = await repo.start_session("look", session_id="fed")
        await (await repo.conversation("t").feed(fed, from_seq=0)).caught_up()
        await collect(repo, "own", 2)
        index, other = (index_of(memory, kept=True) for _ in range(2))
        await index.catch_up()
        await tell(repo, 6, 30)
        await index.embed_waiting()
        await index.seal()
        await other.catch_up()
        large = len(index._held.large["steps"])
        sealed = [one.sealed["steps"] for one in index._held.large["steps"]]
        assert sum(len(one.batch.repeats) for one in sealed) == 6
        store = memory._store.transcript("r")
        for seq in range(3):
            await store.writing(lambda tx, seq=seq: tx.erase("t", [seq]))
            for one in (index, other, index_of(memory, kept=True)):
                await one.catch_up()
                assert len(one._held.large["steps"]) == large
                await same_as_in_memory(one, memory)
        await tell(repo, 30, 50)
        await index.embed_waiting()
        await index.seal()
        assert len(index._held.large["steps"]) > large
        for one in (index, other, index_of(memory, kept=True)):
            await same_as_in_memory(one, memory)


@pytest.mark.usefixtures("many")
async def test_few_of_those_gone_are_remembered(place):
    """Expired ones that wait in segments are among them, also of who maps these only later."""
    async with opened(place) as (memory, repo):
        late = index_of(memory, kept=True)
        index = await sealing(memory, repo, 100)
        await late.catch_up()
        ids = await messages_of(repo)
        await repo.forget(message_ids=ids[:70], thread_id="t")
        store = memory._store.transcript("r")
        await store.writing(lambda tx: tx.erase("t", [75]))
        for one in (index, late):
            await one.catch_up()
            await one.seal()
            assert len(one._held.large["steps"]) >= 2
            assert len(one._held.gone) <= erased.MOST_WAITING
            await same_as_in_memory(one, memory)


@pytest.mark.usefixtures("many")
async def test_what_is_sealed_counts_in_memory_no_more(place):
    """At once."""
    async with opened(place) as (memory, repo):
        index = index_of(memory, kept=True)
        await tell(repo, 0, 200)
        await index.embed_waiting()
        await index.seal()
        assert len(index._held.large["steps"]) >= 2
        assert index.statistics().bytes == index._held.nbytes


class Picky(HashingEmbedder):
    """Takes some texts only."""

    async def embed(self, texts: Any, **more: Any) -> Any:
        if any("quagga" in text for text in texts):
            raise ValueError("too long")
        return await super().embed(texts, **more)


@pytest.mark.usefixtures("many")
async def test_what_the_embedder_refuses_keeps_nothing_else_from_large_segments(place, monkeypatch):
    """It is found by words, gets its vector once it is taken, and is erased."""
    monkeypatch.setattr(at_rest, "ALONE", 2)
    async with opened(place) as (memory, repo):
        refused = [message(n, content=f"quagga {n}") for n in (90, 91)]
        await repo.conversation("t").append(refused[0])
        await tell(repo, 0, 9)
        await repo.conversation("t").append(refused[1])
        await tell(repo, 10, 40)
        index = replace(index_of(memory, kept=True), embedder=Picky())
        for _ in range(30):
            assert not await index._attempt(index.embed_waiting)
        assert len(index._held.large["steps"]) >= 2
        other = index_of(memory, kept=True)
        for one in (index, other):
            await one.catch_up()
            assert len(await ids_of(one)) == 41
            assert one.statistics().waiting == 2
        await same_as_in_memory(other, memory)
        for one in (index, other, index_of(memory, kept=True)):
            await same_as_in_memory(one, memory)
            assert len(one._held.large["steps"]) >= 2
        await repo.forget(message_ids=["m91"], thread_id="t")
        for one in (index, other, index_of(memory, kept=True)):
            assert len(await ids_of(one)) == 40
            await same_as_in_memory(one, memory)


def test_of_metadata_in_segments_that_alone_is_decoded_which_may_hold_what_is_asked(monkeypatch):
    """Of filters that name texts; of the others all is. A few of their answers are kept."""
    objects = [{"n": n, "who": f"Zoë {n}", "of": {"is": [n % 2 == 0, str(n)]}} for n in range(40)]
    metadata = _Metadata([json.dumps(one, sort_keys=True) for one in objects])
    decoded, loads = list[str](), json.loads
    monkeypatch.setattr(json, "loads", lambda text: decoded.append(text) or loads(text))
    asked = (
        {"who": "Zoë 7"},
        {"of.is": ["7", "30"]},
        {"n": 7.0},
        {"of.is": True},
        {"n": {"gt": 9}},
    )
    for asking, most in zip(asked, (1, 2, 40, 40, 40), strict=True):
        where = Where.checked(asking)
        assert metadata.holding(where).tolist() == [False, *map(where.holds, objects)]
        assert len(decoded) <= most + 2
        decoded.clear()
    for number in range(20):
        metadata.holding(Where.checked({"n": number}))
    assert len(metadata._masks) == 8
