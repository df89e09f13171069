"""OpenTelemetry may be absent, broken, sampling, or set up late: the work goes on."""

import logging
import subprocess
import sys
from functools import partial
from typing import Any

import pytest
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, Sampler, SamplingResult
from span_watch import facts, parent_of

from mnemo.runtime.spans import NO_SPANS, find_spans, model_attributes


def run(program: str) -> str:
    """What *program* prints in an interpreter of its own, where warnings are errors."""
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


STORY = """
import asyncio, sys
from mnemo import Config, Mnemo
from mnemo.testing import HashingEmbedder

async def story(**config):
    config = Config(**config)
    async with Mnemo("memory:", config=config, embedder=HashingEmbedder()) as memory:
        later()
        repo = await memory.open_repo()
        session = await repo.start_session("g")
        await session.append("The parrot speaks Basque.", "Noted")
        await session.close_and_commit()
        return len((await repo.recall("parrot")).candidates)

def later():
    pass
"""


# ── Without ──────────────────────────────────────────────────────────────────────────


def test_without_the_package_there_are_no_spans(monkeypatch):
    """Where it is not installed nothing is made, and nothing is said about it."""
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert find_spans() is NO_SPANS


def test_switched_off_the_package_is_not_looked_for(monkeypatch):
    """Disabled is as cheap as absent."""
    monkeypatch.setitem(sys.modules, "opentelemetry", object())
    assert find_spans(enabled=False) is NO_SPANS


@pytest.mark.slow
@pytest.mark.long
def test_the_whole_story_works_without_the_package():
    """A session from start to recall, in an interpreter where the import fails."""
    program = "import sys; sys.modules['opentelemetry'] = None" + STORY
    assert int(run(program + "print(asyncio.run(story()))")) > 0


@pytest.mark.slow
@pytest.mark.long
def test_opentelemetry_is_imported_by_an_open_service_only():
    """Not by the library's import, and not where telemetry is off."""
    seen = "print('opentelemetry' in sys.modules)"
    program = f"""{STORY}
{seen}
asyncio.run(story(telemetry={{"enabled": False}}))
{seen}
asyncio.run(story())
{seen}
"""
    assert run(program).split() == ["False", "False", "True"]


def test_where_nobody_looks_one_object_stands_for_every_span():
    """No span is made, no content is asked for, no place is left."""
    span = NO_SPANS.span("append")
    assert NO_SPANS.span("chat", kind="client", attributes={"a": "b"}) is span
    assert not NO_SPANS.active
    with span as entered, NO_SPANS.at(NO_SPANS.here()):
        entered.set("a", 1)
        entered.set_content("b", lambda: pytest.fail("content was asked for"))
    span.end(ValueError("nobody hears of it"))


def test_an_error_passes_through_every_span(watch):
    """Nothing is swallowed, whether anybody looks or not."""
    for spans in (NO_SPANS, watch.spans()):
        with pytest.raises(KeyError), spans.span("append"):
            raise KeyError
        with pytest.raises(KeyError), spans.at(None):
            raise KeyError


# ── The global provider ──────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.long
def test_a_provider_that_is_set_after_opening_is_used():
    """The global provider, set up as applications do, here once the service is open."""
    program = f"""{STORY}
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
exporter = InMemorySpanExporter()

def later():
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)

asyncio.run(story())
print(*sorted({{span.name for span in exporter.get_finished_spans()}}))
"""
    names = "annotate append extract search_memory upsert_memory"
    assert run(program) == names


@pytest.mark.slow
def test_without_an_sdk_a_span_is_nothing():
    """The API alone records nothing, so nothing is kept for it either."""
    program = """
from mnemo.runtime.spans import NO_SPANS, find_spans
spans = find_spans()
print(spans.active, spans.span("append") is NO_SPANS.span("append"))
"""
    assert run(program) == "True True"


# ── Sampling ─────────────────────────────────────────────────────────────────────────


class Dropping(Sampler):
    """Drops everything, and notes what it could decide by."""

    def __init__(self) -> None:
        self.met: list[tuple[str, dict[str, Any]]] = []

    def should_sample(
        self,
        parent_context: Any,
        trace_id: int,
        name: str,
        kind: Any = None,
        attributes: Any = None,
        links: Any = None,
        trace_state: Any = None,
    ) -> SamplingResult:
        self.met.append((name, dict(attributes)))
        return ALWAYS_OFF.should_sample(parent_context, trace_id, name)

    def get_description(self) -> str:
        return "drops"


