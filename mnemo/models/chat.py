"""
Chat models over HTTP: put the request in a form its server takes, read the answer.

Servers refuse a form in different ways: llama.cpp's answers ``json_schema`` with 500. What was
learned is kept per instance, so that later calls take one request.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, ClassVar, Self, get_args

from mnemo.errors import ConfigError
from mnemo.models.failures import Failure
from mnemo.models.prices import Price, usage_of
from mnemo.models.transport import HttpModel, Transport, model_name, number, whole
from mnemo.protocols import ChatMessage, ChatReply, ChatRequest, Purpose
from mnemo.runtime.text import clean, count_tokens

STRIKES = 2
"""Failures, each with a lesser form that went well, after which a form is given up."""
REFUSALS = frozenset((400, 404, 415, 422, 501))
"""Statuses with which a server says that it does not know a form."""

_TEMPERATURE = re.compile(
    r"(unsupported|not\s+support|deprecated|only\b.{0,20}\bdefault).{0,80}temperature"
    r"|temperature.{0,80}(unsupported|not\s+support|deprecated|only\b.{0,20}\bdefault)",
    re.IGNORECASE | re.DOTALL,
)


class Form(Enum):
    """How a schema is put to a server, most binding first."""

    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    TOOL = "tool"
    PLAIN = "plain"

    @property
    def in_prompt(self) -> bool:
        """Whether the schema must be in the prompt, too."""
        return self in (Form.JSON_OBJECT, Form.PLAIN)


class Learned:
    """Forms and parameters that one model accepted or refused; in memory only."""

    def __init__(self) -> None:
        self._proven: set[Form] = set()
        self._strikes: Counter[tuple[Form, str | None]] = Counter()
        self._refused: set[str] = set()

    def ladder(self, forms: Sequence[Form], purpose: str) -> list[Form]:
        """Those of *forms* to try for *purpose*, in their order; the last one in any case."""
        strikes = ((form, self._strikes[form, self._scope(form, purpose)]) for form in forms[:-1])
        return [*(form for form, count in strikes if count < STRIKES), forms[-1]]

    def doubts(self, form: Form, failure: Failure) -> bool:
        """Whether *failure* may be the fault of *form*, so that a lesser one is worth a try."""
        if failure.status in REFUSALS:
            return True
        # A server that names a time to come back is in trouble itself.
        odd = failure.status is not None and failure.status >= 500
        return odd and form not in self._proven and failure.retry_after_s is None

    def succeeded(self, form: Form, refused: Sequence[Form], purpose: str) -> None:
        """*form* was answered after all of *refused* had failed in the same call."""
        self._proven.add(form)
        for failed in refused:
            self._strikes[failed, self._scope(failed, purpose)] += 1

    def _scope(self, form: Form, purpose: str) -> str | None:
        # A form that works elsewhere fails for what is special about one question's schema.
        return purpose if form in self._proven else None

    # ── Parameters ───────────────────────────────────────────────────────────────────

    def accepts(self, parameter: str) -> bool:
        """Whether *parameter* was not refused so far."""
        return parameter not in self._refused

    def refuses(self, body: Mapping[str, Any], failure: Failure) -> bool:
        """Whether *failure* tells that a parameter of *body* is not known; then it is kept."""
        if failure.status not in (400, 422):
            return False
        told = {
            "temperature": _TEMPERATURE.search(failure.text) is not None,
            "max_tokens": "max_completion_tokens" in failure.text,
        }
        found = {name for name, refused in told.items() if refused and name in body}
        self._refused |= found
        return bool(found)


def with_schema(system: str, schema: Mapping[str, Any]) -> str:
    """Append *schema* to the standing instructions."""
    told = (
        "Answer with one JSON object and nothing around it. It must follow this JSON schema:\n"
        + json.dumps(schema, ensure_ascii=False)
    )
    return f"{system}\n\n{told}" if system else told


CUT_OFF = frozenset(("length", "max_tokens", "model_context_window_exceeded"))
"""What both protocols say of a reply that ended at a limit."""
MAX_PARTS = 1_000
"""Parts of a message, or tool calls, that are looked at."""
MAX_ARGUMENTS = 64 * 1024
"""Longest arguments of a tool call that are parsed, on the event loop."""


class WrongShape(ValueError):
    """An answer is JSON, but not what the protocol says; the message names what is wrong."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request with overrides applied; *timeout_s* is of one try, *prices* by model name."""

    request: ChatRequest
    model: str
    temperature: float | None
    max_output_tokens: int | None
    timeout_s: float
    prices: Mapping[str, Price]

    @property
    def purpose(self) -> str:
        """The question's purpose, which also names its schema."""
        return self.request.purpose

    @property
    def schema(self) -> dict[str, Any]:
        """The reply's schema; empty if there is none."""
        return dict(self.request.response_schema or {})

    @property
    def tools(self) -> list[Tool]:
        """The request's tools, in whatever form they were given."""
        return [Tool.read(tool) for tool in self.request.tools]

    @property
    def tokens(self) -> int:
        """Estimated input tokens."""
        texts = sum(count_tokens(message.content) for message in self.request.messages)
        calls = sum(
            count_tokens(str(call.get("name"))) + count_tokens(written(call.get("arguments")))
            for message in self.request.messages
            for call in message.tool_calls
        )
        offered = count_tokens(json.dumps([self.schema, *self.request.tools], default=str))
        return texts + calls + offered

    def parts(self, form: Form) -> tuple[str, list[ChatMessage]]:
        """The system text, with the schema if *form* needs it there, and the other messages."""
        messages = [replace(m, content=clean(m.content)) for m in self.request.messages]
        system = "\n\n".join(m.content for m in messages if m.role == "system")
        if self.request.response_schema is not None and form.in_prompt:
            system = with_schema(system, self.schema)
        return system, [m for m in messages if m.role != "system"]

    def reply(
        self,
        form: Form,
        text: str,
        calls: list[dict[str, Any]],
        *,
        model: object,
        tokens: tuple[int, int, int],
        reason: object,
    ) -> ChatReply:
        """The reply given in *form*, forced tool call read; *tokens* are input, output, cached."""
        parsed = None
        if form is Form.TOOL and calls:
            named = next((c for c in calls if c["name"] == self.purpose), calls[0])
            parsed, text = _forced(named["arguments"], text)
            calls = []
        usage = usage_of(self.model, model, *tokens, prices=self.prices)
        is_free = self.request.response_schema is None
        cut = is_free and reason in CUT_OFF
        return ChatReply(text, parsed, tuple(calls), usage=usage, truncated=cut)


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the model may call; *schema* is of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any]

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Tool:
        """A tool in OpenAI's form, in Anthropic's, or with ``parameters`` beside its name."""
        inner = given.get("function", given)
        schema = inner.get("parameters") or inner.get("input_schema") or {"type": "object"}
        return cls(str(inner["name"]), str(inner.get("description") or ""), schema)


