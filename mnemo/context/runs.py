"""
One run of Mneme: a question to a chat model, and the tools by which it answers.

The tools stage, and answer in words; a fault of the model is never raised by them. What was
staged is committed after the run, or dropped with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from mnemo.context import pins
from mnemo.context.eviction import DueEviction, EvictionVerdict, Links
from mnemo.context.pins import Refusal
from mnemo.context.zones import Zone
from mnemo.conversation.settings import ConversationParts
from mnemo.errors import ModelError
from mnemo.log.transcript import TranscriptReader
from mnemo.prompts.calling import Caller
from mnemo.prompts.mneme import (
    ATTACH,
    EVERYTHING_OK,
    SAVE_SNAPSHOT,
    eviction_messages,
    fold_messages,
    tools,
)
from mnemo.prompts.profiles import resolve_profile
from mnemo.prompts.tool_loop import Answered, Loop, ToolUse, Why, run_loop
from mnemo.protocols import ChatMessage, ChatModel
from mnemo.runtime.tasks import Threads, on_clock
from mnemo.runtime.text import clean, is_blank, one_line
from mnemo.values.derived import Snapshot, Thread

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
        self._threads = Threads()

    async def evict(self, due: DueEviction, *, attempt: int) -> tuple[Zone, EvictionVerdict]:
        """
        Have a verdict on what is to leave *due*'s window, and what that is.

        Args:
            attempt: Which run over this range it is, from 1.

        Raises:
            NoOutcome: There is none. *Cancellation*: safe; nothing is written.
        """
        view = await self._threads.run(lambda: due.view(self._parts.config))
        if view.zone is None:
            raise NoOutcome("nothing of the window can leave it", retryable=False)
        desk = self._desk((view.zone.from_seq, view.zone.to_seq), due)
        messages = eviction_messages(view.text, due.goals, due.pins, self._profile)
        await self._at_work(desk, messages)
        return view.zone, _verdict(desk, attempt)

    async def fold(self, snapshots: Sequence[Snapshot]) -> str | None:
        """
        Ask for one text in place of several snapshots; ``None``: they stay.

        Raises:
            NoOutcome: There is no verdict. *Cancellation*: safe.
        """
        desk = Desk((snapshots[0].from_seq, snapshots[-1].to_seq), self._config.snapshot_max_chars)
        room = self._config.max_input_tokens * CHARACTERS_PER_TOKEN // len(snapshots)
        longest = max(LEAST_SHOWN, room)
        await self._at_work(desk, fold_messages(snapshots, longest=longest, profile=self._profile))
        return desk.text

    def _desk(self, range: tuple[int, int], due: DueEviction) -> Desk:
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


def _verdict(desk: Desk, attempt: int) -> EvictionVerdict:
    links = tuple(desk.links)
    if desk.text is None:
        return EvictionVerdict(kind="ok", attempts=attempt, links=links)
    return EvictionVerdict(kind="snapshot", attempts=attempt, text=desk.text, links=links)


# ── The tools ────────────────────────────────────────────────────────────────────────────


CheckLinks = Callable[[Sequence[int], Sequence[int]], Awaitable[Refusal]]
"""Says what forbids to pin messages (by seq) to goals, as the store is now."""


@dataclass
class Desk:
    """
    Carries out a model's tool calls and holds what they staged.

    Attributes:
        range: Of what is dealt with, both ends inclusive.
        max_chars: Of a snapshot's text.
        check_links: ``None``: there is no goal to attach anything to, and no tool for it.
        text: Of the last valid snapshot; ``None``: none was saved.
        links: What is to be pinned.
        is_ok: Whether the model said that nothing is worth keeping.
    """

    range: tuple[int, int]
    max_chars: int
    check_links: CheckLinks | None = None
    text: str | None = None
    links: list[Links] = field(default_factory=list)
    is_ok: bool = False

    @property
    def tools(self) -> tuple[dict[str, Any], ...]:
        """The tools that the model is offered."""
        return tools(self.max_chars, goals=self.check_links is not None)

    async def carry_out(self, use: ToolUse) -> Answered:
        """Do one call; whatever is wrong with it is told in the answer."""
        if use.name == EVERYTHING_OK:
            self.is_ok = True
            return Answered("Acknowledged: nothing to summarise", terminal=True)
        known = use.name == SAVE_SNAPSHOT or (use.name == ATTACH and self.check_links is not None)
        if not known:
            names = ", ".join(tool["name"] for tool in self.tools)
            return _error(f"Unknown tool {one_line(use.name)[:100]!r}; there are {names}")
        if use.arguments is None:
            return _error(f"The arguments of {use.name} must be a JSON object")
        if use.name == SAVE_SNAPSHOT:
            return self._save(use.arguments)
        return await self._attach(use.arguments)

    def _save(self, arguments: Mapping[str, Any]) -> Answered:
        text = arguments.get("text", "")
        if not isinstance(text, str):
            return _error(f"text must be a string, not {_kind(text)}")
        text = clean(text)
        if is_blank(text):
            return _error("Summary text cannot be blank")
        if len(text) > self.max_chars:
            return _error(
                f"Summary text has {len(text)} characters, at most {self.max_chars} are allowed"
            )
        self.text = text
        first, last = self.range
        return Answered(f"Snapshot saved (messages {first}..{last})", terminal=True)

    async def _attach(self, arguments: Mapping[str, Any]) -> Answered:
        assert self.check_links is not None
        given = {name: arguments.get(name, []) for name in ("message_ids", "goal_ids")}
        numbers = {name: _integers(value) for name, value in given.items()}
        wrong = [name for name, ids in numbers.items() if ids is None]
        if wrong:
            return _error("; ".join(f"{name} must be an array of integers" for name in wrong))
        seqs, goal_ids = (tuple(sorted(set(ids or ()))) for ids in numbers.values())
        if refusal := await self.check_links(seqs, goal_ids):
            return _error(str(refusal))
        self.links.append(Links(seqs, goal_ids))
        return Answered(f"Pinned {len(seqs) * len(goal_ids)} message-goal links")


def _error(what: str) -> Answered:
    return Answered(f"Error: {what}")


def _integers(value: Any) -> list[int] | None:
    """Return *value* as whole numbers; ``None``: it is no list of them."""
    if not isinstance(value, list | tuple):
        return None
    numbers = [_integer(each) for each in value]
    return None if None in numbers else [n for n in numbers if n is not None]


def _integer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    # JSON does not tell 12.0 from 12.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) else None


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "an array", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")
