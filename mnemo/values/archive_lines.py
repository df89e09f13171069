"""
The lines of an archive: JSON Lines in ASCII, one record each, after a head.

ASCII, so that no encoding, editor or splitter of lines can harm it; texts come back
exactly. Numbers and texts that a reader gets were checked one by one; whether records
fit each other is for the store to see.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from mnemo.errors import InvalidArchive
from mnemo.runtime.clock import Breather
from mnemo.values.archive import (
    ArchivedChangeset,
    ArchivedNode,
    ArchivedVector,
    ArchiveHead,
    LeftOut,
    NumberedRecord,
    Record,
)
from mnemo.values.chat import EmbeddingSpace
from mnemo.values.entities import ARCHIVED, KINDS
from mnemo.values.fields import STRICT, Count, Id, Positive

FORMAT: Final = "mnemo-archive"
VERSION: Final = 1
"""Of the format of lines; it has nothing to do with the schema of any store."""
DEVELOPMENT_FORMAT: Final = "mnemo-repository"
"""What archives were called before the first release."""

_KIND_OF = {kind: name for name, kind in KINDS.items()}
_ENCODER = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))
_SURROGATES = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


# ── Writing ──────────────────────────────────────────────────────────────────────────


def head_line(head: ArchiveHead) -> str:
    """The first line, with its end."""
    space = head.space and {"name": head.space.name, "dimensions": head.space.dimensions}
    return _line(
        {
            "format": FORMAT,
            "version": VERSION,
            "revision": head.revision,
            "space": space,
            "counts": {kind: head.counts.get(kind, 0) for kind in KINDS},
        }
    )


def record_lines(records: Iterable[Record]) -> list[str]:
    """A line per record, each with its end; for a worker thread."""
    breather = Breather()
    lines = []
    for record in records:
        lines.append(_line(_data(record)))
        breather.breathe()
    return lines


def _line(data: Mapping[str, Any]) -> str:
    return _ENCODER.encode(data) + "\n"


def _data(record: Record) -> dict[str, Any]:
    if isinstance(record, LeftOut):
        return {"kind": record.kind, "damaged": record.key}
    kind = _KIND_OF[type(record)]
    return {"kind": kind} | ARCHIVED[kind].line(record)


# ── Reading ──────────────────────────────────────────────────────────────────────────


@with_config(STRICT)
class _Space(TypedDict):
    name: Id
    dimensions: Positive


@with_config(STRICT)
class _Head(TypedDict):
    format: str
    version: int
    revision: Count
    space: _Space | None
    counts: dict[str, Count]


def _head(raw: dict[str, Any]) -> ArchiveHead:
    said = TypeAdapter(_Head).validate_python(raw)
    if said["counts"].keys() != KINDS.keys():
        raise ValueError(f"counts must name {', '.join(KINDS)}")
    space = EmbeddingSpace(**said["space"]) if said["space"] else None
    return ArchiveHead(revision=said["revision"], space=space, counts=said["counts"])


class ArchiveReader:
    """Turns the lines of an archive into records, one after the other."""

    def __init__(self) -> None:
        self._line = 0
        self._left: dict[str, int] = {}
        self._dimensions: int | None = None
        self._revision = 0

    def head(self, line: str | None) -> ArchiveHead:
        """
        Read the first line, which must be there.

        Raises:
            InvalidArchive: It is no head, or of a format that this version does not read.
        """
        if line is None:
            raise InvalidArchive(1, "there is nothing in it")
        self._line = 1
        raw = self._object(line)
        if raw.get("format") == DEVELOPMENT_FORMAT:
            raise self._wrong(
                "a development version of mnemo wrote the archive: convert it by "
                "`scripts/convert_archive.py OLD.jsonl NEW.jsonl`"
            )
        if raw.get("format") != FORMAT:
            raise self._wrong(f'it is no head of a repository\'s archive ("format": "{FORMAT}")')
        if (version := raw.get("version")) != VERSION:
            raise self._wrong(
                f"the archive has format version {version}, this mnemo reads up to {VERSION}: "
                "import it with the mnemo that it was made for"
            )
        head: ArchiveHead = self._shaped(_head, raw)
        self._left = {kind: head.counts[kind] for kind in KINDS}
        self._dimensions = head.space.dimensions if head.space else None
        self._revision = head.revision
        return head

    def records(self, lines: Iterable[str]) -> list[NumberedRecord]:
        """
        Read further lines; for a worker thread.

        Raises:
            InvalidArchive: Which line is broken, and why.
        """
        breather = Breather()
        found = []
        for line in lines:
            self._line += 1
            found.append((self._line, self._record(line)))
            breather.breathe()
        return found

    def finish(self) -> None:
        """*Raises* ``InvalidArchive`` if the head has promised more than there was."""
        if missing := next((kind for kind, count in self._left.items() if count), None):
            self._line += 1
            raise self._wrong(
                f"the archive ends before it, but by its head {self._left[missing]} more "
                f"of kind {missing!r} are due"
            )

    def _record(self, line: str) -> Record:
        raw = self._object(line)
        kind = raw.pop("kind", None)
        expected = next((kind for kind, count in self._left.items() if count), None)
        if expected is None or kind != expected:
            due = f"a line of kind {expected!r}" if expected else "no further line"
            raise self._wrong(f"its kind is {kind!r}, but {due} is due by the archive's head")
        self._left[expected] -= 1
        if "damaged" in raw:
            return LeftOut(kind=expected, key=str(raw["damaged"]))
        record: Record = self._shaped(ARCHIVED[expected].read, raw)
        self._check_against_head(record)
        return record

    def _check_against_head(self, record: Record) -> None:
        match record:
            case ArchivedVector(vector=vector):
                self._dimensions = self._dimensions or len(vector)
                if len(vector) != self._dimensions:
                    raise self._wrong(
                        f"the vector has {len(vector)} dimensions, not {self._dimensions}"
                    )
            case ArchivedNode(revision=revision) | ArchivedChangeset(revision=revision):
                if revision > self._revision:
                    raise self._wrong(f"its revision is past that of the head, {self._revision}")

    def _object(self, line: str) -> dict[str, Any]:
        if not isinstance(line, str):
            raise self._wrong(f"a line must be text, not {type(line).__name__}")
        try:
            raw = json.loads(line, parse_constant=_refuse_constant)
        except json.JSONDecodeError as error:
            raise self._wrong(f"not JSON: {error.msg} (column {error.colno})") from None
        except (ValueError, RecursionError) as error:
            raise self._wrong(f"not JSON that can be read: {error}") from None
        if not isinstance(raw, dict):
            raise self._wrong("it is no JSON object")
        # Only what is escaped, or came in through a careless decoder, can hold one.
        if (_ESCAPED_SURROGATE.search(line) or not line.isascii()) and _SURROGATES.search(
            json.dumps(raw, ensure_ascii=False)
        ):
            raise self._wrong("a text holds a lone surrogate, or bytes that are no UTF-8")
        return raw

    def _shaped(self, read: Callable[[dict[str, Any]], Any], raw: dict[str, Any]) -> Any:
        try:
            return read(raw)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise self._wrong(f"{where}: {first['msg']}" if where else first["msg"]) from None
        except ValueError as error:
            raise self._wrong(str(error)) from None

    def _wrong(self, reason: str) -> InvalidArchive:
        return InvalidArchive(self._line, reason)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")
