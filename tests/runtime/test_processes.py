"""Worker processes: the first is ready before the others begin, one that dies is replaced."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from helpers import child_environment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="workers need POSIX's signals"),
]
LIMIT_S = 60
PROGRAM = """
import os, signal, sys, time
from mnemo.runtime.processes import supervise

def work(number, ready):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    if "broken" in sys.argv:
        return 3
    print(number, os.getpid(), flush=True)
    ready()
    while True:
        time.sleep(60)

class Killing:
    # The same work; the first worker dies while the second is begun.

    times = 0

    def __call__(self, number, ready):
        if number == 0 and not os.path.exists("first"):
            with open("first", "w") as file:
                file.write(str(os.getpid()))
        return work(number, ready)

    def __getstate__(self):
        Killing.times += 1
        if Killing.times == 2:
            pid = int(open("first").read())
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return {}

if __name__ == "__main__":
    try:
        sys.exit(supervise(Killing() if "killing" in sys.argv else work, 2))
    except KeyboardInterrupt:
        print("interrupted")
"""
Begin = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def begin(tmp_path) -> Iterator[Begin]:
    """Begins a program with two workers; what of it is left in the end is killed."""
    begun: list[subprocess.Popen[str]] = []

    def run(*arguments: str) -> subprocess.Popen[str]:
        path = tmp_path / "program.py"
        path.write_text(PROGRAM)
        program = subprocess.Popen(
            [sys.executable, path, *arguments],
            cwd=tmp_path,
            env=child_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        begun.append(program)
        return program

    yield run
    for program in begun:
        if program.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
        program.communicate()


def worker(program: subprocess.Popen[str]) -> tuple[int, int]:
    """The number and process id of the worker that is ready next."""
    assert program.stdout is not None
    number, pid = program.stdout.readline().split()
    return int(number), int(pid)


def is_alive(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_worker_that_is_killed_is_replaced_under_its_number(begin):
    """The other goes on; SIGTERM ends them all, and nobody complains."""
    program = begin()
    first, second = worker(program), worker(program)
    assert (first[0], second[0]) == (0, 1)
    os.kill(second[1], signal.SIGKILL)
    number, pid = worker(program)
    assert number == 1
    assert pid != second[1]
    assert is_alive(first[1])
    program.terminate()
    told, complaints = program.communicate(timeout=LIMIT_S)
    assert (program.returncode, told) == (0, "")
    assert "Traceback" not in complaints
    assert not is_alive(first[1])
    assert not is_alive(pid)


def test_a_worker_that_dies_while_another_is_begun_is_replaced(begin):
    """Its end came after it was looked for, and before it was waited for."""
    program = begin("killing")
    begun = [worker(program) for _ in range(3)]
    assert sorted(number for number, _ in begun) == [0, 0, 1]
    program.terminate()
    _, complaints = program.communicate(timeout=LIMIT_S)
    assert program.returncode == 0
    assert "Traceback" not in complaints


def test_an_interrupt_of_the_terminal_is_for_the_first_process_alone(begin):
    """All processes of the group get it; the workers end by the signal of their parent."""
    program = begin()
    pids = [worker(program)[1] for _ in range(2)]
    os.killpg(program.pid, signal.SIGINT)
    told, complaints = program.communicate(timeout=LIMIT_S)
    assert (told, complaints) == ("interrupted\n", "")
    assert not any(map(is_alive, pids))


def test_a_first_worker_that_cannot_begin_ends_all(begin):
    """Its exit code is that of the whole; no other is begun."""
    program = begin("broken")
    told, _ = program.communicate(timeout=LIMIT_S)
    assert (program.returncode, told) == (3, "")
