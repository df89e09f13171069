"""``repo.forget``: what goes, what stays changed, and who is told."""

from datetime import UTC, datetime, timedelta, timezone

import anyio
import pytest
from helpers import Kit, OpenKit

from mnemo import (
    Changeset,
    Conflict,
    Edge,
    Episodic,
    ErasureReport,
    NotFound,
    Procedural,
    Semantic,
    Session,
    SessionClosed,
    Source,
    StoreError,
    Tag,
)
from mnemo.events import NodesDeleted, WriteFailed

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
async def kit(open_kit: OpenKit, tmp_path) -> Kit:
    """A service without a model."""
    return await open_kit(store=tmp_path / "m.db", embedded=True)


async def told(kit: Kit, name: str, *said: str, at: datetime = NOON, actor: str = "Ana") -> Session:
    """A committed session of that id; a step per text, a minute apart."""
    session = await kit.repo.start_session(f"goal of {name}", session_id=name)
    for number, text in enumerate(said):
        await session.append(text, "", at=at + timedelta(minutes=number), actor=actor)
    await session.close_and_commit()
    return session


async def facts(kit: Kit) -> dict[str, Semantic]:
    """The stored facts by text."""
    return {n.text: n for n in await kit.repo.get_nodes(["semantic"]) if isinstance(n, Semantic)}


async def steps_of(kit: Kit, fact: Semantic) -> set[str | None]:
    """The sessions that a fact rests on."""
    linked = await kit.repo.get_linked_nodes([fact.id], edge_type="provenance")
    return {node.session_id for node in linked if isinstance(node, Episodic)}


# ── What is asked for ────────────────────────────────────────────────────────────────


async def test_nothing_named_is_refused(kit):
    """What to forget must be said, as text or as a time."""
    with pytest.raises(ValueError, match="say what to forget"):
        await kit.repo.forget()
    with pytest.raises(ValueError, match="before"):
        await kit.repo.forget(before="yesterday")  # type: ignore[arg-type]


async def test_forgetting_twice_reports_zeros(kit):
    """The second report is all zeros, without a new revision or event."""
    await told(kit, "s", "I live in Porto.")
    first = await kit.repo.forget(session_id="s")
    assert (first.steps, first.sessions, first.fulltext_rows) == (1, 1, 1)
    assert first.nodes >= 3
    assert first.edges >= 2
    revision = (await kit.repo.statistics()).revision
    assert await kit.repo.forget(session_id="s") == ErasureReport()
    assert (await kit.repo.statistics()).revision == revision
    assert len(kit.seen.of(NodesDeleted)) == 1


async def test_before_is_exclusive_and_counts_in_instants(kit):
    """A step at the very moment stays; a time without zone is UTC; zones are compared as time."""
    east = timezone(timedelta(hours=9))
    session = await kit.repo.start_session("g", session_id="s")
    await session.append("early", "", at=NOON.astimezone(east))
    await session.append("exact", "", at=NOON + timedelta(microseconds=1))
    await session.close_and_commit()
    end = NOON.replace(tzinfo=None) + timedelta(microseconds=1)
    assert (await kit.repo.forget(before=end)).steps == 1
    assert not await kit.repo.search("early")
    assert await kit.repo.search("exact")


# ── What goes ────────────────────────────────────────────────────────────────────────


async def test_nothing_of_a_forgotten_session_is_found(kit):
    """No text of it from search, recall or the graph, and no routing node without members."""
    await told(kit, "t", "Violins are made of wood.")
    before = {node.id for node in await kit.repo.get_nodes(ALL)}
    await told(kit, "s", "My sister Mara lives in Osaka.", "I play the cello.")
    await kit.repo.forget(session_id="s")
    assert {node.id for node in await kit.repo.get_nodes(ALL)} == before
    assert await kit.repo.search("cello OR Osaka") == []
    found = await kit.repo.recall("Where does Mara live, and who plays the cello?")
    assert {source.session_id for source in found.sources} <= {"t"}
    assert [record.id for record in await kit.repo.sessions()] == ["t"]
    with pytest.raises(NotFound):
        await kit.repo.resume_session("s")


ALL = ("episodic", "semantic", "procedural", "subgoal", "intent", "tag", "source")


