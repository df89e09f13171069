"""
The append lane: hands drafts to the store in order, and resolves their callers.

A step that was handed to the store is not taken back: its caller may be cancelled,
the step becomes durable all the same, and everything that follows from it (events,
timers, annotation) follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

from mnemo.errors import StoreError
from mnemo.session.drafts import is_of
from mnemo.session.parts import SessionParts
from mnemo.values.steps import Step, StepDraft

__all__ = ["AppendLane", "Appending"]


class Appending:
    """One step that is being written."""

    __slots__ = ("draft", "lane", "listeners", "waiters")

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

    def done(self, result: Step | BaseException) -> None:
        """The store's answer, on the event loop."""
        if isinstance(result, StoreError):
            self.lane.failed(self, result)
        else:
            self.answer(result)

    def answer(self, result: Step | BaseException) -> None:
        """Give *result*, which is final, to the lane and to all callers."""
        self.lane.finished(self, result)
        for waiter in self.waiters:
            if waiter.done():
                continue
            if isinstance(result, Step):
                waiter.set_result(result)
            else:
                waiter.set_exception(result)
        for listener in self.listeners:
            listener(result)

    def tell(self, listener: Callable[[Step | BaseException], None]) -> None:
        """Call *listener* with the answer too."""
        self.listeners.append(listener)

    async def wait(self) -> Step:
        """Wait for the answer. *Cancellation*: only the wait ends."""
        waiter: asyncio.Future[Step] = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        return await waiter


class AppendLane:
    """
    Hands steps to the store in order of arrival and knows every key.

    Args:
        durable: Called on the event loop with each step that became durable.
        refused: Called when one could not be written.
        doubted: Called when the store failed one; ``take_failed`` must be called then.
    """

    __slots__ = (
        "_doubted",
        "_durable",
        "_failed",
        "_idle",
        "_keys",
        "_parts",
        "_refused",
        "_session_id",
        "in_flight",
    )

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
            if is_of(draft, known.draft if isinstance(known, Appending) else known):
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
