"""Live streams: changes by feed number with resumption, and events, over a real server."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import httpx
import pytest
from document_kit import faults_of_message
from inspector_kit import LIMIT_S

from mnemo import Changes, Message, Mnemo
from mnemo.testing import HashingEmbedder
from mnemo.web.live import Live, _rest


@asynccontextmanager
async def listening(
    client: httpx.AsyncClient, *, after: str | None = None, **params: str
) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
    """The messages of ``/v1/events`` as dicts of their fields, as the document has them."""
    headers = {"last-event-id": after} if after else {}
    async with client.stream("GET", "/v1/events", params=params, headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield _messages(answer.aiter_lines())


async def _messages(lines: AsyncIterator[str]) -> AsyncIterator[dict[str, Any]]:
    found: dict[str, Any] = {}
    async for line in lines:
        name, colon, value = line.partition(": ")
        if not line:
            if "data" in found:
                assert faults_of_message(found) == []
                yield found
            found = {}
        elif colon and name:
            found[name] = json.loads(value) if name == "data" else value


async def until(messages, wanted):
    """Read *messages* until *wanted* holds of one; gives all of them."""
    seen = []
    with anyio.fail_after(LIMIT_S):
        async for message in messages:
            seen.append(message)
            if wanted(message):
                return seen
    raise AssertionError(f"the stream ended after {seen}")


def told(messages):
    """The seqs of the messages that the changes among *messages* tell of."""
    return [seq for m in messages if m["event"] == "changes" for _, seq in m["data"]["messages"]]


@pytest.mark.slow
@pytest.mark.long
async def test_a_stream_tells_changes_and_resumes_where_it_broke_off(serve):
    """What was written while nobody listened comes first after a reconnection, each once."""
    server = serve()
    async with server.client() as client:
        await client.post("/v1/remember", json={"content": "Ada sings.", "key": "0"})
        async with listening(client, repo="default") as messages:
            ready = await anext(messages)
            assert (ready["event"], ready["id"].count(".")) == ("ready", 3)
            await client.post("/v1/remember", json={"content": "Ada plays.", "key": "1"})
            seen = await until(messages, lambda m: told([m]) == [1])
        last = [m["id"] for m in seen if "id" in m][-1]
        for n in range(2, 6):
            await client.post("/v1/remember", json={"content": f"Ada has {n} cats.", "key": str(n)})
        async with listening(client, repo="default", after=last) as messages:
            again = await until(messages, lambda m: 5 in told([m]))
        assert told(again) == [2, 3, 4, 5]
    assert server.stop() == 130


@pytest.mark.slow
@pytest.mark.long
async def test_events_come_without_ids_and_only_of_permitted_repositories(serve, tmp_path):
    """A token hears of its own repositories alone, whatever it asks for."""
    from mnemo.web import new_token, token_of

    secrets = {name: new_token() for name in ("all", "one")}
    entries = [
        token_of(secrets["all"], "all"),
        token_of(secrets["one"], "one", repositories=["b"]),
    ]
    lines = [
        f"[[tokens]]\nname = '{e.name}'\nsha256 = '{e.sha256}'\nrights = 'write'\n"
        f"repositories = {list(e.repositories)}\n"
        for e in entries
    ]
    (tmp_path / "tokens.toml").write_text("".join(lines))
    server = serve("--token-file", "tokens.toml")
    async with server.client() as client, server.client() as other:
        client.headers["authorization"] = f"Bearer {secrets['all']}"
        other.headers["authorization"] = f"Bearer {secrets['one']}"
        for repo in ("a", "b"):
            await client.post("/v1/remember", params={"repo": repo}, json={"content": "Ada sings."})
        refused = await other.get("/v1/events", params={"repo": "a"})
        assert refused.status_code == 404
        async with listening(other) as mine, listening(client) as theirs:
            for repo in ("a", "b"):
                await client.post("/v1/recall", params={"repo": repo}, json={"query": "Who sings?"})
            answered = [m for m in await until(theirs, _is_recall_of("b")) if _is_recall(m)]
            assert [m["data"]["repo_id"] for m in answered] == ["a", "b"]
            assert all("id" not in m for m in answered)
            heard = await until(mine, _is_recall_of("b"))
            assert {m["data"]["repo_id"] for m in heard} == {"b"}


def _is_recall(message):
    return message["event"] == "RecallExecuted"


def _is_recall_of(repo):
    return lambda m: _is_recall(m) and m["data"]["repo_id"] == repo


@pytest.mark.parametrize("cursor", ["1", "x", "1.2.3.4.5"])
async def test_a_wrong_cursor_is_a_problem(client, cursor):
    """What is no cursor is refused before the stream begins."""
    await client.post("/v1/remember", json={"content": "Ada sings."})
    answer = await client.get("/v1/events?repo=default", headers={"last-event-id": cursor})
    assert (answer.status_code, answer.json()["reason"]) == (422, "invalid_argument")


class Watched:
    """A repository of which a test knows when all of its changes have been read."""

    def __init__(self, repo):
        self.id, self.inspection = repo.id, self
        self.is_read = anyio.Event()
        self._inspection = repo.inspection

    async def changes(self, after=None):
        """The changes, as of ``Inspection.changes``."""
        page = await self._inspection.changes(after)
        if page.cursor == after:
            self.is_read.set()
        return page


async def test_what_a_stream_read_by_itself_does_not_come_again_with_what_all_share():
    """A listener that is ahead of the shared reader gets the rest of what that finds."""
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("a")
        chat, live, watched = repo.conversation("t"), Live(memory), Watched(repo)
        start = (await repo.inspection.changes()).cursor
        stream, seen = live.changes(watched, start), []

        async def listen():
            async for message in stream:
                fields = dict(
                    line.split(": ", 1) for line in message.decode().split("\r\n") if line
                )
                seen.append((fields["id"], json.loads(fields["data"])))
                if ["t", 4] in seen[-1][1]["messages"]:
                    group.cancel_scope.cancel()

        assert b"event: ready" in await anext(stream)
        await chat.append([Message(role="user", content=f"Day {n}.") for n in (0, 1)])
        with anyio.fail_after(LIMIT_S):
            async with anyio.create_task_group() as group:
                group.start_soon(listen)
                await watched.is_read.wait()
                await chat.append([Message(role="user", content=f"Day {n}.") for n in (2, 3)])
                group.start_soon(live.run)
                await chat.append([Message(role="user", content="Day 4.")])
        await stream.aclose()
        assert [seq for _, changes in seen for _, seq in changes["messages"]] == [0, 1, 2, 3, 4]
        assert all(cursor == changes["cursor"] for cursor, changes in seen)


def test_who_is_not_behind_is_not_told_of_what_the_shared_reader_missed():
    """Whether removals are missed is a matter of the cursor that was read from."""
    shared = Changes(cursor="2.2.9.2", revision=2, removed=("b", "c"), missed=True)
    page = Changes(cursor="2.2.9.2", revision=2, removed=("c",))
    assert _rest(shared, "0.0.0.0", "1.1.8.1", page) == page


class Erased:
    """A repository in which nothing is left of what was written behind a cursor."""

    def __init__(self, repo):
        self.id, self.inspection = repo.id, self
        self.reads: list[str] = []
        self.is_read_twice = anyio.Event()
        self._inspection = repo.inspection

    async def changes(self, after=None):
        """No change behind *after*, and the cursor itself, as of a newest row that was erased."""
        await anyio.lowlevel.checkpoint()
        if after is None:
            return await self._inspection.changes()
        self.reads.append(after)
        if len(self.reads) == 2:
            self.is_read_twice.set()
        return Changes(cursor=after, revision=0)


async def test_a_stream_tells_nothing_of_what_is_erased_before_it_reads_it():
    """It looks once for what all are told of, and goes on with what comes then."""
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("a")
        chat, live, erased = repo.conversation("t"), Live(memory), Erased(repo)
        start = (await repo.inspection.changes()).cursor
        await chat.append([Message(role="user", content="Day 0.")])
        stream = live.changes(erased, start)
        assert b"event: ready" in await anext(stream)

        async def listen():
            async for message in stream:
                assert b"event: changes" not in message

        with anyio.fail_after(LIMIT_S):
            async with anyio.create_task_group() as group:
                group.start_soon(live.run)
                group.start_soon(listen)
                await chat.append([Message(role="user", content="Day 1.")])
                await erased.is_read_twice.wait()
                await anyio.wait_all_tasks_blocked()
                group.cancel_scope.cancel()
        await stream.aclose()
        assert erased.reads == [start, start]


class Held:
    """A repository whose changes are given when a test lets them."""

    def __init__(self, repo):
        self.inspection = self
        self.is_asked, self.may_answer = anyio.Event(), anyio.Event()
        self._inspection = repo.inspection

    async def changes(self, after=None):
        """The changes, as of ``Inspection.changes``."""
        self.is_asked.set()
        await self.may_answer.wait()
        return await self._inspection.changes(after)


async def test_who_leaves_while_another_repository_is_read_ends_no_stream(monkeypatch):
    """The reader of all streams goes on, also where the last listener of a repository left."""
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        repos = [await memory.open_repo(id) for id in ("a", "b")]
        live, held = Live(memory), Held(repos[0])
        streams = [live.changes(repo, (await repo.inspection.changes()).cursor) for repo in repos]
        for stream in streams:
            assert b"event: ready" in await anext(stream)
        opened = memory.repo
        monkeypatch.setattr(memory, "repo", lambda id: held if id == "a" else opened(id))
        with anyio.fail_after(LIMIT_S):
            async with anyio.create_task_group() as group:
                group.start_soon(live.run)
                await held.is_asked.wait()
                await streams[1].aclose()
                held.may_answer.set()
                await repos[0].conversation("t").append([Message(role="user", content="Day 0.")])
                async for message in streams[0]:
                    if b"event: changes" in message:
                        break
                group.cancel_scope.cancel()
        await streams[0].aclose()