async def test_the_deletion_is_told_with_its_ids(kit):
    """``NodesDeleted`` names every node that went."""
    session = await told(kit, "s", "I live in Porto.")
    ids = {node.id for node in await kit.repo.get_nodes(ALL)}
    report = await kit.repo.forget(session_id=session.id)
    (event,) = kit.seen.of(NodesDeleted)
    assert set(event.node_ids) == ids
    assert report.nodes == len(ids)


async def test_an_open_session_is_ended_and_its_work_goes(kit):
    """Its calls raise ``SessionClosed``, its steps and staged changeset are gone."""
    session = await kit.repo.start_session("g", session_id="s")
    await session.append("I play the cello.", "")
    await session.close()
    await session.wait_for("ready")
    report = await kit.repo.forget(session_id="s")
    assert (report.steps, report.sessions, report.nodes) == (1, 1, 0)
    with pytest.raises(SessionClosed):
        await session.commit()
    assert await kit.repo.unfinished_sessions() == []
    assert (await kit.repo.statistics()).steps == 0


async def test_a_session_without_steps_goes_with_its_goal(kit):
    """The goal is all it has, and was said all the same."""
    await kit.repo.start_session("buy a cello", session_id="s")
    assert (await kit.repo.forget(session_id="s")).sessions == 1
    assert await kit.repo.sessions() == []


async def test_a_late_changeset_is_refused(kit):
    """What was extracted before, applied by whomever, does not bring the erased back."""
    session = await told(kit, "s", "I live in Porto.")
    (step,) = await kit.repo.get_nodes(["episodic"])
    assert isinstance(step, Episodic)
    await kit.repo.forget(session_id=session.id)
    fact = Semantic("Ana lives in Porto")
    late = Changeset(nodes=(step, fact), edges=(Edge(fact.id, step.id, "provenance"),), id="late")
    with pytest.raises(Conflict):
        await kit.repo.apply(late)
    with pytest.raises(Conflict):
        await kit.repo.apply(Changeset(nodes=(Source("I live in Porto.", session_id="s"),)))
    assert await kit.repo.get_nodes(ALL) == []


# ── What stays, changed ──────────────────────────────────────────────────────────────


async def test_a_fact_of_two_sessions_stays_with_one(kit):
    """Provenance to the remaining session only, support 1."""
    await told(kit, "s", "I live in Porto.")
    await told(kit, "t", "I live in Porto.", at=NOON + timedelta(days=1))
    (fact,) = (await facts(kit)).values()
    assert (await kit.repo.get_metadata([fact.id]))[fact.id].support_count == 2
    report = await kit.repo.forget(session_id="s")
    assert report.facts_changed == 1
    (left,) = (await facts(kit)).values()
    assert (left.id, left.text) == (fact.id, fact.text)
    assert left.valid_from == NOON + timedelta(days=1)
    assert await steps_of(kit, left) == {"t"}
    assert (await kit.repo.get_metadata([left.id]))[left.id].support_count == 1


async def test_a_wording_that_only_the_erased_had_goes(kit):
    """A shared fact whose words are known from the erased step alone is erased as well."""
    await told(kit, "s", "I live in Porto by the harbour.")
    await told(kit, "t", "I live by the water.")
    steps = [n for n in await kit.repo.get_nodes(["episodic"]) if isinstance(n, Episodic)]
    mixed, plain = Semantic("Ana lives by the harbour"), Semantic("Ana lives somewhere")
    edges = [Edge(f.id, s.id, "provenance") for f in (mixed, plain) for s in steps]
    await kit.repo.apply(Changeset(nodes=(mixed, plain), edges=edges))
    await kit.repo.forget(session_id="s")
    assert await kit.repo.get_node(mixed.id) is None
    kept = await kit.repo.get_node(plain.id)
    assert kept is not None
    assert kept.text == "Ana lives somewhere"


async def test_what_an_erased_fact_had_replaced_holds_again(kit):
    """The fact said before is no longer superseded."""
    await told(kit, "s", "I live in Porto.")
    await told(kit, "t", "I live in Lisbon now.", at=NOON + timedelta(days=30))
    (old,) = [fact for fact in (await facts(kit)).values() if "Porto" in fact.text]
    assert old.superseded_by is not None
    report = await kit.repo.forget(session_id="t")
    assert report.facts_restored == 1
    (left,) = (await facts(kit)).values()
    assert (left.id, left.superseded_by, left.valid_to) == (old.id, None, None)


