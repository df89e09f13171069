"""The command line: a thin shell over the public API."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _ended_by_interrupt() -> Iterator[None]:
    """Let Ctrl-C end the process at once: what imports modules loses some KeyboardInterrupts."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is not signal.default_int_handler:  # such as: ignored
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


def main() -> int:
    """Run ``mnemo``. Exit codes: 1: ``doctor`` found problems; 2: an error; 130: interrupted."""
    if sys.argv[1:2] == ["hook"]:  # it must be quick: neither typer nor the library
        from mnemo.cli.hook import run as run_hook

        try:
            return run_hook(sys.argv[2:])
        except KeyboardInterrupt:
            return 130
    try:
        with _ended_by_interrupt():
            from mnemo.cli.app import run
    except ImportError as error:
        if (error.name or "").split(".")[0] not in ("rich", "typer"):
            raise
        from mnemo.runtime.extras import needed

        sys.stderr.write(f"mnemo: {needed('the command line', 'cli')}\n")
        return 2
    return run()


def mcp() -> int:
    """Run ``mnemo-mcp``, which needs neither rich nor typer; exit codes as of ``main``."""
    try:
        with _ended_by_interrupt():
            from mnemo.mcp import main
    except ImportError as error:
        sys.stderr.write(f"mnemo-mcp: {error}\n")
        return 2
    return main()
