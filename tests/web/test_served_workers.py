"""`mnemo serve --workers`: processes that are replaced when they die, and stop together."""

import json
import math
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from time import monotonic

import anyio
import httpx
import pytest
from helpers import child_environment
from inspector_kit import LIMIT_S
from postgres_server import ON_POSTGRES

from mnemo import Unreachable
from mnemo.client import RemoteMnemo
from mnemo.web import new_token, token_of

pytestmark = [pytest.mark.slow, pytest.mark.long]
START_S = 4 * LIMIT_S


@pytest.fixture(params=["sqlite", ON_POSTGRES])
def store(request, tmp_path):
    """Where an empty store is."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return str(tmp_path / "shared.db")


@contextmanager
def begun(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """``mnemo serve`` with two workers; killed in the end if it still runs."""
    command = [sys.executable, "-m", "mnemo", "serve", "--workers", "2", *options]
    with subprocess.Popen(
        command,
        cwd=folder,
        env=child_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def workers_of(pid: int) -> list[int]:
    """The processes that serve, in the order of their beginning."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    named = [int(one) for one in found]
    return [one for one in named if b"resource_tracker" not in command_of(one)]


def command_of(pid: int) -> bytes:
    """The command line of a process; empty: it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


async def all_answer(client: httpx.AsyncClient, count: int = 2) -> None:
    """Wait until so many workers answer."""
    with anyio.fail_after(START_S):
        while f"\nmnemo_workers {count}\n" not in (await client.get("/metrics")).text:  # noqa: ASYNC110
            await anyio.sleep(0.1)


async def gone(pids: list[int]) -> None:
    """Wait until none of the processes is left."""
    with anyio.fail_after(START_S):
        while any(map(command_of, pids)):  # noqa: ASYNC110
            await anyio.sleep(0.1)


def client_of(address: str) -> httpx.AsyncClient:
    """A client of the printed address."""
    url, _, token = address.strip().partition("/#token=")
    headers = {"authorization": f"Bearer {token}"}
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=START_S)


async def test_a_stop_ends_streams_and_all_workers_without_a_traceback(tmp_path):
    """Listeners of both are told the end; the exit code is 0, and one audit file has all lines."""
    with begun(
        tmp_path, "--port", "0", "--audit-log", "audit.jsonl", "--log-level", "error"
    ) as process:
        assert process.stdout is not None
        async with client_of(process.stdout.readline()) as client:
            await all_answer(client)
            pids, ended = workers_of(process.pid), 0

            async def listen() -> None:
                nonlocal ended
                async with client.stream("GET", "/v1/events") as answer:
                    begins.append(answer.status_code)
                    async for _ in answer.aiter_bytes():
                        pass
                ended += 1

            begins: list[int] = []
            for number in range(20):
                note = {"body": f"Shelf {number}.", "description": "What is there."}
                where = {"topic": f"shelf-{number}"}
                assert (await client.put("/v1/note", params=where, json=note)).is_success
            with anyio.fail_after(START_S):
                async with anyio.create_task_group() as group:
                    for _ in range(8):
                        group.start_soon(listen)
                    while len(begins) < 8:  # noqa: ASYNC110
                        await anyio.sleep(0.05)
                    process.terminate()
            assert (ended, set(begins)) == (8, {200})
        _, complaints = process.communicate(timeout=START_S)
        assert (process.returncode, complaints) == (0, "")
        await gone(pids)
    audited = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [line["topic"] for line in audited] == [f"shelf-{number}" for number in range(20)]


async def test_workers_end_with_the_process_that_began_them(tmp_path):
    """Also where it is killed, and could not tell them."""
    with begun(tmp_path, "--uds", "mnemo.sock") as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("unix:mnemo.sock/")
        transport = httpx.AsyncHTTPTransport(uds=str(tmp_path / "mnemo.sock"))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost", timeout=START_S
        ) as client:
            assert (await client.get("/readyz")).text == "ready\n"
            pids = workers_of(process.pid)
            assert pids
            process.kill()
            await gone(pids)


def test_a_store_that_cannot_be_opened_is_told_once(tmp_path):
    """By the first worker; no other begins, and the exit code says so."""
    (tmp_path / "a.db").write_text("no database, " * 1_000)
    with begun(tmp_path, "--port", "0", "--store", "a.db") as process:
        _, complaints = process.communicate(timeout=START_S)
        assert process.returncode == 2
        assert complaints.count("a.db") == 1
        assert "Traceback" not in complaints


def test_workers_want_a_store_that_they_can_share(tmp_path):
    """What is in the memory of one is not in that of another."""
    with begun(tmp_path, "--store", "memory:") as process:
        told, complaints = process.communicate(timeout=START_S)
        assert (process.returncode, told) == (2, "")
        assert "share" in complaints


async def test_what_a_killed_worker_had_open_or_was_to_extract_goes_on(tmp_path):
    """Each worker is killed: its sessions take steps elsewhere, and its successor extracts."""
    with begun(tmp_path, "--port", "0", "--log-level", "error") as process:
        assert process.stdout is not None
        address = process.stdout.readline()
        async with client_of(address) as client:
            await all_answer(client)
        for turn in (0, 1):
            pids, ids = workers_of(process.pid), [f"{turn}-{number}" for number in range(8)]
            for id in ids:  # each by a connection of its own, so that both have some
                async with client_of(address) as client:
                    goal = {"goal": "tidy", "session_id": id}
                    assert (await client.post("/v1/sessions", json=goal)).is_success
            said = {"content": f"Ada Byron has {turn + 5} cellos in Lund."}
            async with client_of(address) as client:
                assert (await client.post("/v1/remember", json=said)).is_success
            os.kill(pids[turn], signal.SIGKILL)
            await gone([pids[turn]])
            for id in ids:
                async with client_of(address) as client:
                    step = {"observation": "A lantern.", "action": "wait"}
                    where = {"session": id}
                    added = await client.post("/v1/session/steps", params=where, json=step)
                    assert added.is_success, added.text
            async with client_of(address) as client:
                assert (await client.post("/v1/settle", json={})).is_success
                found = (await client.post("/v1/memories/list", json={})).json()["items"]
                assert any(f"{turn + 5} cellos" in one["text"] for one in found)
                await all_answer(client)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """The process hangs inside: it is there, and does nothing."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("held_by", [0, 1])
