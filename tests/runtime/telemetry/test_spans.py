"""What a service tells of its work by spans, and whose child each of them is."""

import anyio
import anyio.lowlevel
import pytest
from helpers import BUILD, TRIP, Moody, annotating
from opentelemetry.trace import SpanKind, StatusCode
from span_watch import facts, parent_of

from mnemo.config import Config
from mnemo.errors import (
    ExtractionFailed,
    ModelTimeout,
    RateLimited,
    SessionError,
    StoreError,
)
from mnemo.testing import ScriptedChatModel
from mnemo.values.changeset import Changeset
from mnemo.values.graph import Semantic


class Outside(Moody):
    """An embedder that says whom it asks."""

    provider = "openai"
    model = "embed-1"
    server = ("127.0.0.1", 8000)


# ── append ───────────────────────────────────────────────────────────────────────────


async def test_an_append_is_a_span_in_its_callers_trace(open_kit, watch):
    """It says which session, repository and step, and is the child of the caller's span."""
    session = await (await open_kit()).started()
    with watch.tracer.start_as_current_span("request") as request:
        await session.append("a", "b")
        await session.append("c", "d")
    first, second = watch.named("append")
    assert facts(first) == {
        "mnemo.repo.id": "r",
        "mnemo.session.id": session.id,
        "mnemo.step.index": 0,
    }
    assert facts(second)["mnemo.step.index"] == 1
    assert first.kind is SpanKind.INTERNAL
    assert first.status.status_code is StatusCode.UNSET
    assert parent_of(first) == parent_of(second) == request.get_span_context().span_id
    assert first.instrumentation_scope is not None
    assert first.instrumentation_scope.version


async def test_a_refused_append_says_which_error(open_kit, watch):
    """The span's status is ERROR and error.type the class's name, without the message."""
    session = await (await open_kit()).started()
    await session.append("a", "b")
    await session.close_and_commit()
    watch.clear()
    with pytest.raises(SessionError):
        await session.append("c", "d")
    span = watch.one("append")
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description is None
    assert facts(span)["error.type"] == "InvalidOperation"
    assert not span.events


async def test_a_cancelled_append_ends_its_span(open_kit, watch):
    """One that waits for room and is cancelled is neither good nor bad, and says so."""
    kit = await open_kit(config=Config(session={"max_append_backlog": 1}))
    kit.model.block("annotate")
    session = await kit.begun("a", "b")
    with anyio.move_on_after(0.01) as scope:
        await session.append("c", "d")
    assert scope.cancelled_caught
    _, cancelled = watch.named("append")
    assert cancelled.status.status_code is StatusCode.UNSET
    assert facts(cancelled)["mnemo.cancelled"] is True
    assert "error.type" not in facts(cancelled)


async def test_a_queued_append_is_in_the_trace_of_whoever_queued_it(open_kit, watch):
    """Whether it goes straight to the store or waits its turn in the session's task."""
    kit = await open_kit()
    with watch.tracer.start_as_current_span("start"):
        session = await kit.started()
    with watch.tracer.start_as_current_span("request") as request:
        straight = session.append_async("a", "b")
        session.close_async()
        session.commit_async()
        session.start_episode_async("another goal")
        waited = session.append_async("c", "d")
    assert [await straight, await waited] == ["appended", "appended"]
    here = request.get_span_context().span_id
    assert [parent_of(span) for span in watch.named("append")] == [here, here]
    assert [facts(span)["mnemo.step.index"] for span in watch.named("append")] == [0, 0]
    assert parent_of(watch.one("upsert_memory")) == here
    assert parent_of(watch.one("extract")) == here


async def test_a_queued_append_that_fails_says_so(open_kit, watch, failing_store):
    """What the store refuses ends the span with the store's error."""
    store = failing_store()
    session = await (await open_kit(store=store)).started()
    store.fail("append")
    with pytest.raises(StoreError):
        await session.append_async("a", "b")
    span = watch.one("append")
    assert span.status.status_code is StatusCode.ERROR
    assert facts(span)["error.type"] == "StoreError"


# ── annotate and extract ─────────────────────────────────────────────────────────────


async def test_an_annotated_batch_is_a_trace_of_its_own(open_kit, watch):
    """It is nobody's child, says which steps it is about, and the model call is its child."""
    kit = await open_kit()
    with watch.tracer.start_as_current_span("request"):
        session = await kit.begun("a", "b")
        await kit.at_rest()
    span = watch.one("annotate")
    assert facts(span) == {
        "mnemo.repo.id": "r",
        "mnemo.session.id": session.id,
        "mnemo.step.index": 0,
        "mnemo.step.count": 1,
    }
    assert parent_of(span) is None
    assert parent_of(watch.one("chat")) == span.context.span_id


