"""Numbers that processes share: added up, found by name, and free again when a holder dies."""

import fcntl
import signal
import subprocess
import sys

import pytest
from helpers import child_environment
from inspector_kit import LIMIT_S

from mnemo import ConfigError
from mnemo.runtime import board as boards
from mnemo.runtime.board import Board

ADD = """
import sys
from pathlib import Path
from mnemo.runtime import board as boards
boards.PATIENCE_S = float(sys.argv[2])
board = boards.Board(Path(sys.argv[1]))
for number in range(2_000):
    with board:
        board.numbers(f"n{number % 7}")[0] += 1
        board.numbers("pair", 2)[1] += 2
"""
HOLD = """
import sys
from pathlib import Path
from mnemo.runtime.board import Board
with Board(Path(sys.argv[1])) as board:
    board.numbers("kept")[0] = 3
    print("held", flush=True)
    sys.stdin.read()
"""


def child(code, path, *arguments, **more):
    """A process that runs *code*."""
    command = [sys.executable, "-c", code, str(path), *arguments]
    return subprocess.Popen(command, env=child_environment(), text=True, **more)


def add(path, patience_s):
    """Run ``ADD`` to its end."""
    command = [sys.executable, "-c", ADD, str(path), patience_s]
    subprocess.run(command, env=child_environment(), check=True, timeout=LIMIT_S)


def test_a_board_without_a_file_is_of_this_process():
    """Numbers begin with 0, and are found again by their names, whatever letters those have."""
    board = Board()
    board.numbers("é", 2)[1] += 5
    assert [*board.numbers("é")] == [0, 5]
    assert [name for name, _ in Board().items()] == []


def test_two_boards_of_a_file_show_each_other_s_numbers(tmp_path):
    """Each finds what the other has begun since; a name that both begin is one."""
    first, second = (Board(tmp_path / "board") for _ in range(2))
    first.numbers("a")[0] = 1
    second.numbers("b", 3)[2] = 2
    second.numbers("a")[0] += 1
    assert [(name, [*numbers]) for name, numbers in first.items()] == [
        ("a", [2]),
        ("b", [0, 0, 2]),
    ]


@pytest.mark.slow
def test_no_addition_of_processes_at_once_is_lost(tmp_path):
    """Three processes begin the same names and add to them."""
    board = Board(tmp_path / "board")
    children = [child(ADD, tmp_path / "board", "1e6") for _ in range(3)]
    assert [one.wait() for one in children] == [0, 0, 0]
    found = {name: [*numbers] for name, numbers in board.items()}
    assert found.pop("pair") == [0, 12_000]
    assert sum(numbers[0] for numbers in found.values()) == 6_000
    assert len(found) == 7


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_holds_a_board_lets_it_go(tmp_path):
    """What it had written is there, and the next one is not kept waiting."""
    with child(HOLD, tmp_path / "board", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == "held\n"
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with Board(tmp_path / "board") as board:
            assert board.numbers("kept")[0] == 3


@pytest.mark.slow
@pytest.mark.parametrize("held", ["board", "board.spare", "board.names"])
def test_a_process_that_hangs_with_a_board_holds_up_nobody(tmp_path, held):
    """Others count what they count, under another lock; none adds names while another may."""
    board = Board(tmp_path / "board")
    with open(tmp_path / held) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        add(tmp_path / "board", "0.02")
        found = {name: [*numbers] for name, numbers in board.items()}
        assert found == {} if held == "board.names" else found["pair"] == [0, 4_000]
    add(tmp_path / "board", "1e6")
    assert board.numbers("pair")[1] == (4_000 if held == "board.names" else 8_000)


@pytest.mark.slow
def test_a_stopped_process_that_goes_on_excludes_others_again(tmp_path):
    """While it hangs others go on; when it wakes, it writes what it had to, and lets go."""
    path = tmp_path / "board"
    with child(HOLD, path, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == "held\n"
        holder.send_signal(signal.SIGSTOP)
        with Board(path) as board:
            board.numbers("kept")[0] += 1
        holder.send_signal(signal.SIGCONT)
        holder.communicate()
    with Board(path) as board, open(path) as file:
        assert board.numbers("kept")[0] == 4
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_full_board_says_so(monkeypatch):
    """Its size is bounded; what it holds stays."""
    monkeypatch.setattr(boards, "BYTES", 4_096)
    board = Board()
    board.numbers("first")[0] = 7
    board.numbers("large", 500)
    with pytest.raises(ConfigError, match="4,096 bytes"):
        board.numbers("one more", 20)
    assert board.numbers("first")[0] == 7
