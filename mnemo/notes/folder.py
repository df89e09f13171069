"""
Export notes to a folder of Markdown files, and merge such a folder back in.

File names are made of topics only, links are never followed, other files are left alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import anyio.to_thread

from mnemo.errors import InvalidNote
from mnemo.notes.shelf import Shelf
from mnemo.notes.writing import Changed, NoteSource, NoteText, Write, checked_text, says
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
_KEY = re.compile(
    r"^(topic|description|updated_at)[ \t]*:[ \t]*([\"']?)(.*?)\2[ \t]*$", re.MULTILINE
)


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
    # One line without controls, as every description: JSON and YAML quote it alike.
    description = json.dumps(row.description, ensure_ascii=False)
    updated_at = row.updated_at.astimezone(UTC).isoformat()
    head = f'topic: {row.topic}\ndescription: {description}\nupdated_at: "{updated_at}"'
    return f"---\n{head}\n---\n\n{row.body}\n"


def parse(text: str, stem: str) -> NoteFile:
    """Read a file's text; *stem*, the file's name, is the topic of last resort."""
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
        found = {key: value for key, _, value in _KEY.findall(head)}
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


_Told: TypeAlias = defaultdict[str, list[Any]]
"""Field of a report → what it will hold."""


def _report(told: _Told) -> FolderReport:
    return FolderReport(**{name: tuple(found) for name, found in told.items()})


@dataclass(frozen=True, slots=True)
class _Exported:
    """
    Manifest entry: *digest* is of the note's file, *text* of its description and body. *repo*: The
    id of the repository; ``None``: an earlier version did not say.
    """

    version: int
    digest: str
    text: str
    repo: str | None


class Folder:
    """A folder of one repository's notes; made if it is not there, for its owner only."""

    def __init__(self, path: str | PathLike[str], shelf: Shelf) -> None:
        self._path = checked_path("path", path)
        self._shelf = shelf

    # ── Out ──────────────────────────────────────────────────────────────────────────

    async def write(self) -> FolderReport:
        """Export. *Raises* ``OSError``."""
        rows = await self._shelf.store.reading(lambda tx: tx.rows())
        return await anyio.to_thread.run_sync(self._export, rows)

    def _export(self, rows: list[NoteRow]) -> FolderReport:
        told = _Told(list)
        if not self._path.is_dir():
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.chmod(0o700)
        manifest = self._manifest(told)
        entries = {}
        for row in rows:
            content = written(row).encode()
            self._put(row, content, manifest.get(row.topic), told)
            if row.topic not in told["conflicts"]:
                entries[row.topic] = self._exported(row, _digest(content))
        gone = manifest.keys() - {row.topic for row in rows}
        kept = {topic for topic in sorted(gone) if self._kept(topic, manifest[topic], told)}
        kept.update(manifest.keys() & set(told["conflicts"]))
        entries.update((topic, manifest[topic]) for topic in kept)
        self._keep_manifest(entries)
        return _report(told)

    def _exported(self, row: NoteRow, digest: str) -> _Exported:
        return _Exported(row.version, digest, _text_digest(row), self._shelf.parts.repo_id)

    def _put(self, row: NoteRow, content: bytes, before: _Exported | None, told: _Told) -> None:
        target = self._path / f"{row.topic}.md"
        found = _opened(target)
        if found == content:
            told["unchanged"].append(row.topic)
        elif _may_go(target, found, before):
            _replace(target, content)
            told["written"].append(row.topic)
        else:
            # A person's: edited since it was exported, which import_folder takes in, or never ours.
            told["conflicts"].append(row.topic)

    def _kept(self, topic: str, exported: _Exported, told: _Told) -> bool:
        """Remove the file of a note that is gone, unless it was edited; whether it stays."""
        target = self._path / f"{topic}.md"
        found = _opened(target)
        if found is None and (target.is_symlink() or not target.is_file()):
            return False
        if found is not None and _digest(found) == exported.digest:
            target.unlink()
            told["removed"].append(topic)
            return False
        told["conflicts"].append(topic)
        told["warnings"].append(f"{target.name}: its note is gone, but the file was edited; kept")
        return True

    # ── In ───────────────────────────────────────────────────────────────────────────

    async def read(self) -> FolderReport:
        """Import. *Raises* ``StoreError``."""
        told = _Told(list)
        manifest, files = await anyio.to_thread.run_sync(self._files, told)
        entries = dict(manifest)
        taken: set[str] = set()
        for name, digest, file in files:
            topic = file.topic
            told["warnings"] += [f"{name}: {warning}" for warning in file.warnings]
            if topic in taken:
                told["refused"].append((name, f"another file is of {topic!r} already"))
                continue
            taken.add(topic)
            try:
                row = await self._take_in(file, digest, manifest.get(topic), told)
            except InvalidNote as refused:
                told["refused"].append((name, refused.reason))
            except Changed:
                told["conflicts"].append(topic)
            else:
                if row is not None:
                    entries[topic] = self._exported(row, digest)
        if entries != manifest:
            await anyio.to_thread.run_sync(self._remember, entries, told)
        return _report(told)

    async def _take_in(
        self, file: NoteFile, digest: str, exported: _Exported | None, told: _Told
    ) -> NoteRow | None:
        """Merge one file; the note that it agrees with afterwards."""
        topic = file.topic
        text = checked_text(self._shelf.config, topic, file.description, file.body)
        row, versions = await self._shelf.store.reading(
            lambda tx: (tx.row(topic), tx.versions(topic))
        )
        repo = self._shelf.parts.repo_id
        base = exported if exported is not None and _is_of(exported, row, versions, repo) else None
        if (base is not None and base.digest == digest) or says(row, text):
            told["unchanged"].append(topic)
            return row if says(row, text) else None
        change = _change(text, row, base, file.updated_at or self._shelf.parts.clock.now())
        if change is None:
            told["conflicts"].append(topic)
            return None
        done = await self._shelf.write(change)
        told["written"].append(topic)
        return done.row

    def _files(self, told: _Told) -> tuple[dict[str, _Exported], list[tuple[str, str, NoteFile]]]:
        """The manifest, and name, digest and content of each file that can be read."""
        if not self._path.is_dir():
            return {}, []
        return self._manifest(told), list(self._readable(told))

    def _readable(self, told: _Told) -> Iterator[tuple[str, str, NoteFile]]:
        for entry in sorted(os.scandir(self._path), key=lambda entry: entry.name):
            if entry.name == MANIFEST:
                continue
            # A name that is no text could not even be printed.
            name = clean(entry.name)
            refusal = _refusal(entry)
            content = None if refusal else _opened(Path(entry.path))
            if content is None:
                told["refused"].append((name, refusal or "cannot be read"))
                continue
            try:
                file = parse(content.decode("utf-8-sig"), name.removesuffix(".md"))
            except UnicodeDecodeError:
                told["refused"].append((name, "is not UTF-8"))
                continue
            yield name, _digest(content), file

    # ── The manifest ─────────────────────────────────────────────────────────────────

    def _manifest(self, told: _Told) -> dict[str, _Exported]:
        content = _opened(self._path / MANIFEST, MAX_MANIFEST)
        if content is None:
            return {}
        try:
            return _entries(read_json(content))
        except ValueError:
            told["warnings"].append(f"{MANIFEST} cannot be read; every file counts as new")
            return {}

    def _keep_manifest(self, entries: Mapping[str, _Exported]) -> None:
        listed = {topic: asdict(entry) for topic, entry in sorted(entries.items())}
        text = json.dumps({"format": 1, "notes": listed}, indent=1) + "\n"
        _replace(self._path / MANIFEST, text.encode())

    def _remember(self, entries: Mapping[str, _Exported], told: _Told) -> None:
        try:
            self._keep_manifest(entries)
        except OSError as error:
            told["warnings"].append(f"{MANIFEST} could not be written: {error.strerror}")