def test_what_is_inside_a_dropped_span_is_dropped(watch):
    """A span that was not sampled is a parent all the same: no half of a trace is left."""
    sampler = Dropping()
    provider = TracerProvider(sampler=ParentBased(sampler), shutdown_on_exit=False)
    provider.add_span_processor(watch.processor)
    spans = find_spans(capture_content=True, provider=provider)
    with spans.span("search_memory", attributes={"gen_ai.memory.store.id": "r"}) as outer:
        with spans.span("chat") as inner:
            inner.set("a", 1)
            inner.set_content("b", lambda: pytest.fail("content was asked for"))
        outer.set("c", 2)
    assert sampler.met == [("search_memory", {"gen_ai.memory.store.id": "r"})]
    assert watch.all == []


# ── Places ───────────────────────────────────────────────────────────────────────────


def test_a_span_is_the_parent_of_what_is_begun_inside_it_only(watch):
    """One that is not entered is nobody's parent; a place can be come back to, and left."""
    spans = watch.spans()
    loose = spans.span("loose")
    with spans.span("outer"):
        place = spans.here()
        spans.span("inside").end()
        with spans.at(None):
            spans.span("outside").end()
        spans.span("inside again").end()
    with spans.at(place):
        spans.span("back").end()
    spans.span("after").end()
    loose.end()
    outer = watch.one("outer").context.span_id
    parents = {span.name: parent_of(span) for span in watch.all}
    assert parents == {
        "inside": outer,
        "outside": None,
        "inside again": outer,
        "outer": None,
        "back": outer,
        "after": None,
        "loose": None,
    }


# ── Broken ───────────────────────────────────────────────────────────────────────────


class Broken(SpanProcessor):
    """A processor that raises wherever it is called."""

    def on_start(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("on_start")

    def on_end(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("on_end")


class Leaving(Broken):
    """One that lets spans begin."""

    def on_start(self, *_: Any, **__: Any) -> None:
        pass


@pytest.mark.parametrize("broken", [Broken, Leaving])
async def test_a_processor_that_raises_breaks_nothing(open_kit, watch, broken, caplog):
    """Appends, extraction, commit and recall are done, and the log says it once."""
    watch.add(broken())
    kit = await open_kit()
    session = await kit.started()
    for said in ("The parrot speaks Basque.", "The parrot is green."):
        await session.append(said, "Noted")
    receipt = await session.close_and_commit()
    assert receipt.status == "committed"
    assert (await kit.repo.recall("parrot")).candidates
    assert await kit.repo.delete_nodes([receipt.node_ids[0]]) == 1
    told = [record for record in caplog.records if record.name == "mnemo"]
    assert [record.levelno for record in told] == [logging.ERROR]
    assert "a span failed" in told[0].getMessage()


class NoTracer:
    """A provider that cannot give a tracer."""

    def get_tracer(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no tracer")


def test_a_provider_that_raises_is_done_without(caplog):
    """The service opens without spans and says why."""
    assert find_spans(provider=NoTracer()) is NO_SPANS
    assert "could not be set up" in caplog.text


class DeafSpan:
    """A span whose attributes cannot be set."""

    def set_attribute(self, *_: Any) -> None:
        raise RuntimeError("deaf")

    def is_recording(self) -> bool:
        return True

    def end(self) -> None:
        raise RuntimeError("endless")


class DeafTracer:
    """A tracer that gives such spans."""

    def get_tracer(self, *_: Any, **__: Any) -> Any:
        return self

    def start_span(self, *_: Any, **__: Any) -> Any:
        return DeafSpan()


def test_a_span_that_raises_is_passed_over(caplog):
    """Attributes, content and the end may all fail; the block's own error still passes."""
    span = find_spans(capture_content=True, provider=DeafTracer()).span("append")
    span.set("a", 1)
    span.set_content("b", partial(str, "c"))
    with pytest.raises(KeyError), span:
        raise KeyError
    assert len(caplog.records) == 1


def test_texts_that_cannot_be_sent_are_made_sendable(watch):
    """A lone surrogate, which no exporter can encode, is replaced."""
    with watch.spans(content=True).span("search_memory") as span:
        span.set_content("gen_ai.memory.query.text", lambda: "a\ud800b")
    said = facts(watch.one("search_memory"))["gen_ai.memory.query.text"]
    assert said == "a\ufffdb"


def test_a_model_is_described_by_what_it_says_of_itself():
    """Only texts and a host with its port are taken for what they are named."""

    class Model:
        provider = ""
        model = "m"
        server = ("h", "not a port")

    assert model_attributes("chat", Model()) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "Model",
        "gen_ai.request.model": "m",
    }
