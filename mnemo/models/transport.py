"""HTTP to one server: limits, retries, typed errors; its packages are imported in a thread."""

from __future__ import annotations

import asyncio
import json
import sys
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import wraps
from importlib import import_module
from inspect import Signature, signature
from typing import Any, ParamSpec, TypedDict, TypeVar

import anyio
import anyio.to_thread
from pydantic import SecretStr

from mnemo.errors import ConfigError, InvalidReply, ModelError, ModelTimeout, RateLimited
from mnemo.models.failures import (
    SHARED,
    SHOWN_CHARACTERS,
    Endpoint,
    ErrorTranslator,
    Failure,
    Scrubber,
    secret_headers,
    secret_key,
)
from mnemo.models.prices import Price, price_table
from mnemo.protocols import Clock
from mnemo.runtime.clock import Bucket, SystemClock
from mnemo.runtime.text import is_blank

MAX_REPLY_BYTES = 768 * 1024
"""
Bytes of a reply that are read, unless the caller expects more; a chat reply has a hundredth.

Reading JSON holds the interpreter to its end: up to 20 ms for so many bytes.
"""
MAX_ERROR_BYTES = 16 * 1024
"""Bytes of an error's body that are read."""
KEPT_S = 4.0
"""Seconds that an unused connection is kept: less than the 5 after which many servers close it."""
GZIP_OR_ZLIB = zlib.MAX_WBITS | 32
"""For ``zlib``: whichever of the two the header says."""
INLINE_BYTES = 64 * 1024
"""Longest JSON that is handled on the event loop: well under a millisecond."""

BACKOFF_S = 0.5
"""Seconds before the second try; doubled for each further one, plus up to as much jitter."""
MAX_BACKOFF_S = 20.0
TIMEOUT_TRIES = 2
"""Tries that may time out: each has already taken as long as the caller allowed."""

P = ParamSpec("P")
T = TypeVar("T")


def bearer(key: str) -> dict[str, str]:
    """The header of most servers."""
    return {"Authorization": f"Bearer {key}"}


class HttpSettings(TypedDict, total=False):
    """What every model over HTTP may be told about its requests; see ``Transport``."""

    headers: Mapping[str, str | SecretStr] | None
    timeout_s: float
    max_retries: int
    max_wait_s: float
    max_concurrency: int
    requests_per_minute: float | None
    tokens_per_minute: float | None
    transport: Any
    clock: Clock | None


