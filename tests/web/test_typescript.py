"""The client in TypeScript: made, compiled with strict, and run by Node against a server."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from cut_proxy import CutProxy
from helpers import lines_of
from inspector_kit import LIMIT_S
from scripted_faults import Delay
from scripted_server import ScriptedServer

from mnemo import Mnemo
from mnemo.client import RemoteMnemo
from mnemo.testing import HashingEmbedder

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "make_client.py"
PROGRAMS = Path(__file__).parent / "typescript"
PAGE = ROOT / "mnemo" / "guide" / "serve.md"
COMPILER = ["npm", "exec", "--yes", "--package=typescript@5.9.3", "--", "tsc"]
STRICT = {
    "strict": True,
    "noUncheckedIndexedAccess": True,
    "exactOptionalPropertyTypes": True,
    "noUnusedLocals": True,
    "target": "ES2022",
    "module": "NodeNext",
    "lib": ["ES2022", "DOM"],
    "types": [],
    "outDir": "js",
}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(not shutil.which("node") or not shutil.which("npm"), reason="needs Node.js"),
]


def example() -> tuple[str, str]:
    """The guide's program in TypeScript, and what it prints."""
    pattern = r"^```typescript\n(.*?)^```\n.*?^```text\n(.*?)^```"
    found = re.search(pattern, PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1], found[2]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> Path:
    """A folder with the programs as JavaScript; the client stands beside them."""
    folder = tmp_path_factory.mktemp("typescript")
    found = subprocess.run([*COMPILER, "--version"], capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip(f"npm has no compiler: {found.stderr}")
    made = [sys.executable, str(SCRIPT), "typescript", str(folder / "mnemo")]
    assert subprocess.run(made, check=False).returncode == 0
    for program in PROGRAMS.glob("*.ts"):
        shutil.copy(program, folder)
    (folder / "example.ts").write_text(
        re.sub(r'new Mnemo\(".*"\)', "new Mnemo(process.argv[2])", example()[0])
        + "declare const process: { argv: [string, string, string] };\n"
    )
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": STRICT}))
    done = subprocess.run(COMPILER, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    return folder / "js"


def test_the_command_of_the_page_compiles_its_program(compiled, tmp_path):
    """Strictly, beside the client's folder, with nothing else but the type of the package."""
    page = PAGE.read_text("utf-8")
    given = re.search(r"^npx --package typescript tsc (.*) first\.ts$", page, re.MULTILINE)
    assert given is not None
    shutil.copytree(compiled.parent / "mnemo", tmp_path / "mnemo")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "first.ts").write_text(example()[0])
    command = [*COMPILER, *given[1].split(), "first.ts"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert (tmp_path / "first.js").exists()


async def run(program: Path, *arguments: str) -> str:
    """What *program* prints."""
    with anyio.fail_after(LIMIT_S):
        done = await anyio.run_process(["node", str(program), *arguments], check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode()


def address(server, url=None) -> str:
    """As `mnemo serve` prints it."""
    return f"{url or server.url}/#token={server.token}"


async def test_the_program_of_the_guide_prints_the_prompt_text(compiled, serve):
    """It has at most 20 lines."""
    program, shown = example()
    assert len(program.splitlines()) <= 20
    assert await run(compiled / "example.js", address(serve("--embedder", "static"))) == shown


async def test_a_program_calls_what_a_service_offers(compiled, serve):
    """Whatever has a default is left out; refusals and cancellations are thrown."""
    told = json.loads(await run(compiled / "calls.js", address(serve("--embedder", "static"))))
    assert "cello" in told.pop("recall")
    assert "cello" in told.pop("search")[0]
    assert told == {
        "caller": "local",
        "remember": 1,
        "update_memory": 2,
        "history": ["Ada lives in Bern.", "Ada lives in Oslo."],
        "goal": "Greet Ada",
        "load": ["user"],
        "note": "- sings",
        "item": {"instrument": "cello"},
        "steps": 1,
        "forget": 1,
        "refused": [404, "not_found", "string"],
        "aborted": "AbortError",
        "export": True,
        "import": True,
        "deleted": [2, 2],
        "left": ["copy"],
    }


async def test_a_job_is_followed_to_its_end(compiled, serve):
    """The stream ends with it, and is not opened for ever."""
    with ScriptedServer(dimensions=32) as models:
        models.fail(Delay(seconds=1.5), purpose="embed")
        server = serve("--embedder", f"{models.url}/v1?model=e&dimensions=32")
        async with Mnemo("memory:", embedder=HashingEmbedder(16)) as memory:
            await (await memory.open_repo("old")).add_memory("Ada plays the cello.")
            async with RemoteMnemo(server.url, server.token) as remote:
                await remote.import_repo("old", await lines_of(memory, "old"))
        assert await run(compiled / "jobs.js", address(server)) == "done true\ndone\n"


async def test_a_broken_line_loses_and_repeats_nothing(compiled, serve):
    """A call with a key is sent again, others are not; a stream resumes where it broke off."""
    server = serve("--embedder", "static")
    async with CutProxy(server.url) as proxy:
        proxy.lose_answers(b"0 cats", 2)
        proxy.lose_answers(b"/v1/memories", 1)
        proxy.cut_after(1_000)  # behind the head and some messages
        direct, breaking = address(server), address(server, proxy.url)
        printed = await run(compiled / "stream.js", direct, breaking)
        assert proxy.has_cut.is_set()
    heard = [f"default {seq}" for seq in range(1, 6)]
    assert printed.splitlines() == ["1", "TypeError", *heard, "AbortError"]
    async with server.client() as client:
        params = {"repo": "ada"}
        page = await client.get("/v1/conversation/messages", params=params | {"thread": "default"})
        assert [m["content"] for m in page.json()["items"]] == [
            f"Ada has {n} cats." for n in range(6)
        ]
        facts = (await client.post("/v1/memories/list", params=params, json={})).json()["items"]
        assert [fact["text"] for fact in facts].count("Ada has a dog.") == 1