async def test_the_last_reward_is_asked_for_outside_of_the_closers_trace(open_kit, watch):
    """Annotation is nobody's child also where a close waits for it; no step is named then."""
    kit = await open_kit()
    session = await kit.begun("a", "b")
    await kit.at_rest()
    watch.clear()
    with watch.tracer.start_as_current_span("request"):
        await session.close_and_commit()
    span = watch.one("annotate")
    assert parent_of(span) is None
    assert facts(span)["mnemo.step.count"] == 0
    assert "mnemo.step.index" not in facts(span)


async def test_a_failed_annotation_says_so(open_kit, watch):
    """The model's error is that of the call and of the batch."""
    kit = await open_kit(model=ScriptedChatModel({"annotate": RateLimited("slow down")}))
    await kit.begun("a", "b")
    await kit.at_rest()
    for name in ("annotate", "chat"):
        assert facts(watch.named(name)[0])["error.type"] == "RateLimited"


async def test_each_trajectory_is_extracted_under_its_own_span(open_kit, watch):
    """The extraction's spans are the closer's children, the model calls those of theirs."""
    model = ScriptedChatModel.answering({"annotate": annotating([TRIP, TRIP, BUILD])})
    session = await (await open_kit(model=model)).started()
    for said in "abc":
        await session.append(said, said)
    with watch.tracer.start_as_current_span("request") as request:
        await session.close_and_commit()
    spans = watch.named("extract")
    assert [parent_of(span) for span in spans] == [request.get_span_context().span_id] * 2
    assert sorted(facts(span)["mnemo.step.count"] for span in spans) == [1, 2]
    assert len({facts(span)["mnemo.trajectory.id"] for span in spans}) == 2
    assert all(facts(span)["gen_ai.memory.record.count"] > 0 for span in spans)
    for purpose in ("semantic", "procedural"):
        parents = {parent_of(span) for span in watch.asked(purpose)}
        assert parents == {span.context.span_id for span in spans}


async def test_a_failed_extraction_says_which_error(open_kit, watch):
    """The span ends with the model's error; the trace of a retry is its caller's."""
    model = ScriptedChatModel.answering({"semantic": ModelTimeout("no answer")})
    session = await (await open_kit(model=model)).started()
    await session.append("a", "b")
    with pytest.raises(ExtractionFailed):
        await session.close_and_commit(max_retries=1)
    first, second = watch.named("extract")
    assert facts(first)["error.type"] == facts(second)["error.type"] == "ModelTimeout"


async def test_what_auto_commit_does_is_in_nobodys_trace(open_kit, watch):
    """Appends of one request do not get the extraction and commit of a later moment."""
    model = ScriptedChatModel.answering({"annotate": annotating([TRIP, BUILD])})
    kit = await open_kit(model=model, config=Config(session={"auto_commit": True}))
    with watch.tracer.start_as_current_span("request"):
        session = await kit.begun("a", "b")
        await session.append("c", "d")
        await kit.at_rest()
    assert parent_of(watch.one("extract")) is None
    assert parent_of(watch.one("upsert_memory")) is None
    await kit.pass_time(120)
    assert [parent_of(span) for span in watch.named("extract")] == [None, None]


# ── memory operations ────────────────────────────────────────────────────────────────


async def test_a_commit_upserts_memory(open_kit, watch):
    """It has the conventions' name and attributes, and is its caller's child."""
    session = await (await open_kit()).started()
    await session.append("a", "b")
    with watch.tracer.start_as_current_span("request") as request:
        receipt = await session.close_and_commit()
    span = watch.one("upsert_memory")
    assert facts(span) == {
        "gen_ai.operation.name": "upsert_memory",
        "gen_ai.memory.store.id": "r",
        "gen_ai.memory.record.count": len(receipt.node_ids),
        "mnemo.session.id": session.id,
        "mnemo.changeset.id": receipt.changeset_id,
        "mnemo.revision": receipt.revision,
    }
    assert span.kind is SpanKind.INTERNAL
    assert parent_of(span) == request.get_span_context().span_id