class Transport:
    """
    Sends JSON to one server and gives the JSON that it answers with.

    Nothing is opened before the first request. One client per event loop; after
    ``aclose`` the next request opens a new one. Arguments and errors: as of
    ``OpenAIChatModel``; the key is sent as *key_header* says.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | SecretStr | None = None,
        *,
        key_header: Callable[[str], Mapping[str, str]] = bearer,
        headers: Mapping[str, str | SecretStr] | None = None,
        timeout_s: float = 60.0,
        max_retries: int = 3,
        max_wait_s: float = 60.0,
        max_concurrency: int = 8,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        transport: Any = None,
        clock: Clock | None = None,
    ) -> None:
        self.endpoint: Endpoint = Endpoint.parse(base_url)
        self.timeout_s: float = number("timeout_s", timeout_s, above=0)
        self._max_retries = whole("max_retries", max_retries, least=0)
        self._max_wait_s = number("max_wait_s", max_wait_s, least=0)
        for name, limit in (
            ("requests_per_minute", requests_per_minute),
            ("tokens_per_minute", tokens_per_minute),
        ):
            if limit is not None:
                number(name, limit, above=0)
        self._key = secret_key(api_key)
        self._key_header = key_header
        self._headers = secret_headers(headers)
        secrets = [s for s in self._headers.values() if len(s.get_secret_value()) >= SHARED]
        scrubber = Scrubber([*([self._key] if self._key else []), *secrets])
        self._tell = ErrorTranslator(self.endpoint, scrubber, has_key=self._key is not None)
        self._clock = clock or SystemClock()
        self._limits = Limits(
            requests_per_minute=requests_per_minute,
            tokens_per_minute=tokens_per_minute,
            clock=self._clock,
        )
        self._injected = transport
        self._slots = whole("max_concurrency", max_concurrency, least=1)
        self._lanes: dict[asyncio.AbstractEventLoop, Lane] = {}

    def __repr__(self) -> str:
        return f"Transport({self.endpoint.url!r})"

    @property
    def server(self) -> tuple[str, int]:
        """Host and port."""
        return self.endpoint.host, self.endpoint.port

    async def patiently(self, work: Callable[[], Awaitable[T]], *, purpose: str | None) -> T:
        """Run *work* with retries; raise its last error, with *purpose* and without cause."""
        await _ready()
        policy = _retrying(
            max_retries=self._max_retries, max_wait_s=self._max_wait_s, sleep=self._clock.sleep
        )

        async def one_try() -> T:  # tenacity awaits what a coroutine function gives, nothing else
            return await work()

        try:
            result: T = await policy(one_try)
            return result
        except Failure as failure:
            tries = int(policy.statistics.get("attempt_number", 1))
            error = self._final(failure, float(policy.statistics.get("idle_for", 0)))
        error.purpose = error.purpose or purpose
        error.add_note(f"after {tries} {'try' if tries == 1 else 'tries'}")
        raise error

    def _final(self, failure: Failure, waited_s: float) -> ModelError:
        wait = failure.retry_after_s
        if wait is None or waited_s + wait <= self._max_wait_s:
            return failure.error
        return RateLimited(
            f"{failure.error}; it asks to come back in {wait:g} s, which is longer than a call "
            f"may wait: raise max_wait_s ({self._max_wait_s:g} s) or ask less",
            retry_after_s=wait,
        )

    async def send(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        timeout_s: float | None = None,
        tokens: float = 0,
        max_bytes: int = MAX_REPLY_BYTES,
    ) -> Any:
        """
        Try once.

        Args:
            path: Added to the base address, e.g. ``"/embeddings"``.
            timeout_s: Seconds from the connection to the last byte; ``None``: the transport's.
                Waiting for a turn does not count.
            tokens: Estimate that the limit per minute is charged with; see ``settle``.
            max_bytes: Bytes of the answer that are read at most.

        Raises:
            Failure: Of any kind. *Cancellation*: safe; the connection is closed.
        """
        content = await _encoded(body, tokens)
        bound = self.timeout_s if timeout_s is None else timeout_s
        lane = self._lane()
        async with self._limits.turn(lane, tokens), lane.lend(self._make_client) as client:
            status, headers, payload = await self._exchange(client, path, content, bound, max_bytes)
        if not 200 <= status < 300:
            now = self._clock.now()
            model = body.get("model")
            raise self._tell.status(status, headers, payload, path=path, model=model, now=now)
        return await self._read(status, headers, payload, max_bytes)

    def settle(self, estimated: float, actual: float) -> None:
        """Correct the limit of tokens per minute by what a request of *estimated* really took."""
        self._limits.settle(estimated, actual)

    def invalid(self, message: str, answer: Any) -> Failure:
        """The failure of an *answer* (JSON, or the text of it) that is not of the API's shape."""
        shown = answer if isinstance(answer, str) else _beginning(answer)
        return Failure(InvalidReply(message, raw=self._tell.raw(shown)))

    async def aclose(self) -> None:
        """Close the connections as the last request ends. Idempotent. *Cancellation*: completes."""
        await self._lane().aclose()

    def _lane(self) -> Lane:
        """That of the running loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._lanes:
            # In place: another thread's loop may be at it, too.
            for gone in [known for known in self._lanes if known.is_closed()]:
                self._lanes.pop(gone, None)
            self._lanes[loop] = Lane(self._slots)
        return self._lanes[loop]

    async def _exchange(
        self, client: Any, path: str, content: bytes, timeout_s: float, max_bytes: int
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and at most a little more than *max_bytes* of the body."""
        connected = False
        try:
            with anyio.fail_after(timeout_s):
                async with client.stream(
                    "POST", self.endpoint.url + path, content=content, headers=self._all_headers()
                ) as response:
                    connected = True
                    good = 200 <= response.status_code < 300
                    body = await _some(response, max_bytes if good else MAX_ERROR_BYTES)
                    return response.status_code, response.headers, body
        except TimeoutError:
            failure = self._late(timeout_s)
        except _connection_errors() as error:
            failure = self._broken(error, timeout_s, connected)
        # Raised out here, so that no context leads to the client's own error and its headers.
        raise failure

    def _broken(self, error: Exception, timeout_s: float, connected: bool) -> Failure:
        import httpx

        if isinstance(error, httpx.TimeoutException):
            return self._late(timeout_s)
        connected = connected or not isinstance(error, httpx.ConnectError)
        return self._tell.broken(error, connected=connected)

    def _late(self, timeout_s: float) -> Failure:
        return Failure(ModelTimeout(f"no reply from {self.endpoint.url} within {timeout_s:g} s"))

    async def _read(
        self, status: int, headers: Mapping[str, str], payload: bytes, max_bytes: int
    ) -> Any:
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind and not (kind == "application/json" or kind.endswith("+json")):
            raise self._tell.content_type(status, kind)
        if len(payload) > max_bytes:
            raw = payload[:SHOWN_CHARACTERS].decode("utf-8", "replace")
            raise self.invalid(f"the reply is longer than {max_bytes:,} bytes", raw)
        try:
            return await _decoded(payload)
        except (ValueError, RecursionError):
            failure = self._tell.unparsable(status)
        raise failure

    def _all_headers(self) -> dict[str, str]:
        key = self._key_header(self._key.get_secret_value()) if self._key else {}
        own = {name: value.get_secret_value() for name, value in self._headers.items()}
        named = {"Content-Type": "application/json", **key, **own}
        # One header of each name, however it is written: the user's own.
        return {name.lower(): value for name, value in named.items()}

    def _make_client(self) -> Any:
        try:
            return self._client()
        except (ImportError, ValueError, OSError) as error:
            failure = self._tell.unusable(error)
        raise failure

    def _client(self) -> Any:
        import httpx

        return httpx.AsyncClient(
            transport=self._injected,
            # Each try is bounded as a whole, and the limits let no more through than fit.
            timeout=None,
            limits=httpx.Limits(max_connections=None, keepalive_expiry=KEPT_S),
            headers={"Accept": "application/json", "Accept-Encoding": "identity"},
            trust_env=not self.endpoint.is_loopback,
        )


