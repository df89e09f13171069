"""
The append lane: turns what is appended into drafts, and hands them to the store in order.

A step of a message has the message's id as its key: a replay of the same messages adds nothing.

A step that was handed to the store is not taken back: its caller may be cancelled,
the step becomes durable all the same, and everything that follows from it (events,
timers, annotation) follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from mnemo.errors import StoreError
from mnemo.runtime.clock import new_id
from mnemo.runtime.text import is_blank
from mnemo.runtime.validation import stored_id, stored_object, stored_text, stored_time
from mnemo.session.parts import SessionParts
from mnemo.values.feed import sides_of, speaker_of
from mnemo.values.messages import Message, StoredMessage
from mnemo.values.steps import Step, StepDraft
from mnemo.values.units import is_view_made
from mnemo.wire import Given, messages_of


class Appending:
    """One step that is being written."""

    __slots__ = ("draft", "lane", "listeners", "result", "waiters")

    def __init__(
        self,
        lane: AppendLane,
        draft: StepDraft,
        on_done: Callable[[Step | BaseException], None] | None = None,
    ) -> None:
        self.lane = lane
        self.draft = draft
        self.listeners = [on_done] if on_done is not None else []
        self.waiters: list[asyncio.Future[Step]] = []
        self.result: Step | BaseException | None = None

    def done(self, result: Step | BaseException) -> None:
        """The store's answer, on the event loop."""
        if isinstance(result, StoreError):
            self.lane.failed(self, result)
        else:
            self.answer(result)

    def answer(self, result: Step | BaseException) -> None:
        """Give *result*, which is final, to the lane and to all callers."""
        self.result = result
        self.lane.finished(self, result)
        for waiter in self.waiters:
            self._settle(waiter, result)
        for listener in self.listeners:
            listener(result)

    @staticmethod
    def _settle(waiter: asyncio.Future[Step], result: Step | BaseException) -> None:
        if waiter.done():
            return
        if isinstance(result, Step):
            waiter.set_result(result)
        else:
            waiter.set_exception(result)

    def tell(self, listener: Callable[[Step | BaseException], None]) -> None:
        """Call *listener* with the answer too."""
        self.listeners.append(listener)

    async def wait(self) -> Step:
        """Wait for the answer. *Cancellation*: only the wait ends."""
        waiter: asyncio.Future[Step] = asyncio.get_running_loop().create_future()
        if self.result is None:
            self.waiters.append(waiter)
        else:
            self._settle(waiter, self.result)
        return await waiter


