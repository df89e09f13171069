"""The command line: a thin shell over the public API."""

from __future__ import annotations

import sys

EXTRA = ("typer", "rich")
"""What the extra ``[cli]`` installs."""


def main() -> int:
    """Run ``mnemo``. Exit codes: 1: ``doctor`` found problems; 2: an error; 130: interrupted."""
    try:
        from mnemo.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in EXTRA:
            raise
        sys.stderr.write("mnemo: the command line needs pip install 'mnemo-sessions[cli]'\n")
        return 2
    return run()
