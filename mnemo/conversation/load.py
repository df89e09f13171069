"""Loading: the messages of a thread that an agent reads, long tool results cut."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mnemo.conversation.compaction import reconstructed
from mnemo.conversation.retrieval import Nearness, choose, fitting
from mnemo.conversation.scope import Scope, live_records
from mnemo.conversation.uncovered import Uncovered
from mnemo.errors import UsageError
from mnemo.values.messages import Message, StoredMessage
from mnemo.values.strategies import Retrieval, Summary, ToolOutputPruner
from mnemo.values.transaction import TranscriptReader
from mnemo.values.units import Count, Unit, placed, viewed

__all__ = ["Wanted", "limit_of", "load", "pruned"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """
    The request of a load.

    Attributes:
        near: How near messages are to the query.
        max_chars: Of a tool result; ``None``: any number.
        budget_tokens: ``None``: no bound.
        tool_deadline_s: Seconds until a call without a result counts as abandoned.
        count: Counts the tokens of what is made for the view.
    """

    retrieval: Retrieval
    near: Nearness
    max_chars: int | None
    budget_tokens: int | None
    tool_deadline_s: float
    count: Count


def load(tx: TranscriptReader, scope: Scope, wanted: Wanted) -> list[Message]:
    """
    The present epoch through its records, the pinned messages and the strategy's choice.

    Reads as much of the thread's end as the choice needs, the records, and what is pinned.

    Raises:
        UsageError: What is required alone exceeds the budget; both numbers are named.
    """
    records = live_records(tx, scope)
    live = Uncovered(tx, scope, records)
    choice = choose(wanted.retrieval, live, wanted.near)
    view = _View(live, wanted)
    pinned = live.system()
    units = choice.every_unit()
    if wanted.budget_tokens is not None:
        summaries = reconstructed([], records, wanted.count)
        needed = sum(m.token_count or 0 for m in summaries) + sum(map(view.cost, pinned))
        _require_room(needed + (view.cost(units[-1]) if units else 0), wanted.budget_tokens)
        units = fitting(choice, wanted.budget_tokens - needed, view.cost)
    shown = [place for unit in (*pinned, *units) for place in view.placed(unit)]
    shown.sort(key=lambda place: place[0])
    return reconstructed(shown, records, wanted.count)


class _View:
    """Shows units with results pruned and groups completed."""

    def __init__(self, live: Uncovered, wanted: Wanted) -> None:
        self._wanted = wanted
        self._live = live

    def placed(self, unit: Unit) -> list[tuple[int, Message]]:
        """Return what is shown of *unit*, each message with its seq."""
        shown = pruned(unit, self._wanted.max_chars, self._wanted.count)
        left_open = bool(unit.unanswered) and self._is_left_open(unit)
        return placed(shown, left_open=left_open, count=self._wanted.count)

    def cost(self, unit: Unit) -> int:
        """Tokens of what is shown of *unit*."""
        return sum(message.token_count or 0 for _, message in self.placed(unit))

    def _is_left_open(self, unit: Unit) -> bool:
        newest = self._live.newest_open_group(self._wanted.tool_deadline_s)
        return newest is not None and newest.first_seq == unit.first_seq


def _require_room(needed: int, budget_tokens: int) -> None:
    if needed > budget_tokens:
        raise UsageError(
            f"the summaries, the system messages and the newest unit have {needed} tokens, "
            f"the budget is {budget_tokens}: raise it, or compact more"
        )


def limit_of(compressions: Iterable[Summary | ToolOutputPruner]) -> int | None:
    """The characters of a tool result that all pruners let through; ``None``: any number."""
    limits = [one.max_chars for one in compressions if isinstance(one, ToolOutputPruner)]
    return min(limits, default=None)


def pruned(unit: Unit, max_chars: int | None, count: Count) -> Unit:
    """Cut and mark every tool result in *unit* that is longer than *max_chars*."""
    if max_chars is None:
        return unit
    return Unit(tuple(_pruned(message, max_chars, count) for message in unit.messages))


def _pruned(message: StoredMessage, max_chars: int, count: Count) -> StoredMessage:
    if message.role != "tool" or len(message.text) <= max_chars:
        return message
    text = message.text
    note = f"[{len(text) - max_chars} more characters; view message {message.id} for all of it]"
    shown = f"{text[:max_chars]}\n{note}" if max_chars else note
    return viewed(message, "pruned", count, content=_in_place(message, shown))


def _in_place(message: StoredMessage, text: str) -> str | list[dict[str, Any]]:
    """Blocks that are no text (an image, say) stay behind the text that was cut."""
    if not isinstance(message.content, list):
        return text
    others = [block for block in message.content if not isinstance(block.get("text"), str)]
    return [{"type": "text", "text": text}, *others]
