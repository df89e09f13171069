"""
Measure mnemo, row by row: ``scripts/bench [ROW]... [SETTING=VALUE]...``, and ``--list`` names them.

A word also takes all rows that begin so: ``append``, ``search``. Without a word, everything that
needs no server and no other framework. Every row runs in a process of its own, so that none
inherits another's heap. Garbage collection is set as a service would set it (``--plain-gc`` leaves
it alone). Targets are those of the project; a figure that misses its target is marked. A busy
machine shows first in the lag of an idle loop; processor time suffers least from it. BLAS has one
thread: another spins on for some 20 ms after its work, which the next figure would be charged with.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import bench_adapters
import bench_http
import bench_postgres
import bench_read
import bench_scale
import bench_workers
import bench_write
from bench_kit import Figure, Row, headline, keep, machine

from mnemo.runtime import settle_collector

ROOMS = (bench_write, bench_read, bench_workers, bench_postgres, bench_adapters, bench_scale)
ROWS: dict[str, Row] = {n: row for room in (*ROOMS, bench_http) for n, row in room.ROWS.items()}
USUAL = [n for n in (*bench_write.ROWS, *bench_read.ROWS, "threads") if n != "maintenance"]
"""What is measured where no row is named, but for what takes hours and rows that want a setting."""


class Refused(Exception):
    """The command line names what there is not."""


def chosen(words: Sequence[str], quick: bool) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """
    Title, row and settings of all that *words* ask for.

    Raises:
        Refused: A word is no row and no setting.
    """
    given = dict(word.split("=", 1) for word in words if "=" in word)
    rows: list[str] = []
    for word in [word for word in words if "=" not in word]:
        meant = [name for name in ROWS if name == word or name.startswith(f"{word}-")]
        if not meant:
            raise Refused(f"no row is called {word}; known: {', '.join(ROWS)}")
        rows += meant
    rows = rows or [name for name in USUAL if None not in ROWS[name].sized(quick).values()]
    known = {setting for name in rows for setting in ROWS[name].sized(quick)}
    if unknown := given.keys() - known:
        raise Refused(f"no setting {min(unknown)!r}; known: {', '.join(sorted(known)) or 'none'}")
    for name in rows:
        settings = {k: _listed(v, given.get(k)) for k, v in ROWS[name].sized(quick).items()}
        several = [key for key, values in settings.items() if len(values) > 1]
        for run in product(*settings.values()):
            one = dict(zip(settings, run, strict=True))
            yield " ".join([name, *(f"{key}={one[key]}" for key in several)]), name, one


def _listed(value: Any, given: str | None) -> list[Any]:
    """The values of a setting, of which *given* replaces those it has."""
    values = value if isinstance(value, list) else [value]
    if given is None:
        return values
    like = str if values[0] is None else type(values[0])
    try:
        return [like(part) for part in given.split(",")]
    except ValueError as error:
        raise Refused(str(error)) from error


def measure(name: str, settings: Mapping[str, Any], plain_gc: bool) -> None:
    """Run a row in this process, its files in a fresh folder; print its figures."""
    if not plain_gc:
        settle_collector()
    with tempfile.TemporaryDirectory(prefix="mnemo-bench-") as folder:
        figures = anyio.run(lambda: ROWS[name].act(Path(folder), **settings))
    print(json.dumps([figure.as_json() for figure in figures]))


def measured_apart(name: str, settings: Mapping[str, Any], options: Sequence[str]) -> list[Any]:
    """What ``measure`` prints in a process of its own."""
    command = [sys.executable, __file__, name, "--inside", json.dumps(settings), *options]
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=env).stdout
    figures: list[Any] = json.loads(out.splitlines()[-1])
    return figures


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for; 0 also where a target is missed."""
    given = _parse(argv)
    if given.inside:
        measure(given.words[0], json.loads(given.inside), given.plain_gc)
        return 0
    if given.list:
        for name, row in ROWS.items():
            settings = (f"{k}={_shown(v)}" for k, v in row.sized(given.quick).items())
            print(f"{name:<22}{' '.join(settings)}")
        return 0
    try:
        runs = list(chosen(given.words, given.quick))
    except Refused as error:
        print(error, file=sys.stderr)
        return 2
    facts, phases = machine(), {}
    if not given.json:
        print(headline(facts))
    for title, name, settings in runs:
        phases[title] = measured_apart(name, settings, ["--plain-gc"] * given.plain_gc)
        if given.keep:
            asked = {key: value for key, value in settings.items() if key != "stores"}
            keep(Path(given.keep), name, asked, headline(facts), phases[title])
        if not given.json:
            figures = ({k: v for k, v in one.items() if k != "met"} for one in phases[title])
            print(f"\n{title}", *(Figure(**one) for one in figures), sep="\n", flush=True)
    if given.json:
        settings = {"quick": given.quick, "plain_gc": given.plain_gc}
        print(json.dumps({"machine": facts, **settings, "phases": phases}, indent=2))
    return 0


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "" if value is None else str(value)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("words", nargs="*", metavar="ROW | SETTING=VALUE", help="of several values, each in turn")
    add("--list", action="store_true", help="rows and their settings")
    add("--quick", action="store_true", help="so small that figures say little")
    add("--json", action="store_true", help="machine, versions and figures")
    add("--keep", metavar="FILE", help="add the figures to those in a file, for the guide")
    add("--plain-gc", action="store_true", help="leave garbage collection as it is")
    add("--inside", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
