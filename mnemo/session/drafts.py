"""
Turn chat messages into drafts of steps.

A step of a message has the message's id as its key: a replay of the same messages adds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from datetime import datetime
from functools import partial

from mnemo.runtime.clock import new_id
from mnemo.runtime.text import is_blank
from mnemo.values.feed import sides_of, speaker_of
from mnemo.values.messages import Message, StoredMessage, is_view_made
from mnemo.values.steps import Step, StepDraft
from mnemo.wire import Given, messages_of


def drafts_of(
    given: Sequence[Given], *, now: datetime, default_actor: str, is_fed: bool = False
) -> list[StepDraft]:
    """
    Turn chat messages into drafts, in order.

    Messages that say and do nothing, or that a view made, are left out.

    Args:
        now: When a message without a time was said.
        default_actor: Whose words those of a user are who is not named.
        is_fed: As in ``StepDraft``.

    Raises:
        ValueError: One of *given* is no message.
    """
    make = partial(_draft_of, now=now, default_actor=default_actor, is_fed=is_fed)
    return [draft for message in messages_of(given) if (draft := make(message)) is not None]


def _draft_of(
    message: Message, *, now: datetime, default_actor: str, is_fed: bool
) -> StepDraft | None:
    """Turn *message* into a draft; ``None``: it says and does nothing, or a view made it."""
    observation, action = sides_of(message)
    if is_view_made(message) or (is_blank(observation) and is_blank(action)):
        return None
    return StepDraft(
        observation=observation,
        action=action,
        at=message.at or now,
        actor=speaker_of(message, default_actor),
        node_id=new_id("episodic"),
        key=message.id,
        metadata=deepcopy(dict(message.metadata)),
        thread_id=message.thread_id if isinstance(message, StoredMessage) else None,
        message_id=message.id,
        role=message.role,
        is_fed=is_fed,
    )


def is_of(draft: StepDraft, known: Step | StepDraft) -> bool:
    """
    Whether *known*, which has *draft*'s key, was made of the same message.

    A step that is of no thread is taken for it if it says the same.
    """
    if known.thread_id is None:
        return (known.observation, known.action) == (draft.observation, draft.action)
    return (known.thread_id, known.message_id) == (draft.thread_id, draft.message_id)
