"""Copy a repository from one store to another: staged, linked at the end, checked by a digest."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from mnemo.errors import StoreCorrupt, StoreError, UsageError
from mnemo.store.archive import StoredArchive


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryCopy:
    """
    What ``Mnemo.copy_to`` did about one repository.

    Attributes:
        counts: Kind of record → how many there are in the copy.
        digest: SHA-256, in hexadecimal, of the archive of the copy.
        fresh: False: an earlier call had copied it, which was checked.
        damaged: Kind and key of each record that could not be read and was left out; what
            hangs on these is left out of the copy, too.
    """

    repo_id: str
    counts: Mapping[str, int]
    digest: str
    fresh: bool = True
    damaged: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class _Seen:
    """The lines of an archive that went by: their digest, and what was damaged."""

    skips_damaged: bool = True
    head: str = ""
    damaged: list[tuple[str, str]] = field(default_factory=list)
    _hash: Any = field(default_factory=sha256)

    @property
    def digest(self) -> str:
        return str(self._hash.hexdigest())

    @property
    def counts(self) -> dict[str, int]:
        return dict(json.loads(self.head)["counts"])

    async def watch(self, lines: AsyncIterator[str]) -> AsyncIterator[str]:
        """Give *lines* on. *Raises* ``StoreCorrupt`` for a damaged one that is not skipped."""
        async for line in lines:
            self.head = self.head or line
            self._hash.update(line.encode())
            if '"damaged":' in line:
                self._note(line)
            yield line

    def _note(self, line: str) -> None:
        record = json.loads(line)
        if record.keys() != {"kind", "damaged"}:
            return
        if not self.skips_damaged:
            raise StoreCorrupt(
                f"the {record['kind']} {record['damaged']!r} is damaged, and the repository was "
                "not copied: restore it from a backup, or leave it out (skip_damaged)",
                table=record["kind"],
                key=record["damaged"],
            )
        self.damaged.append((record["kind"], record["damaged"]))


async def copied(
    archives: Mapping[str, tuple[StoredArchive, StoredArchive]],
    skip_damaged: bool,
    tell: Callable[[RepositoryCopy], Awaitable[object]],
) -> list[RepositoryCopy]:
    """
    Copy repositories, each from its first archive to its second, and *tell* each.

    Raises and *cancellation*: as of ``copy_repository``; those before it are copied.
    """
    done: list[RepositoryCopy] = []
    for id, (source, target) in archives.items():
        done.append(await copy_repository(id, source, target, skip_damaged=skip_damaged))
        await tell(done[-1])
    return done


async def copy_repository(
    repo_id: str, source: StoredArchive, target: StoredArchive, *, skip_damaged: bool
) -> RepositoryCopy:
    """
    Make *target* what *source* is now, all or nothing, or find that it is that already.

    *Raises* ``UsageError``: *target* holds something else; ``StoreCorrupt``: a record is damaged,
    and not *skip_damaged*; nothing was copied; ``StoreError``: a store failed, or the copy reads
    differently. *Cancellation*: safe.
    """
    async with target.read() as (head, _):
        is_there = not head.is_empty
    if is_there:
        return await _compared(repo_id, source, target)
    given = _Seen(skip_damaged)
    async with source.read() as (_, lines):
        await target.write(given.watch(lines))
    copy = await _read(target)
    if not given.damaged and copy.digest != given.digest:
        raise StoreError(
            f"the copy of repository {repo_id!r} is not what was read: is somebody using it? "
            "Delete it in the target, and copy it again while nobody does"
        )
    return RepositoryCopy(
        repo_id=repo_id, counts=copy.counts, digest=copy.digest, damaged=tuple(given.damaged)
    )


async def _compared(repo_id: str, source: StoredArchive, target: StoredArchive) -> RepositoryCopy:
    wanted, found = await _read(source), await _read(target)
    if wanted.digest != found.digest:
        raise UsageError(
            f"repository {repo_id!r} of the target holds something else: delete it there first"
        )
    return RepositoryCopy(repo_id=repo_id, counts=found.counts, digest=found.digest, fresh=False)


async def _read(archive: StoredArchive) -> _Seen:
    seen = _Seen()
    async with archive.read() as (_, lines):
        async for _ in seen.watch(lines):
            pass
    return seen
