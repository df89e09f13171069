"""Who may call the HTTP service: tokens, repositories, rights, hosts and origins."""

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from mnemo import ConfigError
from mnemo.web import new_token, read_tokens, token_of, web_app
from mnemo.web.gate import HEAD_BYTES
from mnemo.web.metrics import Metrics


async def remembered(client, text="Ada plays the cello.", repo="a", path="/v1/remember"):
    """Remember *text* over HTTP."""
    return await client.post(path, params={"repo": repo}, json={"content": text})


def reason(answer):
    """What a problem document says, which *answer* must be."""
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == answer.status_code
    return answer.status_code, answer.json()["reason"]


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/repositories", "/v1/nothing", "/metrics", "/v1/events", "/mcp", "/v1"),
        *("/v1/caller%0A", "/metrics%0A", "/mcp%0A", "/v1%0A"),
    ],
)
async def test_a_request_without_a_token_is_refused(client, path):
    """Whatever is below the guarded paths needs a token, also what does not exist."""
    del client.headers["authorization"]
    assert reason(await client.get(path)) == (401, "token_missing")


async def test_a_mounted_application_keeps_its_gate(memory):
    """Below the path of another application the same paths need a token, and are served."""
    secret = new_token()
    app = Starlette(routes=[Mount("/mem", web_app(memory, tokens=[token_of(secret, "all")]))])
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://localhost/mem"
    ) as client:
        for path in ("v1/repositories", "v1/nothing", "metrics", "mcp"):
            assert reason(await client.get(path)) == (401, "token_missing")
        client.headers["authorization"] = f"Bearer {secret}"
        assert (await client.get("v1/repositories")).json() == []
        assert (await remembered(client, path="v1/remember")).status_code == 200
        assert reason(await client.get("v1/nothing")) == (404, "not_found")
        assert (await client.get("app.js")).status_code == 200


@pytest.mark.parametrize("sent", ["Bearer x", "Bearer ", "Basic eDp4", "Bearer \x00", "x"])
async def test_a_wrong_token_is_refused(client, sent):
    """A token that is not known, or none that is one, gives a challenge."""
    answer = await client.get("/v1/repositories", headers={"authorization": sent})
    assert reason(answer) == (401, "token_unknown")
    assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_a_repository_of_another_token_is_not_there(connect):
    """What another token may use is told apart by nothing from what does not exist."""
    mine, others = new_token(), new_token()
    tokens = [
        token_of(mine, "mine", repositories=["a"]),
        token_of(others, "others", repositories=["b"]),
    ]
    me, other = connect(*tokens, secret=mine), connect(*tokens, secret=others)
    assert (await remembered(me)).status_code == 200
    foreign = await other.post("/v1/recall?repo=a", json={"query": "What does Ada play?"})
    absent = await other.post("/v1/recall?repo=c", json={"query": "What does Ada play?"})
    assert reason(foreign) == reason(absent) == (404, "not_found")
    assert foreign.json()["detail"].replace("'a'", "'c'") == absent.json()["detail"]
    assert reason(await remembered(other, repo="a")) == (404, "not_found")
    assert (await other.get("/v1/repositories")).json() == []


async def test_a_token_that_may_only_read_writes_nothing(connect, memory):
    """Reading is allowed, every write is refused, and nothing is stored."""
    secret = new_token()
    await (await memory.open_repo("a")).remember("Ada plays the cello.")
    reader = connect(token_of(secret, "reader", rights="read"), secret=secret)
    assert (await reader.post("/v1/search?repo=a", json={"query": "cello"})).json()
    for path, body in (
        ("/v1/remember", {"content": "Bob sings."}),
        ("/v1/memories", {"text": "Bob sings."}),
        ("/v1/forget", {"thread_id": "default", "dry_run": False}),
    ):
        assert reason(await reader.post(f"{path}?repo=a", json=body)) == (403, "forbidden")
    assert (await memory.repo("a").statistics()).messages == 1


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:8642", "", "localhost.:1"]
)
async def test_another_name_of_this_machine_is_refused(client, host):
    """A page whose name was bound to 127.0.0.1 reaches nothing, not even the page."""
    for path in ("/v1/repositories", "/", "/healthz"):
        assert reason(await client.get(path, headers={"host": host})) == (421, "wrong_host")


@pytest.mark.parametrize(
    "origin",
    [
        *("http://evil.example", "null", "http://127.0.0.1:9999", "http://localhost:8642"),
        *("", "http://[", "http://[::1", "http://127.0.0.1:8642/", "http://a@127.0.0.1:8642"),
    ],
)
async def test_a_page_of_another_origin_is_refused(client, origin):
    """Even with a token, a page of another origin neither reads nor writes; no CORS is sent."""
    for method in ("GET", "POST", "OPTIONS"):
        answer = await client.request(method, "/v1/repositories", headers={"origin": origin})
        assert reason(answer) == (403, "foreign_origin")
        assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_the_service_s_own_page_may_call_it(client):
    """The origin of the page that the service delivers is allowed."""
    answer = await client.get("/v1/caller", headers={"origin": "http://127.0.0.1:8642"})
    assert answer.json()["rights"] == "admin"


