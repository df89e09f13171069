"""Child processes that run until they are killed, all forked from one warm process."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers import child_environment

PROGRAM = Path(__file__).with_name("child.py")
HANGING_S = 60.0
"""Seconds after which a child counts as hanging; the test then fails at the end of the pipe."""

Told = list[list[Any]]


class Lives:
    """The process that forks, spoken to in lines of JSON."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def killed(
        self, program: str, *, when: Callable[[Told], bool], delay_s: float = 0.0, **arguments: Any
    ) -> Told:
        """Run a program, kill it so long after *when* holds, and return all that it told."""
        told: Told = []
        watch = threading.Timer(HANGING_S, self._process.kill)
        watch.start()
        try:
            self._send({"program": program, **arguments})
            what, pid = self._heard()
            assert what == "born"
            while not when(told):
                told.append(self._heard())
            # The delay is the subject here: a kill has to come at a moment that nobody chose.
            time.sleep(delay_s)
            os.kill(pid, signal.SIGKILL)
            while not told or told[-1][0] != "died":
                told.append(self._heard())
        finally:
            watch.cancel()
        assert told.pop() == ["died", -signal.SIGKILL]
        return told

    def _send(self, life: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write((json.dumps(life) + "\n").encode())
        self._process.stdin.flush()

    def _heard(self) -> list[Any]:
        assert self._process.stdout is not None
        line: list[Any] = json.loads(self._process.stdout.readline())
        return line


def opened(told: Told) -> bool:
    """Whether the child has opened its store."""
    return ["open"] in told


@contextmanager
def forking() -> Iterator[Lives]:
    """Start the process that forks, and end it."""
    command = [sys.executable, str(PROGRAM)]
    environment = {**child_environment(), "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        try:
            yield Lives(process)
        finally:
            process.kill()
