"""The checkpoints of one repository, as graph frameworks save them, with their rows."""

from __future__ import annotations

import builtins
import json
from collections.abc import Awaitable, Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, islice
from typing import Any, TypeVar

from mnemo.errors import Conflict, StoreCorrupt
from mnemo.repository.memories import Page
from mnemo.runtime.validation import (
    MOST_AT_ONCE,
    every,
    instance_of,
    known_id,
    known_ids,
    read_json,
    stored_object,
    whole_number,
)
from mnemo.store.archive import StagedRule
from mnemo.store.archive_rows import Kind
from mnemo.store.check import Rule
from mnemo.store.engine import OfRepository
from mnemo.store.rows import Passed, listed, log_passed, repo_number, repo_row
from mnemo.store.table import Table
from mnemo.store.tables import CHANNEL_VALUES, CHECKPOINT_WRITES, CHECKPOINTS
from mnemo.store.tx import Tx
from mnemo.values.checkpoints import (
    Blob,
    ChannelHistory,
    ChannelValue,
    Checkpoint,
    CheckpointHead,
    CheckpointWrite,
    Place,
    checked_head,
    checked_values,
    checked_write,
    is_of_version,
    matches,
    version_aside,
)
from mnemo.values.codec import encode_json

T = TypeVar("T")

_TABLES = (CHECKPOINTS, CHANNEL_VALUES, CHECKPOINT_WRITES)
_IN_NAMESPACE = "repo = ? AND thread_id = ? AND namespace = ?"
_NEWEST = (
    f"SELECT {', '.join(CHECKPOINTS.columns)} FROM checkpoints "
    f"WHERE {_IN_NAMESPACE} ORDER BY id DESC LIMIT 1"
)
_HEADS = CHECKPOINTS.select + " AND thread_id = ? AND namespace = ?"
_DELTAS = f"{_HEADS} AND deltas IS NOT NULL AND deltas <> '[]'"
_IDS = f"SELECT id FROM checkpoints WHERE {_IN_NAMESPACE}"
_THERE = f"SELECT 1 FROM checkpoints WHERE {_IN_NAMESPACE} AND id = ?"
# ``$join``: one look-up for each channel, not all values of the thread.
_VALUES = f"""
SELECT {CHANNEL_VALUES.of("v")} FROM $pairs j $join checkpoint_values v
ON v.repo = ? AND v.thread_id = ? AND v.namespace = ? AND v.channel = j.key AND v.version = j.value
"""
_VALUE = (
    CHANNEL_VALUES.select + " AND thread_id = ? AND namespace = ? AND channel = ? AND version = ?"
)
_VERSIONS = f"SELECT channel, version FROM checkpoint_values WHERE {_IN_NAMESPACE}"
_DROP_VALUE = f"DELETE FROM checkpoint_values WHERE {_IN_NAMESPACE} AND channel = ? AND version = ?"
_WRITES = (
    CHECKPOINT_WRITES.select
    + " AND thread_id = ? AND namespace = ? AND checkpoint_id = ? ORDER BY task_path, task_id, idx"
)
_KEEP_WRITE = CHECKPOINT_WRITES.insert + " ON CONFLICT DO NOTHING"
_DROP_HEAD = f"DELETE FROM checkpoints WHERE {_IN_NAMESPACE} AND id = ?"
_DROP_WRITES = f"DELETE FROM checkpoint_writes WHERE {_IN_NAMESPACE} AND checkpoint_id = ?"
_NAMESPACES = "SELECT DISTINCT namespace FROM checkpoints WHERE repo = ? AND thread_id = ?"
_OF_RUNS = """
SELECT thread_id, namespace, id FROM checkpoints $by(checkpoints_run)
WHERE repo = ? AND run_id IN $texts ORDER BY thread_id, namespace
"""

