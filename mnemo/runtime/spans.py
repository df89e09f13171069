"""
OpenTelemetry spans; the only door to that optional package.

Names follow its conventions for generative AI, others begin with ``mnemo.``. A span never changes
the work in it: a tracer that raises is logged once.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any, Literal, Self, TypeAlias

from mnemo.errors import ConfigError
from mnemo.runtime.text import clean

log: logging.Logger = logging.getLogger("mnemo")

Kind: TypeAlias = Literal["internal", "client"]
"""``client`` is work that another process usually does; the rest is done here."""
Value: TypeAlias = str | bool | int | float | Sequence[str]
"""What an attribute may be."""


class Span:
    """A span that records nothing; parent of its ``with`` block, else ended by ``end``."""

    __slots__ = ()

    def set(self, name: str, value: Value) -> None:
        """Say *value*, which is no text of anybody's."""

    def set_content(self, name: str, make: Callable[[], str]) -> None:
        """Say what somebody wrote; *make* is called only where that was opted in to."""

    def end(self, error: BaseException | None = None) -> None:
        """End it, with the error that the work ended with; called once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        pass


_NO_SPAN = Span()


class Spans:
    """Makes spans; this one makes none, and costs two calls of nothing."""

    __slots__ = ()

    active: bool = False
    """Whether any are made; where not, nobody need say what they would carry."""

    def span(
        self, name: str, *, kind: Kind = "internal", attributes: Mapping[str, Value] | None = None
    ) -> Span:
        """Begin a child of the present span; low-cardinality *name*, *attributes* for samplers."""
        return _NO_SPAN

    def here(self) -> object:
        """Give the present place among spans, for ``at``."""
        return None

    def at(self, place: object) -> AbstractContextManager[object]:
        """Be at *place*, of ``here``, while the block runs; ``None`` is under no span at all."""
        return _NO_SPAN

    def spawn_apart(
        self, spawn: Callable[..., object], work: Callable[..., object], *arguments: object
    ) -> None:
        """Start *work* with *spawn*, under no span: the caller's would end long before it."""
        with self.at(None):
            spawn(work, *arguments)


NO_SPANS = Spans()
"""Where nobody looks."""


class TracedSpans(Spans):
    """Makes spans with a tracer; *captures_content*: spans carry texts, errors their messages."""

    __slots__ = ("_kinds", "_tracer", "_warned", "captures_content", "context", "trace")

    active = True

    def __init__(self, tracer: Any, *, captures_content: bool) -> None:
        from opentelemetry import context, trace

        self.context: Any = context
        self.trace: Any = trace
        self.captures_content: bool = captures_content
        self._kinds = {"internal": trace.SpanKind.INTERNAL, "client": trace.SpanKind.CLIENT}
        self._tracer = tracer
        self._warned = False

    def span(
        self, name: str, *, kind: Kind = "internal", attributes: Mapping[str, Value] | None = None
    ) -> Span:
        try:
            span = self._tracer.start_span(name, kind=self._kinds[kind], attributes=attributes)
        except Exception:
            self.warn()
            return _NO_SPAN
        # Without an SDK, and under no span of anybody's, there is nothing to carry on.
        return _NO_SPAN if span is self.trace.INVALID_SPAN else _TracedSpan(self, span)

    def here(self) -> object:
        return self.context.get_current()

    @contextmanager
    def at(self, place: object) -> Iterator[None]:
        if place is None:
            place = self.trace.set_span_in_context(self.trace.INVALID_SPAN)
        token = self.context.attach(place)
        try:
            yield
        finally:
            self.context.detach(token)

    def warn(self) -> None:
        """Log the exception at hand, the first time."""
        if not self._warned:
            self._warned = True
            log.exception("a span failed; the work goes on, and this is not told again")


