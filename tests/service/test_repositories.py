"""All repositories of a store, one deleted, and a copy of the store."""

import sqlite3
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from helpers import Kit, OpenKit, repository, until

from mnemo import (
    Config,
    ExtractionFailed,
    Mnemo,
    ModelUnavailable,
    NotFound,
    Repository,
    RepositoryAlreadyOpen,
    Semantic,
    StoreError,
    UsageError,
)
from mnemo.erasure import repositories
from mnemo.log.job_rules import finish_embedding, finish_job
from mnemo.protocols import FeedCursor
from mnemo.store.sqlite import connection as readers
from mnemo.testing import HashingEmbedder, ScriptedChatModel
from mnemo.values.jobs import Job

SECRET = "vqzkxwbrtd"
KEPT = {"meta", "owners", "erased", "repos", "sqlite_sequence"}
"""Tables of the whole store."""


@pytest.fixture
async def kit(open_kit: OpenKit, db: Path) -> Kit:
    """A service over a file, without a chat model."""
    return await open_kit(store=db, embedded=True)


async def filled(kit: Kit, repo: Repository, word: str) -> None:
    """One of everything: a committed session, an open one, a thread with its window, a note."""
    session = await repo.start_session(f"help {word}", session_id=f"{repo.id} {word}")
    await session.append(f"My cat is called {word.capitalize()}.", "Noted", actor="Ada")
    await session.close_and_commit()
    other = await repo.start_session(f"look at {word}")
    await other.append(f"Seen {word}", "")
    talk = repo.conversation(f"about {word}")
    for number in range(12):
        said = f"{word} is in message {number} of this thread about many open points"
        await talk.append([{"role": "user", "content": said}])
        await talk.viewport(100).render()
    await talk.settle()
    await repo.notes.write(f"topic-{word}", f"All about {word}.", f"what {word} is")
    await repo.remember(f"I met {word} again.")
    await repo.settle()


def tables_of(file: sqlite3.Connection) -> set[str]:
    """The tables of repositories' things, full text aside."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table'"
    names = {name for (name,) in file.execute(query)} - KEPT
    return {n for n in names if not n.startswith("text")}


def tables_with_rows(db: Path) -> set[str]:
    """The tables of repositories' things that hold a row."""
    with closing(sqlite3.connect(db)) as file:
        found = tables_of(file)
        return {n for n in found if file.execute(f"SELECT 1 FROM {n} LIMIT 1").fetchone()}


def files_with(db: Path, word: str) -> list[str]:
    """The files of the folder that hold the word, in whatever case."""
    raw = {path.name: path.read_bytes().lower() for path in db.parent.iterdir()}
    return [name for name, held in raw.items() if word.encode() in held]


# ── Listing ──────────────────────────────────────────────────────────────────────────────


async def test_all_stored_repositories_are_listed(kit, db):
    """Open or not, by id, with what they hold and since when; of other services as well."""
    assert await kit.memory.repos() == []
    first = kit.clock.now()
    await kit.repo.add_memory("Ada likes tea", tags=["tea"])
    await kit.clock.advance(60)
    await kit.repo.conversation("t").append([{"role": "user", "content": "hi"}])
    other = await kit.memory.open_repo("another")
    session = await other.start_session("look")
    await session.append("seen", "")
    await kit.memory.close_repo("another")
    records = await kit.memory.repos()
    assert [record.id for record in records] == ["another", "r"]
    another, record = records
    assert (record.threads, record.sessions, dict(record.nodes)) == (
        1,
        0,
        {"semantic": 1, "tag": 1},
    )
    assert (record.created_at, record.changed_at) == (first, kit.clock.now())
    assert (another.sessions, dict(another.nodes)) == (1, {})
    assert (another.failed, another.ready, another.waiting) == (0, 0, 0)
    assert repr(record) == "<RepositoryRecord 'r': 1 threads, 0 sessions, 2 nodes>"


