"""A chat model over HTTP: put the request in a form its server takes, read the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self, get_args

from mnemo.errors import ConfigError
from mnemo.models.failures import Failure
from mnemo.models.prices import Price, price_table, usage_of
from mnemo.models.transport import Transport, number
from mnemo.models.wire import Call, Form, Lessons, ParsedReply, Wire, WrongShape
from mnemo.protocols import ChatReply, ChatRequest, Purpose
from mnemo.runtime.text import is_blank

# ── Settings of single purposes ─────────────────────────────────────────────────────────

Fields = Mapping[str, Any]


def model_name(value: Any, name: str = "model") -> str:
    """*value*, if it can name a model. *Raises* ``ConfigError``."""
    if not isinstance(value, str) or is_blank(value):
        raise ConfigError(f"{name} is blank: name the model as its server does")
    return value


def temperature_of(value: Any, name: str = "temperature") -> float | None:
    """*value*, if it is from 0 to 2 or ``None``. *Raises* ``ConfigError``."""
    if value is None:
        return None
    checked = number(name, value, least=0)
    if checked > 2:
        raise ConfigError(f"{name} must be at most 2, not {value!r}")
    return checked


def output_bound(value: Any, name: str = "max_output_tokens") -> int | None:
    """*value*, if it is a whole number from 1 or ``None``. *Raises* ``ConfigError``."""
    return None if value is None else int(number(name, value, least=1, whole=True))


def _timeout(value: Any, name: str) -> float | None:
    return None if value is None else number(name, value, above=0)


def _other_model(value: Any, name: str) -> str | None:
    return None if value is None else model_name(value, name)


_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "model": _other_model,
    "temperature": temperature_of,
    "max_output_tokens": output_bound,
    "timeout_s": _timeout,
}


def checked_overrides(overrides: Mapping[str, Fields] | None) -> dict[str, dict[str, Any]]:
    """
    A copy of *overrides*.

    Raises:
        ConfigError: A purpose or field is unknown, or a value out of range.
    """
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
    return _CHECKS[key](value, f"overrides[{purpose!r}].{key}")


# ── The chat model ──────────────────────────────────────────────────────────────────────


class HttpChatModel:
    """
    What the chat models of all protocols share; see ``OpenAIChatModel`` for the arguments.

    Attributes:
        provider: The protocol's name, for telemetry.
        keeps_time: It bounds every try itself; see ``protocols.ChatModel``.
    """

    provider = ""
    keeps_time = True

    def __init__(
        self,
        wire: Wire,
        transport: Transport,
        *,
        model: str,
        temperature: float | None,
        max_output_tokens: int | None,
        overrides: Mapping[str, Mapping[str, Any]] | None,
        prices: Mapping[str, Price] | None,
    ) -> None:
        self._wire = wire
        self._transport = transport
        self._model = model_name(model)
        self._temperature = temperature_of(temperature)
        self._max_output_tokens = output_bound(max_output_tokens)
        self._overrides = checked_overrides(overrides)
        self._prices = price_table(prices)
        self._lessons = Lessons()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._transport.endpoint.url!r}, {self._model!r})"

    @property
    def model(self) -> str:
        """The model's name, where no override says otherwise."""
        return self._model

    @property
    def name(self) -> str:
        """The same."""
        return self._model

    def model_for(self, purpose: Purpose) -> str:
        """The model that is asked for *purpose*, by its override or the model's own name."""
        return self._overrides.get(purpose, {}).get("model") or self._model

    @property
    def server(self) -> tuple[str, int]:
        """Host and port."""
        return self._transport.server

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

    async def aclose(self) -> None:
        """
        Close the connections; with calls in flight, as the last of them has ended.

        Idempotent; the next call opens new ones. *Cancellation*: completes.
        """
        await self._transport.aclose()

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
        return [f for f in self._wire.forms if not (f is Form.TOOL and call.request.tools)]

    async def _put(self, call: Call, form: Form) -> ChatReply:
        learned = self._lessons[call.model]
        while True:
            body = self._wire.body(call, form, learned)
            try:
                answer = await self._transport.send(
                    self._wire.path, body, timeout_s=call.timeout_s, tokens=call.tokens
                )
            except Failure as failure:
                # Each refusal is of a parameter that the next body does not have.
                if not learned.refuses(body, failure):
                    raise
            else:
                return self._reply(answer, call, form)

    def _reply(self, answer: Any, call: Call, form: Form) -> ChatReply:
        try:
            said = self._wire.read(answer, call, form)
        except WrongShape as error:
            message = f"this is not how a chat model answers: {error}; is base_url right?"
            raise self._transport.invalid(message, answer) from None
        self._settle(call, said)
        usage = usage_of(
            call.model,
            said.model,
            input_tokens=said.input_tokens,
            output_tokens=said.output_tokens,
            cached_tokens=said.cached_tokens,
            prices=self._prices,
        )
        return ChatReply(said.text, said.parsed, said.tool_calls, usage, said.truncated)

    def _settle(self, call: Call, said: ParsedReply) -> None:
        actual = said.input_tokens + said.output_tokens
        if actual:
            self._transport.settle(call.tokens, actual)