async def test_the_middle_of_a_chain_is_bridged(kit):
    """A fact stays superseded by what had replaced its erased replacement."""
    await told(kit, "s", "I live in Porto.")
    await told(kit, "t", "I live in Lisbon now.", at=NOON + timedelta(days=30))
    await told(kit, "u", "I live in Faro now.", at=NOON + timedelta(days=60))
    report = await kit.repo.forget(session_id="t")
    assert report.facts_restored == 0
    known = await facts(kit)
    (first,) = [fact for text, fact in known.items() if "Porto" in text]
    (last,) = [fact for text, fact in known.items() if "Faro" in text]
    assert first.superseded_by == last.id
    assert first.valid_to is not None
    assert last.superseded_by is None


async def test_nodes_applied_by_hand_stay(kit):
    """Only provenance to erased steps alone takes them along."""
    await told(kit, "s", "I live in Porto.")
    (step,) = await kit.repo.get_nodes(["episodic"])
    free, bound = Semantic("Water is wet"), Procedural("Ask for the address", condition="lost")
    tag = Tag("water")
    edges = (Edge(bound.id, step.id, "provenance"), Edge(tag.id, free.id, "membership"))
    await kit.repo.apply(Changeset(nodes=(free, bound, tag), edges=edges))
    await kit.repo.forget(session_id="s")
    assert {node.id for node in await kit.repo.get_nodes(ALL)} == {free.id, tag.id}


async def test_a_tag_worded_by_a_step_applied_by_hand_goes_with_it(kit):
    """A step in no session says what it says: what it alone worded goes, the rest stays."""
    gone, left = Episodic("The passphrase is hunter2"), Episodic("The harbour is cold")
    known, plain = Semantic("The passphrase is hunter2"), Semantic("The harbour is cold")
    nodes = (gone, left, known, plain, Tag("hunter2"), Tag("harbour"))
    edges = [Edge(known.id, gone.id, "provenance"), Edge(plain.id, left.id, "provenance")]
    edges += [Edge(tag.id, f.id, "membership") for tag in nodes[-2:] for f in (known, plain)]
    await kit.repo.apply(Changeset(nodes=nodes, edges=edges))
    await kit.repo.forget(steps=[gone.id])
    assert {node.text for node in await kit.repo.get_nodes(["semantic", "tag"])} == {
        plain.text,
        "harbour",
    }


async def test_a_shortened_session_comes_to_rest(kit):
    """What is left of an unfinished episode stays in the record, leaves recall, is not resumed."""
    session = await kit.repo.start_session("g", session_id="s")
    await session.append("Bread rises slowly.", "", at=NOON)
    await session.append("Compilers are fast.", "", at=NOON + timedelta(hours=1))
    report = await kit.repo.forget(before=NOON + timedelta(minutes=1))
    assert (report.steps, report.sessions) == (1, 0)
    with pytest.raises(SessionClosed):
        await session.append("more", "")
    (record,) = await kit.repo.sessions()
    assert (record.id, record.state) == ("s", "idle")
    assert await kit.repo.search("compilers")
    assert (await kit.repo.recall("Are compilers fast?")).candidates == []
    again = await kit.repo.resume_session("s")
    await again.start_episode("more")
    await again.append("Violins are made of wood.", "")
    assert (await again.close_and_commit()).status == "committed"
    assert (await kit.memory.check()).problems == ()


async def test_an_untouched_episode_of_a_touched_session_is_resumed(kit):
    """Only work that holds erased steps is lost; the session goes on with the rest."""
    session = await told(kit, "s", "Bread rises slowly.")
    await session.start_episode("later")
    await session.append("Compilers are fast.", "", at=NOON + timedelta(days=1))
    assert (await kit.repo.forget(before=NOON + timedelta(hours=1))).steps == 1
    again = await kit.repo.resume_session("s")
    assert again.state == "collecting"
    assert [step.observation for step in again.recent_steps(5)] == ["Compilers are fast."]
    assert (await again.close_and_commit()).status == "committed"
    assert (await kit.memory.check()).problems == ()


async def test_other_sessions_go_on_meanwhile(kit):
    """A session that loses nothing notices nothing."""
    await told(kit, "s", "I live in Porto.")
    other = await kit.repo.start_session("g", session_id="t")
    await other.append("I play the cello.", "", at=NOON + timedelta(days=1))
    await kit.repo.forget(session_id="s")
    await other.append("Every day.", "")
    assert (await other.close_and_commit()).status == "committed"


