"""Repositories over HTTP: more of them than may be open at once, and who is refused."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Literal

import anyio
import httpx
import pytest
from helpers import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mnemo import Mnemo, ModelUnavailable, Repository
from mnemo.runtime.traffic import traffic
from mnemo.testing import HashingEmbedder
from mnemo.web import Token, token_of, web_app
from mnemo.web.access import OpenRepositories

TOKENS = [token_of("a-secret", "a"), token_of("b-secret", "b"), token_of("r", "r", rights="read")]
CALL = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


class Service:
    """An application with few open repositories, and clients of it."""

    def __init__(self, memory: Mnemo, **bounds: Any) -> None:
        repositories = OpenRepositories(memory, **{"patience_s": 0, **bounds})
        self.memory = memory
        self.app = web_app(memory, tokens=TOKENS, repositories=repositories)
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app), base_url="http://127.0.0.1:8642"
        )

    async def post(self, path: str, body: Any, secret: str = "a-secret", **headers: str) -> Any:
        """The answer to a request with a token."""
        headers["authorization"] = f"Bearer {secret}"
        return await self._client.post(path, json=body, headers=headers)

    async def get(self, path: str, secret: str = "a-secret") -> httpx.Response:
        """Likewise."""
        return await self._client.get(path, headers={"authorization": f"Bearer {secret}"})

    async def delete(self, path: str) -> httpx.Response:
        """Likewise."""
        return await self._client.delete(path, headers={"authorization": "Bearer a-secret"})

    async def recall(self, repo: str, secret: str = "a-secret") -> int:
        """The status of a recall."""
        answer = await self.post(f"/v1/recall?repo={repo}", {"query": "what"}, secret)
        return int(answer.status_code)

    async def fill(self, *repos: str) -> None:
        """Make repositories that hold a message and have nothing to do."""
        for repo in repos:
            answer = await self.post(f"/v1/remember?repo={repo}", {"content": f"Ada is {repo}."})
            assert answer.status_code < 300
            assert (await self.post(f"/v1/settle?repo={repo}", {})).status_code == 204

    @asynccontextmanager
    async def streaming(self, path: str, secret: str = "a-secret") -> AsyncIterator[None]:
        """While a stream is open whose first bytes have come."""
        begun = anyio.Event()
        sent = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> Any:
            if not sent:
                await anyio.sleep_forever()
            return sent.pop()

        async def send(message: Any) -> None:
            if message.get("body"):
                begun.set()

        where, _, query = path.partition("?")
        headers = [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {secret}".encode())]
        scope = {
            "type": "http", "http_version": "1.1", "method": "GET", "path": where,
            "raw_path": where.encode(), "query_string": query.encode(), "root_path": "",
            "scheme": "http", "headers": headers, "client": None, "server": ("127.0.0.1", 80),
        }  # fmt: skip
        async with anyio.create_task_group() as group:
            group.start_soon(self.app, scope, receive, send)
            await begun.wait()
            yield
            group.cancel_scope.cancel()


class Refusing(HashingEmbedder):
    """Embeds all but what "owes", so that this is owed however long a test takes."""

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> Any:
        if any("owes" in text for text in texts):
            raise ModelUnavailable("no")
        return await super().embed(texts, kind=kind)


@asynccontextmanager
async def service(**bounds: Any) -> AsyncIterator[Service]:
    """An application over an empty store."""
    async with Mnemo("memory:", embedder=Refusing(64)) as memory:
        yield Service(memory, **bounds)


REPOS = [f"r{number}" for number in range(7)]


async def test_no_request_lists_the_other_repositories(monkeypatch):
    """Whether one is there, and the store ready, costs as much beside a hundred thousand."""
    async with service(most=1) as opened:
        await opened.fill("r0", "r1")
        monkeypatch.delattr(Mnemo, "repos")
        assert [await opened.recall(repo) for repo in ("r0", "r1", "none")] == [200, 200, 404]
        assert (await opened.get("/readyz")).status_code == 200


async def test_more_repositories_than_may_be_open_are_served_in_turn():
    """Each is as it was, and no more are open than the limit says."""
    async with service(most=3) as opened:
        await opened.fill(*REPOS)
        assert len(opened.memory.list_repos()) == 3
        for repo in (*REPOS, *reversed(REPOS)):
            body = {"query": "Who is it?"}
            found = (await opened.post(f"/v1/recall?repo={repo}", body)).json()
            assert f"Ada is {repo}." in str(found["candidates"])
            assert repo in opened.memory.list_repos()
        assert len(opened.memory.list_repos()) == 3


async def test_what_is_in_use_is_not_closed():
    """A stream, an open session and owed work keep theirs; the stream's goes when it ends."""
    async with service(most=4) as opened:
        await opened.fill("streamed", "sat", "idle")
        assert (await opened.post("/v1/sessions?repo=sat", {"goal": "g"})).status_code == 200
        await opened.post("/v1/remember?repo=owes", {"content": "Bo owes Ada a book."})
        async with opened.streaming("/v1/events?repo=streamed"):
            for repo in REPOS:
                await opened.fill(repo)
            assert {"streamed", "sat", "owes"} < set(opened.memory.list_repos())
            async with opened.streaming(f"/v1/events?repo={REPOS[0]}"):
                answer = await opened.post("/v1/recall?repo=idle", {"query": "what"})
            assert answer.status_code == 503
            assert answer.headers["retry-after"]
        await opened.fill("another")
        assert "idle" not in opened.memory.list_repos()
        assert await opened.recall("idle") == 200


