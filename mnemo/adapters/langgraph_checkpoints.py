"""LangGraph's checkpoint saver over a repository of mnemo."""

from __future__ import annotations

import asyncio
import builtins
import secrets
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from os import PathLike
from typing import Any, Self, TypeAlias, TypeVar

import anyio
import anyio.to_thread

from mnemo import Checkpoint as StoredCheckpoint
from mnemo import CheckpointHead, CheckpointWrite, ConfigError, Repository
from mnemo import sync as blocking
from mnemo.adapters.handles import Adapter, AnyRepository, LazyService, wait_on
from mnemo.runtime.extras import refuse

try:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP,
        BaseCheckpointSaver,
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        DeltaChannelHistory,
        PendingWrite,
        get_checkpoint_metadata,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol
except ImportError as error:
    refuse(__name__, "langgraph", error)

__all__ = ["MnemoSaver"]

T = TypeVar("T")
Steps: TypeAlias = Generator[Callable[[Any], Any], Any, T]
"""
Work between calls of ``repo.checkpoints``, whose results are sent back.

The same steps serve the blocking and the asynchronous form of a method.
"""

LIGHT = 500
"""Values, or pieces of 64 characters, that are serialized on the event loop; more are not."""
PAGE = 20
"""Checkpoints that a listing reads at once."""


