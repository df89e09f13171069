"""A PostgreSQL server that is full, locked, old, out of reach, or asks for TLS."""

import contextlib
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

import anyio
import anyio.to_thread
import psycopg
import pytest
from helpers import repository
from postgres_proxy import proxied
from postgres_server import execute, new_schema, postgres_store
from world import Kit

from mnemo import Mnemo, StoreError, StoreLocked, StoreUnavailable
from mnemo.runtime.validation import MOST_TEXT_BYTES
from mnemo.store.postgres import schema as versions
from mnemo.store.rows import repo_number
from mnemo.store.tx import Tx
from mnemo.testing import HashingEmbedder, ManualClock

pytestmark = [pytest.mark.postgres, pytest.mark.slow, pytest.mark.long]

ROOM = 48 * 2**20


@asynccontextmanager
async def opened(url: str, **config: object) -> AsyncIterator[Kit]:
    """A store with the session ``s``, which is open already or begins here."""
    clock = ManualClock()
    store = postgres_store(url, clock, **config)
    kit = Kit(lambda _: store, clock, store, await store.open())
    try:
        yield kit
    finally:
        await store.aclose()


async def said(kit: Kit, session: str = "s") -> list[str]:
    """The steps that are stored."""
    return [step.observation for step in (await kit.load(session)).steps]


def schema_of(url: str) -> str:
    return url.rpartition("schema=")[2]


# ── Connections ──────────────────────────────────────────────────────────────────────


@pytest.fixture
def role(postgres_server: str, postgres_url: str) -> Iterator[str]:
    """The URL of a role that may do everything in the schema, as ``postgres`` may not be bound."""
    execute(postgres_server, "CREATE ROLE bounded LOGIN IN ROLE pg_write_all_data")
    execute(postgres_server, "GRANT pg_read_all_data TO bounded")
    yield postgres_url.replace("postgres:@", "bounded@")
    execute(postgres_server, "DROP ROLE bounded")


async def test_without_a_connection_to_read_by_writes_go_on(postgres_server, postgres_url, role):
    """A server without room is StoreUnavailable; nothing else stops; later, reads go on."""
    async with opened(postgres_url):
        pass
    async with opened(role, busy_timeout_s=2.0) as kit:
        execute(postgres_server, "ALTER ROLE bounded CONNECTION LIMIT 1")
        await kit.start()
        await kit.append("one")
        with pytest.raises(StoreUnavailable, match="try again"):
            await said(kit)
        with pytest.raises(StoreUnavailable, match="too many connections"):
            await postgres_store(role).open()
        await kit.append("two")
        execute(postgres_server, "ALTER ROLE bounded CONNECTION LIMIT -1")
        assert await said(kit) == ["one", "two"]