async def test_the_list_of_repositories_counts_what_failed_and_what_waits(open_kit, db):
    """A session to commit, one that failed, and a thread whose extraction waits for quiet."""
    kit = await open_kit(store=db, embedded=True)
    model = ScriptedChatModel()
    model.script("semantic", ModelUnavailable("the model is down"))
    broken = await kit.memory.open_repo("broken", chat_model=model)
    ready = await kit.repo.start_session("look")
    await ready.append("I live in Lund.", "")
    await ready.close()
    await ready.wait_for("ready")
    failed = await broken.start_session("look again")
    await failed.append("I have a cat.", "")
    await failed.close()
    await failed.wait_for("failed")
    with suppress(ExtractionFailed):  # of a thread: its session and its job are one failure
        await broken.remember("I row.", thread_id="t", wait=True)
    await kit.repo.remember("I ski.", thread_id="t")
    records = await kit.memory.repos()
    counts = {record.id: (record.failed, record.ready, record.waiting) for record in records}
    assert counts == {"broken": (2, 0, 1), "r": (0, 1, 1)}


@pytest.mark.parametrize("id", ["another", "x" * 999, " ", "", "a\x00b"])
async def test_a_repository_is_stored_once_it_was_written_to(kit, id):
    """One that is only open is not, nor is one whose id cannot be stored."""
    assert not await kit.memory.has_repo("r")
    await kit.repo.add_memory("Ada likes tea")
    assert await kit.memory.has_repo("r")
    assert not await kit.memory.has_repo(id)


# ── Deleting ─────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
async def test_a_deleted_repository_leaves_no_row_and_no_byte(kit, db):
    """Every table is empty of it; another repository is as it was; the id can be used anew."""
    other = await kit.memory.open_repo("other")
    await filled(kit, other, "violin")
    before = [n.text for n in await other.get_nodes(["semantic"])]
    doomed = await kit.memory.open_repo(f"of {SECRET}")
    await filled(kit, doomed, SECRET)
    assert files_with(db, SECRET)
    planned = await kit.memory.delete_repo(doomed.id, dry_run=True)
    assert await kit.memory.has_repo(doomed.id)
    await kit.memory.close_repo(doomed.id)
    report = await kit.memory.delete_repo(doomed.id)
    assert report.scrubbed
    assert replace(report, scrubbed=planned.scrubbed) == planned
    assert report.steps >= 2
    assert report.messages >= 12
    assert report.sessions >= 2
    assert report.notes == 1
    assert files_with(db, SECRET) == []
    assert [record.id for record in await kit.memory.repos()] == ["other"]
    assert [n.text for n in await other.get_nodes(["semantic"])] == before
    assert await other.search("violin")
    assert (await kit.memory.check()).problems == ()
    again = await kit.memory.open_repo(doomed.id)
    assert (await again.statistics()).steps == 0
    assert not (await again.recall("cat")).candidates
    await again.add_memory("Bo likes bread")
    assert (await again.recall("bread")).candidates


@pytest.mark.slow
async def test_the_last_repository_leaves_empty_tables(kit, db):
    """Whatever tables there are."""
    repo = await kit.memory.open_repo("only")
    await filled(kit, repo, "violin")
    await kit.memory.close_repo("only")
    assert len(tables_with_rows(db)) > 15
    await kit.memory.delete_repo("only")
    assert tables_with_rows(db) == set()
    assert (await kit.memory.check()).problems == ()


async def test_every_table_is_deleted_from(kit, db):
    """A table that the schema gets is one that a deleted repository leaves."""
    with closing(sqlite3.connect(db)) as file:
        assert tables_of(file) == {*repositories._TABLES}


async def test_an_open_or_unknown_repository_is_not_deleted(kit):
    """The errors say what to do."""
    await kit.repo.add_memory("Ada likes tea")
    with pytest.raises(RepositoryAlreadyOpen, match="close_repo"):
        await kit.memory.delete_repo("r")
    for unknown in ("nobody", "R"):
        for dry_run in (True, False):
            with pytest.raises(NotFound):
                await kit.memory.delete_repo(unknown, dry_run=dry_run)
    with pytest.raises(ValueError, match="repo_id"):
        await kit.memory.delete_repo(" ")
    assert [memory.text for memory in await kit.repo.memories()] == ["Ada likes tea"]