class _TracedSpan(Span):
    __slots__ = ("_span", "_spans", "_token")

    def __init__(self, spans: TracedSpans, span: Any) -> None:
        self._spans = spans
        self._span = span

    def __enter__(self) -> Self:
        spans = self._spans
        self._token = spans.context.attach(spans.trace.set_span_in_context(self._span))
        return self

    def set(self, name: str, value: Value) -> None:
        try:
            self._span.set_attribute(name, value)
        except Exception:
            self._spans.warn()

    def set_content(self, name: str, make: Callable[[], str]) -> None:
        if self._spans.captures_content and self._span.is_recording():
            self.set(name, clean(make()))

    def end(self, error: BaseException | None = None) -> None:
        try:
            if error is not None:
                self._note(error)
            self._span.end()
        except Exception:
            self._spans.warn()

    def _note(self, error: BaseException) -> None:
        if not isinstance(error, Exception):
            self._span.set_attribute("mnemo.cancelled", True)
            return
        # What an error says may quote what is stored.
        said = clean(str(error)) if self._spans.captures_content else None
        status = self._spans.trace.Status(self._spans.trace.StatusCode.ERROR, said)
        self._span.set_status(status)
        self._span.set_attribute("error.type", type(error).__name__)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._spans.context.detach(self._token)
        self.end(error)


def find_spans(
    *, enabled: bool = True, capture_content: bool = False, provider: Any = None
) -> Spans:
    """
    Give the spans of OpenTelemetry; ``NO_SPANS`` where it is not installed or not wanted.

    Imports it, which reads a few files. Without an SDK, or before one is set up, its spans are not
    recorded.

    *capture_content*: Whether spans carry texts: queries, messages, memories, errors. *provider*: A
    ``TracerProvider``; ``None`` is the global one, whenever it is set.
    """
    if not enabled:
        return NO_SPANS
    try:
        from opentelemetry import trace
    except ImportError:
        return NO_SPANS
    try:
        tracer = trace.get_tracer("mnemo", _version(), tracer_provider=provider)
    except Exception:
        log.exception("OpenTelemetry could not be set up; the work goes on without spans")
        return NO_SPANS
    return TracedSpans(tracer, captures_content=capture_content)


def export_spans() -> None:
    """
    Have spans exported as the variables of OpenTelemetry say, ``OTEL_TRACES_EXPORTER`` and others;
    nothing is done where they name no exporter, or a provider is set already.

    *Raises* ``ConfigError``: its SDK or the exporter is not installed.
    """
    to = any(os.environ.get(f"OTEL_EXPORTER_OTLP_{one}ENDPOINT") for one in ("", "TRACES_"))
    names = os.environ.get("OTEL_TRACES_EXPORTER") or ("otlp" if to else "none")
    wanted = [one for one in map(str.strip, names.split(",")) if one not in ("", "none")]
    if not wanted or os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return
    from importlib.metadata import entry_points

    try:
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigError("OTEL_TRACES_EXPORTER needs the package opentelemetry-sdk") from error
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return
    is_grpc = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") == "grpc"
    known = {"otlp": "otlp_proto_grpc" if is_grpc else "otlp_proto_http"}
    provider = TracerProvider()
    for one in wanted:
        name = known.get(one, one)
        found = [*entry_points(group="opentelemetry_traces_exporter", name=name)]
        if not found:
            package = f"opentelemetry-exporter-{name.replace('_', '-')}"
            raise ConfigError(f"OTEL_TRACES_EXPORTER={one} needs an exporter, such as {package}")
        provider.add_span_processor(BatchSpanProcessor(found[0].load()()))
    trace.set_tracer_provider(provider)


@cache
def _version() -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("mnemo-sessions")
    except PackageNotFoundError:
        return None


def model_attributes(operation: str, model: object) -> dict[str, Value]:
    """Attributes of a call of *model*: ``provider`` (or class), ``model`` and ``server``."""
    attributes: dict[str, Value] = {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": _text(model, "provider") or type(model).__name__,
    }
    if name := _text(model, "model"):
        attributes["gen_ai.request.model"] = name
    match getattr(model, "server", None):
        case (str(address), int(port)):
            attributes |= {"server.address": address, "server.port": port}
    return attributes


def memory_attributes(operation: str, repo_id: str) -> dict[str, Value]:
    """Say what is done to which memory, of any operation on a repository."""
    return {"gen_ai.operation.name": operation, "gen_ai.memory.store.id": repo_id}


def _text(model: object, name: str) -> str | None:
    """An attribute of a foreign object, if it is what we take it for."""
    value = getattr(model, name, None)
    return value if isinstance(value, str) else None
