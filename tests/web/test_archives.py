"""Whole repositories over HTTP: exported, imported and deleted, by whom that is granted."""

import json
import signal
from collections.abc import AsyncIterator, Iterable

import anyio
import httpx
import pytest
from helpers import lines_of
from http_kit import unused_port
from inspector_kit import LIMIT_S
from postgres_server import ON_POSTGRES

from mnemo import Changeset, InvalidArchive, Mnemo, NotFound, Semantic, Unreachable, UsageError
from mnemo.client import RemoteMnemo
from mnemo.testing import HashingEmbedder
from mnemo.web import gate, new_token, token_of
from mnemo.web.routes import archives

EXPORT, IMPORT, WHOLE = "/v1/repository/export", "/v1/repository/import", "/v1/repository"
SAID = "Ada's violoncello was made in Mantua."


async def filled(texts: Iterable[str] = (SAID,), path: str = "memory:") -> list[str]:
    """An archive with a note, a thread and a fact for each of *texts*."""
    async with Mnemo(path, embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("made")
        await repo.apply(Changeset(tuple(map(Semantic, texts))))
        await repo.conversation("desk").append([{"role": "user", "content": SAID}])
        await repo.notes.write("ada", f"- {SAID}", "About Ada")
        return await lines_of(memory, "made")


async def exported(memory: RemoteMnemo, repo_id: str) -> list[str]:
    """The lines of a repository of a service."""
    async with memory.export_repo(repo_id) as lines:
        return [line async for line in lines]


@pytest.fixture(params=["sqlite", ON_POSTGRES])
def store(request, tmp_path):
    """Where an empty store is; asked for before ``serve``, whose servers end first."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return str(tmp_path / "memory.db")


# ── A server of its own ──────────────────────────────────────────────────────────────────


@pytest.mark.slow
async def test_a_repository_leaves_comes_back_and_goes(store, serve, tmp_path):
    """Exported, deleted without a trace while its page listens, and imported the same."""
    server = serve("--store", store, "--audit-log", "audit.jsonl")
    async with RemoteMnemo(server.url, server.token) as memory:
        for name in ("a", "b"):
            repo = memory.repo(name)
            await repo.conversation("desk").append([{"role": "user", "content": SAID}])
            await repo.add_memory(f"{SAID} {name}")
            await repo.settle()  # until then an export may have fewer vectors than the next one
        lines = await exported(memory, "a")
        planned = await memory.delete_repo("a", dry_run=True)
        assert (planned.messages, planned.nodes) == (1, 1)
        assert await exported(memory, "a") == lines
        async with memory.events("a") as events:
            assert (await anext(events)).name == "ready"
            with anyio.fail_after(LIMIT_S):
                report = await memory.delete_repo("a")
                assert [event.name async for event in events if event.name == "ready"] == []
        assert (report.messages, report.nodes) == (planned.messages, planned.nodes)
        assert [one.id for one in await memory.repos()] == ["b"]
        with pytest.raises(NotFound):
            await memory.repo("a").memories()
        with pytest.raises(NotFound):
            await memory.delete_repo("a")
        head = await memory.import_repo("c", lines)
        assert head.counts["message"] == 1
        assert await exported(memory, "c") == lines
        assert await memory.import_repo("c", lines) == head
        with pytest.raises(UsageError, match="not empty"):
            await memory.import_repo("b", lines)
        with pytest.raises(UsageError, match="not empty"):
            await memory.import_repo("c", lines, exist_ok=False)
        assert [one.text for one in await memory.repo("c").memories()] == [f"{SAID} a"]
    assert server.stop(signal.SIGTERM) == 0
    audit = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    done = [(line["what"], line["repo"], line["token"]) for line in audit]
    out, back, gone = (f"memory.{what}_repo" for what in ("export", "import", "delete"))
    assert [(what, repo) for what, repo, _ in done] == [
        *[(out, "a")] * 2,
        (gone, "a"),
        (back, "c"),
        (out, "c"),
        (back, "c"),
    ]
    assert {token for _, _, token in done} == {"local"}


@pytest.mark.long
@pytest.mark.slow
async def test_an_import_is_sent_again_after_its_server_was_killed(store, serve, tmp_path):
    """Nothing of the first half is there; the second time all of it is, and the store is whole."""
    lines, secret, port = await filled(f"Ada saw {n} swans." for n in range(700)), new_token(), 0
    port, entry = unused_port(), token_of(secret, "all")
    (tmp_path / "tokens.toml").write_text(
        f"[[tokens]]\nname = 'all'\nsha256 = '{entry.sha256}'\nrights = 'admin'\n"
    )
    given = ("--store", store, "--token-file", "tokens.toml")
    server = serve(*given, port=port)

    async def cut_off() -> AsyncIterator[str]:
        for line in lines[:-1]:
            yield line
        # Two pages are staged: the second was asked for.
        assert server.stop(signal.SIGKILL) == -signal.SIGKILL
        yield lines[-1]

    async with RemoteMnemo(server.url, secret) as memory:
        with pytest.raises(Unreachable):
            await memory.import_repo("r", cut_off())
        await anyio.to_thread.run_sync(lambda: serve(*given, port=port))
        assert await memory.repos() == []
        with pytest.raises(NotFound):
            await exported(memory, "r")
        for _ in range(2):
            assert (await memory.import_repo("r", lines)).counts["node"] == 700
        assert await exported(memory, "r") == lines


@pytest.mark.long
@pytest.mark.slow
async def test_a_client_that_leaves_its_export_frees_the_place(store, serve):
    """More of them than may be under way at once; the next one gets all of it."""
    lines = await filled(f"Ada saw {n} {'white swans ' * 500}." for n in range(300))
    server = serve("--store", store)
    async with RemoteMnemo(server.url, server.token) as memory, server.client() as http:
        await memory.import_repo("r", lines)
        for _ in range(2 * archives.MOST_STREAMS):
            async with http.stream("GET", EXPORT, params={"repo": "r"}) as answer:
                assert answer.status_code == 200
                await anext(answer.aiter_raw())
        with anyio.fail_after(LIMIT_S):
            while True:
                try:
                    assert await exported(memory, "r") == lines
                    return
                except UsageError:  # that it left is heard a moment later
                    await anyio.sleep(0.05)


# ── Rights ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_it_is_granted_by_right_and_by_prefix(connect, memory, method):
    """To manage one's own repositories; others are not told apart from those that are not."""
    path = {"GET": EXPORT, "POST": IMPORT, "DELETE": f"{WHOLE}?dry_run=false"}[method]
    lines = await filled()
    await memory.import_repo("tenant-a/x", lines)
    await memory.import_repo("tenant-b/x", lines)
    secrets = {rights: new_token() for rights in ("read", "write", "manage")}
    known = [
        token_of(secret, rights, rights=rights, prefixes=["tenant-a/"])
        for rights, secret in secrets.items()
    ]

    async def asked(rights: str, repo_id: str) -> int:
        client = connect(*known, secret=secrets[rights])
        params = httpx.URL(path).params.set("repo", repo_id)
        answer = await client.request(method, path, params=params, content="".join(lines))
        return answer.status_code

    assert await asked("manage", "tenant-b/x") == 404
    assert await asked("write", "tenant-b/x") == 404
    for rights in ("read", "write"):
        assert await asked(rights, "tenant-a/x") == 403
    assert await memory.has_repo("tenant-a/x")
    assert await asked("manage", "tenant-a/x") == 200
    assert await memory.has_repo("tenant-a/x") == (method != "DELETE")
    assert await memory.has_repo("tenant-b/x")


async def test_which_repository_is_never_a_default(client, memory):
    """And a deletion that does not say so is a dry run."""
    await memory.import_repo("default", await filled())
    for method, path in (("GET", EXPORT), ("POST", IMPORT), ("DELETE", WHOLE)):
        assert (await client.request(method, path)).status_code == 422
    answer = await client.delete(WHOLE, params={"repo": "default"})
    assert (answer.status_code, answer.json()["messages"]) == (200, 1)
    assert await memory.has_repo("default")


# ── Archives that are none ───────────────────────────────────────────────────────────────


async def imported(client, content, repo_id="r"):
    """The answer to *content*."""
    return await client.post(IMPORT, params={"repo": repo_id}, content=content)


@pytest.mark.parametrize(
    ("broken", "line", "why"),
    [
        (lambda lines: ['{"format": "tar", "version": 1}\n'], 1, "it is no head"),
        (lambda lines: ["GIF89a\n"], 1, "not JSON"),
        (lambda lines: [], 1, "there is nothing in it"),
        (lambda lines: [*lines[:2], lines[2][:30]], 3, "not JSON"),
        (lambda lines: lines[:3], 4, "the archive ends before it"),
        (lambda lines: [*lines[:2], "\udcff\n", *lines[3:]], 3, "it is not in UTF-8"),
        (lambda lines: [*lines[:1], "x" * 40_000], 2, "a line has at most"),
    ],
)
async def test_what_is_no_archive_leaves_nothing(client, memory, monkeypatch, broken, line, why):
    """The refusal names the line; the repository is not there."""
    monkeypatch.setattr(archives, "LINE_BYTES", 30_000)
    content = "".join(broken(await filled())).encode("utf-8", "surrogateescape")
    answer = await imported(client, content)
    problem = answer.json()
    assert (answer.status_code, problem["reason"]) == (422, "invalid_archive")
    assert problem["facts"]["line"] == line
    assert problem["facts"]["reason"].startswith(why)
    assert not await memory.has_repo("r")


async def test_the_client_raises_what_the_library_does(serving):
    """With the line and the reason."""
    lines = await filled()
    async with serving() as served, RemoteMnemo(served.url, served.token) as memory:
        with pytest.raises(InvalidArchive, match="line 2: not JSON") as raised:
            await memory.import_repo("r", [lines[0], "no"])
    assert (raised.value.line, raised.value.reason[:8]) == (2, "not JSON")


async def test_an_archive_is_larger_than_a_body_but_not_without_end(client, monkeypatch):
    """Announced or not; and its parts must come."""
    content = "".join(await filled()).encode()
    monkeypatch.setattr(gate, "BODY_BYTES", 100)
    assert (await client.post("/v1/remember", content=content)).status_code == 413
    assert (await imported(client, content)).status_code == 200
    monkeypatch.setattr(gate, "ARCHIVE_BYTES", len(content) - 1)
    assert (await imported(client, content, "s")).status_code == 413
    assert (await imported(client, in_parts(content, 2), "s")).status_code == 413
    monkeypatch.setattr(gate, "BODY_S", 0.05)
    assert (await imported(client, in_parts(content, 2, pause_s=1), "s")).status_code == 408


async def in_parts(content: bytes, count: int, *, pause_s: float = 0) -> AsyncIterator[bytes]:
    """A body of unannounced length."""
    size = len(content) // count + 1
    for start in range(0, len(content), size):
        yield content[start : start + size]
        await anyio.sleep(pause_s)


# ── Beside others ────────────────────────────────────────────────────────────────────────


@pytest.mark.long
async def test_what_is_in_use_is_not_deleted(client, memory):
    """Who waits for something in it goes on; 503 says that it can be tried again."""
    await client.post("/v1/sessions", params={"repo": "r"}, json={"goal": "look"})
    (session,) = await memory.repo("r").sessions()
    asked = {"repo": "r", "session": session.id}
    gone = {"repo": "r", "dry_run": False}
    answers = []

    async def wait() -> None:
        body = {"states": ["failed"], "timeout_s": 300}
        answers.append(await client.post("/v1/session/wait", params=asked, json=body))

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        answer = await client.delete(WHOLE, params=gone)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
        group.cancel_scope.cancel()
    assert answers == []
    assert (await client.delete(WHOLE, params=gone)).status_code == 200
    assert await memory.repos() == []


async def test_no_more_streams_than_there_are_places(client, memory, monkeypatch):
    """503, and a place is free again when one has ended."""
    monkeypatch.setattr(archives, "MOST_STREAMS", 1)
    await memory.import_repo("r", await filled())
    content, answers = "".join(await filled()).encode(), []

    async def slowly() -> AsyncIterator[bytes]:
        yield content[:100]
        answers.append(await client.get(EXPORT, params={"repo": "r"}))
        yield content[100:]

    assert (await imported(client, slowly(), "s")).status_code == 200
    assert answers[0].status_code == 503
    assert (await client.get(EXPORT, params={"repo": "r"})).status_code == 200


async def test_who_comes_while_it_is_imported_is_told_to_wait(client, memory):
    """Nobody opens it in between."""
    content, answers = "".join(await filled()).encode(), []

    async def slowly() -> AsyncIterator[bytes]:
        yield content[:100]
        answers.append(await client.post("/v1/remember?repo=r", json={"content": "no"}))
        answers.append(await imported(client, content))
        yield content[100:]

    assert (await imported(client, slowly())).status_code == 200
    assert [answer.status_code for answer in answers] == [503, 503]
    assert (await client.post("/v1/remember?repo=r", json={"content": "yes"})).status_code == 200
