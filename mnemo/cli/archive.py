"""Export a repository to a file and import it; whole files, or the standard streams."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from mnemo import InvalidArchive, Mnemo, UsageError
from mnemo.runtime.text import counted as plural
from mnemo.values.archive import DEVELOPMENT_FORMAT, FORMAT

_HEAD_BYTES = 65_536

STANDARD = "-"
"""In place of a file's name: standard output, or standard input."""


async def exported(memory: Mnemo, repo: str, file: str) -> dict[str, Any]:
    """
    Write the archive of *repo*; give the head of it.

    A file appears when it is whole, and until then an earlier one stays.
    """
    head = ""
    async with memory.export_repo(repo) as lines:
        with departing(file) as out:
            async for line in lines:
                head = head or line
                out.write(line)
    found: dict[str, Any] = json.loads(head)
    return found


@contextmanager
def departing(file: str) -> Iterator[TextIO]:
    if file == STANDARD:
        yield sys.stdout
        sys.stdout.flush()
        return
    path = Path(file)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        # A line ends alike wherever it was written.
        with partial.open("w", encoding="utf-8", newline="\n") as out:
            yield out
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


async def imported(memory: Mnemo, repo: str, lines: TextIO, file: str) -> dict[str, Any]:
    """
    Fill *repo* with the archive *lines*, called *file*; give what its head says.

    Raises:
        UsageError: As ``Mnemo.import_repo``; a broken line is told with the file's name.
    """
    try:
        head = await memory.import_repo(repo, lines)
    except InvalidArchive as error:
        name = "standard input" if file == STANDARD else file
        raise UsageError(f"{name}: {error}") from error
    return {"revision": head.revision, "counts": dict(head.counts)}


@contextmanager
def arriving(file: str) -> Iterator[TextIO]:
    """The lines of *file*; a byte that is no UTF-8 is told with its line when it is read."""
    if file == STANDARD:
        raw = io.TextIOWrapper(
            sys.stdin.buffer, encoding="utf-8-sig", errors="surrogateescape", newline="\n"
        )
        try:
            yield raw
        finally:
            raw.detach()
        return
    with Path(file).open(encoding="utf-8-sig", errors="surrogateescape", newline="\n") as lines:
        yield lines


def counted(head: Mapping[str, Any]) -> str:
    """What an archive holds, for a person."""
    counts = ((kind.replace("_", " "), n) for kind, n in head["counts"].items() if n)
    shown = ", ".join(plural(n, kind) for kind, n in counts)
    return f"{shown or 'nothing'}, revision {head['revision']}"


def is_archive(file: Path) -> bool:
    """Whether *file* begins like what ``export`` writes; what cannot be read does not."""
    try:
        with file.open("rb") as found:
            head = json.loads(found.readline(_HEAD_BYTES))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(head, dict) and head.get("format") in (FORMAT, DEVELOPMENT_FORMAT)
