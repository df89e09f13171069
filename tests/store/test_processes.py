"""Two processes on one file: nothing is lost, nothing doubled, and the dead own nothing."""

import signal
from functools import partial
from pathlib import Path
from typing import Any

import anyio.lowlevel
import pytest
from scenarios import other_service
from world import NOON, Kit

from mnemo.errors import SessionBusy
from mnemo.jobs import job_rows as owners
from mnemo.jobs.job_rows import is_alive, new_owner
from mnemo.testing import ManualClock
from mnemo.values.graph import Tag

another_process = partial(
    other_service.another_process, program=str(Path(__file__).with_name("other_process.py"))
)


@pytest.mark.slow
async def test_a_killed_process_owns_nothing(kit, path):
    """A live process keeps its session beyond its lease; dead, it loses it at once."""
    async with another_process(path) as other:
        assert await other.ask("start", "s") == "done"
        assert await other.ask("append", "s", 3) == [0, 1, 2]
        kit.clock.advance(10**9)
        with pytest.raises(SessionBusy):
            await kit.store.sessions("r").claim("s", kit.owner)
        await other.kill()
        await kit.store.sessions("r").claim("s", kit.owner)
    assert [step.index for step in (await kit.load()).steps] == [0, 1, 2]
    assert (await kit.append("next")).index == 3


@pytest.mark.slow
async def test_a_stopped_process_owns_for_its_lease(kit, path):
    """Beyond it another takes the session; what it writes when it goes on is refused."""
    async with another_process(path) as other:
        assert await other.ask("start", "s") == "done"
        other.process.send_signal(signal.SIGSTOP)
        while Path(f"/proc/{other.process.pid}/stat").read_text().rpartition(") ")[2][0] != "T":
            await anyio.lowlevel.checkpoint()
        with pytest.raises(SessionBusy):
            await kit.store.sessions("r").claim("s", kit.owner)
        kit.clock.advance(10**9)
        await kit.store.sessions("r").claim("s", kit.owner)
        other.process.send_signal(signal.SIGCONT)
        assert "Conflict" in str(await other.ask("append", "s", 1))
    assert (await kit.load()).steps == ()


@pytest.mark.slow
async def test_opening_releases_what_the_dead_owned(make, path):
    """A process that died is struck off the register by the next one that opens."""
    async with another_process(path) as other:
        assert await other.ask("start", "s") == "done"
        await other.kill()
    store = make()
    owner = await store.open()
    held = await store.engine.writing(
        lambda tx: (
            tx.run("SELECT owner FROM sessions").fetchall(),
            [token for (token,) in tx.run("SELECT token FROM owners")],
        )
    )
    await store.aclose()
    assert held == ([(None,)], [owner.token])


@pytest.mark.long
@pytest.mark.slow
async def test_two_processes_talk_in_one_thread(kit, path):
    """Each message gets a seq of its own, whoever says it; none is missing, none is lost."""
    async with another_process(path) as one, another_process(path) as two:
        await one.tell("say", "one", 200)
        await two.tell("say", "two", 200)
        seqs: dict[str, Any] = {"one": await one.heard(), "two": await two.heard()}
    messages = await kit.store.transcript("r").reading(lambda tx: tx.messages("t"))
    said = {message.text: message.seq for message in messages}
    assert sorted(said.values()) == list(range(400))
    for who, given in seqs.items():
        assert [said[f"{who} {n}"] for n in range(200)] == given == sorted(given)
    assert (await kit.store.check()).problems == ()


@pytest.mark.slow
async def test_two_processes_write_one_file(make, path):
    """Both append and commit at once; each sees the other's at its next call."""
    clock = ManualClock()
    store = make(clock)  # waits for the other's lock as long as an application does
    kit = Kit(make, clock, store, await store.open())
    await kit.start("mine")
    async with another_process(path) as other:
        assert await other.ask("start", "theirs") == "done"
        await other.tell("append", "theirs", 300)
        for first in range(0, 300, 10):
            done = await kit.append_all([("mine", "")] * 10, session="mine")
            # The index, or what it was refused with.
            assert [getattr(one, "index", one) for one in done] == list(range(first, first + 10))
        assert await other.heard() == list(range(300))
        assert await other.ask("apply", "theirs") == 1
        assert (await kit.apply(Tag("mine", created_at=NOON), id="m")).revision == 2
        assert await other.ask("labels") == ["mine", "theirs"]
        assert await other.ask("claim", "mine") == "owned_elsewhere"
    mine, theirs = await kit.load("mine"), await kit.load("theirs")
    assert [step.index for step in mine.steps] == list(range(300))
    assert [step.observation for step in theirs.steps] == [f"theirs {n}" for n in range(300)]
    assert len((await kit.changes()).steps) == 600
    assert (await kit.store.check()).problems == ()
    await store.aclose()


# ── Names of processes ───────────────────────────────────────────────────────────────


def test_owners_are_unique_within_a_process():
    """Two services of one process are two owners on one host."""
    one, two = new_owner(), new_owner()
    assert one.token != two.token
    assert (one.host, one.pid, one.started) == (two.host, two.pid, two.started)


def test_this_process_is_alive():
    """The process that asks is alive, by its start and without one."""
    me = new_owner()
    assert is_alive(me.pid, me.started) is True
    assert is_alive(me.pid, 0) is True


def test_a_reused_process_id_is_another_process():
    """The same id with another start is dead; an id that nobody has is dead."""
    me = new_owner()
    if me.started:
        assert is_alive(me.pid, me.started + 1) is False
    assert is_alive(2**22 + 1, 0) is False


def test_where_nothing_can_be_asked_nothing_is_known(monkeypatch):
    """On a system where asking would harm the process, only its lease tells."""
    monkeypatch.setattr(owners.sys, "platform", "win32")
    assert is_alive(1, 0) is None


async def test_an_owner_of_another_host_has_its_lease(make, path, monkeypatch):
    """An unreachable owner is left alone until its lease is over."""
    clock = ManualClock()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(owners.platform, "node", lambda: "elsewhere")
        theirs = Kit(make, clock, make(clock), None)  # type: ignore[arg-type]
        theirs.owner = await theirs.store.open()
    await theirs.start()
    await theirs.store.aclose()
    store = make(clock)
    mine = await store.open()
    clock.advance(29)
    with pytest.raises(SessionBusy):
        await store.sessions("r").claim("s", mine)
    clock.advance(1)
    await store.sessions("r").claim("s", mine)
    await store.aclose()
