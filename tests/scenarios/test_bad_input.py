"""Bad input and bad places, through the public surface: a typed error, and nothing harmed."""

import asyncio
import resource
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread
import pytest
from engines import change
from helpers import Kit

from mnemo import (
    CommitFailed,
    Config,
    Mnemo,
    Outcome,
    Repository,
    SchemaTooNew,
    Session,
    SessionClosed,
    StoreCorrupt,
    StoreError,
    StoreLocked,
    UsageError,
)
from mnemo.testing import HashingEmbedder

IMPATIENT = Config(store={"busy_timeout_s": 0.05})


@asynccontextmanager
async def opened(path: Path, config: Config | None = None) -> AsyncIterator[Repository]:
    """A repository without a model over a file."""
    async with Mnemo(path, config=config, embedder=HashingEmbedder()) as memory:
        yield await memory.open_repo("r")


# ── Texts ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("blank", ["", "   ", "\n\t", "\u2003\u2028"])
async def test_blank_words_are_refused_and_change_nothing(collecting, blank):
    """A blank goal, step and query are ValueError, awaited or queued, whatever blank means."""
    kit, session = collecting
    with pytest.raises(ValueError, match="both be blank"):
        await session.append(blank, blank)
    with pytest.raises(ValueError, match="both be blank"):
        session.append_async(blank, blank)
    with pytest.raises(ValueError, match="goal cannot be blank"):
        await kit.repo.start_session(blank)
    with pytest.raises(ValueError, match="blank"):
        await kit.repo.recall(blank)
    with pytest.raises(ValueError, match="Query cannot be blank"):
        await kit.repo.search(blank)
    await session.close_and_commit()
    with pytest.raises(ValueError, match="goal cannot be blank"):
        await session.start_episode(blank)
    with pytest.raises(ValueError, match="goal cannot be blank"):
        session.start_episode_async(blank)
    assert session.state == "idle"
    assert len(await kit.repo.sessions()) == 1


@contextmanager
def heartbeat(group: anyio.abc.TaskGroup) -> Iterator[list[float]]:
    """
    Seconds that the loop's thread worked between two beats, while the block runs.

    Not by the clock on the wall: a busy machine holds the thread up, too.
    """
    late = [0.0]

    async def beat() -> None:
        with scope:
            while True:
                began = time.thread_time()
                await anyio.sleep(0.002)
                late.append(time.thread_time() - began)

    scope = anyio.CancelScope()
    group.start_soon(beat)
    try:
        yield late
    finally:
        scope.cancel()


@pytest.mark.slow
@pytest.mark.long
async def test_ten_megabytes_are_kept_whole_and_hold_nobody_up(tmp_path):
    """A 10 MB observation is stored, found, committed and recalled beside a live event loop."""
    huge = "The harbour of Porto was busy, Ana noted. " * 240_000 + "The last word is kyoto."
    assert len(huge) > 10_000_000
    async with opened(tmp_path / "m.db") as repo, anyio.create_task_group() as group:
        session = await repo.start_session("Read the log")
        await session.append("Bread needs twelve hours", "noted")
        await repo.recall("bread")
        with heartbeat(group) as late:
            step = await session.append(huge, "filed")
            (hit,) = await repo.search("kyoto")
            before = await repo.recall("what did Ana note about the harbour")
            await session.close_and_commit()
            after = await repo.recall("what did Ana note about the harbour")
    assert step.observation == huge
    assert len(hit.snippet) < 10_000
    for result in (before, after):
        assert any(source.step_index == 1 for source in result.sources)
    # 18 ms on an idle machine; the bound says "not for long" on a busy one.
    assert max(late) < 0.25


async def test_odd_characters_travel_to_the_end(tmp_path):
    """Lone surrogates and NUL become U+FFFD everywhere, and the words around them are found."""
    odd = "\ud800broken\udfff \0 Porto \U0001f98a e\u0301"
    async with opened(tmp_path / "m.db") as repo:
        session = await repo.start_session(f"goal {odd}")
        step = await session.append(odd, "\0", actor=odd, key=odd, metadata={"note": odd})
        again = await session.append("other", "", key=odd)
        (hit,) = await repo.search(f'"Porto {odd[-4]}"')
        await session.close_and_commit()
        result = await repo.recall(f"Porto {odd}")
    assert step.observation == "\ufffdbroken\ufffd \ufffd Porto \U0001f98a e\u0301"
    assert again.node_id == step.node_id
    assert hit.session_id == session.id
    assert any(source.step_index == 0 for source in result.sources)
    assert "Porto" in result.as_text()
    async with opened(tmp_path / "m.db") as repo:
        (node,) = await repo.get_nodes(["episodic"])
        assert node.observation == step.observation  # type: ignore[attr-defined]


# ── Places ───────────────────────────────────────────────────────────────────────────