@pytest.mark.slow
async def test_another_service_loses_a_deleted_repository(kit, db):
    """What it had open finds nothing any more, and its session takes no more."""
    async with repository(db, "shared", clock=kit.clock) as other:
        await other.add_memory("Ada likes tea")
        session = await other.start_session("look")
        assert (await other.recall("tea")).candidates
        await kit.memory.delete_repo("shared")
        assert not (await other.recall("tea")).candidates
        with pytest.raises((UsageError, StoreError)):
            await session.append("seen", "")


# ── A copy ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
async def test_what_ends_late_brings_no_deleted_repository_back(kit, db):
    """A worker elsewhere that finishes, or a refused write: what writes nothing makes nothing."""
    async with Mnemo(db, embedder=HashingEmbedder()) as other:
        theirs = await other.open_repo("gone")
        await theirs.remember("I play the cello.")
        await theirs.settle()
        job = Job(kind="extract", subject="t", due_at=kit.clock.now()).claimed("some token")
        await kit.memory.delete_repo("gone")
        transcript = theirs._parts.transcript
        await transcript.writing(partial(finish_job, job=job))
        await transcript.writing(partial(finish_embedding, job=job, until=FeedCursor()))
        assert "gone" not in {one.id for one in await kit.memory.repos()}


async def test_a_backup_is_a_store_of_one_moment_while_others_write(kit, db):
    """All that was acknowledged before is in it, and what it holds is consistent."""
    target = db.parent / "copy of it.db"
    for number in range(50):
        await kit.repo.add_memory(f"The value of item{number} is {number}")
    copies = list[Path]()

    async def write() -> None:
        for number in range(50, 80):
            await kit.repo.add_memory(f"The value of item{number} is {number}")

    async with anyio.create_task_group() as group:
        group.start_soon(write)
        for number in range(3):
            copies.append(target.with_name(f"{number}.db"))
            await kit.memory.backup(copies[-1])
    for copy in copies:
        async with Mnemo(copy, embedder=HashingEmbedder()) as memory:
            assert (await memory.check()).problems == ()
            repo = await memory.open_repo("r")
            assert len(await repo.memories(limit=1_000)) >= 50
            assert (await repo.recall("item7")).candidates
    assert not [path for path in db.parent.iterdir() if "partial" in path.name]