async def test_a_server_that_does_not_answer_is_given_up_in_time():
    """It accepts and is silent: StoreUnavailable within ``connect_timeout``, without password."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        url = f"postgresql://me:secret@127.0.0.1:{port}/db?connect_timeout=2"
        began = monotonic()
        with pytest.raises(StoreUnavailable, match=r"db at 127\.0\.0\.1.*timeout") as caught:
            await Mnemo(url).open()
        assert monotonic() - began < 30
        assert "secret" not in str(caught.value)


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    """A server's TLS, by the certificate ``server.crt`` for 127.0.0.1 that it made itself."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(tmp_path / "server.key"), "-out", str(tmp_path / "server.crt")]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *files, *names]
    subprocess.run(command, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    return context


async def test_a_certificate_that_is_trusted_is_enough(
    postgres_server, postgres_url, tls, tmp_path
):
    """``sslmode=verify-full`` goes by ``sslrootcert``; an unknown certificate is refused."""
    async with proxied(postgres_server, tls=tls) as url:
        strict = f"{url}&sslmode=verify-full&schema={schema_of(postgres_url)}"
        async with opened(f"{strict}&sslrootcert={tmp_path / 'server.crt'}") as kit:
            await kit.start()
            await kit.append("by TLS")
            assert await said(kit) == ["by TLS"]
        with pytest.raises(StoreError, match=r"refuses the connection.*certificate") as caught:
            await postgres_store(f"{strict}&sslrootcert=system").open()
        assert not isinstance(caught.value, StoreUnavailable)
        assert "secret" not in str(caught.value)


async def test_tls_that_the_server_does_not_have_is_refused(postgres_server):
    """``sslmode=require`` is a StoreError that no repetition mends, and nothing is sent."""
    async with proxied(postgres_server) as url:
        with pytest.raises(StoreError, match=r"refuses the connection.*SSL") as caught:
            await postgres_store(f"{url}&sslmode=require").open()
        assert not isinstance(caught.value, StoreUnavailable)


@pytest.mark.parametrize(
    ("rule", "login", "words"),
    [
        ("reject", "barred@", "no encryption"),  # so a server says that it wants TLS
        ("scram-sha-256", "barred:wrong-secret@", "barred"),
    ],
)
async def test_a_connection_that_the_server_rejects_is_not_tried_again(
    postgres_server, rule, login, words
):
    """By a rule of ``pg_hba.conf`` or for its password, which the error does not hold."""
    ((file,),) = execute(postgres_server, "SHOW hba_file")
    rules = Path(str(file))
    before = rules.read_text()
    execute(postgres_server, "CREATE ROLE barred LOGIN PASSWORD 'right-secret'")
    rules.write_text(f"local all barred {rule}\n{before}")
    try:
        execute(postgres_server, "SELECT pg_reload_conf()")
        with pytest.raises(StoreError, match=f"refuses the connection.*{words}") as caught:
            await postgres_store(postgres_server.replace("postgres:@", login)).open()
        assert not isinstance(caught.value, StoreUnavailable)
        assert "secret" not in str(caught.value)
    finally:
        rules.write_text(before)
        execute(postgres_server, "SELECT pg_reload_conf(); DROP ROLE barred")


async def test_a_server_that_is_too_old_is_refused(postgres_server):
    """PostgreSQL 14 is a StoreError that names both versions; nothing is made in it."""
    ((version,),) = execute(postgres_server, "SHOW server_version")
    new, old = (f"server_version\0{v}".encode() for v in (str(version), f"14{str(version)[2:]}"))

    async with proxied(postgres_server, said=lambda data: data.replace(new, old)) as url:
        with pytest.raises(StoreError, match="PostgreSQL 14: mnemo needs 15"):
            await postgres_store(f"{url}&schema=too_old").open()
    assert execute(postgres_server, "SELECT 1 FROM pg_namespace WHERE nspname='too_old'") == []


# ── Locks and pauses ─────────────────────────────────────────────────────────────────


async def test_a_read_waits_for_a_lock_no_longer_than_a_write(postgres_server, postgres_url):
    """Beyond the busy timeout it is StoreLocked; once the lock is free, reads go on."""
    async with opened(postgres_url, busy_timeout_s=1.0) as kit:
        await kit.start()
        await kit.append("one")
        with psycopg.connect(postgres_server) as holder:
            holder.execute(f"LOCK TABLE {schema_of(postgres_url)}.steps IN ACCESS EXCLUSIVE MODE")
            for _ in range(2):
                with pytest.raises(StoreLocked, match="lock timeout; try again"):
                    await said(kit)
        assert await said(kit) == ["one"]


async def test_a_lock_beyond_the_lease_costs_no_session(postgres_server, postgres_url):
    """Somebody locks the tables past the lease: renewals fail, and then the session goes on."""
    async with opened(postgres_url, busy_timeout_s=1.0) as kit:
        await kit.start()
        with psycopg.connect(postgres_server) as holder:
            schema = schema_of(postgres_url)
            holder.execute(f"LOCK TABLE {schema}.owners, {schema}.steps IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(StoreLocked):
                await kit.store.renew(kit.owner, 30)
            with pytest.raises(StoreLocked):
                await kit.append("refused")
            await kit.clock.advance(90)
        await kit.append("taken")
        await kit.store.renew(kit.owner, 30)
        assert await said(kit) == ["taken"]


async def test_a_writer_that_is_paused_holds_up_nobody_for_long(postgres_url, monkeypatch):
    """The server ends its transaction; others write; when it wakes, it writes anew, once."""
    monkeypatch.setattr("mnemo.store.postgres.engine._MOST_IDLE_MS", 300)
    locked, awake, tries = threading.Event(), threading.Event(), list[int]()
    async with opened(postgres_url) as paused, opened(postgres_url) as other:

        def work(tx: Tx) -> None:
            tx.run("LOCK TABLE steps IN ACCESS EXCLUSIVE MODE")
            tries.append(len(tries))
            locked.set()
            awake.wait(30)
            tx.run("INSERT INTO meta (name, value) VALUES ('woken', '1')")

        await other.start()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(paused.store.engine.writing, work)
            await anyio.to_thread.run_sync(locked.wait, 30)
            await other.append("meanwhile")
            awake.set()
        assert tries == [0, 1]
        assert await said(other) == ["meanwhile"]


_BACKEND = "SELECT pg_backend_pid()"
_LIVES = "SELECT count(*) FROM pg_stat_activity WHERE pid = {}"


@pytest.mark.parametrize("met_by", ["statement", "commit"])
async def test_a_transaction_beyond_the_timeout_of_the_server_is_repeated(
    postgres_url, postgres_server, met_by
):
    """The server ends the connection; what was written goes with it, and is written anew, once."""
    tries: list[int] = []

    def outlast_the_server(tx: Tx) -> None:
        if met_by == "statement":
            read_for_too_long(tx)
        (backend,) = tx.run(_BACKEND).fetchone()
        tx.run("SET LOCAL transaction_timeout = 1")
        while execute(postgres_server, _LIVES.format(backend)) != [(0,)]:
            pass

    def work(tx: Tx) -> int:
        tries.append(len(tries))
        repo_number(tx, "once")
        if tries == [0]:
            outlast_the_server(tx)
        return tries[-1]

    async with opened(postgres_url) as kit:
        assert await kit.store.engine.writing(work) == 1
        assert [record.id for record in await kit.store.repositories()] == ["once"]
        with pytest.raises(StoreUnavailable, match=r"transaction timeout.*try again"):
            await kit.store.engine.reading(read_for_too_long)
        assert [record.id for record in await kit.store.repositories()] == ["once"]


def read_for_too_long(tx: Tx) -> None:
    """Have the server end the connection within a statement, whose answer says so."""
    tx.run("SELECT set_config('transaction_timeout', '1', true), pg_sleep(30)")


# ── Room ─────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def small_disk(postgres_server: str) -> Iterator[Path]:
    """A file system of 48 MiB with the tablespace ``small``."""
    # The server runs as somebody else, who may not look into pytest's folders.
    folder = Path(tempfile.mkdtemp(prefix="mnemo-disk-"))
    folder.chmod(0o755)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        folder.rmdir()
        pytest.skip("mounting a file system is not allowed here")
    try:
        space = folder / "space"
        space.mkdir()
        ((data,),) = execute(postgres_server, "SHOW data_directory")
        owner = Path(str(data)).stat()
        shutil.chown(space, owner.st_uid, owner.st_gid)
        execute(postgres_server, f"CREATE TABLESPACE small LOCATION '{space}'")
        yield folder
        execute(postgres_server, "DROP TABLESPACE small")
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()


def fill(ballast: Path) -> None:
    """Leave no room on the file system of *ballast*."""
    with ballast.open("wb", 0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


async def test_a_full_disk_is_told_and_loses_nothing(postgres_server, small_disk):
    """An append is a StoreError that says so; reads go on, and appends once there is room."""
    with new_schema(postgres_server) as url:
        async with opened(f"{url}&options=-c%20default_tablespace%3Dsmall") as kit:
            await kit.start()
            await kit.append("before")
            ballast = small_disk / "ballast"
            fill(ballast)
            with pytest.raises(StoreError, match="disk is full; nothing was half-written"):
                await kit.append("word " * 200_000)
            kept = await said(kit)
            assert kept == ["before"]
            ballast.unlink()
            await kit.append("after")
            assert await said(kit) == [*kept, "after"]


# ── Versions ─────────────────────────────────────────────────────────────────────────


async def test_an_older_schema_waits_for_its_owner(postgres_server, monkeypatch):
    """A role without DDL is told both versions; the owner opens it, and then both go on."""
    with new_schema(postgres_server) as url:
        async with repository(url, "before") as repo:
            await repo.remember("I saw Tokyo, 東京.", thread_id="t")
        execute(
            postgres_server,
            "CREATE ROLE runner LOGIN IN ROLE pg_read_all_data, pg_write_all_data",
        )
        column = "ALTER TABLE items ADD later TEXT"
        monkeypatch.setattr(versions, "MIGRATIONS", (lambda tx: tx.run(column),))
        monkeypatch.setattr(versions, "VERSION", 2)
        running = url.replace("postgres:@", "runner@")
        try:
            with pytest.raises(
                StoreError, match=r"has version 1, this mnemo needs 2.*open it once as owner"
            ):
                await postgres_store(running).open()
            async with opened(url), opened(running) as kit:
                await kit.start()
                await kit.append("migrated")
                assert await said(kit) == ["migrated"]
            async with Mnemo(running, embedder=HashingEmbedder()) as memory:
                assert (await memory.check()).problems == ()
        finally:
            execute(postgres_server, "DROP ROLE runner")


# ── What is stored ───────────────────────────────────────────────────────────────────


async def test_what_cannot_be_stored_is_changed_as_in_a_file(postgres_url, tmp_path):
    """U+0000 and half pairs become U+FFFD in both, and are found; too long a text is refused."""
    stored = []
    for url in (postgres_url, tmp_path / "m.db"):
        async with repository(url, "r") as repo:
            session = await repo.start_session("plan\0it")
            await session.append("a pear\0tree", "\ud800", key="k", metadata={"k\0": ["v\0"]})
            with pytest.raises(ValueError, match=r"67,108,864 bytes; store it in parts"):
                await session.append("x" * (MOST_TEXT_BYTES + 1), "")
            await repo.remember("I own\0a boat.", thread_id="t")
            await repo.items.put(("a",), "k", {"text": "A\0pear."})
            (step,) = session.recent_steps(1)
            item = await repo.items.get(("a",), "k")
            said = [m.content for m in await repo.conversation("t").history()]
            hits = [hit.snippet for hit in await repo.search("pear")]
            stored.append((step.observation, step.action, step.metadata, said, item.value, hits))
    assert stored[0] == stored[1]
    assert stored[0][0] == "a pear\ufffdtree"


async def test_a_hundred_thousand_repositories_are_listed(postgres_server, postgres_url):
    """Each one is in the list once, and the last one opens."""
    async with Mnemo(postgres_url, embedder=HashingEmbedder()) as memory:
        execute(
            postgres_server,
            f"SET search_path = {schema_of(postgres_url)};"
            "INSERT INTO names (id) SELECT format('repo %s', n) FROM generate_series(1, 100000) n;"
            "INSERT INTO repos (no, id) SELECT no, id FROM names",
        )
        listed = await memory.repos()
        assert len({one.id for one in listed}) == len(listed) == 100_000
        repo = await memory.open_repo("repo 100000")
        await repo.remember("I live in Bern.", wait=True)
        assert (await repo.search("Bern"))[0].snippet == "I live in Bern."