class MnemoSaver(Adapter, BaseCheckpointSaver[str]):
    """
    A checkpoint saver that keeps the states of graphs in a repository.

    Each call is durable once it returns, and safe beside other writers of the same thread, in
    this process or another. What a channel holds is stored once for each of its versions.

    Args:
        repo: Open, of ``Mnemo`` or of ``mnemo.sync.Mnemo``. With an asynchronous one, make the
            saver on its event loop; blocking calls are for other threads.
        serde: How values become bytes; ``JsonPlusSerializer`` if left out. It runs in worker
            threads.

    Raises:
        ConfigError: *repo* is no repository.
        RuntimeError: The repository is asynchronous, and no event loop runs here.
    """

    def __init__(
        self, repo: AnyRepository | LazyService, *, serde: SerializerProtocol | None = None
    ) -> None:
        super().__init__(serde=serde)
        self._attach(repo, Repository, blocking.Repository)
        self._loop = asyncio.get_running_loop() if isinstance(repo, Repository) else None
        # Serializing is pure Python: two threads of it keep the event loop waiting twice as long.
        self._one_at_a_time = anyio.CapacityLimiter(1)
        # A commit wakes many callers at once: each goes on in a turn of the loop of its own.
        self._turn = anyio.Lock()

    @classmethod
    def from_path(
        cls,
        path: str | PathLike[str],
        *,
        repo_id: str = "default",
        serde: SerializerProtocol | None = None,
    ) -> Self:
        """
        A saver over a file of its own, opened at the first call; close it, or use ``with``.

        Usable from any thread and any event loop.
        """
        return cls(LazyService(path, repo_id), serde=serde)

    # ── The two forms ────────────────────────────────────────────────────────────────────

    async def _run(self, steps: Steps[T], *, heavy: bool = False) -> T:
        """Go through *steps*; the first, if *heavy*, and each that reads go to a worker thread."""
        if self._loop is None:
            return await anyio.to_thread.run_sync(self._wait, steps)
        given: Any = None
        while True:
            heavy = heavy or not isinstance(given, frozenset | None)
            if heavy:
                limit = self._one_at_a_time
                is_over, found = await anyio.to_thread.run_sync(
                    _advance, steps, given, limiter=limit
                )
            else:
                async with self._turn:
                    is_over, found = _advance(steps, given)
            if is_over:
                return found  # type: ignore[no-any-return]
            given = await self._handle.run(partial(_called_on, found))

    def _wait(self, steps: Steps[T]) -> T:
        """Go through *steps*, blocking; ``InvalidStateError`` on the repository's own loop."""
        if self._loop is not None:
            return wait_on(self._loop, partial(self._run, steps), self)
        given: Any = None
        while True:
            is_over, found = _advance(steps, given)
            if is_over:
                return found  # type: ignore[no-any-return]
            given = self._handle.wait(partial(_called_on, found))

    # ── Reading ──────────────────────────────────────────────────────────────────────────

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that *config* names, or the newest of its thread."""
        return self._wait(self._get(config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """``get_tuple``, asynchronous. *Cancellation*: safe."""
        return await self._run(self._get(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """List checkpoints, newest id first; *filter* names metadata that must be equal."""
        wanted, after = _wanted(config, filter, before), None
        while limit is None or limit > 0:
            found, after = self._wait(self._page(wanted, limit, after))
            yield from found
            limit = None if limit is None else limit - len(found)
            if after is None:
                return

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """``list``, asynchronous. *Cancellation*: safe."""
        wanted, after = _wanted(config, filter, before), None
        while limit is None or limit > 0:
            found, after = await self._run(self._page(wanted, limit, after))
            for one in found:
                yield one
            limit = None if limit is None else limit - len(found)
            if after is None:
                return

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what the state of each delta channel at a checkpoint is made of."""
        return self._wait(self._history(config, channels))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """``get_delta_channel_history``, asynchronous. *Cancellation*: safe."""
        return await self._run(self._history(config, channels))

    def _get(self, config: RunnableConfig) -> Steps[CheckpointTuple | None]:
        place = _place(config)
        found = yield lambda checkpoints: checkpoints.get(*place)
        return None if found is None else self._tuple(found)

    def _page(
        self, wanted: Mapping[str, Any], limit: int | None, after: str | None
    ) -> Steps[tuple[builtins.list[CheckpointTuple], str | None]]:
        size = PAGE if limit is None else min(limit, PAGE)
        found = yield lambda checkpoints: checkpoints.list(**wanted, limit=size, after=after)
        return [self._tuple(one) for one in found], found.next

    def _history(
        self, config: RunnableConfig, channels: Sequence[str]
    ) -> Steps[dict[str, DeltaChannelHistory]]:
        if not channels:
            return {}
        place = _place(config)
        found = yield lambda checkpoints: checkpoints.history(*place, channels=list(channels))
        histories: dict[str, DeltaChannelHistory] = {}
        for channel, history in found.items():
            histories[channel] = {"writes": self._writes(history.writes)}
            if history.seed is not None:
                histories[channel]["seed"] = self.serde.loads_typed(history.seed)
        return histories

    def _tuple(self, found: StoredCheckpoint) -> CheckpointTuple:
        head, load = found.head, self.serde.loads_typed
        checkpoint: Checkpoint = load((head.type, head.data))
        checkpoint["channel_values"] |= {name: load(value) for name, value in found.values.items()}
        return CheckpointTuple(
            config=_config(head.thread_id, head.namespace, head.id),
            checkpoint=checkpoint,
            metadata=dict(head.metadata),  # type: ignore[arg-type]
            parent_config=_config(head.thread_id, head.namespace, head.parent_id)
            if head.parent_id
            else None,
            pending_writes=self._writes(found.writes),
        )

    def _writes(self, writes: Sequence[CheckpointWrite]) -> builtins.list[PendingWrite]:
        load = self.serde.loads_typed
        return [(one.task_id, one.channel, load((one.type, one.data))) for one in writes]

    # ── Writing ──────────────────────────────────────────────────────────────────────────

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint; give the config that names it. What fails has written nothing."""
        return self._wait(self._put(config, checkpoint, metadata, new_versions))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """``put``, asynchronous. *Cancellation*: stored whole or not at all."""
        news = [value for name, value in _values(checkpoint).items() if name in new_versions]
        steps = self._put(config, checkpoint, metadata, new_versions)
        return await self._run(steps, heavy=_is_heavy(news))

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store what a task has written on top of a checkpoint, all or nothing."""
        self._wait(self._put_writes(config, writes, task_id, task_path))

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """``put_writes``, asynchronous. *Cancellation*: stored whole or not at all."""
        steps = self._put_writes(config, writes, task_id, task_path)
        await self._run(steps, heavy=_is_heavy(writes))

    def get_next_version(self, current: str | int | float | None, channel: None) -> str:
        """Return a greater version, which no other branch of the thread comes to as well."""
        number = 0 if current is None else int(str(current).partition(".")[0])
        return f"{number + 1:032}.{secrets.randbits(52):016}"

    def _put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Steps[RunnableConfig]:
        thread_id, namespace, parent_id = _place(config)
        values, versions = _values(checkpoint), checkpoint["channel_versions"]
        unversioned = {name: value for name, value in values.items() if name not in versions}
        dump = self.serde.dumps_typed
        form, data = dump({**checkpoint, "channel_values": unversioned})
        told: Mapping[str, Any] = get_checkpoint_metadata(config, metadata)
        counters = told.get("counters_since_delta_snapshot") or {}
        run_id = told.get("run_id")
        head = CheckpointHead(
            thread_id=thread_id,
            namespace=namespace,
            id=checkpoint["id"],
            parent_id=parent_id,
            run_id=None if run_id is None else str(run_id),
            type=form,
            data=data,
            metadata=told,
            versions={name: str(versions[name]) for name in values if name in versions},
            deltas=tuple(name for name in counters if name not in values),
        )
        given = {name: dump(values[name]) for name in head.versions if name in new_versions}
        while missing := (yield lambda checkpoints: checkpoints.put(head, given)):
            given.update({name: dump(values[name]) for name in missing})
        return _config(thread_id, namespace, head.id)

    def _put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str,
    ) -> Steps[None]:
        thread_id, namespace, id = _place(config)
        if id is None:
            raise ConfigError("config['configurable'] must name a checkpoint_id to write upon")
        stored = []
        for place, (channel, value) in enumerate(writes):
            form, data = self.serde.dumps_typed(value)
            stored.append(
                CheckpointWrite(
                    thread_id=thread_id,
                    namespace=namespace,
                    checkpoint_id=id,
                    task_id=task_id,
                    index=WRITES_IDX_MAP.get(channel, place),
                    task_path=task_path,
                    channel=channel,
                    type=form,
                    data=data,
                )
            )
        yield lambda checkpoints: checkpoints.put_writes(stored)

    # ── Deleting and copying ─────────────────────────────────────────────────────────────

    def delete_thread(self, thread_id: str) -> None:
        """Erase a thread with all namespaces, and the bytes as ``Repository.forget`` does."""
        self._wait(_called("delete", [str(thread_id)]))

    async def adelete_thread(self, thread_id: str) -> None:
        """``delete_thread``, asynchronous. *Cancellation*: completes."""
        await self._run(_called("delete", [str(thread_id)]))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs, but for those that others' delta channels need."""
        self._wait(_called("delete_runs", [*map(str, run_ids)]))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """``delete_for_runs``, asynchronous. *Cancellation*: completes."""
        await self._run(_called("delete_runs", [*map(str, run_ids)]))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread. *Raises* ``Conflict``: the target has checkpoints already."""
        self._wait(_called("copy", str(source_thread_id), str(target_thread_id)))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """``copy_thread``, asynchronous. *Cancellation*: completes."""
        await self._run(_called("copy", str(source_thread_id), str(target_thread_id)))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """
        Delete all but the newest checkpoint of each namespace, and what its delta channels need.

        Args:
            strategy: ``keep_latest``; or ``delete``, which erases the threads.
        """
        self._wait(_called(_pruning(strategy), [*map(str, thread_ids)]))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """``prune``, asynchronous. *Cancellation*: completes."""
        await self._run(_called(_pruning(strategy), [*map(str, thread_ids)]))


def _values(checkpoint: Checkpoint) -> dict[str, Any]:
    return checkpoint["channel_values"]


def _is_heavy(values: Sequence[Any]) -> bool:
    """Whether serializing *values* takes more than a moment; looks at so much of them only."""
    room, found = LIGHT, [values]
    while found and room > 0:
        value: Any = found.pop()
        if isinstance(value, str | bytes):
            room -= len(value) // 64
        elif isinstance(value, dict):
            found += islice(value.values(), room)
        elif isinstance(value, list | tuple | set | frozenset):
            found += islice(value, room)
        else:
            found += islice(getattr(value, "__dict__", {}).values(), room)
        room -= 1
    return room <= 0


def _advance(steps: Steps[Any], given: Any) -> tuple[bool, Any]:
    """Whether the steps are over, with their result, or else the next call."""
    try:
        return False, steps.send(given)
    except StopIteration as end:
        return True, end.value


def _called_on(call: Callable[[Any], Any], repo: Any) -> Any:
    return call(repo.checkpoints)


def _called(method: str, *arguments: Any) -> Steps[Any]:
    return (yield lambda checkpoints: getattr(checkpoints, method)(*arguments))


def _pruning(strategy: str) -> str:
    methods = {"keep_latest": "prune", "delete": "delete"}
    if strategy not in methods:
        raise ValueError(f"strategy must be 'keep_latest' or 'delete', not {strategy!r}")
    return methods[strategy]


def _place(config: RunnableConfig) -> tuple[str, str, str | None]:
    """Thread, namespace and checkpoint id. *Raises* ``ConfigError``: no thread is named."""
    named = config.get("configurable", {})
    if "thread_id" not in named:
        raise ConfigError("config['configurable'] must name a thread_id")
    return (str(named["thread_id"]), str(named.get("checkpoint_ns") or ""), _named_id(config))


def _named_id(config: RunnableConfig) -> str | None:
    """The checkpoint that *config* names; an empty id names none, as for LangGraph's savers."""
    id = config.get("configurable", {}).get("checkpoint_id")
    return str(id) if id else None


def _config(thread_id: str, namespace: str, id: str | None) -> RunnableConfig:
    named = {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": id}
    return {"configurable": named}


def _wanted(
    config: RunnableConfig | None, filter: Mapping[str, Any] | None, before: RunnableConfig | None
) -> dict[str, Any]:
    """What ``Checkpoints.list`` is asked for."""
    named = {} if config is None else config.get("configurable", {})
    wanted: dict[str, Any] = {"metadata": dict(filter or {})}
    wanted["before"] = None if before is None else _named_id(before)
    wanted["id"] = None if config is None else _named_id(config)
    for argument, key in (("thread_id", "thread_id"), ("namespace", "checkpoint_ns")):
        if named.get(key) is not None:
            wanted[argument] = str(named[key])
    return wanted
