"""Logs as lines of JSON: bounded, and written by threads."""

import fcntl
import json
import logging
import os
import subprocess
import sys

import pytest
from helpers import child_environment

from mnemo.runtime import json_logs
from mnemo.runtime.turns import Turn


def test_a_log_that_is_written_too_slowly_tells_how_much_it_lost(monkeypatch):
    """A bounded number of lines waits; the next that finds room is told what was left out."""
    monkeypatch.setattr(json_logs, "MOST_QUEUED", 3)
    queued = json_logs._Queued()
    for number in range(5):
        queued.handle(logging.makeLogRecord({"name": "mnemo.access", "msg": {"number": number}}))
    held = [json.loads(queued.queue.get_nowait().getMessage()) for _ in range(3)]
    assert [line["number"] for line in held] == [0, 1, 2]
    queued.handle(logging.makeLogRecord({"name": "mnemo.access", "msg": {"number": 5}}))
    told = [json.loads(queued.queue.get_nowait().getMessage()) for _ in range(2)]
    assert told[0]["message"].startswith("2 lines were lost")
    assert told[1]["number"] == 5


def test_a_file_is_rotated(tmp_path, monkeypatch):
    """Its size is bounded, and so is the number of older files."""
    monkeypatch.setattr(json_logs, "ROTATED_BYTES", 500)
    monkeypatch.setattr(json_logs, "ROTATED_FILES", 2)
    with json_logs.written("error", {"mnemo.audit": tmp_path / "audit.jsonl"}):
        for number in range(50):
            logging.getLogger("mnemo.audit").info({"thread_id": f"t{number}"})
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    assert all(file.stat().st_size <= 500 for file in files)
    assert json.loads(files[0].read_text().splitlines()[-1])["thread_id"] == "t49"


WRITE = """
import logging, sys
from pathlib import Path
from mnemo.runtime import json_logs
json_logs.ROTATED_BYTES, json_logs.ROTATED_FILES = 20_000, 100
with json_logs.written("error", {"mnemo.audit": Path(sys.argv[1])}):
    for number in range(300):
        logging.getLogger("mnemo.audit").info({"who": sys.argv[2], "n": number, "ids": ["x" * 500]})
"""


@pytest.mark.slow
def test_a_file_that_processes_write_has_whole_lines_through_rotations(tmp_path):
    """Each line of each is there once, in the order in which its process wrote it."""
    path = tmp_path / "audit.jsonl"
    command = [sys.executable, "-c", WRITE, str(path)]
    writers = [subprocess.Popen([*command, who], env=child_environment()) for who in "abc"]
    assert [one.wait() for one in writers] == [0, 0, 0]
    files = sorted(tmp_path.iterdir(), key=lambda file: -int(file.suffix[1:].replace("jsonl", "0")))
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    for who in "abc":
        assert [line["n"] for line in lines if line["who"] == who] == [*range(300)]
    assert len(files) > 10


def test_a_process_that_hangs_over_a_log_holds_up_nobody(tmp_path, monkeypatch):
    """Others write their lines, and rotate nothing that it may be at; later they do again."""
    monkeypatch.setattr(json_logs, "ROTATED_BYTES", 500)
    monkeypatch.setattr(json_logs._Rotated, "_turn", Turn(0.02))
    path, log = tmp_path / "audit.jsonl", logging.getLogger("mnemo.audit")
    folder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    with json_logs.written("error", {"mnemo.audit": path}):
        for number in range(50):
            log.info({"thread_id": f"t{number}"})
    lines = [json.loads(line)["thread_id"] for line in path.read_text().splitlines()]
    assert lines == [f"t{number}" for number in range(50)]
    os.close(folder)
    with json_logs.written("error", {"mnemo.audit": path}):
        log.info({"thread_id": "last"})
    assert json.loads(path.read_text())["thread_id"] == "last"
    assert len(list(tmp_path.iterdir())) == 2
