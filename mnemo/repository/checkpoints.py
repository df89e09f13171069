"""The checkpoints of a repository: the states of graphs, for the savers of frameworks."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from mnemo.repository.checkpoint_rows import CheckpointStore
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
from mnemo.values.checkpoints import (
    Blob,
    ChannelHistory,
    Checkpoint,
    CheckpointHead,
    CheckpointQuery,
    CheckpointWrite,
    checked_head,
    checked_values,
    checked_write,
)

MOST_OF_A_GRAPH = 100_000
"""Writes, channels, runs or threads of one call: they are not independent of each other (S)."""


class Checkpoints:
    """
    The checkpoints of one repository; made by ``Repository.checkpoints``.

    Each call is one transaction, durable once it returns. Values are opaque bytes: nothing here
    is searched, recalled, extracted or reached by ``forget``.
    """

    def __init__(self, store: CheckpointStore, scrub: Callable[[], Awaitable[bool]]) -> None:
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
        query = CheckpointQuery(
            **known,
            metadata={} if metadata is None else stored_object("metadata", metadata),
            after=None if after is None else _read_cursor(after),
            limit=whole_number("limit", limit, 1, MOST_AT_ONCE) + 1,
        )
        found = await self._store.reading(lambda tx: tx.list(query))
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