_SETTINGS = [
    p for p in signature(Transport).parameters.values() if p.name in HttpSettings.__annotations__
]


def with_settings(init: Callable[P, None]) -> Callable[P, None]:
    """Show the settings in place of ``**http``, and refuse others in the name of the class."""
    *own, _ = signature(init).parameters.values()
    shown = Signature([*own, *_SETTINGS])

    @wraps(init)
    def checked(*given: P.args, **named: P.kwargs) -> None:
        try:
            shown.bind(*given, **named)
        except TypeError as error:
            raise TypeError(f"{type(given[0]).__name__}: {error}") from None
        init(*given, **named)

    checked.__signature__ = shown  # type: ignore[attr-defined]
    return checked


class HttpModel:
    """What all models over HTTP share. *provider*: The protocol's name, for telemetry."""

    provider = "openai"

    def __init__(
        self, transport: Transport, model: str, prices: Mapping[str, Price] | None
    ) -> None:
        self._transport = transport
        self._model = model_name(model)
        self._prices = price_table(prices)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._transport.endpoint.url!r}, {self._model!r})"

    @property
    def model(self) -> str:
        """The name that the server knows its model by."""
        return self._model

    @property
    def server(self) -> tuple[str, int]:
        """Host and port."""
        return self._transport.server

    async def aclose(self) -> None:
        """
        Close the connections; with calls in flight, as the last of them has ended.

        Idempotent; the next call opens new ones. *Cancellation*: completes.
        """
        await self._transport.aclose()