_LACKING = """
{0}checkpoints c WHERE EXISTS (SELECT 1 FROM $entries(c.versions) j WHERE NOT EXISTS
    (SELECT 1 FROM {0}checkpoint_values v WHERE {1} v.thread_id = c.thread_id
     AND v.namespace = c.namespace AND v.channel = j.key AND v.version = j.value))
"""
RULES: tuple[Rule, ...] = (
    (
        "checkpoints without the value of a channel",
        "c.id",
        _LACKING.format("", "v.repo = c.repo AND"),
    ),
)
KINDS = (
    Kind("checkpoint", CHECKPOINTS),
    Kind("channel_value", CHANNEL_VALUES),
    Kind("checkpoint_write", CHECKPOINT_WRITES),
)
INDEX = """
CREATE INDEX staging.checkpoint_values_version
ON checkpoint_values (thread_id, namespace, channel, version)
"""
STAGED: tuple[StagedRule, ...] = (
    (
        "the value of one of its channels is not in the archive",
        f"SELECT c.line FROM {_LACKING.format('staging.', '')} ORDER BY c.n",
    ),
)


class StoredCheckpoints(OfRepository):
    """The checkpoints of one repository, as transactions."""

    async def reading(self, work: Callable[[CheckpointReader], T]) -> T:
        """Run *work* on one revision of the file. *Cancellation*: safe."""
        return await self._engine.reading(
            lambda tx: work(CheckpointReader(tx, repo_row(tx, self._repo_id)[0]))
        )

    async def writing(self, work: Callable[[CheckpointWriter], T]) -> T:
        """Run *work* in one transaction of the writer. *Cancellation*: completes."""
        return await self._engine.writing(
            lambda tx: work(CheckpointWriter(tx, repo_number(tx, self._repo_id))),
            locks=[("checkpoints", self._repo_id)],
        )


class CheckpointReader:
    """``CheckpointReader`` over a transaction."""

    def __init__(self, tx: Tx, repo: int) -> None:
        self._tx = tx
        self._repo = repo

    def get(self, thread_id: str, namespace: str, id: str | None) -> Checkpoint | None:
        """The checkpoint of this id, or the newest; ``None``: there is none."""
        head = self._head(thread_id, namespace, id)
        return None if head is None else self._whole(head)

    def list(
        self,
        *,
        limit: int,
        metadata: Mapping[str, Any] | None = None,
        before: str | None = None,
        after: Place | None = None,
        **named: str | None,
    ) -> builtins.list[Checkpoint]:
        """Those that match, newest id first; what is ``None`` does not narrow it."""
        passed: Passed = []
        heads = self._heads(before, after, named, passed)
        found = [*islice(self._intact(heads, metadata or {}, passed), limit)]
        heads.close()
        log_passed(passed)
        return found

    def history(
        self, thread_id: str, namespace: str, id: str | None, channels: Collection[str]
    ) -> dict[str, ChannelHistory]:
        """What the state of each of *channels* is made of at that checkpoint, or the newest."""
        start = self._head(thread_id, namespace, id)
        writes: dict[str, builtins.list[CheckpointWrite]] = {channel: [] for channel in channels}
        seeds: dict[str, Blob] = {}
        for head in self._ancestors(start) if start is not None else ():
            for write in reversed(self._writes(head)):
                if write.channel in writes and write.channel not in seeds:
                    writes[write.channel].append(write)
            there = {c: v for c, v in head.versions.items() if c in writes and c not in seeds}
            seeds |= self._values(head, there)
            if len(seeds) == len(writes):
                break
        return {
            channel: ChannelHistory(seed=seeds.get(channel), writes=tuple(found[::-1]))
            for channel, found in writes.items()
        }

    def _intact(
        self, heads: Iterator[CheckpointHead], metadata: Mapping[str, Any], passed: Passed
    ) -> Iterator[Checkpoint]:
        for head in heads:
            if matches(head.metadata, metadata):
                try:
                    yield self._whole(head)
                except StoreCorrupt as damage:
                    passed.append(damage)

    # ── Rows ─────────────────────────────────────────────────────────────────────────

    def _head(self, thread_id: str, namespace: str, id: str | None) -> CheckpointHead | None:
        if id is not None:
            return CHECKPOINTS.get(self._tx, self._repo, thread_id, namespace, id)
        row = self._tx.run(_NEWEST, (self._repo, thread_id, namespace)).fetchone()
        return None if row is None else CHECKPOINTS.rows.one(row)

    def _ancestors(self, head: CheckpointHead) -> Iterator[CheckpointHead]:
        """From its parent to the root; ids that lead back to where they were end it."""
        seen = {head.id}
        while head.parent_id is not None and head.parent_id not in seen:
            parent = self._head(head.thread_id, head.namespace, head.parent_id)
            if parent is None:
                return
            seen.add(parent.id)
            yield parent
            head = parent

    def _whole(self, head: CheckpointHead) -> Checkpoint:
        values = self._values(head, head.versions)
        return Checkpoint(head=head, values=values, writes=tuple(self._writes(head)))

    def _values(self, head: CheckpointHead, versions: Mapping[str, str]) -> dict[str, Blob]:
        """The values of *versions*. *Raises* ``StoreCorrupt``: one is gone."""
        if not versions:
            return {}
        place = (self._repo, head.thread_id, head.namespace)
        rows = self._tx.run(_VALUES, (encode_json(versions), *place))
        found = {v.channel: (v.type, v.data) for v in CHANNEL_VALUES.rows.all(rows)}
        for channel in versions:
            if channel not in found:
                key = f"{head.thread_id}/{head.namespace}/{head.id}"
                raise StoreCorrupt(
                    f"the value of channel {channel!r} of checkpoint {key!r} is gone: "
                    "restore it from a backup, or delete the thread",
                    table="checkpoint_values",
                    key=f"{key}/{channel}",
                )
        return found

    def _writes(self, head: CheckpointHead) -> builtins.list[CheckpointWrite]:
        place = (self._repo, head.thread_id, head.namespace, head.id)
        return CHECKPOINT_WRITES.rows.all(self._tx.run(_WRITES, place))

    def _heads(
        self,
        before: str | None,
        after: Place | None,
        named: Mapping[str, str | None],
        passed: Passed,
    ) -> Generator[CheckpointHead, None, None]:
        """The heads that match, damaged ones passed by."""
        statement = CHECKPOINTS.select
        values: builtins.list[Any] = [self._repo]
        wanted = {f"{column} =": value for column, value in named.items()} | {"id <": before}
        for condition, value in wanted.items():
            if value is not None:
                statement, values = f"{statement} AND {condition} ?", [*values, value]
        if after is not None:
            id, *rest = after
            statement += " AND (id < ? OR (id = ? AND (thread_id, namespace) > (?, ?)))"
            values = [*values, id, id, *rest]
        rows = self._tx.run(f"{statement} ORDER BY id DESC, thread_id, namespace", values)
        try:
            for row in rows:
                yield from CHECKPOINTS.rows.all([row], passed)
        finally:
            rows.close()


