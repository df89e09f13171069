"""
Segments as files: a cache of what a store holds as rows, mapped by all processes of a machine.

A file is named by the digest of what it holds and never changes. Whoever writes one holds the
folder's lock with others who write; whoever sweeps holds it alone, so that nothing is written from
rows that were read before, and what is then unfinished was left by a process that died.
All of it blocks: for worker threads.
"""

from __future__ import annotations

import logging
import mmap
import os
import re
import stat
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex
from typing import Final

from mnemo.config import IndexConfig
from mnemo.index.segments import digest_of, opened

if sys.platform != "win32":
    import fcntl

log = logging.getLogger("mnemo")

_DIGEST = re.compile(r"[0-9a-f]{40}")
_UNFINISHED = re.compile(rf"\.{_DIGEST.pattern}\.[0-9]+\.[0-9a-f]+\.tmp")
_IDENTITY: Final = "identity"
_READ: Final = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
)
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_ON_WINDOWS: Final = sys.platform == "win32"


class SegmentFolder:
    """
    The files of one store, which shares the folder with no other.

    Args:
        like: Whose owner and permissions files get; ``None``: they are the user's alone.
        most_bytes: Of all files; above it those mapped longest ago go. ``None``: no bound.
    """

    def __init__(
        self, path: Path, *, like: Path | None = None, most_bytes: int | None = None
    ) -> None:
        self.path = path
        self._like = like
        self._most_bytes = most_bytes
        self._has_failed = False
        self._damaged: set[str] = set()
        self.may_serve: Callable[[], bool] = lambda: True
        """Whether files may be used now; asked in worker threads. Else bytes are not mapped."""

    @classmethod
    def of(cls, place: Path | str, config: IndexConfig) -> SegmentFolder:
        """The folder of the store in the file *place*, or of that name on a server."""
        if isinstance(place, str):
            return cls(_within(place, config), most_bytes=1_000_000 * config.folder_mb)
        file = place.resolve()  # of links to one file all are to be swept
        beside = file.with_name(f"{file.name}.index")
        return cls(_within(str(file), config) if config.folder else beside, like=file)

    def mapped(self, digest: str, make: Callable[[], bytes]) -> memoryview:
        """
        The file *digest*; where there is none, or a damaged one, it is made. The bytes themselves
        where the folder cannot be used, which is logged once.

        Args:
            make: Reads what the rows hold when it is called, not before: what is erased meanwhile
                is not written. It may raise.

        Raises:
            ValueError: What was made has another digest.
        """
        if not _DIGEST.fullmatch(digest):
            raise ValueError(f"no digest of a segment: {digest[:80]!r}")
        if digest in self._damaged or not self.may_serve():
            return memoryview(_made(digest, make))
        with suppress(OSError, ValueError):
            return self._map(digest)
        made: bytes | None = None
        try:
            with self._locked(alone=False):
                made = _made(digest, make)
                self._write(digest, made)
            return self._map(digest)
        except OSError as error:
            if not self._has_failed:
                log.warning("segments are read into memory, not mapped: %s", error)
            self._has_failed = True
            return memoryview(made if made is not None else _made(digest, make))

    def identity(self) -> str:
        """Names the folder among those of all machines, for all its processes. *Raises* OSError."""
        with self._locked(alone=False):
            with suppress(FileNotFoundError):
                return (self.path / _IDENTITY).read_text("ascii")
            self._write(_IDENTITY, token_hex(16).encode())
            return (self.path / _IDENTITY).read_text("ascii")

    def discard(self, digest: str) -> None:
        """Remove a file, e.g. as a part of it turned out to be damaged; it is made anew."""
        if not self._unlinked(digest):
            self._damaged.add(digest)

    def _unlinked(self, name: str) -> bool:
        """Remove a file; whether it is gone."""
        try:
            (self.path / name).unlink(missing_ok=True)
        except OSError:
            return False
        return True

    def sweep(self, keep: Collection[str]) -> bool:
        """
        Remove all files but those of the digests *keep*, read from all repositories of the store.

        ``False``: something is left, or may be written from rows read before, since another
        process writes, or maps a file that its system does not remove then. Sweep again.
        """
        try:
            with self._locked(alone=True):
                return self._removed(keep, _UNFINISHED)
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            with suppress(OSError):
                self._removed(keep, None)
            return False

    def _removed(self, keep: Collection[str], unfinished: re.Pattern[str] | None) -> bool:
        is_clean = True
        for name in os.listdir(self.path):
            unlisted = _DIGEST.fullmatch(name) and name not in keep
            if unlisted or (unfinished and unfinished.fullmatch(name)):
                is_clean &= self._unlinked(name)
        return is_clean

    # ── One file ─────────────────────────────────────────────────────────────────────

    def _map(self, digest: str) -> memoryview:
        """*Raises* ``OSError``; ``ValueError``: it is no segment."""
        path = self.path / digest
        number = os.open(path, _READ)
        try:
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise ValueError("no file")
            found = memoryview(mmap.mmap(number, 0, access=mmap.ACCESS_READ))
        finally:
            os.close(number)
        opened(found)
        if self._most_bytes is not None:
            with suppress(OSError):
                os.utime(path)
        return found

    def _write(self, digest: str, content: bytes) -> None:
        """Put it there whole. Flushed before it is mapped: a full disk is an error, no signal."""
        self._make_room(len(content))
        beside = self.path / f".{digest}.{os.getpid()}.{token_hex(4)}.tmp"
        number = os.open(beside, _WRITE, 0o600)
        try:
            try:
                left = memoryview(content)
                while left:
                    left = left[os.write(number, left) :]
                os.fsync(number)
            finally:
                os.close(number)
            self._share(beside, 0)
            os.replace(beside, self.path / digest)
        except BaseException:
            with suppress(OSError):
                os.unlink(beside)
            raise

    def _make_room(self, size: int) -> None:
        if self._most_bytes is None:
            return
        files = list[tuple[int, int, str]]()
        for name in filter(_DIGEST.fullmatch, os.listdir(self.path)):
            with suppress(FileNotFoundError):
                found = os.stat(self.path / name)
                files.append((found.st_mtime_ns, found.st_size, name))
        for _, taken, name in sorted(files, reverse=True):
            size += taken
            if size > self._most_bytes:
                self.discard(name)

    # ── The folder ───────────────────────────────────────────────────────────────────

    @contextmanager
    def _locked(self, *, alone: bool) -> Iterator[None]:
        """Hold the folder's lock, *alone* if nobody else has it, and flush names afterwards."""
        if not alone and not self.path.is_dir():
            os.makedirs(self.path, 0o700, exist_ok=True)
            self._share(self.path, 0o111)
        if _ON_WINDOWS:
            yield
            return
        number = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
            yield
            os.fsync(number)
        finally:
            os.close(number)

    def _share(self, path: Path, entering: int) -> None:
        """Give *path* the owner and permissions of the database, as SQLite does its side files."""
        if self._like is None:
            return
        like = os.stat(self._like)
        mode = like.st_mode & 0o666
        os.chmod(path, mode | (mode >> 2 & entering))
        if not _ON_WINDOWS and os.geteuid() == 0:
            with suppress(OSError):
                os.chown(path, like.st_uid, like.st_gid)


def _made(digest: str, make: Callable[[], bytes]) -> bytes:
    made = make()
    if digest_of(made) != digest:
        raise ValueError("a damaged segment: another digest")
    return made


def _within(place: str, config: IndexConfig) -> Path:
    """A folder of its own for the store *place*, in the one for many."""
    name = blake2b(os.fsencode(place), digest_size=8).hexdigest()
    return (Path(config.folder).expanduser() if config.folder else _user_cache()) / name


def _user_cache() -> Path:
    """Where the programs of a user keep what can be made anew, by the convention of the system."""
    if _ON_WINDOWS:
        return Path(os.environ.get("LOCALAPPDATA") or "~/AppData/Local").expanduser() / "mnemo"
    if sys.platform == "darwin":
        return Path("~/Library/Caches/mnemo").expanduser()
    named = os.environ.get("XDG_CACHE_HOME", "")
    return Path(named if os.path.isabs(named) else "~/.cache").expanduser() / "mnemo"