async def valid_store(path: Path) -> bytes:
    async with opened(path) as repo:
        session = await repo.start_session("g")
        await session.append("seen", "done")
    return path.read_bytes()


async def make_a_directory(path: Path) -> None:
    path.mkdir()


async def make_a_text(path: Path) -> None:
    path.write_text("Dear diary, " * 1_000)


async def make_a_torn_file(path: Path) -> None:
    whole = await valid_store(path)
    path.write_bytes(whole[: len(whole) // 2])


async def make_a_newer_file(path: Path) -> None:
    await valid_store(path)
    change(path, "PRAGMA user_version = 999")


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (make_a_directory, StoreError, "directory"),
        (make_a_text, StoreCorrupt, "no mnemo store"),
        (make_a_torn_file, StoreCorrupt, "damaged"),
        (make_a_newer_file, SchemaTooNew, "999"),
    ],
)
async def test_a_bad_place_is_refused_and_left_alone(
    tmp_path,
    make,
    kind,
    words,
):
    """The error names what is wrong, no byte changes, and the service stays unopened."""
    path = tmp_path / "m.db"
    await make(path)
    before = path.read_bytes() if path.is_file() else b""
    memory = Mnemo(path, embedder=HashingEmbedder())
    with pytest.raises(kind, match=words):
        await memory.open()
    assert (path.read_bytes() if path.is_file() else b"") == before
    with pytest.raises(UsageError, match="not open"):
        memory.list_repos()
    await memory.aclose()
    assert [p.name for p in tmp_path.iterdir()] == ["m.db"]


async def test_a_place_that_was_mended_can_be_opened_by_the_same_service(tmp_path):
    """A refused open is no use of the service: with the place mended it opens."""
    path = tmp_path / "m.db"
    path.mkdir()
    memory = Mnemo(path, embedder=HashingEmbedder())
    with pytest.raises(StoreError):
        await memory.open()
    path.rmdir()
    async with memory:
        await memory.open_repo("r")


# ── Trouble while it runs ────────────────────────────────────────────────────────────


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program holds the write lock."""
    foreign = sqlite3.connect(path, isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        foreign.execute("ROLLBACK")
        foreign.close()


async def whole_story_in_trouble(
    session: Session, trouble: Callable[[], Any], kind: type[StoreError], words: str
) -> None:
    """Append, close, commit and a new episode: each fails with its state kept, then succeeds."""
    texts = iter(("first " + "x" * 300_000, "second " + "y" * 300_000))
    await session.append("before", "")
    await _fails(session, trouble, kind, words, lambda: session.append(next(texts), "", key="k"))
    assert session.statistics().steps == 1
    assert (await session.append(next(texts), "", key="k")).index == 1
    await _fails(session, trouble, kind, words, session.close)
    await session.close()
    await session.wait_for("ready")
    await _fails(session, trouble, CommitFailed, words, session.commit)
    assert isinstance(session.error, CommitFailed)
    receipt = await session.commit()
    assert receipt.status == "committed"
    await _fails(session, trouble, kind, words, lambda: session.start_episode("again"))
    await session.start_episode("again")
    assert session.state == "collecting"


async def _fails(
    session: Session,
    trouble: Callable[[], Any],
    kind: type[StoreError],
    words: str,
    call: Callable[[], Awaitable[Any]],
) -> None:
    state, episode = session.state, session.episode_id
    with trouble(), pytest.raises(kind, match=words):
        await call()
    assert (session.state, session.episode_id) == (state, episode)


@pytest.mark.slow
async def test_a_foreign_lock_costs_one_call_not_the_session(tmp_path):
    """Past the busy timeout each write is StoreLocked and says so; the session goes on."""
    path = tmp_path / "m.db"
    async with opened(path, IMPATIENT) as repo:
        session = await repo.start_session("g")
        await whole_story_in_trouble(session, lambda: locked(path), StoreLocked, "try again")
        await _nothing_half(repo, path)


@contextmanager
def no_room(path: Path) -> Iterator[None]:
    """The disk takes no more: no file of this process may grow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.slow
async def test_a_full_disk_costs_one_call_not_the_session(tmp_path):
    """With no room for a byte nothing is half-written; with room again the session goes on."""
    path = tmp_path / "m.db"
    async with opened(path) as repo:
        session = await repo.start_session("g")
        words = "nothing was"
        await whole_story_in_trouble(session, lambda: no_room(path), StoreError, words)
        await _nothing_half(repo, path)


async def _nothing_half(repo: Repository, path: Path) -> None:
    nodes = await repo.get_nodes(["episodic"])
    assert sorted(node.step_index for node in nodes) == [0, 1]  # type: ignore[attr-defined]
    async with Mnemo(path, embedder=HashingEmbedder()) as another:
        assert (await another.check()).problems == ()


# ── Calls at the wrong time or place ─────────────────────────────────────────────────