class CheckpointWriter(CheckpointReader):
    """``CheckpointWriter`` over a transaction."""

    def put(self, head: CheckpointHead, values: Mapping[str, Blob]) -> frozenset[str]:
        """Write a checkpoint; or give the channels whose value is missing, and write nothing."""
        place = (self._repo, head.thread_id, head.namespace)
        is_new = self._tx.run(_THERE, (*place, head.id)).fetchone() is None
        kept = self._kept(head) if is_new else {}
        versions: dict[str, str] = {}
        for channel, version in head.versions.items():
            if channel not in values and is_of_version(kept.get(channel, ""), version):
                versions[channel] = kept[channel]
        if missing := frozenset(head.versions.keys() - values.keys() - versions.keys()):
            return missing
        for channel, blob in values.items():
            versions[channel] = self._keep(head, channel, head.versions[channel], blob)
        CHECKPOINTS.put(self._tx, self._repo, replace(head, versions=versions))
        if not is_new:
            self._sweep(head.thread_id, head.namespace)
        return missing

    def _kept(self, head: CheckpointHead) -> Mapping[str, str]:
        """The versions of its parent; none of one that is gone or damaged."""
        if head.parent_id is None:
            return {}
        try:
            parent = self._head(head.thread_id, head.namespace, head.parent_id)
        except StoreCorrupt:
            return {}
        return {} if parent is None else parent.versions

    def _keep(self, head: CheckpointHead, channel: str, version: str, blob: Blob) -> str:
        """Keep a value; give the version that it is found by."""
        key = (head.thread_id, head.namespace, channel)
        row = self._tx.run(_VALUE, (self._repo, *key, version)).fetchone()
        if row is not None and tuple(row[-2:]) != blob:
            version = version_aside(version, blob)
        if row is None or tuple(row[-2:]) != blob:
            thread_id, namespace, _ = key
            value = ChannelValue(
                thread_id=thread_id,
                namespace=namespace,
                channel=channel,
                version=version,
                type=blob[0],
                data=blob[1],
            )
            CHANNEL_VALUES.put(self._tx, self._repo, value)
        return version

    def put_writes(self, writes: Sequence[CheckpointWrite]) -> None:
        """Write those that are not there yet; of an index below 0 replace what is there."""
        for write in writes:
            row = (self._repo, *CHECKPOINT_WRITES.values(write))
            self._tx.run(CHECKPOINT_WRITES.upsert if write.index < 0 else _KEEP_WRITE, row)

    def delete(self, thread_ids: Collection[str]) -> int:
        """Delete everything of these threads; give how many checkpoints they had."""
        gone = {}
        for table in _TABLES:
            statement = f"DELETE FROM {table.name} WHERE repo = ? AND thread_id IN $texts"
            gone[table] = self._tx.run(statement, (self._repo, listed(thread_ids))).rowcount
        if any(gone.values()):
            self._tx.dialect.note_erased(self._tx)
        return gone[CHECKPOINTS]

    def delete_runs(self, run_ids: Collection[str]) -> int:
        """Delete the checkpoints of these runs, but for those that others are made of."""
        rows = self._tx.run(_OF_RUNS, (self._repo, listed(run_ids))).fetchall()
        gone = 0
        for (thread_id, namespace), group in groupby(rows, key=lambda row: row[:2]):
            ids = {row[2] for row in group}
            others = self._tx.run(_DELTAS, (self._repo, thread_id, namespace)).fetchall()
            for head in CHECKPOINTS.rows.all(others):
                if head.id not in ids:
                    ids -= self._made_of(head)
            gone += self._drop(thread_id, namespace, ids)
        return gone

    def prune(self, thread_ids: Collection[str]) -> int:
        """Delete all but the newest of each namespace, and what that is made of."""
        gone = 0
        for thread_id in thread_ids:
            for (namespace,) in self._tx.run(_NAMESPACES, (self._repo, thread_id)).fetchall():
                head = self._head(thread_id, namespace, None)
                assert head is not None
                ids = self._tx.run(_IDS, (self._repo, thread_id, namespace)).fetchall()
                kept = {head.id, *self._made_of(head)}
                gone += self._drop(thread_id, namespace, {id for (id,) in ids} - kept)
        return gone

    def copy(self, source: str, target: str) -> int:
        """Copy a thread. *Raises* ``Conflict``: *target* has checkpoints or writes."""
        for table in (CHECKPOINTS, CHECKPOINT_WRITES):
            statement = f"SELECT 1 FROM {table.name} WHERE repo = ? AND thread_id = ? LIMIT 1"
            if self._tx.run(statement, (self._repo, target)).fetchone() is not None:
                raise Conflict(f"thread {target!r} has checkpoints already; nothing was copied")
        copied = {
            table: self._tx.run(_copy(table), (target, self._repo, source)) for table in _TABLES
        }
        return copied[CHECKPOINTS].rowcount

    def _made_of(self, head: CheckpointHead) -> set[str]:
        """Ids of the ancestors whose writes and values the state of its deltas is made of."""
        found, missing = set[str](), set(head.deltas)
        ancestors = self._ancestors(head)
        while missing and (ancestor := next(ancestors, None)) is not None:
            found.add(ancestor.id)
            missing -= ancestor.versions.keys()
        return found

    def _drop(self, thread_id: str, namespace: str, ids: Collection[str]) -> int:
        if ids:
            rows = [(self._repo, thread_id, namespace, id) for id in ids]
            self._tx.run_many(_DROP_WRITES, rows)
            self._tx.run_many(_DROP_HEAD, rows)
            self._sweep(thread_id, namespace)
        return len(ids)

    def _sweep(self, thread_id: str, namespace: str) -> None:
        """Delete the values that no checkpoint names; none while a checkpoint is damaged."""
        place, damaged = (self._repo, thread_id, namespace), Passed()
        heads = CHECKPOINTS.rows.all(self._tx.run(_HEADS, place), damaged)
        if not damaged:
            named = {item for head in heads for item in head.versions.items()}
            there = self._tx.run(_VERSIONS, place).fetchall()
            gone = [(*place, *row) for row in there if tuple(row) not in named]
            self._tx.run_many(_DROP_VALUE, gone)