def arguments_of(value: Any) -> Any:
    """A tool call's arguments: the object they are; text that is not JSON, or long, as it is."""
    if not isinstance(value, str):
        return value if isinstance(value, Mapping) else {}
    if len(value) > MAX_ARGUMENTS:
        return value
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return parsed if isinstance(parsed, dict) else value


def as_text(content: Any, what: str) -> str:
    """The text of a content: a text, nothing, or a list of parts. *Raises* ``WrongShape``."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise WrongShape(f"{what} is neither a text nor a list of parts")
    few(content, what)
    parts = (part.get("text") for part in content if isinstance(part, Mapping))
    return "".join(text for text in parts if isinstance(text, str))


def few(parts: Sequence[Any], what: str) -> None:
    """Let a list of parts pass. *Raises* ``WrongShape``: it has more than anybody would send."""
    if len(parts) > MAX_PARTS:
        raise WrongShape(f"{what} has more than {MAX_PARTS:,} parts")


def _forced(arguments: Any, text: str) -> tuple[Any, str]:
    """Arguments of a forced tool call: parsed, and as text."""
    if isinstance(arguments, Mapping):
        return arguments, text or written(arguments, otherwise="")
    return None, arguments or text


def written(arguments: Any, *, otherwise: str = "{}") -> str:
    """Arguments as storable JSON; *otherwise*: there is no object, or it is nested too deeply."""
    if not isinstance(arguments, Mapping):
        return otherwise
    try:
        return clean(json.dumps(arguments, ensure_ascii=False, allow_nan=False))
    except (RecursionError, TypeError, ValueError):
        return otherwise


# ── Settings of single purposes ─────────────────────────────────────────────────────────

Fields = Mapping[str, Any]


def _temperature(value: Any, name: str) -> float:
    checked = number(name, value, least=0)
    if checked > 2:
        raise ConfigError(f"{name} must be at most 2, not {value!r}")
    return checked


_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "model": model_name,
    "temperature": _temperature,
    "max_output_tokens": lambda value, name: whole(name, value, least=1),
    "timeout_s": lambda value, name: number(name, value, above=0),
}
"""What each setting may be, beside ``None``."""


def _checked(key: str, value: Any, name: str) -> Any:
    return None if value is None else _CHECKS[key](value, name)


def checked_overrides(overrides: Mapping[str, Fields] | None) -> dict[str, dict[str, Any]]:
    """A copy. *Raises* ``ConfigError``: a purpose, field or value is none."""
    if not isinstance(overrides, Mapping | None):
        raise ConfigError("overrides must be a dict of purposes")
    checked: dict[str, dict[str, Any]] = {}
    for purpose, fields in (overrides or {}).items():
        if purpose not in get_args(Purpose):
            known = ", ".join(get_args(Purpose))
            raise ConfigError(f"overrides: {purpose!r} is no purpose; there are {known}")
        if not isinstance(fields, Mapping):
            raise ConfigError(f"overrides[{purpose!r}] must be a dict of settings")
        checked[purpose] = {key: _field(purpose, key, fields[key]) for key in fields}
    return checked


def _field(purpose: str, key: str, value: Any) -> Any:
    if key not in _CHECKS:
        known = ", ".join(_CHECKS)
        raise ConfigError(f"overrides[{purpose!r}]: {key!r} is no setting; there are {known}")
    return _checked(key, value, f"overrides[{purpose!r}].{key}")


# ── The chat model ──────────────────────────────────────────────────────────────────────


class HttpChatModel(HttpModel, ABC):
    """
    What the chat models of all protocols share; see ``OpenAIChatModel`` for the arguments.

    Attributes:
        keeps_time: It bounds every try itself; see ``protocols.ChatModel``.
        forms: In which the protocol asks for a schema, the most binding first.
    """

    keeps_time = True
    forms: ClassVar[Sequence[Form]]

    def __init__(
        self,
        transport: Transport,
        path: str,
        *,
        model: str,
        temperature: float | None,
        max_output_tokens: int | None,
        overrides: Mapping[str, Mapping[str, Any]] | None,
        prices: Mapping[str, Price] | None,
    ) -> None:
        super().__init__(transport, model, prices)
        self._path = path
        self._temperature = _checked("temperature", temperature, "temperature")
        self._max_output_tokens = _checked(
            "max_output_tokens", max_output_tokens, "max_output_tokens"
        )
        self._overrides = checked_overrides(overrides)
        self._lessons = defaultdict[str, Learned](Learned)

    @abstractmethod
    def _body(self, call: Call, form: Form, learned: Learned) -> dict[str, Any]:
        """The request's JSON."""

    @abstractmethod
    def _read(self, answer: Any, call: Call, form: Form) -> ChatReply:
        """Read an answer; its input tokens are counted whole. *Raises* ``WrongShape``."""

    @property
    def name(self) -> str:
        """The model's name, where no override says otherwise."""
        return self._model

    def model_for(self, purpose: Purpose) -> str:
        """The model that is asked for *purpose*, by its override or the model's own name."""
        return self._overrides.get(purpose, {}).get("model") or self._model

    async def complete(self, request: ChatRequest) -> ChatReply:
        """
        Answer *request*.

        A blank reply or a refusal is a reply; whether it fits the schema is for the caller to say.

        Raises:
            RateLimited: The server asks for more patience than there is.
            ModelTimeout: No try was answered in time.
            ModelUnavailable: The server cannot be reached, or refuses; ``retryable`` says
                whether it may serve the same request later.
            InvalidReply: The answer is not one of the API, or far too long.
                *Cancellation*: safe; the connection is closed, nothing is counted.
        """
        call = self._call(request)
        ladder = self._lessons[call.model].ladder(self._forms(call), call.purpose)
        return await self._transport.patiently(
            lambda: self._round(call, ladder), purpose=call.purpose
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    def _call(self, request: ChatRequest) -> Call:
        own = self._overrides.get(request.purpose, {})
        bound = own.get("max_output_tokens") or request.max_output_tokens
        return Call(
            request,
            model=self.model_for(request.purpose),
            temperature=own.get("temperature", self._temperature),
            max_output_tokens=bound or self._max_output_tokens,
            timeout_s=own.get("timeout_s") or request.timeout_s or self._transport.timeout_s,
            prices=self._prices,
        )

    async def _round(self, call: Call, ladder: list[Form]) -> ChatReply:
        """One try: the strictest form first, a lesser one at once if that may be what is wrong."""
        learned = self._lessons[call.model]
        refused: list[Form] = []
        while True:
            form = ladder[len(refused)]
            try:
                reply = await self._put(call, form)
            except Failure as failure:
                if form is ladder[-1]:
                    # None was taken: the server is unwell. Later tries spare it the others.
                    del ladder[:-1]
                    raise
                if not learned.doubts(form, failure):
                    raise
                refused.append(form)
            else:
                learned.succeeded(form, refused, call.purpose)
                return reply

    def _forms(self, call: Call) -> list[Form]:
        if call.request.response_schema is None:
            return [Form.PLAIN]
        # A forced tool would take the place of the request's own.
        return [f for f in self.forms if not (f is Form.TOOL and call.request.tools)]

    async def _put(self, call: Call, form: Form) -> ChatReply:
        learned = self._lessons[call.model]
        while True:
            body = self._body(call, form, learned)
            try:
                answer = await self._transport.send(
                    self._path, body, timeout_s=call.timeout_s, tokens=call.tokens
                )
            except Failure as failure:
                # Each refusal is of a parameter that the next body does not have.
                if not learned.refuses(body, failure):
                    raise
            else:
                return self._reply(answer, call, form)

    def _reply(self, answer: Any, call: Call, form: Form) -> ChatReply:
        try:
            said = self._read(answer, call, form)
        except WrongShape as error:
            message = f"this is not how a chat model answers: {error}; is base_url right?"
            raise self._transport.invalid(message, answer) from None
        if actual := said.usage.input_tokens + said.usage.output_tokens:
            self._transport.settle(call.tokens, actual)
        return said
