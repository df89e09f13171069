"""Checkpoints of graphs as opaque bytes; a channel's value is kept once per version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, TypeAlias

from mnemo.runtime.validation import exact_id, exact_text, instance_of, stored_object, whole_number

MOST_BLOB_BYTES = 256 * 2**20
"""Bytes of one value, 256 MiB."""
_MOST_INDEX = 2**31 - 1
_ASIDE = "\x1f"
"""Between a version and the digest of a value that differs from the first one of that version."""

Blob: TypeAlias = tuple[str, bytes]
"""A serialized value: the name of its form, and the bytes."""
Place: TypeAlias = tuple[str, str, str]
"""Id, thread and namespace of a checkpoint: its place in a listing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointHead:
    """
    A checkpoint without what its channels hold.

    Attributes:
        thread_id: Of the graph's thread, compared exactly; it need not be a conversation.
        namespace: Of a subgraph; ``""``: the graph itself.
        id: Ids of a namespace sort by age.
        parent_id: The checkpoint that it follows; ``None``: it is the first.
        run_id: The run that it belongs to, for ``delete_runs``.
        type: Form of *data*, which is all that its writer keeps beside the channels.
        metadata: JSON, which ``list`` filters by.
        versions: Channel → version of its value, for each channel that has one.
        deltas: Channels whose state is not among the values, but made of the writes since the
            nearest ancestor that has a value: ``prune`` keeps these ancestors.
    """

    thread_id: str
    namespace: str = ""
    id: str
    parent_id: str | None = None
    run_id: str | None = None
    type: str
    data: bytes = field(repr=False)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, Any] = field(default_factory=dict)
    deltas: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelValue:
    """What a channel of a thread holds at one version."""

    thread_id: str
    namespace: str
    channel: str
    version: str
    type: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointWrite:
    """
    What a task has written on top of a checkpoint, before the next one.

    Attributes:
        task_path: Where the task stands in its graph; writes are applied in this order.
        index: Place among the task's writes; below 0 the newest of its kind counts.
    """

    thread_id: str
    namespace: str = ""
    checkpoint_id: str
    task_id: str
    index: int
    task_path: str = ""
    channel: str
    type: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """
    A checkpoint with all that hangs on it.

    Attributes:
        writes: By task path, task id and index.
    """

    head: CheckpointHead
    values: Mapping[str, Blob] = field(repr=False)
    writes: tuple[CheckpointWrite, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelHistory:
    """
    What one channel's state at a checkpoint is made of.

    Attributes:
        seed: The value at the nearest ancestor that has one; ``None``: none has.
        writes: Those of that ancestor and of all after it, oldest first; not the checkpoint's own.
    """

    seed: Blob | None
    writes: tuple[CheckpointWrite, ...]


# ── Checks ───────────────────────────────────────────────────────────────────────────


def checked_head(head: CheckpointHead) -> CheckpointHead:
    """*head* as it is stored. *Raises* ``ValueError``: it cannot be stored as it is."""
    exact_id("thread_id", head.thread_id)
    exact_id("the id of a checkpoint", head.id)
    for name, id in (("parent_id", head.parent_id), ("run_id", head.run_id)):
        if id is not None:
            exact_id(name, id)
    exact_text("namespace", head.namespace)
    _check_blob((head.type, head.data))
    instance_of("versions", head.versions, Mapping)  # type: ignore[type-abstract]
    for channel, version in head.versions.items():
        exact_text("the name of a channel", channel)
        exact_text("the version of a channel", version)
    if isinstance(head.deltas, str) or not isinstance(head.deltas, Iterable):
        raise ValueError(f"deltas must be names of channels, not {type(head.deltas).__name__}")
    for channel in head.deltas:
        exact_text("the name of a channel", channel)
    return replace(head, metadata=stored_object("metadata", head.metadata))


def checked_values(head: CheckpointHead, values: Mapping[str, Blob]) -> dict[str, Blob]:
    """*values*. *Raises* ``ValueError``: one is no blob, or of a channel without version."""
    if not isinstance(values, Mapping):
        raise ValueError(f"values must map channels to values, not {type(values).__name__}")
    for channel, blob in values.items():
        if channel not in head.versions:
            raise ValueError(f"the value of channel {channel!r} needs a version in head.versions")
        _check_blob(blob)
    return dict(values)


def checked_write(write: CheckpointWrite) -> CheckpointWrite:
    """*write*. *Raises* ``ValueError``: it cannot be stored as it is."""
    exact_id("thread_id", write.thread_id)
    exact_id("checkpoint_id", write.checkpoint_id)
    exact_id("task_id", write.task_id)
    for name in ("namespace", "task_path", "channel"):
        exact_text(name, getattr(write, name))
    whole_number("index", write.index, -_MOST_INDEX, _MOST_INDEX)
    _check_blob((write.type, write.data))
    return write


def _check_blob(blob: object) -> None:
    if not isinstance(blob, tuple) or len(blob) != 2 or not isinstance(blob[1], bytes):
        raise ValueError("a value must be a pair of the name of its form and bytes")
    exact_text("the form of a value", blob[0])
    if len(blob[1]) > MOST_BLOB_BYTES:
        raise ValueError(f"a value has more than {MOST_BLOB_BYTES:,} bytes; keep it elsewhere")


# ── Rules ────────────────────────────────────────────────────────────────────────────


def version_aside(version: str, blob: Blob) -> str:
    """What *blob* is kept under, if another value is kept under *version*."""
    return f"{version}{_ASIDE}{sha256(blob[0].encode() + bytes(1) + blob[1]).hexdigest()[:32]}"


def is_of_version(kept: str, version: str) -> bool:
    """Whether what is kept under *kept* is a value of *version*."""
    return kept == version or kept.startswith(version + _ASIDE)


def matches(metadata: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether *metadata* has all *wanted*; absent keys descend at dots, or equal ``None``."""
    return all(_found(metadata, key) == value for key, value in wanted.items())


def _found(metadata: Mapping[str, Any], key: str) -> Any:
    if key in metadata:
        return metadata[key]
    found: Any = metadata
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found
