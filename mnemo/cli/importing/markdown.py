"""Read Markdown notes: a file or a folder, one record per section."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from mnemo import Message
from mnemo.cli.importing.json_stream import ImportFileError
from mnemo.cli.importing.records import Broken, Item, Record, Skipped, time_of
from mnemo.runtime.text import is_blank

_FRONT = re.compile(r"\A---[ \t]*\n(.*?)\n---[ \t]*(?:\n|\Z)", re.DOTALL)
_HEADING = re.compile(r"^#{1,2} +(.+?)[ #]*$")
_FENCE = re.compile(r"^(```|~~~)")
_DATES = ("date", "created", "created_at", "updated")


def is_markdown(file: Path) -> bool:
    """Whether *file* is named like Markdown, or is a folder that holds such files."""
    return file.suffix.casefold() in (".md", ".markdown") or any(file.rglob("*.md"))


def markdown(file: Path) -> Iterator[Item]:
    """
    Read *file*, or every Markdown file below it, in order of their names.

    A section begins at each heading of the first two levels. Its id is its file and heading,
    its time the ``date`` of the file's front matter.
    """
    if not file.is_dir():
        yield from _one(file, file.name)
        return
    for path in sorted(file.rglob("*.md")):
        yield from _one(path, path.relative_to(file).as_posix())


def size_of(file: Path) -> int:
    """Bytes of *file*, or of every Markdown file below it."""
    return sum(one.stat().st_size for one in (file.rglob("*.md") if file.is_dir() else [file]))


def _one(path: Path, name: str) -> Iterator[Item]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise ImportFileError("there is no such file", file=path) from None
    except (OSError, UnicodeDecodeError) as error:
        yield Broken(name, f"cannot be read: {error}")
        return
    try:
        front, body = _parted(text)
        at = next((_date(front[one]) for one in _DATES if front.get(one)), None)
    except ValueError as error:
        yield Broken(name, str(error))
        return
    seen: dict[str, int] = {}
    for heading, section in _sections(body):
        count = seen[heading] = seen.get(heading, 0) + 1
        id = f"{name}#{heading}" + (f"-{count}" if count > 1 else "")
        if is_blank(section.removeprefix(f"# {heading}")):
            yield Skipped(id, "empty")
            continue
        metadata = {"file": name, "title": heading}
        yield Record(
            f"markdown/{name}", Message("user", section, id=id, at=at, metadata=metadata), id
        )


def _date(value: Any) -> datetime | None:
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    return time_of(value.isoformat() if hasattr(value, "isoformat") else value)


def _parted(text: str) -> tuple[dict[str, Any], str]:
    """Front matter and body. *Raises* ``ValueError``: the front matter is no YAML."""
    found = _FRONT.match(text)
    if not found:
        return {}, text
    try:
        front = yaml.safe_load(found.group(1))
    except yaml.YAMLError as error:
        raise ValueError(f"has a front matter that is no YAML: {error}") from error
    return front if isinstance(front, dict) else {}, text[found.end() :]


def _sections(body: str) -> Iterator[tuple[str, str]]:
    """Heading and text of each section, its heading included; a heading in code is none."""
    heading, lines, in_code = "", list[str](), False
    for line in body.splitlines():
        in_code ^= bool(_FENCE.match(line))
        found = None if in_code else _HEADING.match(line)
        if found:
            if heading or not is_blank("".join(lines)):
                yield heading, "\n".join(lines).strip()
            heading, lines = found.group(1), []
        lines.append(line)
    if heading or not is_blank("".join(lines)):
        yield heading, "\n".join(lines).strip()
