"""
A memory in processes of its own, for ``torture``: ``torture_peer.py NAME SOCKET``.

Imports what the peer needs, which can take seconds, and then forks a process for each memory that
SOCKET asks it to open: a setting (``default`` or ``durable``) and a folder, with the files that are
to be standard input, answers and standard error. That process carries out what it is told, a line
of JSON each: ``[call, argument, ...]`` of a ``Peer``. Every answer is a line, written by one call,
so that none is cut by a kill. It needs Python, NumPy, wordllama and the peer alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

from peers import PEERS, Cannot, Peer, embed


async def _answered(peer: Peer, call: str, given: list[Any]) -> dict[str, Any]:
    began = perf_counter()
    try:
        value = await getattr(peer, call)(*given)
    except Cannot:
        return {"error": "no such call", "cannot": True}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    told = {"ms": 1_000 * (perf_counter() - began)}
    return told | ({"value": value} if call in ("texts", "search") else {})


async def serve(name: str, setting: str, folder: Path, answers: int) -> None:
    """Carry out every line of standard input, then close the memory."""

    def tell(answer: dict[str, Any]) -> None:
        os.write(answers, (json.dumps(answer) + "\n").encode())

    kind = PEERS[name]
    async with kind.opened(folder, setting == "durable") as peer:
        versions = ", ".join(f"{package} {version(package)}" for package in kind.packages)
        tell({"durability": peer.durability, "version": versions})
        while line := await asyncio.to_thread(sys.stdin.readline):
            call, *given = json.loads(line)
            tell(await _answered(peer, call, given))


def _imported(name: str) -> list[str]:
    """The modules that a process has imported when it has used the peer."""
    told, tells = os.pipe()
    if os.fork():
        os.close(tells)
        with os.fdopen(told) as names:
            return [*json.loads(names.read() or "[]")]

    async def use() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with PEERS[name].opened(Path(folder), False) as peer:
                for call, *given in (("add", "a", "A text."), ("texts",), ("search", "text")):
                    await _answered(peer, call, given)

    asyncio.run(use())
    os.write(tells, json.dumps([*sys.modules]).encode())
    os._exit(0)


def main(name: str, descriptor: str) -> None:
    """Fork a process for each request; in that, serve it and end as every program does."""
    embed(["The embedder is loaded before a process is forked."])
    for module in [PEERS[name].module, *_imported(name)]:
        with suppress(ImportError):
            import_module(module)
    requests = socket.socket(fileno=int(descriptor))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        request, files, _, _ = socket.recv_fds(requests, 4_096, 3)
        if not request:
            return None
        if process := os.fork():
            requests.send(str(process).encode())
            for file in files:
                os.close(file)
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        requests.close()
        commands, answers, errors = files
        # What a library prints goes to standard error.
        for file, number in ((commands, 0), (errors, 1), (errors, 2)):
            os.dup2(file, number)
        setting, folder = json.loads(request)
        return asyncio.run(serve(name, setting, Path(folder), answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
