"""What the feed of a repository says: every searchable text, in order of change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mnemo.values.changeset import Revision
from mnemo.values.graph import Node, Vector
from mnemo.values.messages import StoredMessage
from mnemo.values.steps import Step

NO_VECTORS = 2**62
"""Where a cursor stands that does not want to see stored vectors."""


@dataclass(frozen=True, slots=True, order=True)
class FeedCursor:
    """How far a reader of the feed has come, in the store's own counters; all 0 is nothing."""

    step: int = 0
    revision: int = 0
    removal: int = 0
    vector: int = 0
    message: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedChanges:
    """
    What came after a cursor, of one read transaction.

    Attributes:
        cursor: Where the next read goes on.
        steps: New steps of episodes that are not discarded, ascending by ordinal, without
            their annotations.
        messages: Document id → message newly stored, ascending by the store's number, of
            those that ``message_steps.is_document`` holds of; expired ones may be among them.
        repeats: Node id of each of *steps* that was made of a message which is stored and
            a document → that document's id. The two are one document.
        nodes: New and changed nodes but ``episodic`` and ``source``, which are found as steps.
        details: Node id → what its document needs beyond the node: for a fact
            ``{"tags": (label, …), "latest_at": datetime | None, "steps": (id, …)}``, for
            an instruction ``{"intents": (description, …), "steps": (id, …)}``. ``steps``
            are the steps behind the node, ascending by id.
        origins: Id of each of *nodes* → the changeset that stored or last changed it;
            absent where that was no changeset.
        removed: Ids of nodes (episodic ones: of steps) and of messages' documents that are
            gone from recall.
        vectors: Key → vector, newly stored. The key of a node's vector is its id; of a
            step's ``"<node id>/observation"`` and ``"<node id>/action"``, of a message's
            likewise with the document's id. Further passages: see ``values.passages``.
        damaged: Rows that were left out because they cannot be decoded, each as
            ``StoreCorrupt.row``.
        missed: Whether more is gone than *removed* says, for the cursor was too far behind:
            what the reader holds and the repository does not. It starts again.
        more: Whether the limit cut it; read on from *cursor*.
    """

    cursor: FeedCursor
    revision: Revision
    steps: tuple[Step, ...] = ()
    messages: Mapping[str, StoredMessage] = field(default_factory=dict)
    repeats: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()
    details: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    vectors: Mapping[str, Vector] = field(default_factory=dict)
    damaged: tuple[str, ...] = ()
    missed: bool = False
    more: bool = False


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """
    The message behind a document.

    Attributes:
        ttl_s: Seconds after which its thread's messages expire; ``None``: as configured.
    """

    message: StoredMessage
    ttl_s: float | None = None