async def test_a_worker_that_hangs_holds_up_nobody_else(held_by, tmp_path):
    """The other one takes and finds what it is given, and says what it cannot know or do."""
    with begun(tmp_path, "--port", "0", "--log-level", "error") as process:
        assert process.stdout is not None
        address = process.stdout.readline()
        async with client_of(address) as client:
            await all_answer(client)
        pids, where = workers_of(process.pid), {"session": "a"}
        with stopped(pids[1 - held_by]):
            async with client_of(address) as client:  # the one that does not hang accepts it
                goal = {"goal": "tidy", "session_id": "a"}
                assert (await client.post("/v1/sessions", json=goal)).is_success
        with stopped(pids[held_by]):
            async with client_of(address) as client:
                said = {"content": "Ada Byron plays the cello in Lund.", "key": "m1"}
                assert (await client.post("/v1/remember", json=said)).is_success
                found = await client.post("/v1/recall", json={"query": "Who plays the cello?"})
                assert "cello" in found.json()["text"]
                begun_here = {"goal": "tidy", "session_id": "b"}
                assert (await client.post("/v1/sessions", json=begun_here)).is_success
                step, b = {"observation": "A lantern.", "action": "wait"}, {"session": "b"}
                added = await client.post("/v1/session/steps", params=b, json=step)
                assert added.is_success, added.text
                assert "\nmnemo_workers 1\n" in (await client.get("/metrics")).text
                told = (await client.get("/v1/session", params=where)).json()
                assert (told["goal"], told["is_partial"]) == ("tidy", True)
                ended = await client.delete("/v1/session", params=where)
                assert (ended.status_code, ended.json()["error"]) == (503, "Unreachable")
                refused = await client.post("/v1/session/steps", params=where, json=step)
                # After the lease of 30 s it is taken over.
                assert refused.is_success or refused.json()["reason"] == "owned_elsewhere"
        async with client_of(address) as client:
            await all_answer(client)
            told = (await client.get("/v1/session", params=where)).json()
            assert (told["is_partial"], bool(told["statistics"])) == (False, True)
            assert (await client.delete("/v1/session", params=where)).status_code == 204


async def test_two_workers_that_hang_hold_up_nobody_else(tmp_path):
    """The third takes, finds, counts itself alone, and tells a session as it is stored."""
    with begun(tmp_path, "--port", "0", "--workers", "3") as process:
        assert process.stdout is not None
        address = process.stdout.readline()
        async with client_of(address) as client:
            await all_answer(client, 3)
        first, *others = workers_of(process.pid)
        with stopped(others[0]), stopped(others[1]):
            async with client_of(address) as client:
                goal = {"goal": "tidy", "session_id": "a"}
                assert (await client.post("/v1/sessions", json=goal)).is_success
        with stopped(first), stopped(others[0]):
            async with client_of(address) as client:
                said = {"content": "Ada Byron plays the cello in Lund.", "key": "m1"}
                assert (await client.post("/v1/remember", json=said)).is_success
                found = await client.post("/v1/recall", json={"query": "Who plays the cello?"})
                assert "cello" in found.json()["text"]
                assert "\nmnemo_workers 1\n" in (await client.get("/metrics")).text
                told = (await client.get("/v1/session", params={"session": "a"})).json()
                assert (told["goal"], told["is_partial"]) == ("tidy", True)
        async with client_of(address) as client:
            await all_answer(client, 3)


