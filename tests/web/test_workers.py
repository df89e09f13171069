"""Several workers on one store: each answers for all, sessions and counts included."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import anyio
import httpx
import pytest
from helpers import child_environment
from inspector_kit import LIMIT_S

from mnemo import Mnemo
from mnemo.testing import HashingEmbedder
from mnemo.web import Token, Worker, peers, serve, token_of

pytestmark = pytest.mark.slow
ALL = [token_of("s", "all")]


@asynccontextmanager
async def worker(
    folder: Path, number: int, tokens: list[Token] = ALL
) -> AsyncIterator[httpx.AsyncClient]:
    """A worker on the event loop of the test, and a client that calls it alone."""
    urls, ready = list[str](), anyio.Event()

    def listening(url: str) -> None:
        urls.append(url)
        ready.set()

    async def run() -> None:
        own = Worker(folder, number)
        await serve(memory, tokens=tokens, ready=listening, worker=own)

    extracting = {} if number == 0 else {"workers": 0}
    async with (
        Mnemo(folder / "memory.db", embedder=HashingEmbedder(), **extracting) as memory,
        anyio.create_task_group() as group,
    ):
        group.start_soon(run)
        await ready.wait()
        headers = {"authorization": "Bearer s"}
        async with httpx.AsyncClient(base_url=urls[0], headers=headers, timeout=LIMIT_S) as client:
            while (await client.get("/healthz")).status_code != 200:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            yield client
        group.cancel_scope.cancel()


@asynccontextmanager
async def two(folder: Path, tokens: list[Token] = ALL) -> AsyncIterator[list[httpx.AsyncClient]]:
    """Two of them."""
    async with AsyncExitStack() as stack:
        made = (worker(folder, number, tokens) for number in range(2))
        yield [await stack.enter_async_context(one) for one in made]


async def level(client, name):
    """A number of the metrics."""
    text = (await client.get("/metrics")).text
    return float(re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)[1])


async def test_a_session_is_that_of_the_service_whichever_worker_has_it_open(tmp_path):
    """Begun in one, it takes steps, tells where it stands, commits and ends through the other."""
    async with two(tmp_path) as (first, second):
        for here, there, id in ((first, second, "a"), (second, first, "b")):
            body, where = {"goal": "tidy", "session_id": id}, {"repo": "r", "session": id}
            assert (await here.post("/v1/sessions?repo=r", json=body)).is_success
            for number, client in enumerate((there, here, there)):
                step = {"observation": f"Lantern {number}.", "action": "wait"}
                added = await client.post("/v1/session/steps", params=where, json=step)
                assert added.json()["index"] == number, added.text
            told = [(await one.get("/v1/session", params=where)).json() for one in (here, there)]
            assert [one["steps"] for one in told] == [3, 3]
            assert told[0]["context"] == told[1]["context"] is not None
            assert (await there.post("/v1/session/resume", params=where)).is_success
            done = await there.post("/v1/session/close_and_commit", params=where, json={})
            assert done.json()["status"] == "committed", done.text
            assert (await there.delete("/v1/session", params=where)).status_code == 204
            ended = (await here.get("/v1/session", params=where)).json()
            assert (ended["state"], ended["statistics"]) == ("idle", None)
            assert (await there.post("/v1/session/resume", params=where)).is_success
            assert (await here.get("/v1/session", params=where)).json()["statistics"]


async def test_a_worker_that_has_a_session_and_cannot_be_asked_is_told_of(tmp_path):
    """The refusal is that of the store: another process has it."""
    async with two(tmp_path) as (first, second):
        body, where = {"goal": "tidy", "session_id": "a"}, {"repo": "r", "session": "a"}
        assert (await first.post("/v1/sessions?repo=r", json=body)).is_success
        Worker(tmp_path, 0).socket.unlink()
        step = {"observation": "A lantern.", "action": "wait"}
        refused = await second.post("/v1/session/steps", params=where, json=step)
        assert (refused.status_code, refused.json()["reason"]) == (409, "owned_elsewhere")
        assert (await level(second, "mnemo_workers")) == 1


@contextmanager
def hanging(folder: Path, number: int) -> Iterator[None]:
    """A worker that is there, and takes what it is asked, but answers nothing."""
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(Worker(folder, number).socket))
        one.listen()
        yield


async def test_a_worker_that_hangs_is_not_counted_and_holds_up_no_metrics(tmp_path, monkeypatch):
    """The levels are those of the others, and their number says so."""
    monkeypatch.setattr(peers, "HANGS_S", 0.05)
    async with worker(tmp_path, 0) as client:
        with hanging(tmp_path, 1), anyio.fail_after(LIMIT_S):
            assert (await level(client, "mnemo_workers")) == 1


async def test_all_workers_are_asked_at_once_whether_they_are_there(tmp_path, monkeypatch):
    """Each is asked while another has not answered yet, so that hanging ones share a patience."""
    monkeypatch.setattr(peers, "HANGS_S", LIMIT_S)
    asked, are_asked = set[int](), anyio.Event()
    async with worker(tmp_path, 0) as client, anyio.create_task_group() as group:

        async def answer(number: int, stream: anyio.abc.SocketStream) -> None:
            async with stream:
                assert b"/healthz" in await stream.receive()
                asked.add(number)
                if len(asked) == 3:
                    are_asked.set()
                await are_asked.wait()

        async def hear(number: int) -> None:
            async with await anyio.create_unix_listener(Worker(tmp_path, number).socket) as one:
                await one.serve(partial(answer, number))

        for number in (1, 2, 3):
            group.start_soon(hear, number)
            while not Worker(tmp_path, number).socket.exists():  # noqa: ASYNC110
                await anyio.sleep(0.01)
        with anyio.fail_after(LIMIT_S / 2):
            assert (await level(client, "mnemo_workers")) == 1
        group.cancel_scope.cancel()


async def test_a_worker_that_hangs_delays_no_answer_of_another(tmp_path, monkeypatch):
    """Whichever has the session open answers at once for it, reads and writes."""
    monkeypatch.setattr(peers, "HANGS_S", 10 * LIMIT_S)
    async with two(tmp_path) as (first, second):
        body, where = {"goal": "tidy", "session_id": "a"}, {"repo": "r", "session": "a"}
        assert (await second.post("/v1/sessions?repo=r", json=body)).is_success
        (tmp_path / "1.sock").rename(tmp_path / "9.sock")
        with hanging(tmp_path, 1), anyio.fail_after(LIMIT_S):
            told = (await first.get("/v1/session", params=where)).json()
            assert (bool(told["statistics"]), told["is_partial"]) == (True, False)
            step = {"observation": "A lantern.", "action": "wait"}
            added = await first.post("/v1/session/steps", params=where, json=step)
            assert added.json()["index"] == 0, added.text


HOLD = """
import sys
from pathlib import Path
from mnemo.runtime.board import Board
with Board(Path(sys.argv[1])) as board:
    print("held", flush=True)
    sys.stdin.read()
