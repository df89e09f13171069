"""The log by which followers learn what is gone stays short, and none of them misses anything."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import anyio
import pytest
from contracts.talk import said
from engines import emptied
from postgres_server import ON_POSTGRES
from world import NOON, Kit, opened

from mnemo.index.follower import RepositoryIndex
from mnemo.log import feed
from mnemo.protocols import FeedCursor
from mnemo.testing import HashingEmbedder
from mnemo.values.changeset import Upkeep
from mnemo.values.erasure import Selection
from mnemo.values.graph import Tag

KEPT = 4


@pytest.fixture(params=["file", ON_POSTGRES])
async def kit(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Kit]:
    """An opened store that logs few removals."""
    monkeypatch.setattr(feed, "KEPT", KEPT)
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    async with opened(emptied(url, tmp_path)) as kit:
        yield kit


async def logged(kit: Kit) -> int:
    """How many removals there are to be read."""
    query = "SELECT count(*) FROM removals"
    return int(await kit.store.engine.reading(lambda tx: tx.run(query).fetchone()[0]))


async def collect(kit: Kit, session: str, steps: int = 1) -> None:
    """A session with steps."""
    await kit.start(session)
    for number in range(steps):
        await kit.append(f"{session} says {number}", session=session)


async def forget(kit: Kit, session: str) -> None:
    """Erase a session, whose steps are removed."""
    await kit.store.overhaul("r").erase(Selection(session_id=session))


async def forget_one(kit: Kit, name: str) -> None:
    await collect(kit, name)
    await forget(kit, name)


async def discard_one(kit: Kit, name: str) -> None:
    await collect(kit, name)
    await kit.close(name)
    await kit.discard(name)


async def delete_one(kit: Kit, name: str) -> None:
    await kit.apply(Tag(name, id=name, created_at=NOON), id=name)
    await kit.store.graph("r").delete([name])


async def decay_one(kit: Kit, name: str) -> None:
    await kit.apply(Tag(name, id=name, created_at=NOON), id=name)
    await kit.apply(id=f"without {name}", upkeep=Upkeep(removals=(name,)))


async def expire_one(kit: Kit, name: str) -> None:
    transcript = kit.store.transcript("r")
    await transcript.writing(lambda tx: tx.add([said(0, thread=name)]))
    await transcript.writing(lambda tx: tx.erase(name, [0]))


WAYS = (forget_one, discard_one, delete_one, decay_one, expire_one)


@pytest.mark.parametrize("remove", WAYS)
async def test_the_log_stays_short(kit, remove):
    """Whatever removes: the last ones stay, and with them the last call's."""
    for number in range(3 * KEPT):
        await remove(kit, f"n{number}")
    assert await logged(kit) == KEPT + 1


async def test_the_log_of_another_repository_stays(kit):
    """Each repository keeps its own."""
    for repo in ("r", "other"):
        await kit.apply(Tag("a", id="a", created_at=NOON), repo=repo, id=repo)
    before = (await kit.changes(repo="other")).cursor
    await kit.store.graph("other").delete(["a"])
    for number in range(3 * KEPT):
        await delete_one(kit, f"n{number}")
    changes = await kit.changes(before, repo="other")
    assert (changes.removed, changes.missed) == (("a",), False)


async def test_a_reader_is_told_when_it_missed_some(kit):
    """Of each place it may have stopped at: it gets all that went since, or is told."""
    gone, cursors = list[str](), list[FeedCursor]()
    await kit.apply(Tag("stays", id="stays", created_at=NOON))
    for number in range(3 * KEPT):
        cursors.append((await kit.changes()).cursor)
        await delete_one(kit, f"n{number}")
        gone.append(f"n{number}")
    for number, cursor in enumerate(cursors):
        changes = await kit.changes(cursor)
        assert changes.missed or list(changes.removed) == gone[number:]
        assert changes.missed == (number < len(gone) - KEPT)
    anew = await kit.changes()
    assert (anew.removed, anew.missed) == ((), False)


async def test_one_large_erasure_is_read_whole(kit):
    """Who has read all before it need not start again."""
    await collect(kit, "s", steps=3 * KEPT)
    await forget_one(kit, "before")
    before = (await kit.changes()).cursor
    await forget(kit, "s")
    changes = await kit.changes(before)
    assert (len(changes.removed), changes.missed) == (3 * KEPT, False)


def index_of(kit: Kit) -> RepositoryIndex:
    return RepositoryIndex(
        feed=kit.store.feed("r"), embedder=HashingEmbedder(4), agent_name="Agent"
    )


async def found(index: RepositoryIndex) -> set[str]:
    """The steps that the index finds."""
    steps = (await index.corpus()).steps
    return {id for id, alive in zip(steps.ids, steps.alive, strict=True) if alive}


async def test_an_index_that_slept_is_equal_to_a_fresh_one(kit):
    """It starts again, and finds nothing of what was forgotten meanwhile."""
    sessions = [f"s{number}" for number in range(4 * KEPT)]
    for session in sessions:
        await collect(kit, session)
    sleeping = index_of(kit)
    assert len(await found(sleeping)) == len(sessions)
    for session in sessions[:-2]:
        await forget(kit, session)
    fresh = await found(index_of(kit))
    assert len(fresh) == 2
    assert await found(sleeping) == fresh
    await forget(kit, sessions[-1])
    assert await found(sleeping) < fresh


async def test_many_forget_while_an_index_follows(kit):
    """Several services at once, each with connections of its own."""
    sessions = [f"s{number}" for number in range(8 * KEPT)]
    for session in sessions:
        await collect(kit, session)
    index = index_of(kit)
    await found(index)
    services = [kit, *[Kit(kit.make_store, kit.clock, *await kit.another()) for _ in range(3)]]

    async def forget_in(service: Kit, some: list[str]) -> None:
        for session in some:
            await forget(service, session)
            await found(index)

    async with anyio.create_task_group() as group:
        for number, service in enumerate(services):
            group.start_soon(partial(forget_in, service, sessions[number:-4:4]))
    assert await found(index) == await found(index_of(kit))
    assert await logged(kit) == KEPT + 1
