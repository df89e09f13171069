"""Resolve an installation from wheels alone, for every Python and platform; see main."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import NamedTuple

from release import built

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = {
    "x86_64-manylinux_2_28": "-any.whl",
    "aarch64-manylinux_2_28": "-any.whl",
    "x86_64-unknown-linux-musl": "-musllinux_1_2_x86_64.whl",
    "aarch64-unknown-linux-musl": "-musllinux_1_2_aarch64.whl",
    "aarch64-apple-darwin": "-any.whl",
    "x86_64-apple-darwin": "-any.whl",
    "x86_64-pc-windows-msvc": "-any.whl",
}
"""Platform, as uv names it → which of our wheels an installer takes there."""

EXTRAS = ("", "cli,mcp,multilingual,postgres,serve")
"""What has to be installable everywhere."""


class Case(NamedTuple):
    """An installation."""

    extra: str
    python: str
    platform: str

    def __str__(self) -> str:
        return f"mnemo-sessions[{self.extra}], Python {self.python}, {self.platform}"


def main() -> int:
    """Resolve each case; the exit code tells whether one cannot be had without a compiler."""
    parser = argparse.ArgumentParser(prog="scripts/check_wheels")
    parser.add_argument("--wheels", type=Path, help="a folder that has them; default: build them")
    parser.add_argument("--with", dest="more", default="", help="a further requirement, to try")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if not given.wheels:
            built(Path(folder))
        wheels = (given.wheels or Path(folder)).absolute()
        cases = [*map(Case._make, product(EXTRAS, PYTHONS, PLATFORMS))]
        with ThreadPoolExecutor(8) as pool:  # They wait for the index rather than compute.
            problems = [*pool.map(lambda case: resolve(case, wheels, given.more), cases)]
    told = [f"{case}: {why}" for case, why in zip(cases, problems, strict=True) if why]
    failed = len(told)
    print(*told, sep="\n")
    print(f"{len(cases) - failed} of {len(cases)} installations want no compiler")
    return int(failed > 0)


def resolve(case: Case, wheels: Path, more: str) -> str:
    """What keeps *case* from being installed; ``""``: nothing."""
    found = [*wheels.glob(f"*{PLATFORMS[case.platform]}")]
    if len(found) != 1:
        return f"{len(found)} wheels end in {PLATFORMS[case.platform]}; there must be one"
    wanted = f"mnemo-sessions[{case.extra}] @ {found[0].as_uri()}\n{more}"
    command = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "--quiet", "--no-build"]
    command += ["--python-version", case.python, "--python-platform", case.platform, "-"]
    # Wheels of ONNX Runtime for Python 3.14 want it; uv supposes 13.
    environment = os.environ | {"MACOSX_DEPLOYMENT_TARGET": "14.0"}
    ran = subprocess.run(
        command, input=wanted, env=environment, capture_output=True, text=True, check=False
    )
    return " ".join(ran.stderr.split()) if ran.returncode else ""


if __name__ == "__main__":
    sys.exit(main())
