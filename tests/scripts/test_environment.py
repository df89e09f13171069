"""What scripts/environment does for the browser that the tests of the page want."""

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


TEST = ENVIRONMENT.with_name("test")
TOLD = '#!/bin/bash\necho "$@"\n'
NEEDED = ("bash", "cat", "cksum", "dirname", "grep", "sed")


def run_script(folder: Path, *arguments: str, made: bool) -> subprocess.CompletedProcess[str]:
    """Run ``scripts/test``; its environment has a Python that prints its arguments."""
    programs = folder / "programs"
    programs.mkdir()
    for name in NEEDED:
        found = next(p for p in map(Path, os.get_exec_path()) if (p / name).exists())
        (programs / name).symlink_to(found / name)
    python = folder / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(TOLD)
    python.chmod(0o755)
    environment = {"PATH": str(programs), "MNEMO_VENV": str(folder / "venv")}
    if made:
        wanted = 'echo "all test $(cksum <"$root/pyproject.toml")" >"$venv/.made-for"'
        command = ["bash", "-c", f"source {ENVIRONMENT}; {wanted}"]
        subprocess.run(command, env=environment, check=True)
    return subprocess.run(
        ["bash", str(TEST), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_mistyped_argument_is_refused_before_anything_is_installed(tmp_path):
    """It names what there is."""
    ran = run_script(tmp_path, "quik", made=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "there is no quik: give quick, --all" in ran.stderr


def test_the_quick_loop_has_a_name(tmp_path):
    """And takes more for pytest."""
    ran = run_script(tmp_path, "quick", "-x", made=True)
    assert "-m not long and not model and not postgres -x" in ran.stdout
    assert "quick" not in ran.stdout.split()


def test_the_help_installs_nothing(tmp_path):
    """It is the head of the script."""
    ran = run_script(tmp_path, "--help", made=False)
    assert ran.returncode == 0
    assert "quick" in ran.stdout
    assert "pip" not in ran.stdout


def test_an_installation_for_tests_says_what_it_does(tmp_path):
    """It takes minutes; that of the demo is quiet."""
    ran = run_script(tmp_path, "--co", made=False)
    pip, installed, *_ = ran.stdout.splitlines()
    assert pip == "-m pip install --disable-pip-version-check pip>=25.1"
    assert installed.startswith("-m pip install --disable-pip-version-check --group ")
    command = f"source {ENVIRONMENT}; ensure_environment cli"
    environment = {"PATH": str(tmp_path / "programs"), "MNEMO_VENV": str(tmp_path / "venv")}
    (tmp_path / "venv" / ".made-for").unlink()
    quiet = subprocess.run(
        ["bash", "-c", command], env=environment, capture_output=True, text=True, check=True
    )
    assert quiet.stdout.startswith("-m pip install -qq ")
