"""
Chat messages as steps: what was said to the agent is observed, what it said is acted.

A step is keyed by its message's id, so that a replay of the same messages adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from datetime import datetime

from mnemo.episode.step import Step, StepDraft
from mnemo.runtime.ids import new_id
from mnemo.runtime.text import is_blank
from mnemo.transcript.calls import told_text
from mnemo.transcript.message import Message, StoredMessage, message_of, several
from mnemo.transcript.units import is_view_made

__all__ = ["draft_of", "drafts_of", "is_of", "messages_of"]

OBSERVED = frozenset({"user", "system", "tool"})
"""Roles whose words come to the agent; a thought is the agent's own, whatever its role."""


def messages_of(
    given: Message | Mapping[str, object] | Iterable[Message | Mapping[str, object]],
) -> list[Message]:
    """
    *given*, one message or several, as messages.

    Raises:
        ValueError: One of them is none.
    """
    return [message_of(message) for message in several(given)]


def drafts_of(messages: Sequence[Message], *, now: datetime, default_actor: str) -> list[StepDraft]:
    """The steps that *messages* become, in order; see ``draft_of``."""
    drafts = (draft_of(message, now=now, default_actor=default_actor) for message in messages)
    return [draft for draft in drafts if draft is not None]


def draft_of(message: Message, *, now: datetime, default_actor: str) -> StepDraft | None:
    """
    The step that *message* becomes; ``None``: it says and does nothing, or a view made it.

    Args:
        now: When a message without a time was said.
        default_actor: Whose words those of a user are who is not named.
    """
    told = told_text(message)
    if is_view_made(message) or is_blank(told):
        return None
    acted = message.role not in OBSERVED or message.kind == "thought"
    return StepDraft(
        observation="" if acted else told,
        action=told if acted else "",
        at=message.at or now,
        actor=message.actor or message.name or _of_role(message, default_actor),
        node_id=new_id("episodic"),
        key=message.id,
        metadata=deepcopy(dict(message.metadata)),
        thread_id=message.thread_id if isinstance(message, StoredMessage) else None,
        message_id=message.id,
    )


def _of_role(message: Message, default_actor: str) -> str:
    return default_actor if message.role == "user" else message.role


def is_of(draft: StepDraft, known: Step | StepDraft) -> bool:
    """
    Whether *known*, which has *draft*'s key, was made of the same message.

    A step that is of no thread is taken for it if it says the same.
    """
    if known.thread_id is None:
        return (known.observation, known.action) == (draft.observation, draft.action)
    return (known.thread_id, known.message_id) == (draft.thread_id, draft.message_id)