def model_name(value: Any, name: str = "model") -> str:
    """*value*, if it can name a model. *Raises* ``ConfigError``."""
    if not isinstance(value, str) or is_blank(value):
        raise ConfigError(f"{name} is blank: name the model as its server does")
    return value


async def _some(response: Any, max_bytes: int) -> bytes:
    """The body, or its beginning that is longer than *max_bytes*."""
    parts = bytearray()
    packing = response.headers.get("content-encoding", "identity").strip().lower()
    packed = packing not in ("", "identity")
    unpack = _unpacking(packing) if packed else _as_it_is
    async with aclosing(response.aiter_raw() if packed else response.aiter_bytes()) as chunks:
        async for chunk in chunks:
            parts += unpack(chunk, max_bytes + 1 - len(parts))
            if len(parts) > max_bytes:
                break
    return bytes(parts)


def _as_it_is(chunk: bytes, limit: int) -> bytes:
    return chunk


def _unpacking(packing: str) -> Callable[[bytes, int], bytes]:
    """Unpack bounded pieces of what a server packed unasked: a few bytes may unfold to any size."""
    import httpx

    if packing not in ("gzip", "x-gzip", "deflate"):
        raise httpx.DecodingError(f"the reply is packed ({packing}), which was not asked for")
    unpacker = zlib.decompressobj(GZIP_OR_ZLIB)

    def unpack(chunk: bytes, limit: int) -> bytes:
        try:
            return unpacker.decompress(chunk, limit)
        except zlib.error as error:
            raise httpx.DecodingError(str(error)) from None

    return unpack


async def _encoded(body: Mapping[str, Any], tokens: float) -> bytes:
    def encode() -> bytes:
        return json.dumps(body).encode()

    if tokens * 4 <= INLINE_BYTES:
        return encode()
    return await anyio.to_thread.run_sync(encode)


async def _decoded(payload: bytes) -> Any:
    if len(payload) <= INLINE_BYTES:
        return json.loads(payload)
    return await anyio.to_thread.run_sync(json.loads, payload)


def _beginning(answer: Any) -> str:
    """The first characters of *answer* as JSON."""
    try:
        # In one go: written piece by piece, deep nesting takes the square of its depth.
        return json.dumps(answer, ensure_ascii=False)[:SHOWN_CHARACTERS]
    except RecursionError:
        return "(nested too deeply to be shown)"


def _connection_errors() -> tuple[type[Exception], ...]:
    import httpx

    return (
        httpx.HTTPError,
        httpx.InvalidURL,
        httpx.StreamError,
        anyio.BrokenResourceError,
        anyio.ClosedResourceError,
        OSError,
    )


async def _ready() -> None:
    """Import ``httpx`` and ``tenacity`` once, in a worker thread."""
    for name in ("httpx", "tenacity"):
        if name not in sys.modules:
            await anyio.to_thread.run_sync(import_module, name)


def _retrying(
    *, max_retries: int, max_wait_s: float, sleep: Callable[[float], Awaitable[None]]
) -> Any:
    """The policy of a call: jittered backoff or the server's wait, together within *max_wait_s*."""
    from tenacity import (
        AsyncRetrying,
        RetryCallState,
        retry_if_exception,
        stop_after_attempt,
        wait_exponential,
        wait_random,
    )

    stop_trying = stop_after_attempt(max_retries + 1)
    backoff = wait_exponential(multiplier=BACKOFF_S, max=MAX_BACKOFF_S) + wait_random(0, BACKOFF_S)

    def failure(state: RetryCallState) -> Failure | None:
        error = state.outcome.exception() if state.outcome else None
        return error if isinstance(error, Failure) else None

    def stop(state: RetryCallState) -> bool:
        failed = failure(state)
        timed_out = failed is not None and isinstance(failed.error, ModelTimeout)
        waited_s = state.idle_for + state.upcoming_sleep
        timed_out_enough = timed_out and state.attempt_number >= TIMEOUT_TRIES
        return timed_out_enough or waited_s > max_wait_s or stop_trying(state)

    def wait(state: RetryCallState) -> float:
        failed = failure(state)
        return (failed and failed.retry_after_s) or backoff(state)

    return AsyncRetrying(
        sleep=sleep,
        stop=stop,
        wait=wait,
        retry=retry_if_exception(
            lambda error: isinstance(error, Failure) and error.error.retryable
        ),
        reraise=True,
    )