def _change(
    text: NoteText, row: NoteRow | None, exported: _Exported | None, at: datetime
) -> Write | None:
    """The write that imports a file which differs from the note; ``None``: a conflict."""
    if row is None or (not row.is_there and exported is None):
        return Write(text=text, source=_IMPORTED, expected=0, at=at)
    if row.is_there and exported is not None and row.version == exported.version:
        return Write(text=text, source=_IMPORTED, expected=row.version)
    return None


def _is_of(
    exported: _Exported, row: NoteRow | None, versions: Sequence[NoteVersion], repo: str
) -> bool:
    """
    Whether it was this note of *repo* that was exported, and not one of another repository: its
    text tells it, of a version that is not kept any more its number, where the ids agree.
    """
    for version in versions:
        if version.version == exported.version:
            return _text_digest(version) == exported.text
    is_ours = exported.repo is None or exported.repo == repo
    return is_ours and row is not None and exported.version < row.version


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
                repo = entry.get("repo")
                known = repo if isinstance(repo, str) else None
                entries[topic] = _Exported(version, digest, text, known)
    return entries


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# ── Files ────────────────────────────────────────────────────────────────────────────


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
    The content of a regular file, opened without following a link or waiting for a pipe; ``None``
    for anything else, nothing, or too much.
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
