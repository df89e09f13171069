"""Running the server: a cancelled call stops it as a signal does."""

import gzip
import socket
import subprocess
import sys
import threading
from importlib.resources import files
from pathlib import Path

import anyio
import httpx
import pytest
from inspector_kit import LIMIT_S
from pydantic import TypeAdapter

from mnemo.web import new_token, serve, token_of
from mnemo.web.serving import listening


def test_the_parts_of_an_answer_do_not_wait_for_each_other():
    """Nagle's algorithm is off on what is accepted: it would hold back each body for 40 ms."""
    with (
        listening("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.slow
async def test_a_cancelled_server_stops_without_a_complaint(memory, caplog):
    """Its streams end, its lifespan ends in order, and nobody listens any more."""
    secret, urls = new_token(), []
    ready = anyio.Event()

    def listening(url):
        urls.append(url)
        ready.set()

    async def run():
        await serve(memory, tokens=[token_of(secret, "all")], ready=listening)

    headers = {"authorization": f"Bearer {secret}"}
    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await ready.wait()
        async with (
            httpx.AsyncClient(base_url=urls[0], headers=headers, timeout=LIMIT_S) as client,
            client.stream("GET", "/v1/events") as answer,
        ):
            assert answer.status_code == 200
            group.cancel_scope.cancel()
    with pytest.raises(OSError, match="connect"):
        await anyio.connect_tcp("127.0.0.1", int(urls[0].rpartition(":")[2]))
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_the_lag_of_the_event_loop_is_told(memory, connect):
    """The metrics have a histogram of it, fed while the application runs."""
    client = connect()
    app = client._transport.app.app
    async with app.router.lifespan_context(app):
        with anyio.fail_after(LIMIT_S):
            while "_lag_seconds_count 0" in (await client.get("/metrics")).text:  # noqa: ASYNC110
                await anyio.sleep(0.01)
    text = (await client.get("/metrics")).text
    assert 'mnemo_loop_lag_seconds_bucket{le="+Inf"} ' in text


async def test_an_application_builds_no_routes(connect, monkeypatch):
    """What FastAPI builds for all of them, a fifth of a second, was built with their module."""
    built, made = [], TypeAdapter.__init__
    connect()  # fills caches

    def counted(self, *given, **named):
        built.append(given)
        made(self, *given, **named)

    monkeypatch.setattr(TypeAdapter, "__init__", counted)
    assert (await connect().get("/v1/caller")).status_code == 200
    assert built == []


async def test_the_openapi_document_is_made_off_the_event_loop(connect, monkeypatch):
    """It takes a third of a second, and anybody may ask for it."""
    client, makers = connect(), list[int]()
    app = client._transport.app.app
    make = app.openapi

    def noted():
        makers.append(threading.get_ident())
        return make()

    monkeypatch.setattr(app, "openapi", noted)
    document = (await client.get("/openapi.json")).json()
    assert (document["info"]["title"], document["openapi"][:4]) == ("mnemo", "3.1.")
    assert makers
    assert threading.get_ident() not in makers


# ── The bundled JavaScript libraries: the pinned files, their size, their licences ────


VENDOR = Path(str(files("mnemo.web"))) / "static" / "vendor"
MOST_BYTES = 300_000


def test_bundled_files_have_their_pinned_hashes():
    """Every file is the one that scripts/vendor fetched; a changed byte is named."""
    script = Path(__file__).parents[2] / "scripts" / "vendor.py"
    done = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_bundled_libraries_are_small_and_bring_their_licences():
    """All that the inspector loads is below 300 KB gzipped; each has a licence beside it."""
    scripts = list(VENDOR.glob("*.js"))
    loaded = [path for path in scripts if path.name != "swagger-ui.js"]  # of /docs alone
    assert sum(len(gzip.compress(path.read_bytes())) for path in loaded) < MOST_BYTES
    assert {path.stem for path in scripts} <= {path.stem for path in VENDOR.glob("*.LICENSE")}
