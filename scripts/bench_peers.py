"""
Measure mnemo beside other memories, each driven by a program of its own in its own environment.

The environments are made in ``$MNEMO_PEERS``, else in ``.venv-peers``. A peer whose
installation or run fails is a row with the reason. Each FILE has dialogues with labelled
evidence, as ``bench_questions`` takes them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean
from typing import Any

from answers_kit import BadInput, Talk, measures, read_talks
from bench_kit import Figure, Words, headline, keep, machine

ROOT = Path(__file__).parents[1]
DRIVERS = ROOT / "scripts" / "peer_phases.py"
EMBEDDER = "wordllama>=0.4.0"
NOT_OF_A_PEER = ("pip", "setuptools", "_distutils_hack", "distutils-precedence.pth")
INSTALL_LIMIT_S, RUN_LIMIT_S = 1_800, 7_200


_SQLITE = "pysqlite3-binary; sys_platform == 'linux' and platform_machine == 'x86_64'"
_LANGGRAPH = ("langgraph", "langgraph-checkpoint-sqlite", "numpy", _SQLITE)
PEERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "mnemo": ("mnemo", (str(ROOT),)),
    "langgraph-sqlite": ("langgraph", _LANGGRAPH),
    "langgraph-memory": ("langgraph", _LANGGRAPH),
    "langgraph-saver": ("langgraph", _LANGGRAPH),
    "openai-agents": ("openai-agents", ("openai-agents",)),
    "mem0": ("mem0", ("mem0ai",)),
    # Graphiti imports httpx, which what it requires does not always bring.
    "graphiti": ("graphiti", ("graphiti-core[kuzu]", "httpx")),
    "chroma": ("chroma", ("chromadb",)),
}
"""Name of a row → its environment, which rows may share, and what is installed there."""


FULL = {"adds": (1_000, 2_000), "sizes": (1_000, 10_000), "imports": 3}
QUICK = {"adds": (20, 128), "sizes": (100, 200), "imports": 1}
"""How much each driver does."""


class PeerFailed(Exception):
    """A peer could not be installed or run; the message is one line."""


def workload(sizes: dict[str, Any], queries: int, talks: Sequence[Talk]) -> dict[str, Any]:
    """What every driver does: the same texts, questions and dialogues for all."""
    words = Words()
    texts = [words.sentence() for _ in range(max(*sizes["adds"], *sizes["sizes"], 64))]
    return {
        **sizes,
        "texts": texts,
        "questions": {
            size: [words.question(texts[n * size // queries]) for n in range(queries)]
            for size in sizes["sizes"]
        },
        "dialogues": [
            {
                "turns": [
                    vars(turn) | {"at": turn.at.isoformat(), "document": turn.document}
                    for turn in talk.turns
                ],
                "questions": [question.text for question in talk.questions],
            }
            for talk in talks
        ],
    }


def evidence_recall(
    rankings: Sequence[Sequence[Sequence[str]]], talks: Sequence[Talk]
) -> float | None:
    """Mean recall@10 of the evidence of all questions; ``None`` where nothing was asked."""
    found = [
        measures(list(dict.fromkeys(ranking)), question.evidence)["recall@10"]
        for ranked, talk in zip(rankings, talks, strict=True)
        for ranking, question in zip(ranked, talk.questions, strict=True)
    ]
    return mean(found) if found else None


def environment(name: str, folder: Path) -> tuple[Path, float]:
    """
    Make the environment of a row unless it is there.

    Returns:
        Its interpreter, and the MB that the peer and what it needs take, without the embedder.
    """
    shared, requirements = PEERS[name]
    home = folder / shared
    python, made = home / "bin" / "python", home / ".made"
    wanted = [*requirements, EMBEDDER]
    if made.exists() and (was := json.loads(made.read_text("utf-8")))["wanted"] == wanted:
        if str(ROOT) in wanted:
            _install(home, "--no-deps", "--force-reinstall", *requirements)
        return python, was["mb"]
    print(f"Making {home} (once) ...", file=sys.stderr)
    shutil.rmtree(home, ignore_errors=True)
    _install(home, *requirements)
    size = _installed_mb(home)
    _install(home, EMBEDDER)
    made.write_text(json.dumps({"wanted": wanted, "mb": size}), "utf-8")
    return python, size


INSTALL = f"""
source {ROOT}/scripts/environment
venv=$1 quiet=-q
make_venv
install_packages "${{@:2}}"
"""


def _install(home: Path, *requirements: str) -> None:
    _checked(["bash", "-c", INSTALL, "bench_peers", home, *requirements])


def _installed_mb(home: Path) -> float:
    (packages,) = home.glob("lib/python*/site-packages")
    files = (
        path
        for entry in packages.iterdir()
        if not entry.name.startswith(NOT_OF_A_PEER)
        for path in ([entry] if entry.is_file() else entry.rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    )
    return sum(path.stat().st_size for path in files) / 1e6


def _checked(command: Sequence[Any], limit_s: float = INSTALL_LIMIT_S) -> str:
    """
    Run *command* to its end.

    Returns:
        What it printed.

    Raises:
        PeerFailed: It failed, with the last line that it wrote to standard error.
    """
    try:
        done = subprocess.run(
            [str(part) for part in command],
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerFailed(" ".join(str(error).split())) from error
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    if done.returncode:
        raise PeerFailed(lines[-1] if lines else f"exit code {done.returncode}")
    return done.stdout


Row = dict[str, Any]


def row_of(name: str, work: Path, place: Callable[[str], tuple[Path, float | None]]) -> Row:
    """What the driver of a peer printed and its installed size, or ``{"failed": reason}``."""
    try:
        python, size = place(name)
        printed = _checked([python, DRIVERS, name, work], RUN_LIMIT_S)
        row: Row = json.loads(printed.splitlines()[-1])
    except PeerFailed as error:
        return {"failed": str(error)}
    except (json.JSONDecodeError, IndexError) as error:
        return {"failed": f"the driver printed no JSON: {error}"}
    return row | {"install MB": size}


def rows_of(
    names: Sequence[str], options: argparse.Namespace, talks: Sequence[Talk]
) -> dict[str, Row]:
    """The rows of the peers of these names, one after the other."""
    folder = Path(os.environ.get("MNEMO_PEERS", ROOT / ".venv-peers"))

    def place(name: str) -> tuple[Path, float | None]:
        return (options.python, None) if options.python else environment(name, folder)

    rows = {}
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary) / "work.json"
        sizes, queries = (QUICK, 10) if options.quick else (FULL, 100)
        work.write_text(json.dumps(workload(sizes, queries, talks)), "utf-8")
        for name in names:
            rows[name] = row_of(name, work, place)
            if (rankings := rows[name].pop("rankings", None)) is not None:
                rows[name]["evidence recall@10"] = evidence_recall(rankings, talks)
    return rows


_TEXTS = ("version", "durability", "first error")


def table(rows: dict[str, Row]) -> str:
    """One line for each peer; then versions, durability and the first error of each."""
    columns = list(dict.fromkeys(key for row in rows.values() for key in row))
    columns = [column for column in columns if column not in (*_TEXTS, "failed")]
    lines = [" | ".join(["peer".ljust(17), *columns])]
    for name, row in rows.items():
        if "failed" in row:
            lines.append(f"{name:<17} | failed: {row['failed']}")
            continue
        cells = [_cell(row.get(column)).rjust(len(column)) for column in columns]
        lines.append(" | ".join([name.ljust(17), *cells]))
    lines.append("")
    lines += [
        f"{name}: " + "; ".join(str(row[text]) for text in _TEXTS if text in row)
        for name, row in rows.items()
        if "failed" not in row
    ]
    return "\n".join(lines)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _cell(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if isinstance(value, int) or value >= 100 else f"{value:.3g}"


def main() -> int:
    """Print a table or JSON; 0 also where a peer fails, 2 for a FILE that cannot be read."""
    parser = argparse.ArgumentParser(prog="bench_peers", description=__doc__.split("\n\n")[0])
    parser.add_argument("files", type=Path, nargs="*", help="dialogues with labelled evidence")
    parser.add_argument("--quick", action="store_true", help="so small that figures say little")
    parser.add_argument("--only", nargs="+", choices=PEERS, metavar="NAME", help=", ".join(PEERS))
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--python", type=Path, help="run all in this one; install nothing")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="add it to a file, for the guide")
    options = parser.parse_args()
    try:
        talks = [talk for path in options.files for talk in read_talks(path)]
    except BadInput as error:
        print(f"bench_peers: {error}", file=sys.stderr)
        return 2
    told = machine() | {"date": datetime.now(UTC).date().isoformat()}
    rows = rows_of(options.only or list(PEERS), options, talks)
    if options.keep:
        for name, row in rows.items():
            figures = [Figure(key, value, "") for key, value in row.items() if _is_number(value)]
            told_by = {"peer": f"{name} {row.get('version', row.get('failed', ''))}"}
            some = [figure.as_json() for figure in figures]
            keep(options.keep, "peers", told_by, headline(told), some)
    if options.json:
        print(json.dumps({"machine": told, "peers": rows}, indent=2))
    else:
        print(f"{told['date']}; {headline(told)}\n\n{table(rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