def number(
    name: str,
    value: float,
    *,
    above: float | None = None,
    least: float | None = None,
    whole: bool = False,
) -> float:
    """*value*, a finite number in range. *Raises* ``ConfigError``, which names the setting."""
    kinds = (int,) if whole else (int, float)
    fits = isinstance(value, kinds) and not isinstance(value, bool)
    fits = fits and float("-inf") < value < float("inf")
    if fits and above is not None:
        fits = value > above
    if fits and least is not None:
        fits = value >= least
    if fits:
        return value
    wanted = f"above {above:g}" if above is not None else f"at least {least:g}"
    raise ConfigError(f"{name} must be a {'whole ' if whole else ''}number {wanted}, not {value!r}")


def whole(name: str, value: int, *, least: int) -> int:
    """``number``, if it is a whole one."""
    return int(number(name, value, least=least, whole=True))


# ── Clients: one per event loop ─────────────────────────────────────────────────────────

CLOSING_S = 5.0
"""Seconds that closing connections may take; a server that does not answer is left."""


class _Shared:
    """One client and how many requests use it."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.borrowers = 0
        self.retired = False

    async def close_if_idle(self) -> None:
        if self.retired and not self.borrowers:
            with anyio.move_on_after(CLOSING_S, shield=True):
                await self.client.aclose()


class Lane:
    """One event loop's client, and its two waiting lines: first come, first served."""

    def __init__(self, max_concurrency: int) -> None:
        self.slots: anyio.Semaphore = anyio.Semaphore(max_concurrency)
        self.head: anyio.Lock = anyio.Lock()
        self._making = anyio.Lock()
        self._shared: _Shared | None = None

    @asynccontextmanager
    async def lend(self, make: Callable[[], Any]) -> AsyncIterator[Any]:
        """
        Lend the client, which *make* makes at first use in a worker thread: it reads files.
        *Cancellation*: safe; the last borrower of a closed client closes its connections.
        """
        async with self._making:
            if self._shared is None:
                self._shared = _Shared(await anyio.to_thread.run_sync(make))
            shared = self._shared
        shared.borrowers += 1
        try:
            yield shared.client
        finally:
            shared.borrowers -= 1
            await shared.close_if_idle()

    async def aclose(self) -> None:
        """Close the client, or have its last borrower do it. Idempotent."""
        with anyio.CancelScope(shield=True):
            async with self._making:
                shared, self._shared = self._shared, None
        if shared is not None:
            shared.retired = True
            await shared.close_if_idle()


# ── Limits: requests at once, and per minute ────────────────────────────────────────────


class Limits:
    """The limits of one model instance: at once per event loop, per minute over all of them."""

    def __init__(
        self, *, requests_per_minute: float | None, tokens_per_minute: float | None, clock: Clock
    ) -> None:
        self._requests = Bucket(requests_per_minute, clock.monotonic)
        self._tokens = Bucket(tokens_per_minute, clock.monotonic)
        self._clock = clock

    @asynccontextmanager
    async def turn(self, lane: Lane, tokens: float) -> AsyncIterator[None]:
        """Wait for a turn of about *tokens*, and hold its slot. *Cancellation*: safe."""
        async with lane.slots:
            async with lane.head:
                await self._admitted(tokens)
            yield

    async def _admitted(self, tokens: float) -> None:
        while True:
            # Looked at again after each wait: another call may have settled meanwhile.
            wait = max(self._requests.wait_for(1), self._tokens.wait_for(tokens))
            if wait <= 1e-9:
                break
            await self._clock.sleep(wait)
        self._requests.take(1)
        self._tokens.take(tokens)

    def settle(self, estimated: float, actual: float) -> None:
        """Correct what a turn took for *estimated* tokens, now that *actual* are known."""
        self._tokens.take(actual - estimated)
