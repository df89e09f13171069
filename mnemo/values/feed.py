"""The feed of a repository in order of change; a message and its step are one document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mnemo.runtime.text import is_blank
from mnemo.values.changeset import Revision
from mnemo.values.chat import EmbeddingSpace
from mnemo.values.graph import Node, Vector
from mnemo.values.messages import EMBEDDED, Message, StoredMessage, is_view_made
from mnemo.values.steps import Step
from mnemo.values.units import told_text

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
        repo: The store's number of the repository, which no later one of its name has; 0: it is
            not stored.
        steps: New steps of episodes that are not discarded, ascending by ordinal, without
            their annotations.
        messages: Document id → message newly stored, ascending by the store's number, of
            those that ``is_document`` holds of; expired ones may be among them.
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
            likewise with the document's id. Further passages: see ``values.vectors``.
        damaged: Rows that were left out because they cannot be decoded, each as
            ``StoreCorrupt.row``.
        unread: Those of *damaged* that are new steps and messages → their documents' ids.
        missed: Whether more is gone than *removed* says, for the cursor was too far behind:
            what the reader holds and the repository does not, e.g. as an older copy took the
            store's place. It starts again.
        more: Whether the limit cut it; read on from *cursor*.
        space: Of the repository's vectors; ``None`` before the first one.
    """

    cursor: FeedCursor
    revision: Revision
    repo: int = 0
    steps: tuple[Step, ...] = ()
    messages: Mapping[str, StoredMessage] = field(default_factory=dict)
    repeats: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()
    details: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    vectors: Mapping[str, Vector] = field(default_factory=dict)
    damaged: tuple[str, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)
    missed: bool = False
    more: bool = False
    space: EmbeddingSpace | None = None


OBSERVED = frozenset({"user", "system", "tool"})
"""Roles whose words come to the agent; a thought is the agent's own, whatever its role."""
_PREFIX = "message-"


def message_document(number: int) -> str:
    """The id of the document of the message with the store's *number*, e.g. ``message-17``."""
    return f"{_PREFIX}{number}"


def document_number(id: str) -> int | None:
    """The number in the id of a message's document; ``None``: it is another node's id."""
    number = id.removeprefix(_PREFIX)
    return int(number) if number != id and number.isascii() and number.isdigit() else None


def is_document(message: Message) -> bool:
    """Whether recall finds *message*: words of a user or agent, no prompts, calls or results."""
    said = message.kind in EMBEDDED and not is_view_made(message)
    return said and not is_blank(told_text(message))


def sides_of(message: Message) -> tuple[str, str]:
    """The observation and the action that *message* is; both blank: it says nothing."""
    told = told_text(message)
    acted = message.role not in OBSERVED or message.kind == "thought"
    return ("", told) if acted else (told, "")


def speaker_of(message: Message, default_actor: str) -> str:
    """Whose words *message* is: its actor, its name, or by its role."""
    by_role = default_actor if message.role == "user" else message.role
    return message.actor or message.name or by_role


def step_of(id: str, message: StoredMessage, *, default_actor: str) -> Step:
    """The step that a session would make of *message*; *id* is that of its document."""
    observation, action = sides_of(message)
    return Step(
        session_id="",
        episode_id="",
        index=message.seq,
        observation=observation,
        action=action,
        at=message.said_at,
        actor=speaker_of(message, default_actor),
        node_id=id,
        key=message.id,
        metadata=message.metadata,
        thread_id=message.thread_id,
        message_id=message.id,
    )
