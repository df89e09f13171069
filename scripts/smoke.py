"""Use an installation once: remember and recall, by ``await`` and without; what extras bring."""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from mnemo import Mnemo, sync

SAID, ASKED = "I live in Rome.", "Where does Ada live?"


async def remembers(store: str, serving: bool) -> None:
    """A fact is made of what is said, with the default embedder, and found."""
    async with Mnemo(store) as memory:
        repo = await memory.open_repo()
        await repo.remember(SAID, actor="Ada")
        found = await repo.recall(ASKED)
        assert not found.trace.degraded, found.trace.degraded
        assert "Rome" in found.as_text()
        if serving:
            from mnemo.mcp import memory_server
            from mnemo.web import token_of, web_app

            assert web_app(memory, tokens=[token_of("x" * 40, "smoke")])
            assert await memory_server(repo).list_tools()


def blocks(store: str) -> None:
    """The same without ``await``, which a type checker knows as well."""
    assert Path(sync.__file__).with_suffix(".pyi").exists()
    with sync.Mnemo(store) as memory:
        assert "Rome" in memory.open_repo().recall(ASKED).as_text()


def main() -> int:
    """Take modules that must be imported, beside the base; run the command line's demo, if any."""
    modules = sys.argv[1:]
    for name in modules:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "smoke.db")
        asyncio.run(remembers(store, "mnemo.web" in modules))
        blocks(store)
        if find_spec("typer") is None:  # installed without the command line
            return 0
        demo = [sys.executable, "-m", "mnemo", "demo", "--json"]
        return subprocess.run(demo, cwd=folder, stdout=subprocess.DEVNULL, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
