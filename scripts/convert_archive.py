"""
Convert the last archive of a development version of mnemo into one that a release imports.

Usage: ``scripts/convert_archive.py OLD.jsonl NEW.jsonl``
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mnemo.values.archive_lines import DEVELOPMENT_FORMAT, FORMAT, VERSION
from mnemo.values.entities import KINDS

LAST = 3
"""The format version of the last development archive."""


def converted(lines: Iterable[str]) -> Iterator[str]:
    """
    *lines* of a development archive as those of a present one.

    Raises:
        ValueError: They are of something else.
    """
    old = iter(lines)
    head = json.loads(next(old, "null"))
    if not isinstance(head, dict) or head.get("format") != DEVELOPMENT_FORMAT:
        raise ValueError("this is no archive of a development version")
    if head.get("version") != LAST:
        raise ValueError(
            f"the archive has format version {head.get('version')}, the last one was {LAST}: "
            "import it with the mnemo that wrote it, and export it with the last one"
        )
    counts = {kind: head["counts"].get(kind, 0) for kind in KINDS}
    yield _line(head | {"format": FORMAT, "version": VERSION, "counts": counts})
    for line in old:
        record = json.loads(line)
        record.pop("owed", None)  # messages have no vectors of their own any more
        if record["kind"] in KINDS:
            yield _line(record)


def _line(data: dict[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=True, separators=(",", ":")) + "\n"


def main(old: str, new: str) -> None:
    partial = Path(f"{new}.part")
    try:
        with Path(old).open(encoding="utf-8") as lines, partial.open("w") as out:
            out.writelines(converted(lines))
        partial.rename(new)
    finally:
        partial.unlink(missing_ok=True)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except (OSError, ValueError) as error:
        sys.exit(f"{sys.argv[1]}: {error}")
