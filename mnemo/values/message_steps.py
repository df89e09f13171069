"""
Messages as steps: which side they are, who speaks, and the ids recall finds them under.

What was said to the agent is observed, what it said is acted. A message and the step
that a session made of it say the same, so they are one document of recall.
"""

from __future__ import annotations

from mnemo.runtime.text import is_blank
from mnemo.values.messages import EMBEDDED, Message, StoredMessage
from mnemo.values.steps import Step
from mnemo.values.units import is_view_made, told_text

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
    """
    Whether recall finds *message*: what a user or an agent said or thought, in words.

    System prompts, calls, results and items that only a wire format can read serve the
    agent's window: they would stand before what was said.
    """
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
    """
    The step that a session would make of *message*; of no session and no episode.

    Args:
        id: Of its document.
        default_actor: Whose words those of a user are who is not named.
    """
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
