"""One run of Mneme: a question with tools, to a verdict or to nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import anyio.to_thread
from anyio import CapacityLimiter

from mnemo.context import pins
from mnemo.context.eviction import Verdict
from mnemo.context.judging import Due
from mnemo.context.mneme_tools import CheckLinks, Desk
from mnemo.context.pins import Refusal
from mnemo.context.zones import Zone
from mnemo.conversation.parts import ConversationParts
from mnemo.errors import ModelError
from mnemo.prompts.calling import Caller
from mnemo.prompts.mneme import eviction_messages, fold_messages
from mnemo.prompts.profiles import resolve_profile
from mnemo.prompts.tool_loop import Loop, Why, run_loop
from mnemo.protocols import ChatMessage, ChatModel, TranscriptReader
from mnemo.runtime.tasks import on_clock
from mnemo.runtime.text import clean
from mnemo.transcript.derived import Snapshot, Thread

__all__ = ["NoOutcome", "Runs"]

T = TypeVar("T")

LEAST_SHOWN = 200
"""Characters of a snapshot's text that are shown for folding however many there are (S)."""
CHARACTERS_PER_TOKEN = 4

_WHY: dict[Why, str] = {
    "no_calls": "the model called no tool",
    "truncated": "the model's reply was cut off at the output limit",
    "max_rounds": "the model used up its requests without a verdict",
}


class NoOutcome(Exception):
    """
    A run brought no verdict; what it staged is dropped.

    Attributes:
        retryable: Whether another run may do better.
    """

    def __init__(self, why: str, *, retryable: bool = True) -> None:
        self.retryable = retryable
        super().__init__(why)


class Runs:
    """Asks one repository's chat model what to keep."""

    def __init__(self, parts: ConversationParts, model: ChatModel) -> None:
        self._parts = parts
        self._config = parts.config.viewport
        self._profile = resolve_profile(parts.config.extraction.profile)
        self._caller = Caller(
            model, meter=parts.meter, timeout_s=self._config.run_timeout_s, spans=parts.spans
        )
        self._limiter = CapacityLimiter(1)

    async def evict(self, due: Due, *, attempt: int) -> tuple[Zone, Verdict]:
        """
        Have a verdict on what is to leave *due*'s window, and what that is.

        Args:
            attempt: Which run over this range it is, from 1.

        Raises:
            NoOutcome: There is none. *Cancellation*: safe; nothing is written.
        """
        view = await self._off_loop(lambda: due.view(self._parts.config))
        if view.zone is None:
            raise NoOutcome("nothing of the window can leave it", retryable=False)
        desk = self._desk((view.zone.from_seq, view.zone.to_seq), due)
        messages = eviction_messages(view.text, due.goals, due.pins, self._profile)
        await self._at_work(desk, messages)
        return view.zone, _verdict(desk, attempt)

    async def fold(self, snapshots: Sequence[Snapshot]) -> str | None:
        """
        One text in place of several snapshots; ``None``: they are to stay.

        Raises:
            NoOutcome: There is no verdict. *Cancellation*: safe.
        """
        desk = Desk((snapshots[0].from_seq, snapshots[-1].to_seq), self._config.snapshot_max_chars)
        room = self._config.max_input_tokens * CHARACTERS_PER_TOKEN // len(snapshots)
        longest = max(LEAST_SHOWN, room)
        await self._at_work(desk, fold_messages(snapshots, longest=longest, profile=self._profile))
        return desk.text

    def _desk(self, range: tuple[int, int], due: Due) -> Desk:
        check = self._check(due.thread) if due.goals else None
        return Desk(range, self._config.snapshot_max_chars, check_links=check)

    def _check(self, read: Thread) -> CheckLinks:
        async def check(seqs: Sequence[int], goal_ids: Sequence[int]) -> Refusal:
            def work(tx: TranscriptReader) -> Refusal:
                thread = tx.thread(read.id)
                if thread.epoch != read.epoch:
                    return Refusal(missing_messages=tuple(seqs))
                since = thread.alive_since(tx.now, self._parts.config.conversation.ttl_s)
                return pins.check(tx, thread, seqs, goal_ids, since=since)

            return await self._parts.store.reading(work)

        return check

    async def _at_work(self, desk: Desk, messages: Sequence[ChatMessage]) -> None:
        loop = Loop(
            purpose="summarize",
            messages=messages,
            tools=desk.tools,
            carry_out=desk.carry_out,
            max_rounds=self._config.max_rounds,
            max_output_tokens=self._config.max_output_tokens,
        )
        timeout_s = self._config.run_timeout_s
        try:
            end = await on_clock(
                self._parts.clock.sleep, timeout_s, lambda: run_loop(loop, self._caller.call)
            )
        except TimeoutError:
            raise NoOutcome(f"no verdict within {timeout_s:g} s") from None
        except ModelError as error:
            again = error.retryable or error.foreign
            raise NoOutcome(clean(str(error)), retryable=again) from error
        if end.why != "terminal":
            raise NoOutcome(_WHY.get(end.why, end.why))

    async def _off_loop(self, work: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(work, limiter=self._limiter)


def _verdict(desk: Desk, attempt: int) -> Verdict:
    links = tuple(desk.links)
    if desk.text is None:
        return Verdict(kind="ok", attempts=attempt, links=links)
    return Verdict(kind="snapshot", attempts=attempt, text=desk.text, links=links)
