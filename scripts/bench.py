"""
Measure mnemo: appends, sustained load, episodes, threads, recall, filters, loop lag, memory.

Every phase runs in a process of its own, so that none inherits another's heap, and
beats a heartbeat on the event loop. What is loaded once is loaded before, and shown by
``first-use``. With a FILE of dialogues, their turns are a sustained load too. Garbage
collection is set as a service would set it (``--plain-gc`` leaves it alone). Targets are
those of the project; a figure that misses its target is marked. A busy machine shows first
in the lag of an idle loop; processor time suffers least from it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from bench_dialogues import BadInput
from bench_filters import recall_filtered
from bench_kit import SIZES, Figure, Sizes, heartbeat, machine
from bench_load import sustained, sustained_turns, turns_of
from bench_process import idle_sessions, import_time
from bench_reading import recall_at
from bench_threads import threads
from bench_writing import appends_beside_bare, appends_full, appends_normal, episodes, first_use

from mnemo.runtime import settle_collector

Phase = Callable[[Sizes, Path], Awaitable[list[Figure]]]


async def idle_loop(sizes: Sizes, folder: Path) -> list[Figure]:
    """The lag of a loop that does nothing: what the machine itself adds."""
    async with heartbeat() as beats:
        await anyio.sleep(min(2.0, sizes.appends / 8_000))
    return [Figure(f.name, f.value, f.unit) for f in beats.figures("idle loop")]


def phases(sizes: Sizes, file: Path | None) -> dict[str, Phase]:
    """Name → phase, in the order in which they run; the dialogues in *file* are one."""
    known: dict[str, Phase] = {
        "idle-loop": idle_loop,
        "import": import_time,
        "first-use": first_use,
        "sessions": idle_sessions,
        "appends-normal": appends_normal,
        "appends-full": appends_full,
        "appends-beside-bare": appends_beside_bare,
        "sustained": sustained,
        "episodes": episodes,
        "threads": threads,
        "filters": recall_filtered,
    }
    if file is not None:
        known["turns"] = partial(sustained_turns, file)
    return known | {f"recall-{count}": partial(recall_at, count) for count in sizes.nodes}


def measure(phase: Phase, sizes: Sizes, place: Path | None, *, plain_gc: bool) -> list[Figure]:
    """Run *phase* in this process, its files in a fresh folder below *place*."""
    if not plain_gc:
        settle_collector()
    with tempfile.TemporaryDirectory(prefix="mnemo-bench-", dir=place) as folder:
        return anyio.run(phase, sizes, Path(folder))


def measure_apart(name: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Run the phase *name* in a process of its own."""
    command = [sys.executable, __file__, "--inside", name, "--size", arguments.size]
    if arguments.plain_gc:
        command.append("--plain-gc")
    if arguments.dir is not None:
        command += ["--dir", str(arguments.dir)]
    if arguments.file is not None:
        command.append(str(arguments.file))
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    figures: list[dict[str, Any]] = json.loads(out)
    return figures


# ── Printing ─────────────────────────────────────────────────────────────────────────


def line(figure: dict[str, Any]) -> str:
    """One figure as a row of the table."""
    value = f"{figure['value']:,.{0 if figure['value'] >= 1_000 else 2}f}"
    target = ""
    if figure["met"] is not None:
        least = figure["least"]
        target = f"≥ {least:,g}" if least is not None else f"≤ {figure['most']:,g}"
        target += "" if figure["met"] else "  MISSED"
    return f"  {figure['name']:<64}{value:>10} {figure['unit']:<4}{target}".rstrip()


def headline(facts: dict[str, Any]) -> str:
    """The machine in one line."""
    return (
        f"{facts['cpu']}, {facts['cores']} cores, load {facts['load']:.1f}, "
        f"Python {facts['python']}, SQLite {facts['sqlite']}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for; 0 also where a target is missed."""
    arguments = _parse(argv)
    sizes = SIZES[arguments.size]
    known = phases(sizes, arguments.file)
    if arguments.inside:
        phase = known[arguments.inside]
        figures = measure(phase, sizes, arguments.dir, plain_gc=arguments.plain_gc)
        print(json.dumps([figure.as_json() for figure in figures]))
        return 0
    chosen = [name for name in known if _wanted(name, arguments.only)]
    if not chosen:
        print(f"no phase is called {arguments.only}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    if arguments.file is not None:
        try:
            turns_of(arguments.file)
        except BadInput as error:
            print(error, file=sys.stderr)
            return 2
    facts, measured = machine(), {}
    if not arguments.json:
        print(headline(facts))
    for name in chosen:
        measured[name] = measure_apart(name, arguments)
        if not arguments.json:
            print(f"\n{name}", *map(line, measured[name]), sep="\n", flush=True)
    if arguments.json:
        settings = {"size": arguments.size, "plain_gc": arguments.plain_gc}
        print(json.dumps({"machine": facts, **settings, "phases": measured}, indent=2))
    return 0


def _wanted(name: str, only: Sequence[str]) -> bool:
    return not only or any(name == word or name.startswith(f"{word}-") for word in only)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument(
        "file", type=Path, nargs="?", help="dialogues in the format of scripts/bench_recall"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PHASE",
        help="this phase, or all that begin so: appends, recall-10000; may be repeated",
    )
    parser.add_argument("--size", choices=SIZES, default="full", help=argparse.SUPPRESS)
    parser.add_argument(
        "--quick", dest="size", action="store_const", const="quick", help="smaller sizes"
    )
    parser.add_argument("--json", action="store_true", help="machine, versions and figures")
    parser.add_argument(
        "--plain-gc",
        action="store_true",
        help="leave Python's garbage collection as it is (else: frozen after import, and rarer)",
    )
    parser.add_argument("--dir", type=Path, help="where the stores are made (default: temporary)")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