async def test_a_page_of_an_allowed_origin_may_call_with_a_token(memory):
    """A preflight is answered for such an origin alone; the call itself still needs its token."""
    secret, mine = new_token(), "https://page.example"
    app = web_app(memory, tokens=[token_of(secret, "all")], origins=[mine])
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://localhost"
    ) as browser:
        asks = {"access-control-request-method": "POST"}
        for origin, status in ((mine, 200), ("https://evil.example", 403)):
            sent = asks | {"origin": origin, "access-control-request-headers": "authorization"}
            answer = await browser.options("/v1/remember", headers=sent)
            assert answer.status_code == status
            allowed = answer.headers.get("access-control-allow-origin")
            assert allowed == (mine if status == 200 else None)
        bare = await browser.get("/v1/caller", headers={"origin": mine})
        assert bare.status_code == 401
        sent = {"origin": mine, "authorization": f"Bearer {secret}"}
        answer = await browser.get("/v1/caller", headers=sent)
        assert answer.headers["access-control-allow-origin"] == mine


async def test_a_page_of_an_allowed_origin_reads_why_it_was_refused(memory, monkeypatch):
    """Whatever the service answers such a page, the browser lets it read, with its headers."""
    monkeypatch.setattr(Metrics, "text", None)  # /metrics fails, and that is read, too
    await memory.open_repo()
    reading, slow, mine = new_token(), new_token(), "https://page.example"
    tokens = [
        token_of(reading, "reading", rights="read"),
        token_of(slow, "slow").model_copy(update={"rate_per_s": 0.001}),
    ]
    app = web_app(memory, tokens=tokens, origins=[mine])
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as page:
        wanted = {
            401: ("GET", "caller", {"authorization": ""}, None),
            403: ("POST", "remember", {}, {"content": "Ada sings."}),
            404: ("GET", "statistics?repo=b", {}, None),
            413: ("POST", "recall", {"content-length": "99999999"}, None),
            422: ("POST", "recall", {}, {}),
            429: ("GET", "caller", {"authorization": f"Bearer {slow}"}, None),
            431: ("GET", "caller", {"x": "a" * HEAD_BYTES}, None),
            500: ("GET", "../metrics", {}, None),
        }
        # Its rate is less than one in a second: the first is answered, the next has to wait.
        first = await page.get("/v1/caller", headers={"authorization": f"Bearer {slow}"})
        assert first.status_code == 200
        for status, (method, path, headers, body) in wanted.items():
            sent = {"origin": mine, "authorization": f"Bearer {reading}"} | headers
            answer = await page.request(method, f"/v1/{path}", headers=sent, json=body)
            assert answer.status_code == status
            assert answer.headers["access-control-allow-origin"] == mine
            assert "origin" in answer.headers["vary"].lower()
            read = answer.headers["access-control-expose-headers"]
            assert {"retry-after", "www-authenticate", "mcp-session-id"} <= {*read.split(", ")}


async def test_every_answer_has_the_security_headers(client):
    """No inline script, no framing, no sniffing, no cookie, nothing private in a cache."""
    for path in ("/", "/v1/repositories", "/healthz", "/v1/nothing", "/missing.js"):
        answer = await client.get(path)
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "set-cookie" not in answer.headers
        assert (answer.headers.get("cache-control") == "no-store") == path.startswith("/v1")


@pytest.mark.parametrize("path", ["/../app.py", "/%2e%2e/app.py", "/..%2fapp.py", "//etc/passwd"])
async def test_paths_do_not_leave_the_page_s_folder(client, path):
    """Nothing is delivered but what lies in the folder of the page."""
    assert (await client.get(path)).status_code in (403, 404)


def test_a_token_file_names_tokens_by_hash(tmp_path):
    """What `mnemo token` prints is what the file holds; the token itself is not in it."""
    secret = new_token()
    made = token_of(secret, "desk", repositories=["a", "b"], rights="read")
    path = tmp_path / "tokens.toml"
    path.write_text(
        f'[[tokens]]\nname = "desk"\nsha256 = "{made.sha256}"\nrepositories = ["a", "b"]\n'
    )
    assert read_tokens(path) == [made]
    assert secret not in path.read_text()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tokens = []",
        "[[tokens]]\nname = 'x'",
        "[[tokens]]\nname = 'x'\nsha256 = 'short'",
        f"[[tokens]]\nname = 'x'\nsha256 = '{'0' * 64}'\nrights = 'owner'",
        f"[[tokens]]\nname = 'x'\nsha256 = '{'0' * 64}'\nrepos = ['a']",
        f"[[tokens]]\nname = 'x'\nsha256 = '{'0' * 64}'\n[[tokens]]\nname = 'y'\n"
        f"sha256 = '{'0' * 64}'",
        "\x00",
    ],
)
def test_a_wrong_token_file_is_refused(tmp_path, text):
    """A file that permits nothing, or something unclear, is an error that names it."""
    path = tmp_path / "tokens.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"tokens\.toml"):
        read_tokens(path)