async def _write_all_the_time() -> None:
    # With a pause: a loop that never sleeps keeps the interpreter from the threads of the store.
    while True:
        for _ in range(100):
            traffic().passed()
        await anyio.sleep(0.001)


async def test_what_was_just_written_keeps_its_repository():
    """Also while the background waits for a pause in the writes of others to embed it."""
    async with service(most=1) as opened, anyio.create_task_group() as others:
        await opened.fill("other")
        others.start_soon(_write_all_the_time)
        session = (await opened.post("/v1/sessions?repo=owes", {"goal": "g"})).json()["id"]
        at = f"?repo=owes&session={session}"
        await opened.post(f"/v1/session/steps{at}", {"observation": "Bo owes a book."})
        assert (await opened.delete(f"/v1/session{at}")).status_code == 204
        assert await opened.recall("other") == 503
        others.cancel_scope.cancel()


@pytest.mark.parametrize(("path", "status"), [("sessions", 503), ("recall", 200)])
async def test_a_repository_that_was_used_during_the_look_is_looked_at_again(
    monkeypatch, path, status
):
    """It is kept if the request left work or a session; one that came and went leaves it free."""
    async with service(most=1) as opened:
        await opened.fill("r1", "r0")
        look = Repository.is_idle

        async def looked(self: Repository) -> bool:
            found = await look(self)
            monkeypatch.undo()
            body = {"goal": "g"} if path == "sessions" else {"query": "what"}
            assert (await opened.post(f"/v1/{path}?repo=r0", body)).status_code == 200
            return found

        monkeypatch.setattr(Repository, "is_idle", looked)
        assert await opened.recall("r1") == status
        assert opened.memory.list_repos() == ["r1" if status == 200 else "r0"]


async def test_one_token_at_its_bound_leaves_room_for_others():
    """A reader that holds streams is refused with 429; the others work on."""
    async with service(most=4, most_of_token=2) as opened:
        await opened.fill(*REPOS)
        async with (
            opened.streaming("/v1/events?repo=r0", "r"),
            opened.streaming("/v1/events?repo=r1", "r"),
        ):
            assert await opened.recall("r2", "r") == 429
            assert await opened.recall("r1", "r") == 200
            for repo in REPOS:
                assert await opened.recall(repo) == 200
                assert await opened.recall(repo, "b-secret") == 200
        assert await opened.recall("r2", "r") == 200