async def test_an_applied_changeset_upserts_memory_too(open_kit, watch):
    """Without a session; a changeset that is refused says so."""
    kit = await open_kit()
    await kit.repo.apply(Changeset(nodes=(Semantic("water is wet"),), id="mine"))
    assert facts(watch.one("upsert_memory"))["mnemo.changeset.id"] == "mine"
    assert "mnemo.session.id" not in facts(watch.one("upsert_memory"))


async def test_a_recall_searches_memory(open_kit, watch):
    """It counts what it found and is the parent of the questions that a model was asked."""
    kit = await open_kit()
    await kit.begun("The parrot speaks Basque.", "Noted")
    with watch.tracer.start_as_current_span("request") as request:
        found = await kit.repo.recall("What does the parrot speak?", mode="semantic", reason=False)
    span = watch.one("search_memory")
    said = facts(span)
    assert said["gen_ai.operation.name"] == "search_memory"
    assert said["gen_ai.memory.store.id"] == "r"
    assert said["gen_ai.memory.record.count"] == len(found.candidates) > 0
    assert said["mnemo.recall.mode"] == "semantic"
    assert parent_of(span) == request.get_span_context().span_id
    asked = [span for span in watch.named("chat") if facts(span)["mnemo.purpose"] != "annotate"]
    assert asked
    assert {parent_of(call) for call in asked} == {span.context.span_id}


async def test_a_recall_in_the_context_of_a_session_is_one_span(open_kit, watch):
    """``recall_in_context`` searches memory once, too."""
    kit = await open_kit(embedded=True)
    session = await kit.begun("The parrot speaks Basque.", "Noted")
    await kit.repo.recall_in_context(session, "parrot")
    assert facts(watch.one("search_memory"))["gen_ai.memory.store.id"] == "r"


async def test_a_recall_says_what_it_did_without(open_kit, watch):
    """A recall that goes on without vectors is no error, but says what failed."""
    kit = await open_kit(embedded=True)
    outside = Outside()
    repo = await kit.memory.open_repo("outside", embedder=outside)
    session = await repo.start_session("g")
    await session.append("The parrot speaks Basque.", "Noted")
    outside.error = ModelTimeout("no vectors in time")
    await repo.recall("parrot")
    assert facts(watch.one("search_memory"))["mnemo.recall.degraded"] == ("embedder: ModelTimeout",)
    assert watch.one("search_memory").status.status_code is StatusCode.UNSET


async def test_a_refused_recall_is_an_error(open_kit, watch):
    """A blank query is the caller's mistake, and the span says which."""
    kit = await open_kit(embedded=True)
    with pytest.raises(ValueError, match="blank"):
        await kit.repo.recall(" ")
    assert facts(watch.one("search_memory"))["error.type"] == "ValueError"


async def test_deleted_nodes_are_deleted_memory(open_kit, watch):
    """It counts the nodes that existed, and names the one if it was one."""
    kit = await open_kit(embedded=True)
    nodes = tuple(Semantic(f"fact {i} is {i}") for i in range(3))
    await kit.repo.apply(Changeset(nodes=nodes))
    await kit.repo.delete_nodes([nodes[0].id])
    await kit.repo.delete_nodes([nodes[1].id, nodes[2].id, "no such node"])
    one, several = map(facts, watch.named("delete_memory"))
    assert one == {
        "gen_ai.operation.name": "delete_memory",
        "gen_ai.memory.store.id": "r",
        "gen_ai.memory.record.id": nodes[0].id,
        "gen_ai.memory.record.count": 1,
    }
    assert several["gen_ai.memory.record.count"] == 2
    assert "gen_ai.memory.record.id" not in several


async def test_forgetting_deletes_memory(open_kit, watch):
    """It counts steps and nodes, names the session, and is its caller's child."""
    kit = await open_kit()
    session = await kit.begun("The parrot speaks Basque.", "Noted")
    await session.close_and_commit()
    with watch.tracer.start_as_current_span("request") as request:
        report = await kit.repo.forget(session_id=session.id)
    span = watch.one("delete_memory")
    assert facts(span) == {
        "gen_ai.operation.name": "delete_memory",
        "gen_ai.memory.store.id": "r",
        "gen_ai.memory.record.count": report.nodes,
        "mnemo.session.id": session.id,
        "mnemo.step.count": 1,
    }
    assert report.nodes > 0
    assert parent_of(span) == request.get_span_context().span_id


async def test_a_failed_deletion_says_which_error(open_kit, watch, failing_store):
    """Nothing was deleted, and the span does not count anything."""
    store = failing_store()
    kit = await open_kit(store=store)
    store.fail("delete")
    with pytest.raises(StoreError):
        await kit.repo.delete_nodes(["a", "b"])
    said = facts(watch.one("delete_memory"))
    assert said["error.type"] == "StoreError"
    assert "gen_ai.memory.record.count" not in said


