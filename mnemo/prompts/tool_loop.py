"""
The tool loop: call a model, carry out its tool calls, until it stops or a bound is reached.

Every call of a reply gets an answer, whatever its shape: what a model says is untrusted,
and both protocols refuse a conversation in which a call stays unanswered.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
    """
    One call that the model made.

    Attributes:
        id: Unique in the loop; made up where the model gave none, or one twice.
        name: As the model gave it, ``""`` if it gave none.
        arguments: An object; ``None``: the model gave something else.
    """

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """
    What is asked, with which tools, and how far it may go.

    Attributes:
        messages: The request to begin with.
        tools: As in ``ChatRequest``.
        max_rounds: Requests, at most; at least 1.
        max_output_tokens: Of each reply.
        after_reply: Told of every reply before its calls are carried out, with the number
            of its request from 1; ``False`` ends the loop, and they are not.
    """

    purpose: Purpose
    messages: Sequence[ChatMessage]
    tools: Sequence[Mapping[str, Any]]
    carry_out: CarryOut
    max_rounds: int
    max_output_tokens: int | None = None
    after_reply: Callable[[ChatReply, int], bool] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopEnd:
    """
    How a loop ended.

    Attributes:
        rounds: Requests that were made.
        reply: The last reply.
        uses: Every call that was carried out, in order.
        messages: The exchange: the first messages, then each reply that had calls carried
            out, followed by their answers.
    """

    why: Why
    rounds: int
    reply: ChatReply
    uses: tuple[ToolUse, ...] = ()
    messages: tuple[ChatMessage, ...] = field(default=(), repr=False)


async def run_loop(loop: Loop, call: Callable[[ChatRequest], Awaitable[ChatReply]]) -> LoopEnd:
    """
    Ask until the model is done.

    All calls of a reply are carried out in order and answered, also after a terminal one;
    then the loop ends without a further request. A reply that was cut off at the output
    limit ends it, and none of its calls is carried out: the last may be half of one.

    Args:
        call: Puts one request: ``Caller.call``, or something around it that keeps a budget
            (it may change the request, raise to end the loop, or try again).

    Raises:
        Exception: What *call* or ``loop.carry_out`` raises. *Cancellation*: safe; what was
            carried out stays so.
    """
    if loop.max_rounds < 1:
        raise ValueError("max_rounds must be at least 1")
    messages = list(loop.messages)
    uses: list[ToolUse] = []
    why: Why | None = None
    for number in range(1, loop.max_rounds + 1):
        request = ChatRequest(
            messages=tuple(messages),
            purpose=loop.purpose,
            tools=tuple(loop.tools),
            max_output_tokens=loop.max_output_tokens,
        )
        reply = await call(request)
        if loop.after_reply is not None and not loop.after_reply(reply, number):
            why = "stopped"
        elif reply.truncated:
            why = "truncated"
        elif not (made := uses_of(reply, taken={use.id for use in uses})):
            why = "no_calls"
        elif await _answer(loop, reply, made, messages):
            why = "terminal"
        if why is None or why == "terminal":
            uses += made
        if why is not None:
            break
    return LoopEnd(
        why=why or "max_rounds",
        rounds=number,
        reply=reply,
        uses=tuple(uses),
        messages=tuple(messages),
    )


async def _answer(
    loop: Loop, reply: ChatReply, uses: Sequence[ToolUse], messages: list[ChatMessage]
) -> bool:
    """Carry out *uses* and add their answers to *messages*; whether one of them was terminal."""
    said = tuple(use.as_said for use in uses)
    messages.append(ChatMessage("assistant", reply.text, tool_calls=said))
    terminal = False
    for use in uses:
        answered = loop.carry_out(use)
        if inspect.isawaitable(answered):
            answered = await answered
        terminal = terminal or answered.terminal
        messages.append(ChatMessage("tool", answered.text, tool_call_id=use.id))
    return terminal


def uses_of(reply: ChatReply, *, taken: set[str] | frozenset[str] = frozenset()) -> list[ToolUse]:
    """
    The calls of *reply*, whatever shape it gave them.

    Args:
        taken: Ids that are in use already.
    """
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
