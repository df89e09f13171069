"""Opening a file: what it may be, what it may not be, and that a refused one stays as it was."""

import hashlib
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from contracts.kit import Kit
from helpers import child_environment

from mnemo import Mnemo
from mnemo.config import StoreConfig
from mnemo.errors import Conflict, SchemaTooNew, StoreCorrupt, StoreError
from mnemo.runtime.clock import SystemClock
from mnemo.store.sqlite import schema
from mnemo.stores import SqliteStore
from mnemo.values.erasure import Selection

MakeSqlite = Callable[..., SqliteStore]

FIRST_VERSION = "b4b4266901d1f57d"
"""Digest of the columns of schema version 5, which is never changed again."""
NOBODY = 65534


async def made(make: MakeSqlite) -> None:
    """A valid, closed store at the path."""
    store = make()
    owner = await store.open()
    await store.release(owner)
    await store.aclose()


async def refused(make: MakeSqlite, kind: type[StoreError], words: str) -> None:
    store = make()
    with pytest.raises(kind, match=words) as caught:
        await store.open()
    assert type(caught.value) is kind
    await store.aclose()


async def test_a_constructor_touches_nothing(make: MakeSqlite, path: Path) -> None:
    """The file is made by ``open``, not before."""
    make()
    assert not path.exists()


async def test_an_unopened_store_says_so(make: MakeSqlite) -> None:
    """Use before ``open`` is a typed error, and closing is harmless."""
    store = make()
    with pytest.raises(StoreError, match="not open"):
        await store.graph("r").revision()
    await store.aclose()


async def test_a_closed_store_says_so(make: MakeSqlite) -> None:
    """Use after ``aclose`` is a typed error, for reading and for writing."""
    store = make()
    owner = await store.open()
    await store.aclose()
    await store.aclose()
    with pytest.raises(StoreError, match="closed"):
        await store.graph("r").revision()
    with pytest.raises(StoreError, match="closed"):
        await store.release(owner)


async def test_a_closed_store_leaves_one_file(make: MakeSqlite, path: Path) -> None:
    """After the last close everything is in the file itself, readable by a copy."""
    store = make()
    await store.open()
    await store.graph("r").revision()
    await store.aclose()
    assert [p.name for p in path.parent.iterdir()] == [path.name]


async def test_a_directory_is_refused(make: MakeSqlite, path: Path) -> None:
    """The error names the directory and what to name instead."""
    path.mkdir()
    await refused(make, StoreError, "is a directory")


async def test_a_missing_folder_is_refused(path: Path) -> None:
    """No folder is made behind the user's back."""
    missing = path.parent / "nowhere" / "mnemo.db"
    store = SqliteStore(missing, config=StoreConfig(), clock=SystemClock(), lease_s=30)
    with pytest.raises(StoreError, match="does not exist"):
        await store.open()
    assert not missing.parent.exists()


async def test_what_is_no_database_is_refused(make: MakeSqlite, path: Path) -> None:
    """A text file stays byte for byte what it was."""
    content = b"Dear diary, " * 1000
    path.write_bytes(content)
    await refused(make, StoreCorrupt, "no mnemo store")
    assert path.read_bytes() == content


async def test_a_foreign_database_is_refused(make: MakeSqlite, path: Path) -> None:
    """Somebody else's tables are not moved in with."""
    foreign = sqlite3.connect(path)
    foreign.execute("CREATE TABLE theirs (x)")
    foreign.commit()
    foreign.close()
    before = path.read_bytes()
    await refused(make, StoreCorrupt, "no mnemo store")
    assert path.read_bytes() == before


async def test_an_empty_file_becomes_a_store(make: MakeSqlite, path: Path) -> None:
    """A file of no bytes, as a temporary-file call makes it, is as good as none."""
    path.touch()
    await made(make)
    assert path.stat().st_size > 0


