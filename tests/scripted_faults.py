"""What can go wrong with one HTTP request to a model, each as a value a test can script."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

Endpoint = Literal["chat", "embed", "models"]
Finish = Literal["stop", "length", "refusal", "empty"]

EVERYWHERE: frozenset[Endpoint] = frozenset(("chat", "embed", "models"))
CHAT: frozenset[Endpoint] = frozenset(("chat",))
EMBED: frozenset[Endpoint] = frozenset(("embed",))

# Each key is what some question asks for, with a value that none of them accepts.
_NONSENSE = {
    key: {"unexpected": [True]}
    for key in (
        *("steps", "facts", "instructions", "scores", "intent", "mode", "tags"),
        *("reasoning", "information", "last_reward", "index"),
    )
}


class Wire(Protocol):
    """The connection a reply goes out on."""

    async def start(self, status: int, headers: Mapping[str, str], length: int) -> None:
        """Send the head of a reply whose body will have *length* bytes."""

    async def write(self, data: bytes, *, last: bool) -> None:
        """Send a part of the body."""

    async def wait(self, seconds: float) -> bool:
        """Wait; True as soon as the connection has ended from either side."""

    async def drop(self) -> None:
        """Close the connection, whatever has been sent."""


@dataclass(frozen=True)
class Answer:
    """What the scripted model says, before it is put into a protocol's shape."""

    text: str
    finish: Finish = "stop"
    calls: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Reply:
    """A whole HTTP reply."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


@dataclass(frozen=True)
class Fault:
    """One request's fate; this one is no fault at all, and its kinds change one thing each."""

    name: str = "none"
    endpoints: frozenset[Endpoint] = EVERYWHERE

    def answer(self, answer: Answer, schema: Any) -> Answer:
        """What the model says instead of *answer*, asked for a reply that follows *schema*."""
        return answer

    def rows(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """The vectors instead of *rows*."""
        return rows

    def reply(self, reply: Reply) -> Reply:
        """The HTTP reply instead of *reply*."""
        return reply

    async def send(self, wire: Wire, reply: Reply) -> None:
        """Send *reply*."""
        await wire.start(reply.status, _head(reply), len(reply.body))
        await wire.write(reply.body, last=True)


def _head(reply: Reply) -> dict[str, str]:
    return {"content-type": reply.content_type, **reply.headers}


# ── On the wire ──────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Delay(Fault):
    """The reply comes *seconds* late, or never."""

    name: str = "delay"
    seconds: float = math.inf

    async def send(self, wire: Wire, reply: Reply) -> None:
        if not await wire.wait(self.seconds):
            await super().send(wire, reply)


@dataclass(frozen=True)
class Drop(Fault):
    """The connection is closed before the reply, or in the middle of its body."""

    name: str = "drop"
    mid_body: bool = False

    async def send(self, wire: Wire, reply: Reply) -> None:
        if self.mid_body:
            await wire.start(reply.status, _head(reply), len(reply.body))
            await wire.write(reply.body[: len(reply.body) // 2], last=False)
        await wire.drop()


@dataclass(frozen=True)
class SlowDrip(Fault):
    """The reply comes a few bytes at a time, each part soon enough for a read timeout."""

    name: str = "slow drip"
    size: int = 1
    pause_s: float = 0.01

    async def send(self, wire: Wire, reply: Reply) -> None:
        await wire.start(reply.status, _head(reply), len(reply.body))
        for at in range(0, len(reply.body), self.size):
            if await wire.wait(self.pause_s):
                return
            part = reply.body[at : at + self.size]
            await wire.write(part, last=at + self.size >= len(reply.body))


# ── The HTTP reply ───────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Status(Fault):
    """An error status with a message, as both protocols word it."""

    name: str = "status"
    status: int = 500
    message: str = "scripted failure"
    type: str = "server_error"
    retry_after: str | None = None

    def reply(self, reply: Reply) -> Reply:
        headers = {} if self.retry_after is None else {"retry-after": self.retry_after}
        return error_reply(self.status, self.message, self.type, headers)


def error_reply(
    status: int, message: str, type: str, headers: Mapping[str, str] | None = None
) -> Reply:
    """An error in a shape that both protocols' clients read."""
    error = {"message": message, "type": type, "code": type, "param": None}
    return Reply(json.dumps({"type": "error", "error": error}).encode(), status, headers or {})


@dataclass(frozen=True)
class Truncated(Fault):
    """A complete HTTP body that holds the first half of its JSON."""

    name: str = "truncated JSON"

    def reply(self, reply: Reply) -> Reply:
        return replace(reply, body=reply.body[: len(reply.body) // 2])


@dataclass(frozen=True)
class WrongContentType(Fault):
    """A page for people, as a proxy in front of the model would send it, with status 200."""

    name: str = "wrong content type"

    def reply(self, reply: Reply) -> Reply:
        page = b"<!doctype html><title>Welcome</title><p>Please log in to the network.</p>"
        return Reply(page, content_type="text/html; charset=utf-8")


# ── What the model says ──────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Says(Fault):
    """The model says *text*, whatever it was asked."""

    name: str = "says"
    endpoints: frozenset[Endpoint] = CHAT
    text: str = "{}"
    finish: Finish = "stop"

    def answer(self, answer: Answer, schema: Any) -> Answer:
        return Answer(self.text, self.finish)


@dataclass(frozen=True)
class CutOff(Fault):
    """The model's text ends in the middle: it has used up its tokens."""

    name: str = "cut off"
    endpoints: frozenset[Endpoint] = CHAT

    def answer(self, answer: Answer, schema: Any) -> Answer:
        return Answer(answer.text[: len(answer.text) // 2], "length")


@dataclass(frozen=True)
class EchoesSchema(Fault):
    """The model repeats the schema it was given instead of following it."""

    name: str = "schema echo"
    endpoints: frozenset[Endpoint] = CHAT

    def answer(self, answer: Answer, schema: Any) -> Answer:
        return Answer(json.dumps(schema or {"type": "object", "properties": {}}))


# ── Vectors ──────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Rows(Fault):
    """Vectors that cannot be used."""

    name: str = "rows"
    endpoints: frozenset[Endpoint] = EMBED
    wrong: Literal["width", "count", "nan", "zero"] = "width"

    def rows(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        if self.wrong == "width":
            return rows[:, :-1]
        if self.wrong == "count":
            return rows[:-1]
        spoilt = rows.copy()
        spoilt[-1] = np.nan if self.wrong == "nan" else 0.0
        return spoilt


# ── The ones that tests name ─────────────────────────────────────────────────────────


def delayed(seconds: float) -> Delay:
    """The reply comes *seconds* late."""
    return Delay(seconds=seconds)


def rate_limited(retry_after: str | float | None = None) -> Status:
    """Status 429; *retry_after* is seconds, or any text for the header."""
    after = None if retry_after is None else str(retry_after)
    name = "429" if after is None else "429 with Retry-After"
    return Status(name, EVERYWHERE, 429, "slow down", "rate_limit_error", after)


NEVER_ANSWERS = Delay("never answers")
DROPPED = Drop("dropped before the reply")
DROPPED_MID_BODY = Drop("dropped mid-body", mid_body=True)
SLOW_DRIP = SlowDrip()
RATE_LIMITED = rate_limited()
SERVER_ERROR = Status("500", status=500)
OVERLOADED = Status("503", status=503, message="overloaded", type="overloaded_error")
KEY_REFUSED = Status(
    "401", status=401, message="Incorrect API key provided", type="authentication_error"
)
TRUNCATED_JSON = Truncated()
WRONG_CONTENT_TYPE = WrongContentType()
CUT_OFF = CutOff()
WRONG_SHAPE = Says("schema violation", text=json.dumps(_NONSENSE))
EMPTY_OBJECT = Says("empty object", text="{}")
SCHEMA_ECHO = EchoesSchema()
EMPTY_CHOICES = Says("empty choices", text="", finish="empty")
REFUSAL = Says("refusal", text="I can't help with that.", finish="refusal")
FIVE_MEGABYTES = Says("5 MB of text", text="once upon a time there was a model " * 150_000)
WRONG_WIDTH = Rows("wrong width", wrong="width")
TOO_FEW_ROWS = Rows("too few rows", wrong="count")
NAN_ROW = Rows("NaN", wrong="nan")
ZERO_ROW = Rows("zero row", wrong="zero")

TRANSIENT: tuple[Fault, ...] = (
    DROPPED,
    DROPPED_MID_BODY,
    RATE_LIMITED,
    SERVER_ERROR,
    OVERLOADED,
)
"""What an adapter's own retries are for; with ``delayed`` and ``rate_limited(seconds)``."""

REPLIES: tuple[Fault, ...] = (
    CUT_OFF,
    WRONG_SHAPE,
    EMPTY_OBJECT,
    SCHEMA_ECHO,
    EMPTY_CHOICES,
    REFUSAL,
    FIVE_MEGABYTES,
)
"""What a corrective call is for: the server is well, the model's reply is not."""

VECTORS: tuple[Fault, ...] = (WRONG_WIDTH, TOO_FEW_ROWS, NAN_ROW, ZERO_ROW)
"""Vectors that cannot be used."""

EVERY_KIND: tuple[Fault, ...] = (
    *TRANSIENT,
    *REPLIES,
    *VECTORS,
    delayed(0.05),
    NEVER_ANSWERS,
    SLOW_DRIP,
    rate_limited(2),
    KEY_REFUSED,
    TRUNCATED_JSON,
    WRONG_CONTENT_TYPE,
)
"""One of each, for those who want some of everything."""
