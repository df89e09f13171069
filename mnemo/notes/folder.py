"""
Export notes to a folder of Markdown files, and merge such a folder back in.

File names are made of topics only, links are never followed, and what lies in the
folder besides is left alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from mnemo.errors import InvalidNote
from mnemo.notes.shelf import Shelf
from mnemo.notes.writing import Changed, NoteSource, NoteText, Write, checked_text, present
from mnemo.protocols import Clock
from mnemo.runtime.text import clean, is_blank
from mnemo.runtime.validation import checked_path, read_json, stored_time
from mnemo.values.notes import NoteRow, NoteVersion, first_line, is_topic

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


# ── The folder ────────────────────────────────────────────────────────────────────


MANIFEST = ".mnemo-notes.json"
MAX_FILE = 64 * 1024
"""Bytes of a file that is read."""
MAX_MANIFEST = 4 * 1024 * 1024

_IMPORTED = NoteSource(by="import", trust="imported")


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderReport:
    """
    Result of an export or import, by note or file.

    Attributes:
        written, unchanged: Topics: files written by an export, notes by an import.
        removed: Files of notes that are gone.
        conflicts: Topics whose file and note both differ from what was exported, or whose
            file was not exported at all: neither was touched.
        refused: File names, each with the reason.
        warnings: What was passed over, in words.
    """

    written: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass
class _Notes:
    """Collects a report."""

    written: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def report(self) -> FolderReport:
        return FolderReport(**{name: tuple(found) for name, found in vars(self).items()})


@dataclass(frozen=True, slots=True)
class _Exported:
    """
    Manifest entry of a note.

    Attributes:
        digest: Of its file; *text*: of its description and body.
    """

    version: int
    digest: str
    text: str


@dataclass(frozen=True, slots=True)
class _Read:
    """A file that was parsed."""

    name: str
    digest: str
    file: NoteFile


class Folder:
    """
    A folder of one repository's notes.

    Args:
        path: The folder; made if it is not there, with access for its owner only.
    """

    def __init__(self, path: str | PathLike[str], shelf: Shelf, clock: Clock) -> None:
        self._path = checked_path("path", path)
        self._shelf = shelf
        self._clock = clock

    # ── Out ──────────────────────────────────────────────────────────────────────────

    async def write(self) -> FolderReport:
        """Export. *Raises* ``OSError``."""
        rows = await self._shelf.store.reading(lambda tx: tx.rows())
        return await anyio.to_thread.run_sync(self._export, rows)

    def _export(self, rows: list[NoteRow]) -> FolderReport:
        notes = _Notes()
        _make(self._path)
        manifest = self._manifest(notes)
        entries = {}
        for row in rows:
            content = written(row).encode()
            self._put(row, content, manifest.get(row.topic), notes)
            if row.topic not in notes.conflicts:
                entries[row.topic] = _Exported(row.version, _digest(content), _text_digest(row))
        gone = manifest.keys() - {row.topic for row in rows}
        kept = {topic for topic in sorted(gone) if self._kept(topic, manifest[topic], notes)}
        kept.update(manifest.keys() & set(notes.conflicts))
        entries.update((topic, manifest[topic]) for topic in kept)
        self._keep_manifest(entries)
        return notes.report()

    def _put(self, row: NoteRow, content: bytes, before: _Exported | None, notes: _Notes) -> None:
        target = self._path / f"{row.topic}.md"
        found = _opened(target)
        if found == content:
            notes.unchanged.append(row.topic)
        elif _may_go(target, found, before):
            _replace(target, content)
            notes.written.append(row.topic)
        else:
            # A person's: edited since it was exported, which import_folder takes in, or never ours.
            notes.conflicts.append(row.topic)

    def _kept(self, topic: str, exported: _Exported, notes: _Notes) -> bool:
        """Remove the file of a note that is gone, unless it was edited; whether it stays."""
        target = self._path / f"{topic}.md"
        found = _opened(target)
        if found is None and (target.is_symlink() or not target.is_file()):
            return False
        if found is not None and _digest(found) == exported.digest:
            target.unlink()
            notes.removed.append(topic)
            return False
        notes.conflicts.append(topic)
        notes.warnings.append(f"{target.name}: its note is gone, but the file was edited; kept")
        return True

    # ── In ───────────────────────────────────────────────────────────────────────────

    async def read(self) -> FolderReport:
        """Import. *Raises* ``StoreError``."""
        notes = _Notes()
        manifest, files = await anyio.to_thread.run_sync(self._files, notes)
        entries = dict(manifest)
        taken: set[str] = set()
        for read in files:
            topic = read.file.topic
            notes.warnings += [f"{read.name}: {warning}" for warning in read.file.warnings]
            if topic in taken:
                notes.refused.append((read.name, f"another file is of {topic!r} already"))
                continue
            taken.add(topic)
            row = await self._take_in(read, manifest.get(topic), notes)
            if row is not None:
                entries[topic] = _Exported(row.version, read.digest, _text_digest(row))
        if entries != manifest:
            await anyio.to_thread.run_sync(self._remember, entries, notes)
        return notes.report()

    async def _take_in(
        self, read: _Read, exported: _Exported | None, notes: _Notes
    ) -> NoteRow | None:
        """Merge one file; the note that it agrees with afterwards."""
        file = read.file
        topic = file.topic
        try:
            text = checked_text(self._shelf.config, topic, file.description, file.body)
            row, versions = await self._shelf.store.reading(
                lambda tx: (present(tx, topic), tx.versions(topic))
            )
            base = exported if exported is not None and _is_of(exported, versions) else None
            if (base is not None and base.digest == read.digest) or _agrees(row, text):
                notes.unchanged.append(topic)
                return row if _agrees(row, text) else None
            change = _change(text, row, base, file.updated_at or self._clock.now())
            if change is None:
                notes.conflicts.append(topic)
                return None
            done = await self._shelf.write(change)
        except InvalidNote as refused:
            notes.refused.append((read.name, refused.reason))
            return None
        except Changed:
            notes.conflicts.append(topic)
            return None
        notes.written.append(topic)
        return done.row

    def _files(self, notes: _Notes) -> tuple[dict[str, _Exported], list[_Read]]:
        if not self._path.is_dir():
            return {}, []
        manifest = self._manifest(notes)
        return manifest, list(self._readable(notes))

    def _readable(self, notes: _Notes) -> Iterator[_Read]:
        for entry in sorted(os.scandir(self._path), key=lambda entry: entry.name):
            if entry.name == MANIFEST:
                continue
            # A name that is no text could not even be printed.
            name = clean(entry.name)
            refusal = _refusal(entry)
            if refusal is not None:
                notes.refused.append((name, refusal))
                continue
            content = _opened(Path(entry.path))
            if content is None:
                notes.refused.append((name, "cannot be read"))
                continue
            stem = name.removesuffix(".md")
            try:
                file = parse(content.decode("utf-8-sig"), stem)
            except UnicodeDecodeError:
                notes.refused.append((name, "is not UTF-8"))
                continue
            yield _Read(name, _digest(content), file)

    # ── The manifest ─────────────────────────────────────────────────────────────────

    def _manifest(self, notes: _Notes) -> dict[str, _Exported]:
        content = _opened(self._path / MANIFEST, MAX_MANIFEST)
        if content is None:
            return {}
        try:
            return _entries(read_json(content))
        except ValueError:
            notes.warnings.append(f"{MANIFEST} cannot be read; every file counts as new")
            return {}

    def _keep_manifest(self, entries: Mapping[str, _Exported]) -> None:
        listed = {topic: asdict(entry) for topic, entry in sorted(entries.items())}
        text = json.dumps({"format": 1, "notes": listed}, indent=1) + "\n"
        _replace(self._path / MANIFEST, text.encode())

    def _remember(self, entries: Mapping[str, _Exported], notes: _Notes) -> None:
        try:
            self._keep_manifest(entries)
        except OSError as error:
            notes.warnings.append(f"{MANIFEST} could not be written: {error.strerror}")


def _change(
    text: NoteText, row: NoteRow | None, exported: _Exported | None, at: datetime
) -> Write | None:
    """The write that imports a file which differs from the note; ``None``: a conflict."""
    if row is None or (not row.is_there and exported is None):
        return Write(text=text, source=_IMPORTED, expected=0, at=at)
    if row.is_there and exported is not None and row.version == exported.version:
        return Write(text=text, source=_IMPORTED, expected=row.version)
    return None


def _agrees(row: NoteRow | None, text: NoteText) -> bool:
    if row is None or not row.is_there:
        return False
    return (row.description, row.body) == (text.description, text.body)


def _is_of(exported: _Exported, versions: Sequence[NoteVersion]) -> bool:
    """Whether it was this note that was exported, and not one of another repository."""
    found = (v for v in versions if v.version == exported.version)
    return any(_text_digest(version) == exported.text for version in found)


def _text_digest(of: NoteRow | NoteVersion) -> str:
    return _digest(f"{of.description}\0{of.body}".encode())


def _entries(read: Any) -> dict[str, _Exported]:
    """What a manifest says. *Raises* ``ValueError``."""
    if not isinstance(read, dict) or not isinstance(read.get("notes"), dict):
        raise ValueError("not a manifest")
    entries = {}
    for topic, entry in read["notes"].items():
        if is_topic(topic) and isinstance(entry, dict):
            version, digest, text = (entry.get(key) for key in ("version", "digest", "text"))
            if isinstance(version, int) and isinstance(digest, str) and isinstance(text, str):
                entries[topic] = _Exported(version, digest, text)
    return entries


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# ── Files ────────────────────────────────────────────────────────────────────────────


def _make(path: Path) -> None:
    if not path.is_dir():
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)


def _refusal(entry: os.DirEntry[str]) -> str | None:
    """Reason to skip a directory entry; ``None``: read it."""
    if entry.is_symlink():
        return "is a link"
    if not entry.is_file(follow_symlinks=False):
        return "is no regular file"
    if not entry.name.endswith(".md"):
        return "is no .md file"
    try:
        size = entry.stat(follow_symlinks=False).st_size
    except OSError:
        return "cannot be read"
    return f"is larger than {MAX_FILE} bytes" if size > MAX_FILE else None


def _may_go(target: Path, found: bytes | None, before: _Exported | None) -> bool:
    """Whether the target may be replaced: it is absent, a link, or as it was exported."""
    if found is None:
        return target.is_symlink() or not os.path.lexists(target)
    return before is not None and _digest(found) == before.digest


def _opened(path: Path, limit: int = MAX_FILE) -> bytes | None:
    """
    The content of a regular file; ``None`` for a link, anything else, nothing, or too much.

    Opened without following a link or waiting for a pipe, whatever it was a moment ago.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        number = os.open(path, flags | getattr(os, "O_BINARY", 0))
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        return None
    with os.fdopen(number, "rb") as file:
        content = file.read(limit + 1)
    return content if len(content) <= limit else None


def _replace(target: Path, content: bytes) -> None:
    """Write beside *target*, flush, and rename over it: readers see the old or the new file."""
    number, beside = tempfile.mkstemp(dir=target.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(beside, 0o600)
        os.replace(beside, target)
    except BaseException:
        os.unlink(beside)
        raise