async def _crowd(asked: list[list[int]], most: int) -> None:
    async with service(most=most, most_of_token=most) as opened:
        await opened.fill(*REPOS)
        statuses: list[int] = []

        async def caller(wanted: list[int]) -> None:
            statuses.extend([await opened.recall(REPOS[number]) for number in wanted])

        async with anyio.create_task_group() as group:
            for wanted in asked:
                group.start_soon(caller, wanted)
        assert set(statuses) <= {200}
        assert len(opened.memory.list_repos()) <= most


@pytest.mark.long
@pytest.mark.slow
@settings(max_examples=examples(50), deadline=None, suppress_health_check=list(HealthCheck))
@given(asked=st.lists(st.lists(st.integers(0, 6), min_size=3, max_size=12), min_size=1, max_size=3))
def test_nobody_is_refused_while_fewer_than_the_limit_are_in_use(asked):
    """Three callers at once and room for three, whatever they ask for in whatever order."""
    anyio.run(partial(_crowd, asked, 3))


async def test_a_crowd_waits_for_its_turn():
    """More callers at once than there is room for."""
    async with service(most=2, most_of_token=2, patience_s=20) as opened:
        await opened.fill(*REPOS)
        statuses: list[int] = []

        async def caller(repo: str) -> None:
            statuses.append(await opened.recall(repo))

        async with anyio.create_task_group() as group:
            for repo in REPOS * 3:
                group.start_soon(caller, repo)
        assert statuses == [200] * 21


async def test_what_a_program_has_opened_itself_is_left_to_it():
    """It may hold on to it."""
    async with service(most=2) as opened:
        mine = await opened.memory.open_repo("mine")
        await opened.fill(*REPOS)
        await mine.remember("Cy sings.")
        assert "mine" in opened.memory.list_repos()


async def test_mcp_servers_do_not_run_out():
    """A reader that asks in any number of conversations leaves nothing behind."""
    async with service(most=2) as opened:
        await opened.fill("r0", "r1", "r2")
        ask = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        for number in range(120):
            path = f"/mcp?repo=r{number % 3}&thread=t{number}"
            answer = await opened.post(path, ask, "r", **CALL)
            assert answer.status_code == 200
        answer = await opened.post("/mcp?repo=r0", ask, "b-secret", **CALL)
        assert '"remember"' in answer.text
        assert len(opened.memory.list_repos()) <= 2
        refused = await opened.get("/mcp?repo=r0")
        assert (refused.status_code, refused.headers["allow"]) == (405, "POST")


async def test_metrics_are_totals_whatever_the_number_of_repositories():
    """Of those that the token may use; one of them by itself where it is asked for."""
    async with service() as opened:
        await opened.fill("r1")
        await opened.get("/metrics")
        few = (await opened.get("/metrics")).text
        await opened.fill(*REPOS)
        many = (await opened.get("/metrics")).text
        assert "mnemo_messages 1" in few.splitlines()
        assert "mnemo_messages 8" in many.splitlines()
        assert "mnemo_open_repositories 7" in many.splitlines()
        assert len(many.splitlines()) == len(few.splitlines())
        one = (await opened.get("/metrics?repo=r1")).text
        assert 'mnemo_messages{repo="r1"} 2' in one.splitlines()
        assert (await opened.get("/metrics?repo=none")).status_code == 404


async def test_totals_hold_nothing_that_the_token_may_not_see():
    """Neither the numbers of others, nor whether they are there."""
    only: list[Token] = [token_of("o", "only", repositories=["r1"], rights="read"), *TOKENS]
    async with Mnemo("memory:", embedder=HashingEmbedder(64)) as memory:
        for repo in ("r1", "r2"):
            await (await memory.open_repo(repo)).remember("Ada swims.")
        transport = httpx.ASGITransport(web_app(memory, tokens=only))
        headers = {"authorization": "Bearer o"}
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1", headers=headers
        ) as client:
            told = (await client.get("/metrics")).text.splitlines()
            assert {"mnemo_messages 1", "mnemo_open_repositories 1"} < set(told)
            assert (await client.get("/metrics?repo=r2")).status_code == 404
