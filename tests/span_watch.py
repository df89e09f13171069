"""Spans kept in memory, by a provider that nobody else sees."""

import json
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mnemo.runtime.spans import Spans, find_spans


class Watch:
    """A provider, and what its tracers have finished so far."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.processor = SimpleSpanProcessor(self._exporter)
        self.provider.add_span_processor(self.processor)
        self.tracer = self.provider.get_tracer("the caller")

    def add(self, processor: SpanProcessor) -> None:
        """Tell *processor* too."""
        self.provider.add_span_processor(processor)

    def spans(self, *, content: bool = False) -> Spans:
        """Spans of this provider."""
        return find_spans(capture_content=content, provider=self.provider)

    @property
    def all(self) -> list[ReadableSpan]:
        """Every finished span of mnemo's."""
        finished = self._exporter.get_finished_spans()
        return [span for span in finished if span.instrumentation_scope.name == "mnemo"]

    def named(self, name: str) -> list[ReadableSpan]:
        """The finished spans of this name."""
        return [span for span in self.all if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        """The only finished span of this name."""
        (span,) = self.named(name)
        return span

    def asked(self, purpose: str) -> list[ReadableSpan]:
        """The finished model calls of *purpose*."""
        return [span for span in self.all if facts(span).get("mnemo.purpose") == purpose]

    def dump(self) -> str:
        """All that the spans would tell somebody, as one text."""
        return "\n".join(span.to_json() for span in self.all)

    def clear(self) -> None:
        """Forget what was finished."""
        self._exporter.clear()


def facts(span: ReadableSpan) -> dict[str, Any]:
    """A span's attributes."""
    return dict(span.attributes or {})


def content(span: ReadableSpan, name: str) -> Any:
    """An attribute that holds JSON."""
    return json.loads(facts(span)[name])


def parent_of(span: ReadableSpan) -> int | None:
    """The id of the span that *span* is a child of."""
    return span.parent.span_id if span.parent else None