# ── Trouble ──────────────────────────────────────────────────────────────────────────


async def test_a_failed_erasure_is_told_and_leaves_all(kit, monkeypatch):
    """The caller gets the store's error, observers ``WriteFailed``."""
    await told(kit, "s", "I live in Porto.")

    async def failing(self: object, selection: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(type(kit.repo._parts.overhaul), "erase", failing)
        with pytest.raises(StoreError, match="disk is full"):
            await kit.repo.forget(session_id="s")
    (event,) = kit.seen.of(WriteFailed)
    assert (event.operation, event.error) == ("forget", "the disk is full")
    assert await kit.repo.search("Porto")
    assert (await kit.repo.forget(session_id="s")).steps == 1


async def test_what_fails_after_it_is_no_failure_of_it(kit, monkeypatch):
    """It is erased: the caller gets the counts, and the next call drops it from memory."""
    await told(kit, "s", "I live in Porto.")

    async def failing() -> None:
        raise StoreError("the disk is full")

    async def counted() -> None:
        calls.append(await drop())

    calls, drop = [], kit.repo._forgetting.drop
    monkeypatch.setattr(kit.repo._forgetting, "drop", failing)
    assert (await kit.repo.forget(session_id="s")).steps == 1
    assert kit.seen.of(WriteFailed) == []
    monkeypatch.setattr(kit.repo._forgetting, "drop", counted)
    for _ in range(2):
        assert (await kit.repo.forget(session_id="s")).is_empty
        assert len(calls) == 1
    assert await kit.repo.search("Porto") == []


async def test_a_scrub_that_fails_is_no_failure_of_it(kit, monkeypatch):
    """It is erased: the report says that the bytes are still there."""
    await told(kit, "s", "I live in Porto.")

    async def failing(self: object, *, at_once: bool) -> bool:
        raise StoreError("the server is gone")

    monkeypatch.setattr(type(kit.repo._parts.overhaul._engine), "scrub", failing)
    report = await kit.repo.forget(session_id="s")
    assert (report.steps, report.scrubbed) == (1, False)
    assert kit.seen.of(WriteFailed) == []


async def test_a_cancelled_caller_does_not_stop_it(kit):
    """Forgetting completes whatever becomes of whoever asked for it."""
    await told(kit, "s", "I live in Porto.")
    with anyio.move_on_after(0):
        await kit.repo.forget(session_id="s")
    await kit.until(lambda: bool(kit.seen.of(NodesDeleted)))
    assert await kit.repo.search("Porto") == []


async def test_a_session_of_another_service_loses_what_it_had(kit, open_kit, tmp_path):
    """Its later calls meet a ``Conflict``, and nothing comes back."""
    path = tmp_path / "shared.db"
    mine, theirs = (
        await open_kit(store=path, embedded=True),
        await open_kit(store=path, embedded=True),
    )
    ready = await theirs.repo.start_session("g", session_id="ready")
    await ready.append("I live in Porto.", "")
    await ready.close()
    await ready.wait_for("ready")
    open_there = await theirs.repo.start_session("g", session_id="open")
    await open_there.append("I live in Lisbon.", "")
    for id in ("ready", "open"):
        assert (await mine.repo.forget(session_id=id)).steps == 1
    with pytest.raises(Conflict):
        await ready.commit()
    with pytest.raises(Conflict):
        await open_there.append("I live in Faro.", "")
    assert (await theirs.repo.recall("Who lives where?")).candidates == []
    assert (await mine.repo.statistics()).steps == 0
    assert (await mine.memory.check()).problems == ()


@pytest.mark.parametrize("named", [1, 2, 3], ids=["reasoning", "call", "result"])
async def test_a_reasoning_item_goes_with_what_it_led_to(kit, named):
    """Whichever of the three is named; what was said before and behind stays."""
    chat = kit.repo.conversation("flora")
    stored = await chat.append(
        [
            {"role": "user", "content": "And Rome?"},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
            {"type": "function_call", "call_id": "c2", "name": "flora", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c2", "output": "Pines"},
            {"role": "user", "content": "And Bern?"},
        ]
    )
    await kit.repo.forget(message_ids=[stored[named].id], thread_id="flora")
    assert [message.content for message in await chat.history()] == ["And Rome?", "And Bern?"]