"""


async def test_a_worker_that_hangs_while_it_counts_holds_up_no_count_of_another(tmp_path):
    """Stopped with the lock of what all count on: requests are answered, counted, and drawn."""
    async with worker(tmp_path, 0) as client:
        command = [sys.executable, "-c", HOLD, str(Worker(tmp_path, 1).board)]
        child = partial(subprocess.Popen, command, env=child_environment(), text=True)
        with child(stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert await anyio.to_thread.run_sync(holder.stdout.readline) == "held\n"
            holder.send_signal(signal.SIGSTOP)
            try:
                with anyio.fail_after(LIMIT_S):
                    said = {"content": "Ada sails.", "wait": True}
                    assert (await client.post("/v1/remember?repo=r", json=said)).is_success
                    for _ in range(3):
                        asked = await client.post("/v1/recall?repo=r", json={"query": "Who?"})
                        assert asked.is_success
                    name = 'mnemo_http_requests_total{route="/v1/recall",status="200"}'
                    assert await level(client, name) == 3
                    curves = (await client.get("/v1/curves")).json()["series"]
                    assert sum(filter(None, curves["recalls"])) == 3
            finally:
                holder.kill()


async def test_a_session_that_a_hanging_worker_may_have_is_told_as_stored(tmp_path, monkeypatch):
    """A look says that it is partial, an end that nothing was done; what is open here is whole."""
    monkeypatch.setattr(peers, "HANGS_S", 0.05)
    async with worker(tmp_path, 0) as client:
        begin = partial(client.post, "/v1/sessions?repo=r")
        for id in ("a", "b"):
            assert (await begin(json={"goal": "tidy", "session_id": id})).is_success
        a, b = ({"repo": "r", "session": id} for id in ("a", "b"))
        assert (await client.delete("/v1/session", params=a)).is_success
        with hanging(tmp_path, 1), anyio.fail_after(LIMIT_S):
            told = (await client.get("/v1/session", params=a)).json()
            assert (told["goal"], told["statistics"], told["is_partial"]) == ("tidy", None, True)
            assert not (await client.get("/v1/session", params=b)).json()["is_partial"]
            refused = await client.delete("/v1/session", params=a)
            assert (refused.status_code, refused.json()["error"]) == (503, "Unreachable")
            assert (await client.delete("/v1/session", params=b)).status_code == 204
        Worker(tmp_path, 1).socket.unlink()
        assert not (await client.get("/v1/session", params=a)).json()["is_partial"]
        assert (await client.delete("/v1/session", params=a)).status_code == 204


async def test_the_metrics_of_each_worker_are_those_of_all(tmp_path):
    """Requests are counted where they came in, stored things once, sessions added up."""
    async with two(tmp_path) as (first, second):
        for client in (first, second):
            text = {"content": "Ada sails."}
            assert (await client.post("/v1/remember?repo=r", json=text)).is_success
            body = {"goal": "tidy"}
            assert (await client.post("/v1/sessions?repo=r", json=body)).is_success
        session = body | {"session_id": "one"}
        assert (await first.post("/v1/sessions?repo=r", json=session)).is_success
        step = {"observation": "A lantern.", "action": "wait"}
        where = {"repo": "r", "session": "one"}
        assert (await second.post("/v1/session/steps", params=where, json=step)).is_success
        for client in (first, second):
            assert await level(client, "mnemo_workers") == 2
            assert await level(client, "mnemo_messages") == 2
            assert await level(client, "mnemo_open_sessions") == 3
            assert await level(client, "mnemo_open_repositories") == 1
            for route, count in (("remember", 2), ("sessions", 3), ("session/steps", 1)):
                name = f'mnemo_http_requests_total{{route="/v1/{route}",status="200"}}'
                assert await level(client, name) == count
            one = await client.get("/metrics?repo=r")
            assert 'mnemo_open_sessions{repo="r"} 3' in one.text.splitlines()
            assert 'mnemo_jobs_dead{repo="r"} 0' in one.text.splitlines()


async def test_what_another_worker_asks_does_not_use_up_the_token_s_rate(tmp_path):
    """A request that is passed on is taken from the rate once."""
    tokens = [token_of("s", "slow", rate_per_s=0.5), token_of("a", "all")]
    async with two(tmp_path, tokens) as (first, second):
        full = {"authorization": "Bearer a"}
        body = {"goal": "tidy", "session_id": "a"}
        assert (await first.post("/v1/sessions?repo=r", json=body, headers=full)).is_success
        where = {"repo": "r", "session": "a"}
        assert (await second.get("/v1/session", params=where)).json()["statistics"]
        assert (await second.get("/v1/session", params=where)).status_code == 429


async def test_the_first_worker_extracts_what_the_others_take(tmp_path):
    """Also of a repository that it has not open, and keeps it open for its requests."""
    async with two(tmp_path) as (first, second):
        said = {"content": "Ada Byron lives in Lund.", "wait": True}
        told = await second.post("/v1/remember?repo=r", json=said)
        assert told.is_success, told.text
        for client in (second, first):
            found = (await client.post("/v1/memories/list?repo=r", json={})).json()
            assert any("Lund" in one["text"] for one in found["items"]), found
        await first.post("/v1/recall?repo=r", json={"query": "Where does Ada live?"})
        assert await level(first, "mnemo_jobs_waiting") == 0


async def test_an_erasure_that_one_worker_reported_is_confirmed_to_another(tmp_path):
    """By the token of the report, over MCP, where nothing is kept between two messages."""
    async with two(tmp_path, [token_of("s", "all", rights="admin")]) as (first, second):
        said = {"text": "Ada sails."}
        id = (await first.post("/v1/memories?repo=r", json=said)).json()["id"]

        async def forget(client: httpx.AsyncClient, **more: str) -> str:
            call = {"name": "forget", "arguments": {"memory_ids": [id]} | more}
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
            headers = {"accept": "application/json, text/event-stream"}
            answer = await client.post("/mcp?repo=r", json=message, headers=headers)
            assert answer.is_success, answer.text
            return answer.text

        token = re.search(r"token=(\w+)", await forget(first))
        assert token is not None
        assert "Nothing was erased yet" in await forget(second)
        assert "Nothing was erased" not in await forget(second, token=token[1])
        for client in (first, second):
            where = {"repo": "r", "id": id}
            assert (await client.get("/v1/memory", params=where)).status_code == 404


@pytest.mark.parametrize("how", ["dies", "hangs"])
async def test_a_worker_that_ends_over_a_request_leaves_its_outcome_open(
    how, tmp_path, monkeypatch
):
    """The client learns what it would of a connection that fails: it is not known."""
    async with two(tmp_path) as (first, second):
        body, where = {"goal": "tidy", "session_id": "a"}, {"repo": "r", "session": "a"}
        assert (await first.post("/v1/sessions?repo=r", json=body)).is_success
        path = Worker(tmp_path, 0).socket
        path.unlink()
        has_begun = anyio.Event()

        async def answer(stream: anyio.abc.SocketStream) -> None:
            async with stream:
                while not has_begun.is_set():
                    if b"POST" in await stream.receive():
                        has_begun.set()
                        break
                    await stream.send(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok\n")
                if how == "hangs":
                    await anyio.sleep_forever()

        async with (
            await anyio.create_unix_listener(path) as ending,
            anyio.create_task_group() as group,
        ):
            group.start_soon(ending.serve, answer)
            monkeypatch.setattr(peers, "HANGS_S", 0.5)
            step = {"observation": "A lantern.", "action": "wait"}
            with anyio.fail_after(LIMIT_S):
                told = await second.post("/v1/session/steps", params=where, json=step)
            group.cancel_scope.cancel()
        assert (told.status_code, told.json()["error"]) == (503, "Unreachable")
