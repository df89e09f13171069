"""
Measure the framework adapters beside what the frameworks bring themselves.

Each section is a module of its own with ``async measured(folder, *, tiny) -> list[Figure]``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from importlib import import_module
from pathlib import Path

import anyio
from bench import headline, line
from bench_kit import Figure, machine

SECTIONS = {
    "checkpoints": "bench_checkpoints",
    "items": "bench_items",
    "sessions": "bench_sessions",
}
"""Module of each section."""


async def run(sections: list[str], *, tiny: bool) -> dict[str, list[Figure]]:
    """The figures of each section, one after the other, each in a folder of its own."""
    found = {}
    for section in sections:
        module = import_module(SECTIONS[section])
        with tempfile.TemporaryDirectory() as folder:
            found[section] = await module.measured(Path(folder), tiny=tiny)
    return found


def main() -> int:
    """Print a table or JSON; 0 also where a target is missed."""
    parser = argparse.ArgumentParser(description="Measure the framework adapters.")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--tiny", action="store_true", help="so small that figures say nothing")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if unknown := [name for name in options.sections if name not in SECTIONS]:
        parser.error(f"no section {unknown[0]!r}: choose of {', '.join(SECTIONS)}")
    found = anyio.run(lambda: run(options.sections or list(SECTIONS), tiny=options.tiny))
    told = machine()
    if options.json:
        phases = {name: [f.as_json() for f in figures] for name, figures in found.items()}
        print(json.dumps({"machine": told, "phases": phases}))
    else:
        print(headline(told))
        for figures in found.values():
            print("\n".join(line(figure.as_json()) for figure in figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
