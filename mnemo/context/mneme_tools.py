"""
The tools of Mneme: they stage, they answer in words, and they never raise for a model's fault.

Nothing is written here. What was staged is committed after the run, or dropped with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mnemo.context.eviction import Links
from mnemo.context.pins import Refusal
from mnemo.prompts.mneme import ATTACH, EVERYTHING_OK, SAVE_SNAPSHOT, tools
from mnemo.prompts.tool_loop import Answered, ToolUse
from mnemo.runtime.text import clean, is_blank, one_line

__all__ = ["CheckLinks", "Desk"]

CheckLinks = Callable[[Sequence[int], Sequence[int]], Awaitable[Refusal]]
"""Says what forbids to pin messages (by seq) to goals, as the store is now."""


@dataclass
class Desk:
    """
    What a model has staged in one run.

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
        """As they are offered."""
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
    """*value* as whole numbers; ``None``: it is no list of them."""
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
