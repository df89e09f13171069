"""Run the demo on a PostgreSQL server that is started for it; see ``scripts/demo``."""

from __future__ import annotations

import subprocess
import sys

from postgres_server import new_schema, running_server


def main() -> int:
    """Give the demo's exit code."""
    with running_server() as server, new_schema(server.url) as url:
        command = [sys.executable, "-m", "mnemo", "demo", "--store", url, *sys.argv[1:]]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
