"""Opening a file: what it may be, what it may not be, and that a refused one stays as it was."""

import gzip
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from engines import change, rows_of
from helpers import child_environment

from mnemo.config import StoreConfig
from mnemo.errors import SchemaTooNew, StoreCorrupt, StoreError
from mnemo.runtime.clock import SystemClock
from mnemo.store import schema
from mnemo.store.tx import Tx
from mnemo.stores import SqliteStore

MakeSqlite = Callable[..., SqliteStore]

NOBODY = 65534
DATA = Path(__file__).parents[1] / "data"


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


async def test_a_constructor_touches_nothing(make, path):
    """The file is made by ``open``, not before."""
    make()
    assert not path.exists()


async def test_an_unopened_store_says_so(make):
    """Use before ``open`` is a typed error, and closing is harmless."""
    store = make()
    with pytest.raises(StoreError, match="not open"):
        await store.graph("r").revision()
    await store.aclose()


async def test_a_closed_store_says_so(make):
    """Use after ``aclose`` is a typed error, for reading and for writing."""
    store = make()
    owner = await store.open()
    await store.aclose()
    await store.aclose()
    with pytest.raises(StoreError, match="closed"):
        await store.graph("r").revision()
    with pytest.raises(StoreError, match="closed"):
        await store.release(owner)


async def test_a_closed_store_leaves_one_file(make, path):
    """After the last close everything is in the file itself, readable by a copy."""
    store = make()
    await store.open()
    await store.graph("r").revision()
    await store.aclose()
    assert [p.name for p in path.parent.iterdir()] == [path.name]


async def test_a_missing_folder_is_refused(path):
    """No folder is made behind the user's back."""
    missing = path.parent / "nowhere" / "mnemo.db"
    store = SqliteStore(missing, config=StoreConfig(), clock=SystemClock(), lease_s=30)
    with pytest.raises(StoreError, match="does not exist"):
        await store.open()
    assert not missing.parent.exists()


async def test_an_empty_file_becomes_a_store(make, path):
    """A file of no bytes, as a temporary-file call makes it, is as good as none."""
    path.touch()
    await made(make)
    assert path.stat().st_size > 0


async def test_a_newer_schema_is_refused(make, path):
    """Both versions are named, and no byte is changed."""
    await made(make)
    change(path, f"PRAGMA user_version = {schema.VERSION + 5}")
    before = path.read_bytes()
    with pytest.raises(SchemaTooNew) as caught:
        await make().open()
    assert (caught.value.found, caught.value.supported) == (schema.VERSION + 5, schema.VERSION)
    assert "`pip install --upgrade mnemo-sessions`" in str(caught.value)
    assert "`mnemo backup`" in str(caught.value)
    assert path.read_bytes() == before


TAKE_OVER = "`mnemo export .* `scripts/convert_archive.py .* `mnemo import NEW.jsonl"
"""The commands that bring the data of a development version into a new store."""
IS_PREVIEW = f"PRAGMA application_id = {0x6D6E6D6F}"
IS_DEVELOPMENT = f"PRAGMA application_id = {0x6D6E656D}"


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        (["PRAGMA user_version = -1"], StoreCorrupt, "schema version is -1"),
        ([IS_PREVIEW], StoreError, "preview of mnemo .*`mnemo export .* `mnemo import REPO.jsonl"),
        *(
            (
                [IS_DEVELOPMENT, f"PRAGMA user_version = {version}"],
                StoreError,
                f"development version .*schema {version}.* {TAKE_OVER}",
            )
            for version in (1, 13, 99)
        ),
    ],
)
async def test_a_store_that_is_none_of_ours_is_refused(make, path, changes, kind, words):
    """A damaged version runs no migration, one of the development is named: nothing changes."""
    await made(make)
    change(path, *changes)
    before = path.read_bytes()
    await refused(make, kind, words)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


async def test_a_file_that_a_preview_wrote_is_refused(make, path):
    """As it was written, with what was forgotten; the error says what an archive leaves behind."""
    before = gzip.decompress((DATA / "preview.db.gz").read_bytes())
    path.write_bytes(before)
    assert rows_of(path, "SELECT count(*) FROM erased") == [(4,)]
    await refused(make, StoreError, "preview of mnemo .*does not say what was forgotten")
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


async def test_a_foreign_database_is_refused(make, path):
    """Somebody else's tables are not moved in with."""
    change(path, "CREATE TABLE theirs (x)")
    before = path.read_bytes()
    await refused(make, StoreCorrupt, "no mnemo store")
    assert path.read_bytes() == before


async def test_the_present_version_is_not_migrated(make, path):
    """Opening again makes no copy and changes no table."""
    await made(make)
    await made(make)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


async def test_a_failing_migration_leaves_the_version_before_it(make, path, monkeypatch):
    """The step that failed is named, a copy exists, and opening again resumes."""
    await made(make)

    def second(tx: Tx) -> None:
        tx.run("CREATE TABLE second (x)")

    def third(tx: Tx) -> None:
        tx.run("CREATE TABLE third (x)")
        tx.run("CREATE TABLE third (x)")

    released, present = schema.MIGRATIONS, schema.VERSION
    monkeypatch.setattr(schema, "MIGRATIONS", (*released, second, third))
    monkeypatch.setattr(schema, "VERSION", present + 2)
    monkeypatch.setattr("mnemo.store.sqlite.engine.VERSION", present + 2)
    with pytest.raises(StoreError, match=f"to schema {present + 2} failed"):
        await make().open()
    assert _tables(path) == (present + 1, {"second"})
    assert path.with_name(f"mnemo.db.v{present}.bak").exists()

    # An error of another kind does not pass for a step that was made.
    monkeypatch.setattr(schema, "MIGRATIONS", (*released, second, lambda tx: {}["bug"]))
    with pytest.raises(KeyError, match="bug"):
        await make().open()
    assert _tables(path) == (present + 1, {"second"})

    # What SQLite takes alone is done by sqlite-utils, in the same transaction.
    monkeypatch.setattr(schema, "MIGRATIONS", (*released, second, lambda tx: None))
    on_file = {present + 2: lambda db: db["third"].create({"x": int}, pk="x")}
    monkeypatch.setattr("mnemo.store.sqlite.schema.ON_FILE", on_file)
    await made(make)
    assert _tables(path) == (present + 2, {"second", "third"})


def _tables(path: Path) -> tuple[int, set[str]]:
    ((version,),) = rows_of(path, "PRAGMA user_version")
    names = {name for (name,) in rows_of(path, "SELECT name FROM sqlite_master")}
    return version, names & {"second", "third"}


async def test_many_may_create_the_file_at_once(make):
    """Several services that open one new path all get the same store."""
    stores = [make() for _ in range(6)]
    async with anyio.create_task_group() as tasks:
        for store in stores:
            tasks.start_soon(store.open)
    assert [await store.graph("r").revision() for store in stores] == [0] * 6
    for store in stores:
        await store.aclose()


async def test_full_durability_waits_for_the_disk(make):
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
async def test_a_read_only_file_is_read(kit, path, shared, folder_mode):
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
