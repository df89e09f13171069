"""What ``torture`` is made of: outcomes with intervals, peers in their processes, small disks."""

from __future__ import annotations

import json
import os
import queue
import resource
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path
from typing import IO, Any

WORKER = Path(__file__).with_name("torture_peer.py")
ANSWER_LIMIT_S, OPEN_LIMIT_S = 120, 180
DISK_BYTES = 256 << 20
Z = 1.96


# ── What came of it ──────────────────────────────────────────────────────────────────


class CannotAsk(Exception):
    """The peer has no such call."""


class PeerError(Exception):
    """The peer refused, failed or died; the message is one line."""


def wilson(hits: int, tries: int) -> tuple[float, float]:
    """The interval of a share at 95 %; (0, 1) of nothing."""
    if not tries:
        return 0.0, 1.0
    share, square = hits / tries, Z * Z / tries
    half = Z * sqrt(share * (1 - share) / tries + square / (4 * tries))
    low, high = ((share + square / 2 + sign * half) / (1 + square) for sign in (-1, 1))
    return max(0.0, low), min(1.0, high)


@dataclass
class Outcome:
    """
    What came of one part of the script.

    Attributes:
        tries, good: How often it was tried, and how often nothing was wrong.
        kinds: What was wrong, or how it was refused → how often.
        note: Figures, and the first error of the peer.
        supported: Whether the peer has the calls; else the rest says nothing.
    """

    tries: int = 0
    good: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    note: str = ""
    supported: bool = True

    def count(self, wrong: str | None = None, error: object = None) -> None:
        """Count a try; *wrong* says what was wrong with it."""
        self.tries += 1
        self.good += wrong is None
        if wrong is not None:
            self.kinds[wrong] += 1
        if error is not None and not self.note:
            self.note = " ".join(str(error).split())[:110]

    def __str__(self) -> str:
        if not self.supported:
            return "not supported"
        if not self.tries:
            return self.note or "not run"
        low, high = (100 * share for share in wilson(self.good, self.tries))
        told = [f"**{self.good}/{self.tries}** [{low:.0f}–{high:.0f} %]"]
        told += [f"{kind} {count}" for kind, count in self.kinds.most_common()]
        return "; ".join([*told, *([self.note] if self.note else [])])

    def as_json(self) -> dict[str, Any]:
        """All of it."""
        return vars(self) | {"kinds": dict(self.kinds)}


def missing(acknowledged: Sequence[str], stored: Sequence[str]) -> list[str]:
    """The texts that were acknowledged and are not stored, each as often as it was."""
    return list((Counter(acknowledged) - Counter(stored)).elements())


# ── A peer in its process ────────────────────────────────────────────────────────────


class Nursery:
    """A process that has imported a peer; each memory that is opened is a process forked off it."""

    def __init__(self, name: str, python: Path) -> None:
        self.name = name
        self._home = tempfile.TemporaryDirectory(prefix="torture-home-")
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        # Settings that peers read when they are imported.
        settings = {"MEM0_TELEMETRY": "False", "MEM0_DIR": self._home.name}
        settings |= {"GRAPHITI_TELEMETRY_ENABLED": "false", "TOKENIZERS_PARALLELISM": "false"}
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [python, WORKER, name, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdout=self._errors,
                stderr=self._errors,
                env=os.environ | settings,
            )

    def begin(self, setting: str, folder: Path, files: Sequence[int]) -> int:
        """The id of a new process."""
        try:
            socket.send_fds(self._socket, [json.dumps([setting, str(folder)]).encode()], files)
            answer = self._socket.recv(20)
        except OSError:
            answer = b""
        if not answer:
            raise PeerError(f"process ended: {last_line(self._errors)}")
        return int(answer)

    def close(self) -> None:
        """End it; what it forked has ended."""
        self._socket.close()
        self._process.wait()
        self._home.cleanup()
        self._errors.close()