class AppendLane:
    """
    Hands steps to the store in order of arrival and knows every key.

    Args:
        durable: Called on the event loop with each step that became durable.
        refused: Called when one could not be written.
        doubted: Called when the store failed one; ``take_failed`` must be called then.
    """

    def __init__(
        self,
        parts: SessionParts,
        session_id: str,
        *,
        durable: Callable[[Step], None],
        refused: Callable[[], None],
        doubted: Callable[[], None],
        keys: Mapping[str, Step] | None = None,
    ) -> None:
        self._parts = parts
        self._session_id = session_id
        self._durable = durable
        self._refused = refused
        self._doubted = doubted
        self._failed: list[tuple[Appending, StoreError]] = []
        self._keys: dict[str, Step | Appending] = dict(keys or {})
        self._idle: list[asyncio.Future[None]] = []
        self.in_flight = 0

    def known(self, key: str | None) -> Step | Appending | None:
        """Return what *key* was given to before, durable or on its way."""
        return self._keys.get(key) if key is not None else None

    def find(self, draft: StepDraft) -> tuple[StepDraft, Step | Appending | None]:
        """
        Look up what *draft*'s key was given to before, durable or on its way.

        A message of a thread gets a key of its own where its id is another step's: the same
        id in two threads is two messages, and the second one's key names its thread.

        Returns:
            The draft, with the key to write it under, and what has that key.
        """
        while (known := self.known(draft.key)) is not None and draft.thread_id is not None:
            if _is_of(draft, known.draft if isinstance(known, Appending) else known):
                break
            draft = replace(draft, key=f"{draft.key}@{draft.thread_id}")
        return draft, known

    def messages_of(self, thread_id: str) -> list[str]:
        """Ids of the thread's messages that durable steps were made of, the last one first."""
        steps = [
            step
            for step in self._keys.values()
            if isinstance(step, Step) and step.thread_id == thread_id
        ]
        steps.sort(key=lambda step: step.ordinal, reverse=True)
        return [step.message_id for step in steps if step.message_id is not None]

    def submit(
        self,
        episode_id: str,
        draft: StepDraft,
        on_done: Callable[[Step | BaseException], None] | None = None,
    ) -> Appending:
        """Hand *draft* to the store in this turn of the loop."""
        appending = Appending(self, draft, on_done)
        if draft.key is not None:
            self._keys[draft.key] = appending
        self.in_flight += 1
        self._parts.store.append(
            self._session_id, episode_id, draft, self._parts.owner, appending.done
        )
        return appending

    def failed(self, appending: Appending, error: StoreError) -> None:
        """Hold back *error* until the journal has said whether the step was written."""
        self._failed.append((appending, error))
        if len(self._failed) == 1:
            self._doubted()

    def take_failed(self) -> list[tuple[Appending, StoreError]]:
        """The appends that failed since the last call; the caller answers them."""
        failed, self._failed = self._failed, []
        return failed

    def learn(self, keys: Mapping[str, Step]) -> None:
        """Know the steps of *keys* that no append of this lane has."""
        self._keys = {**keys, **self._keys}

    def finished(self, appending: Appending, result: Step | BaseException) -> None:
        """Note the final answer before the callers get it."""
        self.in_flight -= 1
        key = appending.draft.key
        if isinstance(result, Step):
            if key is not None:
                self._keys[key] = result
            self._durable(result)
        else:
            if key is not None:
                del self._keys[key]
            self._refused()
        if not self.in_flight:
            for waiter in self._idle:
                if not waiter.done():
                    waiter.set_result(None)
            self._idle.clear()

    async def drained(self) -> None:
        """Wait until no step is on its way."""
        if self.in_flight:
            waiter = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            await waiter


# ── Drafts ───────────────────────────────────────────────────────────────────────────


def make_draft(
    observation: str,
    action: str,
    *,
    at: datetime | str | None,
    actor: str | None,
    key: str | None,
    metadata: Mapping[str, Any] | None,
    now: datetime,
    default_actor: str,
) -> StepDraft:
    """
    Check a step's arguments and make it storable.

    Raises:
        ValueError: Both texts blank, a text that is no ``str``, a blank actor or key,
            metadata that is no JSON object, or a value that exceeds a limit of
            ``runtime.validation``.
    """
    observed, acted = stored_text("observation", observation), stored_text("action", action)
    if is_blank(observed) and is_blank(acted):
        raise ValueError("observation and action cannot both be blank")
    if actor is not None and (not isinstance(actor, str) or is_blank(actor)):
        raise ValueError("actor must be text that is not blank, or None")
    return StepDraft(
        observation=observed,
        action=acted,
        at=stored_time("at", at) if at is not None else now,
        actor=stored_text("actor", actor) if actor is not None else default_actor,
        node_id=new_id("episodic"),
        key=stored_id("key", key) if key is not None else None,
        metadata={} if metadata is None else stored_object("metadata", metadata),
    )


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


def _is_of(draft: StepDraft, known: Step | StepDraft) -> bool:
    """
    Whether *known*, which has *draft*'s key, was made of the same message.

    A step that is of no thread is taken for it if it says the same.
    """
    if known.thread_id is None:
        return (known.observation, known.action) == (draft.observation, draft.action)
    return (known.thread_id, known.message_id) == (draft.thread_id, draft.message_id)
