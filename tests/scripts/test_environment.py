"""What scripts/environment does for the browser that the tests of the page want."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ENVIRONMENT = Path(__file__).parents[2] / "scripts" / "environment"
INSTALLS = '[ "$1" = update ] || ln -s /bin/true "$(dirname "$0")/chromium"'


def ensured(folder: Path, *, user: int, apt: str) -> int:
    """The exit code of ``ensure_chromium`` where only the programs of *folder* can be called."""
    programs = {"id": f"echo {user}", "apt-get": apt}
    for name, script in programs.items():
        (folder / name).write_text(f"#!/bin/bash\n{script}\n")
        (folder / name).chmod(0o755)
    for name in ("bash", "dirname", "ln"):
        found = next(p for p in map(Path, os.get_exec_path()) if (p / name).exists())
        (folder / name).symlink_to(found / name)
    command = f"source {ENVIRONMENT}; PATH={folder}; ensure_chromium"
    return subprocess.run(["bash", "-c", command], capture_output=True, check=False).returncode


@pytest.mark.parametrize(
    ("user", "apt", "is_there"),
    [(0, INSTALLS, True), (0, "exit 100", False), (0, "exit 0", False), (1_000, INSTALLS, False)],
)
def test_a_missing_browser_is_installed_where_that_is_possible(tmp_path, user, apt, is_there):
    """Root with a working apt gets one; without rights or network the failure is reported."""
    assert (ensured(tmp_path, user=user, apt=apt) == 0) == is_there
    assert (tmp_path / "chromium").exists() == is_there
