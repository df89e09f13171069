"""Texts leave the service by spans only where somebody opted in to that."""

from typing import Any

import pytest
from helpers import Kit
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from span_watch import content, facts

from mnemo.config import Config
from mnemo.errors import CommitFailed, StoreError
from mnemo.protocols import ChatRequest
from mnemo.testing import ScriptedChatModel

SECRETS = ("Quetzal", "Ocarina", "Tamarind", "Bassoon")
"""Words of the goal, an observation, an action and a query that occur nowhere else."""

MEMORY = {
    "gen_ai.memory.store.id",
    "gen_ai.memory.record.id",
    "gen_ai.memory.record.count",
    "gen_ai.memory.query.text",
    "gen_ai.memory.records",
}
"""Attributes of the conventions' memory operations, which that package does not have yet."""


def echoing(request: ChatRequest) -> Any:
    """A reply that fits nothing and repeats what was asked."""
    return request.messages[-1].content


async def told(kit: Kit, **session: Any) -> None:
    """A story with every kind of span, good and bad."""
    started = await kit.started("Find the Quetzal", **session)
    await started.append("The Ocarina is blue.", "Bought a Tamarind")
    await started.close_and_commit()
    nodes = (await kit.repo.recall("Where is the blue Bassoon?", k=3)).candidates
    await kit.repo.delete_nodes([nodes[0].node.id])
    with pytest.raises(ValueError, match="mode"):
        await kit.repo.recall("Where is the blue Bassoon?", mode="Bassoon")


async def test_no_text_is_told_by_default(open_kit, watch):
    """Neither goal nor step nor query, in no attribute, event, status or name."""
    await told(await open_kit())
    names = {span.name for span in watch.all}
    assert names == {
        "append", "annotate", "extract", "upsert_memory", "search_memory", "delete_memory", "chat",
    }  # fmt: skip
    assert [secret for secret in SECRETS if secret in watch.dump()] == []


async def test_no_text_is_told_by_errors_either(open_kit, watch, failing_store):
    """Errors may quote what is stored or what a model said; their words stay here."""
    store = failing_store()
    kit = await open_kit(model=ScriptedChatModel({"annotate": echoing}), store=store)
    session = await kit.started("Find the Quetzal")
    await session.append("The Ocarina is blue.", "Bought a Tamarind")
    await kit.at_rest()
    store.fail("append", error=StoreError("no room for the Ocarina"))
    with pytest.raises(StoreError):
        await session.append("The Ocarina is red.", "Bought a Tamarind")
    assert {facts(span).get("error.type") for span in watch.all} >= {"InvalidReply", "StoreError"}
    assert [secret for secret in SECRETS if secret in watch.dump()] == []


async def test_every_attribute_is_the_conventions_or_mnemos(open_kit, watch):
    """What does not begin with ``mnemo.`` is a name of the conventions, spelt as they do."""
    config = Config(telemetry={"capture_content": True})
    await told(await open_kit(config=config))
    known = {value for value in vars(gen_ai_attributes).values() if isinstance(value, str)}
    used = {name for span in watch.all for name in facts(span)}
    assert used - known - {"error.type"} <= MEMORY | {n for n in used if n.startswith("mnemo.")}
    assert used > {"gen_ai.operation.name", "error.type", *MEMORY}


async def test_texts_are_told_where_that_was_opted_in_to(open_kit, watch):
    """The query, the records found and written, and the messages, as JSON."""
    await told(await open_kit(config=Config(telemetry={"capture_content": True})))
    search, refused = watch.named("search_memory")
    assert facts(search)["gen_ai.memory.query.text"] == "Where is the blue Bassoon?"
    records = content(search, "gen_ai.memory.records")
    assert len(records) == facts(search)["gen_ai.memory.record.count"]
    assert all(record.keys() == {"id", "content", "score"} for record in records)
    assert "must be one of" in (refused.status.description or "")
    written = content(watch.one("upsert_memory"), "gen_ai.memory.records")
    assert any("Ocarina" in record["content"] for record in written)
    assert "Quetzal" in facts(watch.asked("annotate")[0])["gen_ai.input.messages"]


async def test_a_repository_may_opt_in_alone(open_kit, watch):
    """The nearest setting counts: the other repositories of the service tell nothing."""
    kit = await open_kit(embedded=True)
    config = Config(telemetry={"capture_content": True})
    open_one = await kit.memory.open_repo("open", config=config)
    await open_one.recall("Where is the blue Bassoon?")
    await kit.repo.recall("Where is the Ocarina?")
    assert "Bassoon" in watch.dump()
    assert "Ocarina" not in watch.dump()


async def test_a_session_may_opt_out_alone(open_kit, watch):
    """Its calls, extraction and commit tell nothing where its repository's would."""
    kit = await open_kit(config=Config(telemetry={"capture_content": True}))
    session = await kit.started(
        "Find the Quetzal", config=Config(telemetry={"capture_content": False})
    )
    await session.append("The Ocarina is blue.", "Bought a Tamarind")
    await session.close_and_commit()
    assert watch.named("upsert_memory")
    assert watch.named("chat")
    assert [secret for secret in SECRETS if secret in watch.dump()] == []


@pytest.mark.parametrize("where", ["service", "repository", "session"])
async def test_disabled_spans_are_not_made(open_kit, watch, where):
    """``telemetry.enabled`` off at any level: nothing below it makes a span."""
    off = Config(telemetry={"enabled": False})
    kit = await open_kit(config=off if where == "service" else None)
    if where == "repository":
        kit.repo = await kit.memory.open_repo("quiet", config=off)
    session = await kit.begun("a", "b", config=off if where == "session" else None)
    await session.close_and_commit()
    assert watch.all == []


async def test_a_repository_may_be_watched_alone(open_kit, watch):
    """On in a repository of a service where spans are off."""
    kit = await open_kit(embedded=True, config=Config(telemetry={"enabled": False}))
    repo = await kit.memory.open_repo("watched", config=Config(telemetry={"enabled": True}))
    await kit.repo.recall("a")
    await repo.recall("a")
    assert facts(watch.one("search_memory"))["gen_ai.memory.store.id"] == "watched"


async def test_a_failed_commits_words_are_told_where_opted_in(open_kit, watch, failing_store):
    """The transaction that was rolled back is an upsert with an error, and with its message."""
    store = failing_store()
    config = Config(telemetry={"capture_content": True})
    session = await (await open_kit(store=store, config=config)).started()
    await session.append("a", "b")
    await session.close()
    await session.wait_for("ready")
    store.fail("apply")
    store.fail("first_answer")
    with pytest.raises(CommitFailed):
        await session.commit()
    assert facts(watch.one("upsert_memory"))["error.type"] == "CommitFailed"
    description = watch.one("upsert_memory").status.description
    assert description is not None
    assert "whether it was written is not known" in description