# ── embeddings ───────────────────────────────────────────────────────────────────────


async def test_an_embedder_that_asks_somebody_has_spans(open_kit, watch):
    """Whom it asks, for how many texts; a commit's vectors are asked for under the commit."""
    kit = await open_kit(embedded=True)
    repo = await kit.memory.open_repo("outside", embedder=Outside())
    await repo.apply(Changeset(nodes=(Semantic("water is wet"), Semantic("fire is hot"))))
    commit = watch.one("upsert_memory")
    (span,) = (s for s in watch.named("embeddings embed-1") if s.parent)
    assert facts(span) == {
        "gen_ai.operation.name": "embeddings",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "embed-1",
        "gen_ai.embeddings.dimension.count": Outside().space.dimensions,
        "server.address": "127.0.0.1",
        "server.port": 8000,
        "mnemo.embeddings.texts": 2,
        "mnemo.embeddings.kind": "document",
    }
    assert span.kind is SpanKind.CLIENT
    assert parent_of(span) == commit.context.span_id


async def test_a_sessions_own_embedder_has_spans(open_kit, watch):
    """One given to a session is seen as one given to the repository, errors included."""
    kit = await open_kit()
    outside = Outside()
    outside.error = ModelTimeout("no vectors in time")
    await kit.begun("a", "b", embedder=outside)
    await kit.at_rest()
    assert facts(watch.named("embeddings embed-1")[0])["error.type"] == "ModelTimeout"


async def test_an_embedder_in_this_process_has_none(open_kit, watch):
    """Computing vectors costs no span."""
    kit = await open_kit(embedded=True)
    await kit.repo.apply(Changeset(nodes=(Semantic("water is wet"),)))
    await kit.repo.recall("water")
    assert {span.name for span in watch.all} == {"upsert_memory", "search_memory"}


# ── jobs ─────────────────────────────────────────────────────────────────────────────


async def test_a_job_is_a_span_for_each_try(open_kit, watch):
    """It says what was tried, how often and how long it waited; a failed try its error."""
    model = ScriptedChatModel.answering({"semantic": [ModelTimeout("late"), '{"facts": []}']})
    config = Config(jobs={"quiet_s": 3, "poll_s": 60, "max_tries": 2})
    kit = await open_kit(model=model, config=config)
    await kit.repo.remember("Ada rows.", thread_id="t")
    await kit.repo.retry_jobs(["t"])
    with watch.tracer.start_as_current_span("request"):
        while not watch.named("job extract"):
            await anyio.lowlevel.checkpoint()
    assert len(await kit.repo.retry_jobs(["t"])) == 1
    await kit.repo.settle()
    failed, done = watch.named("job extract")
    assert failed.status.status_code is StatusCode.ERROR
    assert facts(failed)["error.type"] == "ExtractionFailed"
    assert facts(done) == {
        "mnemo.repo.id": "r",
        "mnemo.job.subject": "t",
        "mnemo.job.tries": 1,
        "mnemo.job.waited_s": 0.0,
        "mnemo.job.finished": True,
    }
    assert parent_of(done) is None


# ── Words, messages and notes ────────────────────────────────────────────────────────


async def test_a_search_a_message_and_a_note_have_the_names_of_the_convention(open_kit, watch):
    """With how many records it was about; texts only where that was opted in to."""
    kit = await open_kit()
    with watch.tracer.start_as_current_span("request") as request:
        await kit.repo.conversation("t").append({"role": "user", "content": "Ada sails."})
        await kit.repo.search("sails")
        await kit.repo.notes.write("boats", "Ada sails.", "About boats.")
        await kit.repo.notes.delete("boats")
    names = ("create_memory", "search_memory", "upsert_memory", "delete_memory")
    for name in names:
        span = watch.one(name)
        told = facts(span)
        assert parent_of(span) == request.get_span_context().span_id
        assert told["gen_ai.operation.name"] == name
        assert told["gen_ai.memory.store.id"] == "r"
        assert "sails" not in str(told)
    assert facts(watch.one("search_memory"))["gen_ai.memory.record.count"] == 1
    assert facts(watch.one("create_memory"))["mnemo.thread.id"] == "t"
    assert facts(watch.one("delete_memory"))["mnemo.note.topic"] == "boats"