def _copy(table: Table[Any]) -> str:
    """The statement that copies the rows of a thread: the new id, the repository, the old id."""
    others = ", ".join(column for column in table.columns if column != "thread_id")
    return (
        f"INSERT INTO {table.name} (repo, thread_id, {others}) "
        f"SELECT repo, ?, {others} FROM {table.name} WHERE repo = ? AND thread_id = ?"
    )


# ── Checkpoints ───────────────────────────────────────────────────────────────────


MOST_OF_A_GRAPH = 100_000
"""Writes, channels, runs or threads of one call: they are not independent of each other (S)."""


class Checkpoints:
    """
    The checkpoints of one repository; made by ``Repository.checkpoints``.

    Each call is one transaction, durable once it returns. Values are opaque bytes: nothing here
    is searched, recalled, extracted or reached by ``forget``.
    """

    def __init__(self, store: StoredCheckpoints, scrub: Callable[[], Awaitable[bool]]) -> None:
        self._store = store
        self._scrub = scrub

    async def put(self, head: CheckpointHead, values: Mapping[str, Blob]) -> frozenset[str]:
        """
        Write a checkpoint, or replace the one of the same thread, namespace and id.

        A value is kept once for each version of its channel: one that is as in the parent, at
        the same version, need not be given.

        Args:
            head: With ``versions`` for all channels that have a value.
            values: Channel → form and bytes of its value.

        Returns:
            Channels whose value is neither given nor its parent's: nothing was written, call
            again with theirs. Empty: the checkpoint is durable.

        Raises:
            ValueError: Something cannot be stored; nothing was written.
            StoreError: Likewise. *Cancellation*: completes; the same again changes nothing.
        """
        checked = checked_head(instance_of("head", head, CheckpointHead))
        given = checked_values(checked, values)
        return await self._store.writing(lambda tx: tx.put(checked, given))

    async def put_writes(self, writes: Sequence[CheckpointWrite]) -> None:
        """
        Keep what tasks have written on top of a checkpoint, all or nothing.

        A write that is there already, by checkpoint, task and index, stays as it is; one with
        an index below 0 is replaced. The checkpoint itself may come later.

        Raises:
            ValueError: Something cannot be stored, or there are more than 100,000; nothing was
                written.
            StoreError: Likewise. *Cancellation*: completes; the same again changes nothing.
        """
        given = every("writes", writes, MOST_OF_A_GRAPH)
        checked = [checked_write(instance_of("a write", one, CheckpointWrite)) for one in given]
        await self._store.writing(lambda tx: tx.put_writes(checked))

    async def get(
        self, thread_id: str, namespace: str = "", id: str | None = None
    ) -> Checkpoint | None:
        """
        Return the checkpoint of this id, or the newest; ``None``: there is none.

        Raises:
            StoreCorrupt: It, or one of its values, is damaged. *Cancellation*: safe.
        """
        place = _place(thread_id, namespace, id)
        return await self._store.reading(lambda tx: tx.get(*place))

    async def list(
        self,
        *,
        thread_id: str | None = None,
        namespace: str | None = None,
        id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        before: str | None = None,
        limit: int = 20,
        after: str | None = None,
    ) -> Page[Checkpoint]:
        """
        List checkpoints by falling id; what is left out does not narrow it.

        Args:
            metadata: Keys that must have an equal value; a key that is not there descends at
                its dots, and one that is nowhere equals ``None``.
            before: Only ids below this one.
            limit: 1 to 1,000.
            after: ``next`` of the page before.

        Raises:
            ValueError: *limit* is out of range, *after* is of no page, or *metadata* no object of
                JSON. *Cancellation*: safe.
        """
        asked = {"thread_id": thread_id, "namespace": namespace, "id": id, "before": before}
        known = {name: None if one is None else known_id(name, one) for name, one in asked.items()}
        wanted: dict[str, Any] = {
            **known,
            "metadata": None if metadata is None else stored_object("metadata", metadata),
            "after": None if after is None else _read_cursor(after),
            "limit": whole_number("limit", limit, 1, MOST_AT_ONCE) + 1,
        }
        found = await self._store.reading(lambda tx: tx.list(**wanted))
        shown = tuple(found[:limit])
        return Page(shown, _cursor(shown[-1].head) if len(found) > limit else None)

    async def history(
        self,
        thread_id: str,
        namespace: str = "",
        id: str | None = None,
        *,
        channels: Collection[str],
    ) -> dict[str, ChannelHistory]:
        """
        Return what each channel's state at a checkpoint (or the newest) is made of.

        Its ancestors are followed from parent to parent, to the nearest one with a value.

        Raises:
            ValueError: *channels* is one text, or more than 100,000.
            StoreCorrupt: One of these is damaged. *Cancellation*: safe.
        """
        place = _place(thread_id, namespace, id)
        names = tuple(
            known_id("a channel", name) for name in every("channels", channels, MOST_OF_A_GRAPH)
        )
        return await self._store.reading(lambda tx: tx.history(*place, names))

    async def delete(self, thread_ids: Sequence[str]) -> int:
        """
        Erase threads with all checkpoints, values and writes, and the bytes as ``forget`` does.

        Returns:
            How many checkpoints they had.

        Raises:
            ValueError: *thread_ids* is one text, or more than 100,000.
            StoreError: Nothing was deleted. *Cancellation*: the transaction completes.
        """
        known = known_ids(thread_ids, MOST_OF_A_GRAPH)
        if not known:
            return 0
        gone = await self._store.writing(lambda tx: tx.delete(known))
        await self._scrub()
        return gone

    async def delete_runs(self, run_ids: Sequence[str]) -> int:
        """
        Delete the checkpoints of runs with their writes, and the values that no other names.

        Ancestors that the state of a remaining checkpoint is made of (``deltas``) stay.

        Returns:
            How many were deleted.

        Raises:
            ValueError: *run_ids* is one text, or more than 100,000.
            StoreError: Nothing was deleted. *Cancellation*: completes.
        """
        known = known_ids(run_ids, MOST_OF_A_GRAPH)
        return await self._store.writing(lambda tx: tx.delete_runs(known)) if known else 0

    async def prune(self, thread_ids: Sequence[str]) -> int:
        """
        Delete all but the newest checkpoint of each namespace of these threads.

        Ancestors that its state is made of (``deltas``) stay. *Returns*, *Raises*: as
        ``delete_runs``. *Cancellation*: completes.
        """
        known = known_ids(thread_ids, MOST_OF_A_GRAPH)
        return await self._store.writing(lambda tx: tx.prune(known)) if known else 0

    async def copy(self, source: str, target: str) -> int:
        """
        Copy a thread with all checkpoints, values and writes.

        Returns:
            How many checkpoints it has.

        Raises:
            Conflict: *target* has checkpoints or writes already; nothing was copied.
            ValueError: An id is no text. *Cancellation*: completes.
        """
        ids = known_id("source", source), known_id("target", target)
        return await self._store.writing(lambda tx: tx.copy(*ids))


def _place(thread_id: str, namespace: str, id: str | None) -> tuple[str, str, str | None]:
    known = None if id is None else known_id("id", id)
    return known_id("thread_id", thread_id), known_id("namespace", namespace), known


def _cursor(head: CheckpointHead) -> str:
    return json.dumps([head.id, head.thread_id, head.namespace])


def _read_cursor(after: str) -> tuple[str, str, str]:
    try:
        id, thread_id, namespace = read_json(after)
    except (TypeError, ValueError):
        raise ValueError("after must be `next` of a page of this listing") from None
    return str(id), str(thread_id), str(namespace)