# ── Under load, with one of them killed ──────────────────────────────────────────────


EACH, CLIENTS = 50, 16
LOADS = [("sqlite", 200, 60.0), pytest.param("postgres", 10, 10.0, marks=ON_POSTGRES.marks)]
"""Store, repositories, and seconds of load."""


async def persistent(call):
    """Call until the service answers; what a killed worker did not answer is sent again."""
    while True:
        try:
            return await call()
        except Unreachable:
            await anyio.sleep(0.05)


async def in_history(repo, name, text):
    """Whether the message is in its conversation."""
    return text in {m.content for m in await repo.conversation("default").history()}


async def in_search(repo, name, text):
    """Whether it is found by a word that it alone has."""
    return name in {hit.snippet.split()[1].strip("[]*") for hit in await repo.search(name)}


async def in_recall(repo, name, text):
    """Whether it is an answer to a question that has this word."""
    found = await repo.recall(f"Where is {name}?")
    return text in {candidate.node.text for candidate in found.candidates}


class Load:
    """Clients that write, and at once read what was acknowledged through another connection."""

    def __init__(self, memories: list[RemoteMnemo], repos: int) -> None:
        self.memories, self.chance, self.repos = memories, random.Random(7), repos
        self.acknowledged: dict[str, set[str]] = {f"repo-{n}": set() for n in range(repos)}
        self.stale: list[str] = []
        self.count = 0
        self.end = math.inf

    async def fill(self, number: int) -> None:
        """Write the first messages of a repository."""
        repo_id = f"repo-{number}"
        texts = [f"Crate {number}x{n} stands in hall {n}." for n in range(EACH)]
        messages = [{"role": "user", "content": text} for text in texts]
        conversation = self.memories[number % CLIENTS].repo(repo_id).conversation("default")
        await conversation.append(messages)
        self.acknowledged[repo_id].update(texts)

    async def run(self, own: int) -> None:
        """Write and read until the end."""
        while monotonic() < self.end:
            self.count += 1
            name, repo_id = f"zeb{self.count:06d}", f"repo-{self.chance.randrange(self.repos)}"
            text = f"Parcel {name} lies in bay {self.count % 9}."
            writer, other = self.memories[own], self.chance.choice(self.memories)
            await persistent(partial(writer.repo(repo_id).remember, text, key=name))
            self.acknowledged[repo_id].add(text)
            seen = self.chance.choice((in_history, in_search, in_recall))
            if not await persistent(partial(seen, other.repo(repo_id), name, text)):
                self.stale.append(f"{seen.__name__}: {repo_id} {name}")


@pytest.mark.parametrize(("store", "repos", "seconds"), LOADS, indirect=["store"])
async def test_nothing_is_lost_or_stale_when_workers_are_killed(store, repos, seconds, tmp_path):
    """Repositories of 50 messages, writes and reads; each worker is killed once."""
    secret = new_token()
    entry = token_of(secret, "all")
    (tmp_path / "tokens.toml").write_text(
        f"[[tokens]]\nname = 'all'\nsha256 = '{entry.sha256}'\nrights = 'write'\n"
    )
    options = ("--port", "0", "--store", store, "--token-file", "tokens.toml")
    async with AsyncExitStack() as stack:
        process = stack.enter_context(begun(tmp_path, *options))
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        opened = (RemoteMnemo(url, secret, timeout_s=START_S) for _ in range(CLIENTS))
        load = Load([await stack.enter_async_context(one) for one in opened], repos)
        client = await stack.enter_async_context(client_of(f"{url}/#token={secret}"))
        await all_answer(client)
        for number in range(repos):
            await load.fill(number)
        load.end = monotonic() + seconds
        async with anyio.create_task_group() as group:
            for number in range(CLIENTS):
                group.start_soon(load.run, number)
            for turn in (1, 0):
                await anyio.sleep(seconds / 4)
                before = workers_of(process.pid)
                os.kill(before[turn], signal.SIGKILL)
                await gone([before[turn]])
                await persistent(lambda: answering(client))
                assert len({*workers_of(process.pid)} - {*before}) == 1
        assert load.stale == []
        for repo_id, texts in load.acknowledged.items():
            repo = load.memories[0].repo(repo_id)
            history = [m.content for m in await repo.conversation("default").history()]
            assert sorted(history) == sorted(texts)
        assert load.count > CLIENTS
        process.terminate()
        _, complaints = await anyio.to_thread.run_sync(lambda: process.communicate(None, START_S))
        assert process.returncode == 0
        assert "Traceback" not in complaints


async def answering(client):
    """As ``all_answer``, for a client whose connection may have been to one that was killed."""
    try:
        await all_answer(client)
    except httpx.TransportError as error:
        raise Unreachable(str(error)) from error
