"""Recall as a user meets it: after restarts, in the context of a session, while collecting."""

from datetime import UTC, datetime

import anyio


async def episode(kit, goal: str, *said: str):
    """A session that collected what was said, still open."""
    session = await kit.started(goal)
    for text in said:
        await session.append(text, "")
    return session


async def test_accesses_are_counted_and_survive(open_kit, db):
    """A returned candidate's access_count grows by 1, also after reopening."""
    kit = await open_kit(store=db, embedded=True)
    session = await episode(kit, "g", "Ana lives in Porto")
    await session.close_and_commit()
    found = await kit.repo.recall("Where does Ana live?", k=1)
    nodes = await kit.repo.get_nodes(["semantic", "episodic"])
    await kit.memory.aclose()
    kit = await open_kit(store=db, embedded=True)
    (candidate,) = found.candidates
    metadata = await kit.repo.get_metadata([node.id for node in nodes])
    assert metadata[candidate.node.id].access_count == 1
    assert metadata[candidate.node.id].last_accessed_at is not None
    others = [m.access_count for id, m in metadata.items() if id != candidate.node.id]
    assert others
    assert set(others) == {0}


async def test_an_unknown_session_gives_plain_recall(open_kit):
    """Recall_in_context with an unknown or idle session finds the same as recall."""
    kit = await open_kit(embedded=True)
    session = await episode(kit, "g", "Ana lives in Porto", "Bo bakes bread")
    await session.close_and_commit()
    with anyio.fail_after(120):
        while (await kit.repo.statistics()).index.waiting:  # noqa: ASYNC110 - a count, no event
            await anyio.sleep(0.001)
    plain = [c.node.id for c in (await kit.repo.recall("Who bakes?")).candidates]
    for asked in ("nobody", session, session.id):
        found = await kit.repo.recall_in_context(asked, "Who bakes?")
        assert [c.node.id for c in found.candidates] == plain


async def test_the_context_of_a_session_weighs_in(open_kit):
    """ "what next?" in the context of the session about trains returns train steps first."""
    kit = await open_kit(embedded=True)
    trains = await episode(
        kit,
        "Book the night train to Vienna",
        "The night train leaves Hamburg at 20:15",
        "The train needs a reservation for the bicycle",
        "The train company answers slowly",
        "The train ticket office opens at nine",
        "The train has a dining car",
    )
    await episode(
        kit,
        "Bake sourdough bread",
        "The dough has to rest overnight",
        "The bread needs a hot oven and steam",
        "The starter smells sour",
        "Flour from the mill is cheaper",
        "The crust should be dark",
    )
    found = await kit.repo.recall_in_context(trains, "what next?", types=["episodic"], k=2)
    shown = [candidate.node.observation for candidate in found.candidates]
    assert shown
    assert all("train" in text for text in shown)
    assert not set(shown) & {step.observation for step in trains.recent_steps(3)}


async def test_a_step_is_recalled_while_its_session_collects(open_kit):
    """The source of a step just appended has session, index, actor, time and key."""
    kit = await open_kit(embedded=True)
    session = await kit.started()
    at = datetime(2024, 3, 1, 14, 30, tzinfo=UTC)
    await session.append("I adopted a cat", "", actor="Ana", at=at, key="turn-1")
    found = await kit.repo.recall("Who adopted a cat?")
    (source,) = found.sources
    assert (source.session_id, source.step_index, source.actor) == (session.id, 0, "Ana")
    assert (source.at, source.key, source.text) == (at, "turn-1", "I adopted a cat")
    assert found.trace.revision == 0


async def test_model_and_embedded_replies_live_side_by_side(open_kit):
    """A step whose extraction a model refuses is still found as a raw step."""
    from mnemo.errors import ModelUnavailable
    from mnemo.testing import ScriptedChatModel

    model = ScriptedChatModel.answering({"semantic": ModelUnavailable("down")})
    kit = await open_kit(model=model)
    session = await episode(kit, "g", "The xylophone is in the attic")
    await session.close()
    await session.wait_for("failed")
    found = await kit.repo.recall("Where is the xylophone?", reason=False)
    assert found.candidates[0].node.observation == "The xylophone is in the attic"