@pytest.mark.slow
async def test_a_callback_that_never_ends_does_not_hold_the_end(collecting):
    """Callbacks get the grace; then the session ends all the same, and later ones are dropped."""
    kit, session = collecting
    called: list[str] = []

    async def endless(outcome: Outcome) -> None:
        called.append(str(outcome.value))
        await anyio.sleep_forever()

    await session.append_async("one", "", endless)
    await kit.until(lambda: bool(called))
    with anyio.fail_after(120):
        await session.aclose()
    assert called == ["appended"]
    again = await kit.repo.resume_session(session.id)
    assert [step.observation for step in again.recent_steps(5)] == ["one"]


async def test_an_ended_session_refuses_every_call_and_says_how_to_go_on(
    kit,
):
    """After aclose all calls are SessionClosed; state and context can still be read."""
    session = await kit.begun()
    await session.aclose()
    awaited: list[Callable[[], Awaitable[Any]]] = [
        lambda: session.append("o", "a"),
        lambda: session.start_episode("g"),
        session.close,
        session.commit,
        session.discard,
        session.close_and_commit,
        lambda: session.wait_for("collecting"),
    ]
    for call in awaited:
        with pytest.raises(SessionClosed) as closed:
            await call()
        assert closed.value.reason == "session_closed"
    queued: list[Callable[[], Any]] = [
        lambda: session.append_async("o", "a"),
        lambda: session.start_episode_async("g"),
        session.close_async,
        session.commit_async,
        session.discard_async,
    ]
    for queue in queued:
        with pytest.raises(SessionClosed):
            queue()
    assert session.state == "collecting"
    context = session.context()
    assert context is not None
    assert context.steps == ("seen -> done",)
    assert (await kit.repo.resume_session(session.id)).state == "collecting"


async def elsewhere(call: Callable[[], Any]) -> None:
    """Make *call* on an event loop of its own, in another thread."""

    async def make() -> None:
        with anyio.fail_after(120):
            result = call()
            if isinstance(result, Awaitable):
                await result

    await anyio.to_thread.run_sync(anyio.run, make)


async def test_another_event_loop_is_refused(open_kit):
    """Service, repository and session belong to the loop that opened them, and say so."""
    kit: Kit = await open_kit()
    kit.model.block("annotate")
    session = await kit.started()
    talk = kit.repo.conversation("t")
    await talk.append({"role": "user", "content": "hello"})
    window, feed = talk.viewport(1_000), await talk.feed(session)
    queued = kit.repo.notes.update_after_task_async([{"role": "user"}] * 9, iterations=9)
    calls: list[Callable[[], Any]] = [
        kit.memory.aclose,
        lambda: kit.memory.close_repo("r"),
        kit.memory.check,
        session.aclose,
        session.commit,
        session.discard,
        session.close_and_commit,
        lambda: session.start_episode("h"),
        lambda: session.append_messages([{"role": "user", "content": "hi"}]),
        session.commit_async,
        session.discard_async,
        kit.repo.statistics,
        kit.repo.sessions,
        kit.repo.threads,
        lambda: kit.repo.search("hello"),
        lambda: kit.repo.forget(session_id=session.id),
        lambda: kit.repo.conversation("t"),
        lambda: kit.repo.notes,
        lambda: talk.append({"role": "user", "content": "hi"}),
        talk.load,
        talk.history,
        talk.compress,
        talk.settle,
        talk.clear,
        talk.purge,
        lambda: talk.feed(session),
        window.messages,
        window.render,
        window.evict,
        feed.caught_up,
        feed.cancel,
        lambda: kit.memory.open_repo("other"),
        lambda: kit.memory.list_repos(),
        lambda: kit.repo.recall("anything"),
        lambda: kit.repo.start_session("g"),
        lambda: session.append("o", "a"),
        session.close,
        lambda: session.append_async("o", "a"),
        session.close_async,
        lambda: session.wait_for("collecting"),
    ]
    for call in calls:
        with pytest.raises(UsageError, match="another event loop"):
            await elsewhere(call)
    await kit.until(lambda: queued.done)
    assert (session.state, session.statistics().steps) == ("collecting", 0)
    await session.append("here", "")


def test_what_outlives_a_run_of_its_event_loop_says_so(tmp_path):
    """A service that is open while its loop does not run refuses every call of the next loop."""

    async def opened() -> tuple[Mnemo, Session]:
        memory = Mnemo(tmp_path / "m.db", embedder=HashingEmbedder())
        await memory.open()
        return memory, await (await memory.open_repo("r")).start_session("g")

    async def refused() -> None:
        for call in (memory.aclose, session.aclose, session.close, memory.check):
            with pytest.raises(UsageError, match="another event loop"), anyio.fail_after(120):
                await call()

    with asyncio.Runner() as owner:
        memory, session = owner.run(opened())
        asyncio.run(refused())
        owner.run(memory.aclose())
