"""
The tool loop: call a model, carry out its tool calls, until it stops or a bound is reached.

What a model says is untrusted, whatever its shape. Every call of a reply gets an answer: both
protocols refuse a conversation in which one stays unanswered.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from mnemo.protocols import ChatMessage, ChatReply, ChatRequest, Purpose
from mnemo.runtime.text import clean, is_blank

Why: TypeAlias = Literal["terminal", "no_calls", "truncated", "max_rounds", "stopped"]
"""
Why a loop ended: a terminal tool succeeded, a reply had no calls, one was cut off at the
output limit, the rounds were used up, or ``after_reply`` said so.
"""

LONGEST_ARGUMENTS = 64 * 1024
"""Characters of a call's arguments that are parsed where a model gave them as text."""

_NO_NAME_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One call with a unique id; *name* ``""``: none given; *arguments* ``None``: no object."""

    id: str
    name: str
    arguments: Mapping[str, Any] | None

    @property
    def as_said(self) -> dict[str, Any]:
        """The call as a request repeats it to the model, in a shape every server takes."""
        name = _NO_NAME_CHARACTER.sub("_", self.name)[:64] or "unknown"
        return {"id": self.id, "name": name, "arguments": dict(self.arguments or {})}


@dataclass(frozen=True, slots=True)
class Answered:
    """What a call came to: the text for the model, and whether that ends the loop."""

    text: str
    terminal: bool = False


CarryOut: TypeAlias = Callable[[ToolUse], Answered | Awaitable[Answered]]
"""
Does one call; a function or a coroutine function. It answers what it cannot do with a
text: an exception of its own ends the loop and reaches its caller.
"""


async def run_loop(
    call: Callable[[ChatRequest], Awaitable[ChatReply]],
    *,
    purpose: Purpose,
    messages: Sequence[ChatMessage],
    tools: Sequence[Mapping[str, Any]],
    carry_out: CarryOut,
    max_rounds: int,
    max_output_tokens: int | None = None,
    after_reply: Callable[[ChatReply, int], bool] = lambda reply, number: True,
) -> Why:
    """
    Ask until the model is done; why it ended.

    All calls of a reply are carried out in order and answered, also after a terminal one;
    then the loop ends without a further request. A reply that was cut off at the output
    limit ends it, and none of its calls is carried out: the last may be half of one.

    Args:
        call: Puts one request: ``Caller.call``, or something around it that keeps a budget
            (it may change the request, raise to end the loop, or try again).
        messages: The request to begin with.
        max_rounds: Requests, at most; at least 1.
        max_output_tokens: Of each reply.
        after_reply: Told of every reply before its calls are carried out, with the number
            of its request from 1; ``False`` ends the loop, and they are not.

    Raises:
        Exception: What *call* or *carry_out* raises. *Cancellation*: safe; what was
            carried out stays so.
    """
    if max_rounds < 1:
        raise ValueError("max_rounds must be at least 1")
    said, taken = list(messages), set[str]()
    for number in range(1, max_rounds + 1):
        reply = await call(ChatRequest(tuple(said), purpose, None, tuple(tools), max_output_tokens))
        if not after_reply(reply, number):
            return "stopped"
        if reply.truncated:
            return "truncated"
        uses = uses_of(reply, taken=taken)
        if not uses:
            return "no_calls"
        taken |= {use.id for use in uses}
        calls = tuple(use.as_said for use in uses)
        said.append(ChatMessage("assistant", reply.text, tool_calls=calls))
        terminal = False
        for use in uses:
            answered = carry_out(use)
            if inspect.isawaitable(answered):
                answered = await answered
            terminal = terminal or answered.terminal
            said.append(ChatMessage("tool", answered.text, tool_call_id=use.id))
        if terminal:
            return "terminal"
    return "max_rounds"


def uses_of(reply: ChatReply, *, taken: set[str] | frozenset[str] = frozenset()) -> list[ToolUse]:
    """The calls of *reply*, whatever shape it gave them. *taken*: Ids that are in use already."""
    given = reply.tool_calls
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        return []
    used = set(taken)
    uses = []
    for call in given:
        use = _use(call, used)
        used.add(use.id)
        uses.append(use)
    return uses


def _use(call: object, used: set[str]) -> ToolUse:
    if not isinstance(call, Mapping):
        return ToolUse(_free_id("", used), "", None)
    inner = call.get("function", call)
    inner = inner if isinstance(inner, Mapping) else call
    name = inner.get("name")
    return ToolUse(
        _free_id(call.get("id"), used),
        clean(name) if isinstance(name, str) else "",
        _arguments(inner.get("arguments")),
    )


def _free_id(given: object, used: set[str]) -> str:
    if isinstance(given, str) and not is_blank(given) and clean(given) not in used:
        return clean(given)
    number = len(used) + 1
    while f"call_{number}" in used:
        number += 1
    return f"call_{number}"


def _arguments(given: object) -> Mapping[str, Any] | None:
    if given is None or given == "":
        return {}  # what many models send to a tool that needs none
    if isinstance(given, str) and len(given) <= LONGEST_ARGUMENTS:
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            return None
    return given if isinstance(given, Mapping) else None
