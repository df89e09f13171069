"""Pruning: long tool results are shown cut; what is stored stays whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mnemo.transcript.message import StoredMessage
from mnemo.transcript.strategies import Summary, ToolOutputPruner
from mnemo.transcript.units import Count, Unit, viewed

__all__ = ["limit_of", "pruned"]


def limit_of(compressions: Iterable[Summary | ToolOutputPruner]) -> int | None:
    """The characters of a tool result that all pruners let through; ``None``: any number."""
    limits = [one.max_chars for one in compressions if isinstance(one, ToolOutputPruner)]
    return min(limits, default=None)


def pruned(unit: Unit, max_chars: int | None, count: Count) -> Unit:
    """*unit* with every tool result that is longer than *max_chars* cut and marked."""
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