async def test_a_truncated_file_is_refused(make: MakeSqlite, path: Path) -> None:
    """A file that lost its tail is found at open, before anything is written to it."""
    await made(make)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    await refused(make, StoreCorrupt, "damaged")
    assert path.read_bytes() == content[: len(content) // 2]


async def test_a_newer_schema_is_refused(make: MakeSqlite, path: Path) -> None:
    """Both versions are named, and no byte is changed."""
    await made(make)
    newer = sqlite3.connect(path)
    newer.execute(f"PRAGMA user_version = {schema.VERSION + 5}")
    newer.close()
    before = path.read_bytes()
    with pytest.raises(SchemaTooNew) as caught:
        await make().open()
    assert (caught.value.found, caught.value.supported) == (schema.VERSION + 5, schema.VERSION)
    assert "`pip install --upgrade mnemo-sessions`" in str(caught.value)
    assert "`mnemo backup`" in str(caught.value)
    assert path.read_bytes() == before


async def test_a_negative_schema_version_is_refused(make: MakeSqlite, path: Path) -> None:
    """A damaged version runs no migration, and no copy is left beside the file."""
    await made(make)
    broken = sqlite3.connect(path)
    broken.execute("PRAGMA user_version = -1")
    broken.close()
    before = path.read_bytes()
    await refused(make, StoreCorrupt, "schema version is -1")
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


TAKE_OVER = "`mnemo export REPO.jsonl .* --store OLD` .* `mnemo import REPO.jsonl .* --store NEW`"
"""The commands that bring the data of an older store into a new one."""


@pytest.mark.parametrize("version", [1, 4])
async def test_a_schema_before_the_first_is_refused(
    make: MakeSqlite, path: Path, version: int
) -> None:
    """The error says how to take the data over; no byte is changed, no copy is made."""
    await made(make)
    older = sqlite3.connect(path)
    older.execute(f"PRAGMA user_version = {version}")
    older.close()
    before = path.read_bytes()
    await refused(make, StoreError, f"schema version {version}, .* {TAKE_OVER}")
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


async def test_the_present_version_is_not_migrated(make: MakeSqlite, path: Path) -> None:
    """Opening again makes no copy and changes no table."""
    await made(make)
    await made(make)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


async def test_a_file_whose_steps_have_no_role_keeps_them(path: Path) -> None:
    """A version-5 file opens, its steps without a role; a copy stays beside it."""
    async with Mnemo(path, embedder="static") as memory:
        session = await (await memory.open_repo("r")).start_session("talk", session_id="s")
        await session.append_messages([{"role": "user", "content": "Lea sails."}])
    _take_back(path)

    async with Mnemo(path, embedder="static") as memory:
        session = await (await memory.open_repo("r")).resume_session("s")
        await session.append_messages([{"role": "user", "content": "Bo rows."}])
        told = [(step.observation, step.role) for step in session.recent_steps(2)]
        assert (await memory.check()).problems == ()
        # Ids are unique in their repository since version 13.
        await (await memory.open_repo("q")).start_session("talk", session_id="s")

    assert told == [("Lea sails.", None), ("Bo rows.", "user")]
    assert path.with_name("mnemo.db.v5.bak").exists()


async def test_what_was_forgotten_before_version_13_stays_so(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then ids were remembered for all repositories of the file: they are refused in each."""
    await kit.start()
    await kit.append("The harbour is closed.")
    with monkeypatch.context() as before:
        before.setattr("mnemo.store.tombstones._in_repository", lambda repo_id, id: id)
        await kit.store.overhaul("r").erase(Selection(session_id="s"))
    for repo in ("r", "q"):
        with pytest.raises(Conflict):
            await kit.start(repo=repo)
        (refused,) = await kit.append_all([("late", "")], repo=repo)
        assert type(refused) is Conflict


async def test_a_failing_migration_leaves_the_version_before_it(
    make: MakeSqlite, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step that failed is named, a copy exists, and opening again resumes."""
    await made(make)

    def second(db: object) -> None:
        db.execute("CREATE TABLE second (x)")

    def third(db: object) -> None:
        db.execute("CREATE TABLE third (x)")
        db.execute("CREATE TABLE third (x)")

    released = schema._MIGRATIONS
    monkeypatch.setattr(schema, "_MIGRATIONS", (*released, second, third))
    present = schema.VERSION
    monkeypatch.setattr(schema, "VERSION", present + 2)
    with pytest.raises(StoreError, match=f"to schema {present + 2} failed"):
        await make().open()
    assert _tables(path) == (present + 1, {"second"})
    assert path.with_name(f"mnemo.db.v{present}.bak").exists()

    mended = (*released, second, lambda db: db.execute("CREATE TABLE third (x)"))
    monkeypatch.setattr(schema, "_MIGRATIONS", mended)
    await made(make)
    assert _tables(path) == (present + 2, {"second", "third"})


async def test_a_store_of_the_first_version_gets_what_a_new_one_has(
    path: Path, make: Callable[..., SqliteStore]
):
    """
    Each table and index of a migrated file is that of a new one.

    A column that is new since the first version needs a migration, and a line in ``_take_back``.
    """
    await made(make)
    new = _columns(path)
    _take_back(path)
    assert _digest(_columns(path)) == FIRST_VERSION
    await made(make)
    assert _columns(path) == new


def _digest(columns: dict[str, set[str]]) -> str:
    listed = sorted((name, sorted(found)) for name, found in columns.items())
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()[:16]


def _take_back(path: Path) -> None:
    """Make a file of the first version of one of the present."""
    older = sqlite3.connect(path)
    for statement in (
        "DROP INDEX nodes_by_age",
        "CREATE INDEX idx_nodes_repo_type ON nodes (repo, type)",
        "DROP TABLE checkpoints",
        "DROP TABLE checkpoint_values",
        "DROP TABLE checkpoint_writes",
        "DROP TABLE items",
        "DROP TABLE item_vectors",
        "DROP TABLE jobs",
        "DROP INDEX sessions_thread",
        "DROP INDEX steps_message",
        "CREATE INDEX steps_thread ON steps (repo, thread) WHERE thread IS NOT NULL",
        "ALTER TABLE sessions DROP COLUMN thread_id",
        "ALTER TABLE threads DROP COLUMN extracted_seq",
        "ALTER TABLE steps DROP COLUMN role",
        "ALTER TABLE repos DROP COLUMN turn",
        "ALTER TABLE repos DROP COLUMN turn_until",
        "DROP INDEX idx_sessions_id",
        "CREATE UNIQUE INDEX idx_sessions_id ON sessions (id)",
        "DROP INDEX idx_episodes_id",
        "CREATE UNIQUE INDEX idx_episodes_id ON episodes (id)",
        "ALTER TABLE episodes DROP COLUMN repo",
        "PRAGMA user_version = 5",
    ):
        older.execute(statement)
    older.close()


def _columns(path: Path) -> dict[str, set[str]]:
    """The columns of each table and index."""
    connection = sqlite3.connect(path)
    try:
        names = [n for (n,) in connection.execute("SELECT name FROM sqlite_master")]
        columns = """
            SELECT name FROM pragma_table_info(?) UNION SELECT name FROM pragma_index_info(?)
        """
        return {n: {c for (c,) in connection.execute(columns, (n, n))} for n in names}
    finally:
        connection.close()


def _tables(path: Path) -> tuple[int, set[str]]:
    connection = sqlite3.connect(path)
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        return version, names & {"second", "third"}
    finally:
        connection.close()


async def test_many_may_create_the_file_at_once(make: MakeSqlite) -> None:
    """Several services that open one new path all get the same store."""
    stores = [make() for _ in range(6)]
    async with anyio.create_task_group() as tasks:
        for store in stores:
            tasks.start_soon(store.open)
    assert [await store.graph("r").revision() for store in stores] == [0] * 6
    for store in stores:
        await store.aclose()


async def test_full_durability_waits_for_the_disk(make: MakeSqlite) -> None:
    """``synchronous="full"`` is what the writing connection uses, ``normal`` the default."""
    for mode, number in (("normal", 1), ("full", 2)):
        store = make(synchronous=mode)
        await store.open()
        (found,) = await store.engine.writing(lambda tx: tx.run("PRAGMA synchronous").fetchone())
        assert found == number
        assert (await store.check()).synchronous == mode
        await store.aclose()


READ_ONLY = """
import anyio, os, sys
from mnemo.runtime.clock import SystemClock
from mnemo.config import StoreConfig
from mnemo.errors import StoreError
from mnemo.stores import SqliteStore
from contracts.records import found

async def main():
    store = SqliteStore(sys.argv[1], config=StoreConfig(), clock=SystemClock(), lease_s=30)
    if os.getuid() == 0:
        os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
    owner = await store.open()
    journal = await store.sessions("r").load("s")
    hits = await found(store, ["kyoto"])
    try:
        await store.sessions("r").claim("s", owner)
    except StoreError as error:
        print(len(journal.steps), len(hits), "cannot be written" in str(error))
    await store.aclose()

anyio.run(main)
"""


@pytest.fixture
def shared(path: Path) -> Iterator[Path]:
    """A place for the file that another user can reach, as a test's own folder is not."""
    with TemporaryDirectory() as folder:
        yield Path(folder) / path.name
        Path(folder).chmod(0o700)


@pytest.mark.slow
@pytest.mark.parametrize("folder_mode", [0o555, 0o777])
async def test_a_read_only_file_is_read(
    kit: Kit, path: Path, shared: Path, folder_mode: int
) -> None:
    """A file one may not write serves recall and search; writing calls say why they fail."""
    await kit.start()
    await kit.append("to kyoto")
    await kit.store.aclose()
    shutil.copyfile(path, shared)
    shared.chmod(0o444)
    shared.parent.chmod(folder_mode)
    result = await anyio.run_process(
        [sys.executable, "-c", READ_ONLY, str(shared), str(NOBODY)],
        stderr=subprocess.STDOUT,
        env=child_environment(),
    )
    assert result.stdout.decode().split() == ["1", "1", "True"]
