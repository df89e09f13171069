"""Lists of repositories and conversations over HTTP: by page, whole through the client."""

import httpx
import pytest

import mnemo.client
from mnemo import Mnemo
from mnemo.client import RemoteMnemo
from mnemo.web import new_token, token_of, web_app

IDS = ["a/1", "a/2", "b", "c/1", "c/2"]


@pytest.fixture
async def filled(memory: Mnemo) -> Mnemo:
    """A store of five repositories; the first one has five conversations."""
    for id in IDS:
        repo = await memory.open_repo(id)
        await repo.conversation("t").append([{"role": "user", "content": "I sing."}])
    for id in IDS:
        await memory.repo("a/1").conversation(id).append([{"role": "user", "content": "I ski."}])
    return memory


def remote(memory: Mnemo, **permits: object) -> RemoteMnemo:
    """A client whose token has these entries."""
    secret = new_token()
    app = web_app(memory, tokens=[token_of(secret, "one", **permits)])
    return RemoteMnemo("http://localhost", secret, transport=httpx.ASGITransport(app))


async def test_the_lists_are_given_by_page(filled, client):
    """Without parameters they are as before; a page begins behind an id."""
    for path, id, every in (
        ("/v1/repositories", "id", IDS),
        ("/v1/conversations?repo=a/1", "thread_id", [*IDS, "t"]),
    ):
        assert [one[id] for one in (await client.get(path)).json()] == every
        join = "&" if "?" in path else "?"
        page = (await client.get(f"{path}{join}limit=2&after=a/2")).json()
        assert [one[id] for one in page] == ["b", "c/1"]
        assert (await client.get(f"{path}{join}after=z")).json() == []


@pytest.mark.parametrize("path", ["/v1/repositories", "/v1/conversations?repo=a/1"])
@pytest.mark.parametrize(
    "wrong", ["limit=0", "limit=1001", "limit=x", "after=", "after=%20", f"after={'x' * 600}"]
)
async def test_a_wrong_page_is_an_invalid_argument(filled, client, path, wrong):
    """As of the other calls that give pages."""
    told = (await client.get(f"{path}{'&' if '?' in path else '?'}{wrong}")).json()
    assert (told["status"], told["error"], told["reason"]) == (
        422,
        "ValueError",
        "invalid_argument",
    )
    assert wrong.partition("=")[0] in told["detail"]


@pytest.mark.parametrize(
    ("permits", "ids"),
    [
        ({}, IDS),
        ({"prefixes": ["c/"]}, ["c/1", "c/2"]),
        ({"repositories": ["b", "a/1"], "prefixes": ["c/"]}, ["a/1", "b", "c/1", "c/2"]),
        ({"repositories": ["nobody"]}, []),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 5, 1_000])
async def test_the_client_reads_all_pages(filled, monkeypatch, permits, ids, size):
    """Of the repositories that its token may use, in order; a limit is one page."""
    monkeypatch.setattr(mnemo.client, "PAGE", size)
    async with remote(filled, **permits) as service:
        assert [one.id for one in await service.repos()] == ids
        assert [one.id for one in await service.repos(limit=2, after="a/1")] == [
            id for id in ids if id > "a/1"
        ][:2]


@pytest.mark.parametrize("size", [1, 2, 6, 1_000])
async def test_the_client_reads_all_conversations(filled, monkeypatch, size):
    """With the same records as in the process."""
    monkeypatch.setattr(mnemo.client, "PAGE", size)
    async with remote(filled) as service:
        repo = service.repo("a/1")
        assert await repo.threads() == await filled.repo("a/1").threads()
        assert [one.thread_id for one in await repo.threads(limit=2, after="b")] == ["c/1", "c/2"]
        for given in ({"limit": 0}, {"after": " "}):
            for call in (repo.threads, service.repos):
                with pytest.raises(ValueError, match=next(iter(given))):
                    await call(**given)


async def test_steps_of_a_session_are_given_by_page(memory, client):
    """From an index on, up to a limit of 1 to 1,000."""
    repo = await memory.open_repo("r")
    session = await repo.start_session("count")
    for number in range(5):
        await session.append(f"step {number}", "")
    path = f"/v1/session/steps?repo=r&session={session.id}"
    page = (await client.get(f"{path}&from_index=1&limit=2")).json()
    assert [one["observation"] for one in page["steps"]] == ["step 1", "step 2"]
    assert len((await client.get(f"{path}&limit=1000")).json()["steps"]) == 5
    assert (await client.get(f"{path}&from_index=9")).json()["steps"] == []
    for wrong in ("limit=0", "limit=1001", "from_index=-1"):
        told = (await client.get(f"{path}&{wrong}")).json()
        assert (told["status"], told["reason"]) == (422, "invalid_argument")
        assert wrong.partition("=")[0] in told["detail"]
