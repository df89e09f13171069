"""``mnemo mcp`` as a process, with the SDK's client over real standard streams."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from helpers import child_environment, repository
from mcp import Client, MCPError

from mnemo import Mnemo

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")]


async def remember(client: Client, text: str) -> None:
    result = await client.call_tool("remember", {"text": text, "key": text.replace(" ", "-")})
    assert not result.is_error


async def recalled(client: Client, query: str) -> str:
    result = await client.call_tool("recall", {"query": query})
    assert not result.is_error
    return result.content[1].text


async def stored(folder: Path) -> list[str]:
    """What the conversation in *folder* holds."""
    async with repository(folder / "mnemo.db", "default", embedder="static") as repo:
        return [message.text for message in await repo.conversation("default").history()]


async def test_a_client_lists_calls_reads_and_asks(connect):
    """Tools, calls, the prompt, and notes as resources, over pipes."""
    async with connect("--write") as client:
        assert len((await client.list_tools()).tools) == 10
        await remember(client, "Ada plays the cello.")
        assert "cello" in await recalled(client, "What does Ada play?")
        assert (await client.list_resources()).resources == []
        assert len((await client.list_prompts()).prompts) == 1
        note = {"topic": "build", "description": "How", "evidence": "run it", "body": "make </s>"}
        assert not (await client.call_tool("write_note", note)).is_error
        (listed,) = (await client.list_resources()).resources
        (content,) = (await client.read_resource(listed.uri)).contents
        assert "make" in content.text
        assert "</s>" not in content.text
        with pytest.raises(MCPError):
            await client.read_resource("mnemo://notes/none")


@pytest.mark.long
async def test_the_command_line_fixes_the_repository_and_the_thread(connect, tmp_path):
    """A call that names others is refused with a reason, and nothing of it is stored."""
    async with connect("--thread", "desk") as client:
        for name in ("repo", "repo_id", "thread_id"):
            result = await client.call_tool("remember", {"text": "No.", name: "other"})
            assert result.structured_content["error"]["reason"] == "unknown_argument"
        await remember(client, "Ada plays the cello.")
    async with Mnemo(tmp_path / "mnemo.db", embedder="static") as memory:
        assert [one.id for one in await memory.repos()] == ["default"]
        repo = await memory.open_repo("default")
        assert [(t.thread_id, t.messages) for t in await repo.threads()] == [("desk", 1)]


async def test_a_call_that_lasts_reports_progress_and_can_be_cancelled(connect):
    """The server is told, answers nothing, and serves the next call."""
    seen: list[float] = []
    async with connect() as client:
        with anyio.CancelScope() as scope:

            async def noticed(progress: float, total: float | None, message: str | None) -> None:
                seen.append(progress)
                scope.cancel()

            await client.call_tool(
                "remember",
                {"text": "Ada plays the cello.", "wait": True},
                progress_callback=noticed,
            )
        assert scope.cancelled_caught
        assert seen == [0.0]
        await remember(client, "Ben bakes bread.")
        assert "bread" in await recalled(client, "What does Ben bake?")


async def test_a_call_of_ten_megabytes_is_refused_and_the_next_is_served(connect, tmp_path):
    """With a reason; nothing of it is stored."""
    async with connect() as client:
        result = await client.call_tool("remember", {"text": "x" * 10_000_000})
        assert result.is_error
        assert result.structured_content["error"]["reason"] == "invalid_argument"
        await remember(client, "Ada plays the cello.")
    assert await stored(tmp_path) == ["Ada plays the cello."]


@pytest.mark.long
async def test_two_servers_share_one_file(connect):
    """What one acknowledged the other recalls, both ways."""
    async with connect() as first, connect() as second:
        await remember(first, "Ada plays the cello.")
        assert "cello" in await recalled(second, "What does Ada play?")
        await remember(second, "Ben bakes bread.")
        assert "bread" in await recalled(first, "What does Ben bake?")


@pytest.mark.long
async def test_a_killed_server_has_lost_nothing_it_acknowledged(connect, server_id, tmp_path):
    """SIGKILL between two calls: the client sees an error, the next server has all of it."""
    said = [f"Fact number {number}." for number in range(5)]
    with pytest.RaisesGroup(MCPError, allow_unwrapped=True, flatten_subgroups=True):
        async with connect() as client:
            for text in said:
                await remember(client, text)
            os.kill(server_id(), signal.SIGKILL)
            await remember(client, "After the end.")
    assert await stored(tmp_path) == said
    async with connect() as client:
        assert "number 3" in await recalled(client, "Fact number 3")


VANISHING = """
import sys, anyio, os
from mcp import Client, StdioServerParameters, stdio_client

async def main():
    serve = f"exec {sys.executable} -m mnemo mcp --embedder static"
    parameters = StdioServerParameters(
        command="sh", args=["-c", f"echo $$ > server.pid; {serve}"], env=dict(os.environ)
    )
    async with Client(stdio_client(parameters)) as client:
        await client.call_tool("remember", {"text": "Ada plays the cello."})

        async def noticed(progress, total, message):
            print("acknowledged", flush=True)

        if "during" in sys.argv:
            wanted = {"text": "Ben bakes bread.", "wait": True}
            await client.call_tool("remember", wanted, progress_callback=noticed)
        else:
            await noticed(0, None, None)
        await anyio.sleep_forever()

anyio.run(main)
"""


@pytest.mark.long
@pytest.mark.parametrize("when", ["between", "during"])
async def test_a_server_ends_when_its_client_vanishes(server_id, tmp_path, when):
    """Between two calls or during one, the closed pipe ends the server, and it has kept all."""
    with subprocess.Popen(  # noqa: ASYNC220 - the test waits for it
        [sys.executable, "-c", VANISHING, when],
        cwd=tmp_path,
        env=child_environment(),
        stdout=subprocess.PIPE,
    ) as client:
        assert client.stdout.readline() == b"acknowledged\n"
        server = os.pidfd_open(server_id())
        client.kill()
    ended, _, _ = await anyio.to_thread.run_sync(select.select, [server], [], [], 30)
    os.close(server)
    assert ended
    said = await stored(tmp_path)
    assert said[0] == "Ada plays the cello."
    assert said[1:] in ([], ["Ben bakes bread."])
