"""A server killed under load: nothing acknowledged is lost, and streams resume without gaps."""

import signal
import socket

import anyio
import pytest
from inspector_kit import LIMIT_S

from mnemo import Unreachable
from mnemo.client import RemoteMnemo
from mnemo.web import new_token, token_of

CLIENTS, EACH = 50, 12


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


async def persistent(call):
    """Call until the service answers."""
    while True:
        try:
            return await call()
        except Unreachable:
            await anyio.sleep(0.05)


@pytest.mark.slow
@pytest.mark.long
async def test_a_server_killed_under_fifty_clients_loses_nothing(serve, tmp_path):
    """Clients send each message until it is acknowledged; a listener follows all of it."""
    secret, port = new_token(), free_port()
    entry = token_of(secret, "all")
    (tmp_path / "tokens.toml").write_text(
        f"[[tokens]]\nname = 'all'\nsha256 = '{entry.sha256}'\nrights = 'write'\n"
    )
    acknowledged: dict[str, int] = {}
    followed: list[int] = []
    listening, half, done = anyio.Event(), anyio.Event(), anyio.Event()

    async def client(memory: RemoteMnemo, number: int) -> None:
        repo = memory.repo("a")
        for n in range(EACH):
            key = f"{number}/{n}"
            stored = await persistent(lambda key=key: repo.remember(f"Said {key}.", key=key))
            acknowledged[key] = stored.messages[0].seq
            if len(acknowledged) >= CLIENTS * EACH // 2:
                half.set()

    async def listener(memory: RemoteMnemo) -> None:
        cursor = None
        while len(set(followed)) <= CLIENTS * EACH:
            try:
                async with memory.events("a", after=cursor) as events:
                    async for event in events:
                        cursor = event.cursor or cursor
                        listening.set()
                        if event.name == "changes":
                            followed.extend(seq for _, seq in event.data["messages"])
                        if len(set(followed)) == CLIENTS * EACH:
                            done.set()
                            return
            except Unreachable:
                await anyio.sleep(0.05)

    first = serve("--token-file", "tokens.toml", port=port)
    async with RemoteMnemo(first.url, secret) as memory:
        await memory.repo("a").notes.write("made", "The repository is there.", "A beginning.")
        with anyio.fail_after(5 * LIMIT_S):
            async with anyio.create_task_group() as group:
                group.start_soon(listener, memory)
                await listening.wait()
                for number in range(CLIENTS):
                    group.start_soon(client, memory, number)
                await half.wait()
                assert first.stop(signal.SIGKILL) == -signal.SIGKILL
                await anyio.to_thread.run_sync(
                    lambda: serve("--token-file", "tokens.toml", port=port)
                )
                await done.wait()
        stored = {m.id: m.seq for m in await memory.repo("a").conversation("default").history()}
    assert len(acknowledged) == CLIENTS * EACH
    assert stored == acknowledged
    assert sorted(set(followed)) == list(range(CLIENTS * EACH))