def last_line(errors: IO[bytes]) -> str:
    """The last line of what a process wrote to standard error."""
    errors.seek(0)
    lines = [line for line in errors.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it says nothing"


class Worker:
    """A memory that is open in a process of its own; raises ``PeerError`` if it cannot be."""

    def __init__(self, nursery: Nursery, setting: str, folder: Path) -> None:
        self._lines: queue.Queue[str] = queue.Queue()
        self._errors, self._said = tempfile.TemporaryFile(), ""  # noqa: SIM115
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        try:
            files = (theirs_in, theirs_out, self._errors.fileno())
            self.pid = nursery.begin(setting, folder, files)
            self._alive = os.pidfd_open(self.pid)
        except BaseException:
            os.close(ours_in)
            os.close(ours_out)
            raise
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        self._commands = os.fdopen(ours_out, "w")
        self._answers = os.fdopen(ours_in)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.told = self.reply(OPEN_LIMIT_S)
        except PeerError:
            self.kill()
            raise

    def _read(self) -> None:
        for line in self._answers:
            self._lines.put(line)
        self._lines.put("")

    def send(self, call: str, *given: Any) -> None:
        """Ask for a call; that the process has ended is noticed by the reply."""
        with suppress(BrokenPipeError):
            self._commands.write(json.dumps([call, *given]) + "\n")
            self._commands.flush()

    def reply(self, limit_s: float = ANSWER_LIMIT_S) -> Any:
        """
        The next answer.

        Raises:
            CannotAsk: The peer has no such call.
            PeerError: It raised, its process ended, or nothing came in time.
        """
        try:
            line = self._lines.get(timeout=limit_s)
        except queue.Empty:
            raise PeerError(f"hangs: no answer within {limit_s} s") from None
        if not line.endswith("\n"):
            self._lines.put("")
            raise PeerError(f"process ended: {self._said or last_line(self._errors)}")
        answer = json.loads(line)
        if answer.get("cannot"):
            raise CannotAsk
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer

    def ask(self, call: str, *given: Any) -> Any:
        """The value of a call."""
        self.send(call, *given)
        return self.reply().get("value")

    def replies(self, count: int) -> Iterator[PeerError | None]:
        """One for each of *count* calls: its error or ``None``; fewer if the process ends."""
        for _ in range(count):
            try:
                self.reply()
                yield None
            except PeerError as error:
                yield error
                if str(error).startswith(("process ended", "hangs")):
                    return

    def kill(self) -> None:
        """SIGKILL; what it had answered can be read afterwards."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._alive, signal.SIGKILL)
        self._ended(None)

    def end(self) -> None:
        """Let it close its memory; killed if it does not."""
        with suppress(BrokenPipeError):
            self._commands.close()
        if not self._ended(ANSWER_LIMIT_S):
            self.kill()

    def _ended(self, limit_s: float | None) -> bool:
        """Whether it ends in time; then its files are closed."""
        if not select.select([self._alive], [], [], limit_s)[0]:
            return False
        self._reader.join()
        self._said = last_line(self._errors)
        with suppress(BrokenPipeError):
            self._commands.close()
        self._answers.close()
        self._errors.close()
        os.close(self._alive)
        return True


@dataclass
class Subject:
    """A peer at a setting, ``default`` or ``durable``."""

    nursery: Nursery
    setting: str

    def open(self, folder: Path) -> Worker:
        """Open it in a folder, in a process of its own."""
        return Worker(self.nursery, self.setting, folder)

    @contextmanager
    def opened(self, folder: Path) -> Iterator[Worker]:
        """Open it, and close it at the end."""
        worker = self.open(folder)
        try:
            yield worker
        finally:
            worker.end()

    def stored(self, folder: Path) -> list[str]:
        """What a new process finds stored."""
        with self.opened(folder) as worker:
            return list(worker.ask("texts"))


@contextmanager
def new_folder() -> Iterator[Path]:
    """A folder on the disk that the temporary ones are on."""
    with tempfile.TemporaryDirectory(prefix="torture-", ignore_cleanup_errors=True) as name:
        yield Path(name)


# ── A small disk ─────────────────────────────────────────────────────────────────────


@contextmanager
def small_disk() -> Iterator[tuple[Path, Callable[[Worker, bool], None], str]]:
    """A folder, what fills its disk or frees it, and how that is done."""
    with new_folder() as folder:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(folder)]
        quiet = {"check": False, "capture_output": True}
        if shutil.which("mount") is None or subprocess.run(mount, **quiet).returncode:
            yield folder, lambda worker, full: _limit(worker, folder, full), "RLIMIT_FSIZE"
            return
        try:
            yield folder, lambda worker, full: _fill(folder / "ballast", full), "a small tmpfs"
        finally:
            subprocess.run(["umount", "--lazy", str(folder)], **quiet)


def _limit(worker: Worker, folder: Path, full: bool) -> None:
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    _, hard = resource.prlimit(worker.pid, resource.RLIMIT_FSIZE)
    soft = max(sizes) if full else hard
    resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (soft, hard))


def _fill(ballast: Path, full: bool) -> None:
    if not full:
        ballast.unlink()
        return
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(4_096)):
                pass
        except OSError:
            return