async def test_a_store_in_memory_is_backed_up(open_kit, db):
    """To a file like any other."""
    kit = await open_kit(embedded=True)
    await kit.repo.add_memory("Ada likes tea")
    await kit.memory.backup(str(db))
    async with Mnemo(db, embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("r")
        assert [memory.text for memory in await repo.memories()] == ["Ada likes tea"]


def listing(db: Path) -> dict[str, bytes]:
    """The files of the folder, side files of the open store aside."""
    own = {f"{db.name}-wal", f"{db.name}-shm"}
    return {p.name: p.read_bytes() for p in db.parent.iterdir() if p.name not in own}


async def test_a_backup_over_something_is_refused(kit, db):
    """The store itself, a file, a folder, a link to nowhere, a folder that is not there."""
    taken, folder, link = (db.parent / name for name in ("taken", "folder", "link"))
    taken.write_text("kept")
    folder.mkdir()
    link.symlink_to(db.parent / "nowhere")
    for path in (db, db.with_name(f"{db.name}-wal"), taken, folder, link):
        with pytest.raises(UsageError, match="exists already"):
            await kit.memory.backup(path)
    with pytest.raises(UsageError, match="create it first"):
        await kit.memory.backup(db.parent / "missing" / "copy.db")
    for path in ("", " ", "a\0b", 7):
        with pytest.raises(ValueError, match="path"):
            await kit.memory.backup(path)  # type: ignore[arg-type]
    assert taken.read_text() == "kept"
    assert {path.name for path in db.parent.iterdir()} == {
        db.name, f"{db.name}-wal", f"{db.name}-shm", "taken", "folder", "link",
    }  # fmt: skip


async def test_a_name_that_is_taken_meanwhile_is_kept(kit, db, monkeypatch):
    """Somebody else's file of that name stays, also where there are no links; no part is left."""
    target = db.parent / "copy.db"
    fill = readers._fill

    def slowly(connection: Any, part: Path) -> None:
        fill(connection, part)
        target.write_text("theirs")

    monkeypatch.setattr(readers, "_fill", slowly)

    def no_links(*paths: Any) -> None:
        raise OSError(1, "Operation not permitted")

    for links in (True, False):
        with monkeypatch.context() as patch:
            if not links:
                patch.setattr(readers.os, "link", no_links)
            with pytest.raises(UsageError, match="exists already"):
                await kit.memory.backup(target)
        assert target.read_text() == "theirs"
        target.unlink()
    monkeypatch.setattr(readers, "_fill", fill)
    monkeypatch.setattr(readers.os, "link", no_links)
    await kit.memory.backup(target)
    assert target.stat().st_size > 0
    assert not [path for path in db.parent.iterdir() if "partial" in path.name]


def full_disk(_: Any, part: Path) -> None:
    """As SQLite says it of a disk without room, with half of the file written."""
    part.write_bytes(b"half")
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    raise error


async def test_a_failed_backup_leaves_nothing_behind(kit, db, monkeypatch):
    """The error is a StoreError, the part is gone, and the store goes on."""
    await kit.repo.add_memory("Ada likes tea")
    monkeypatch.setattr(readers, "_fill", full_disk)
    before = listing(db)
    with pytest.raises(StoreError, match="disk is full"):
        await kit.memory.backup(db.parent / "copy.db")
    assert listing(db) == before
    await kit.repo.add_memory("Bo likes bread")
    assert isinstance((await kit.repo.get_nodes(["semantic"]))[1], Semantic)


# ``open_repo(exist_ok=True)``: the open repository, unless it is another than asked for.


async def test_the_open_repository_is_given():
    """The same object, however often; without ``exist_ok`` it is refused."""
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("ada", exist_ok=True)
        assert await memory.open_repo("ada", exist_ok=True) is repo
        with pytest.raises(RepositoryAlreadyOpen, match=r"use memory\.repo"):
            await memory.open_repo("ada")


async def test_many_tasks_open_one_repository_at_once(tmp_path):
    """All get the one that the first opens."""
    opened: list[Repository] = []
    async with Mnemo(tmp_path / "m.db", embedder=HashingEmbedder()) as memory:

        async def open_it() -> None:
            opened.append(await memory.open_repo("ada", exist_ok=True))

        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(open_it)
    assert len(opened) == 20
    assert len(set(map(id, opened))) == 1


async def test_another_configuration_is_refused():
    """A config, chat model or embedding space that the open one does not have; none is any."""
    same, other = Config(recall={"record_access": False}), Config(recall={"timeout_s": 5})
    model = ScriptedChatModel.answering()
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("ada", config=same, chat_model=model)
        again = await memory.open_repo("ada", exist_ok=True, config=same, chat_model=model)
        assert again is repo
        assert await memory.open_repo("ada", exist_ok=True, embedder=HashingEmbedder()) is repo
        with pytest.raises(RepositoryAlreadyOpen, match="another config"):
            await memory.open_repo("ada", exist_ok=True, config=other)
        with pytest.raises(RepositoryAlreadyOpen, match="another chat model"):
            await memory.open_repo("ada", exist_ok=True, chat_model=ScriptedChatModel.answering())
        with pytest.raises(RepositoryAlreadyOpen, match="another embedder"):
            await memory.open_repo("ada", exist_ok=True, embedder=HashingEmbedder(32))


async def test_what_an_earlier_run_left_gets_its_vectors_at_the_next_opening(db):
    """Also where the newest text, which is embedded first, has its vector."""
    embedder = HashingEmbedder()
    config = Config(jobs={"background": False})
    async with Mnemo(db, embedder=embedder, config=config) as memory:
        repo = await memory.open_repo("r")
        await repo.conversation("t").append(
            [{"role": "user", "content": f"bee {n}"} for n in range(5)]
        )
        (vector,) = await embedder.embed(["bee 4"])
        vectors = {"message-5/observation": vector}
        await memory._store.feed("r").save_vectors(embedder.space, vectors)  # type: ignore[union-attr]
    async with Mnemo(db, embedder=embedder) as memory:
        repo = await memory.open_repo("r")
        with closing(sqlite3.connect(db)) as file:
            count = "SELECT count(*) FROM vectors"
            await until(lambda: file.execute(count).fetchone() == (5,))
            assert repo.id == "r"
