"""
Read and write a note as Markdown with frontmatter; parsing never raises. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from mnemo.runtime.text import is_blank
from mnemo.runtime.validation import stored_time
from mnemo.values.note_rules import first_line, is_topic
from mnemo.values.notes import NoteRow

MAX_FRONTMATTER = 8 * 1024
"""Bytes of frontmatter that are read as such."""
KEYS = ("topic", "description", "updated_at")

_FENCE = re.compile(r"---[ \t]*(?:\n|\Z)")
_CLOSE = re.compile(r"^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.MULTILINE)
# As YAML writes times: with a blank before the zone, which may be a bare hour.
_ZONED = re.compile(r"(.+:\d\d(?:\.\d+)?)\s*([+-])(\d{1,2})(?::?(\d\d))?")
_KEY = re.compile(r"^(topic|description|updated_at)[ \t]*:[ \t]*(.*?)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteFile:
    """A parsed file; *updated_at* is in UTC, ``None`` if it is missing."""

    topic: str
    description: str
    body: str
    updated_at: datetime | None
    warnings: tuple[str, ...] = ()


def written(row: NoteRow) -> str:
    """Format a note as a file."""
    head = (
        f"topic: {row.topic}",
        f"description: {_quoted(row.description)}",
        f"updated_at: {_quoted(row.updated_at.astimezone(UTC).isoformat())}",
    )
    return "\n".join(("---", *head, "---", "", row.body, ""))


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    marks = {"\t": "\\t", "\x85": "\\N", "\u2028": "\\L", "\u2029": "\\P", "\ufeff": "\\uFEFF"}
    for mark, name in marks.items():
        escaped = escaped.replace(mark, name)
    return f'"{escaped}"'


def parse(text: str, stem: str) -> NoteFile:
    """
    Read a file's text.

    Args:
        stem: The file's name without its ending: the topic of last resort.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    head, body = _split(text)
    fields, warnings = _fields(head) if head is not None else ({}, [])
    body = body.strip()
    warnings += [f"unknown key {key!r}" for key in fields if key not in KEYS]
    updated_at = None
    if not is_blank(fields.get("updated_at")):
        updated_at = _time(fields["updated_at"])
        if updated_at is None:
            warnings.append(f"updated_at {fields['updated_at'][:40]!r} is no date")
    topic = fields.get("topic", "").strip()
    description = fields.get("description", "").strip()
    return NoteFile(
        topic=topic if is_topic(topic) else stem,
        description=description or first_line(body),
        body=body,
        updated_at=updated_at,
        warnings=tuple(warnings),
    )


def _split(text: str) -> tuple[str | None, str]:
    """The frontmatter, if there is any, and the body."""
    opened = _FENCE.match(text)
    if opened is None:
        return None, text
    closed = _CLOSE.search(text, opened.end())
    if closed is None:
        return None, text[opened.end() :]
    head = text[opened.end() : closed.start()]
    if len(head.encode("utf-8", "replace")) > MAX_FRONTMATTER:
        return None, text[closed.end() :]
    return head, text[closed.end() :]


def _fields(head: str) -> tuple[dict[str, str], list[str]]:
    """Keys and texts of a frontmatter; every scalar is its text."""
    import yaml

    try:
        read: Any = yaml.load(head, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, ValueError, RecursionError):
        found = {key: _plain(value) for key, value in _KEY.findall(head)}
        return found, ["the frontmatter is no YAML; it was read line by line"]
    if read is None or read == "":
        return {}, []
    if not isinstance(read, dict):
        return {}, ["the frontmatter is no mapping; it was passed over"]
    fields, warnings = {}, []
    for key, value in read.items():
        if isinstance(key, str) and isinstance(value, str):
            fields[key] = value
        else:
            warnings.append(f"the key {str(key)[:40]!r} has no plain value; it was passed over")
    return fields, warnings


def _plain(value: str) -> str:
    for quote in ('"', "'"):
        if len(value) >= 2 and value[0] == value[-1] == quote:
            return value[1:-1]
    return value


def _time(text: str) -> datetime | None:
    """A date or time in UTC; without a zone it is UTC already."""
    found = _ZONED.fullmatch(text.strip())
    if found is not None:
        time, sign, hours, minutes = found.groups()
        text = f"{time}{sign}{hours:0>2}:{minutes or '00'}"
    try:
        at = datetime.fromisoformat(text.strip())
        return stored_time("updated_at", at).astimezone(UTC)
    except ValueError:
        return None
