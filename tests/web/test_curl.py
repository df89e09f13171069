"""The guide's page of a user's life by curl: every command is run, against a real server."""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from inspector_kit import LIMIT_S

PAGE = Path(__file__).parents[2] / "mnemo" / "guide" / "curl.md"
PORT = "8642"
END = "-- the commands end --"


def free_port() -> str:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return str(probe.getsockname()[1])


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_commands_of_the_page_print_what_stands_behind_them(tmp_path):
    """In one shell, one after the other; at the end no byte of the repository is left."""
    text = PAGE.read_text("utf-8").replace(PORT, free_port())
    examples = re.findall(r"^```sh\n(.*?)^```\n\n```text\n(.*?)^```$", text, re.M | re.S)
    assert len(examples) == text.count("```sh\n")
    script = "set -e; trap 'kill $! 2>/dev/null || true' EXIT\n"
    script += "".join(f"{commands}echo '{END}'\n" for commands, _ in examples)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=os.environ | {"PATH": path, "MNEMO_EMBEDDER": "static"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    *printed, rest = done.stdout.split(f"{END}\n")
    assert rest == ""
    for (commands, shown), found in zip(examples, printed, strict=True):
        pattern = ".*".join(map(re.escape, shown.split("…")))
        assert re.fullmatch(pattern, found), f"{commands}\n{found}"
