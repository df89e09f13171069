"""The command line: a thin shell over the public API."""

from __future__ import annotations

import sys

EXTRA = ("typer", "rich")
"""What the extra ``[cli]`` installs."""


def main() -> int:
    """
    Run ``mnemo`` on the process's arguments.

    Returns:
        The exit code: 0; 1 where ``doctor`` found problems; 2 for an error, told in one
        line on stderr; 130 when interrupted.
    """
    try:
        from mnemo.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in EXTRA:
            raise
        sys.stderr.write("mnemo: the command line needs pip install 'mnemo-sessions[cli]'\n")
        return 2
    return run()
