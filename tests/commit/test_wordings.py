"""The wordings of an intent: what was near one of them stays near the intent."""

from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Kit, OpenKit, lines_of

from mnemo import Config, Intent, Mnemo
from mnemo.index.follower import RepositoryIndex
from mnemo.testing import HashingEmbedder, ScriptedChatModel
from mnemo.values.graph import MOST_WORDINGS

RYE, ROLLS, GRILL = "bake rye bread", "bake rye rolls", "grill rye bread"
COMMON = "make dough things"
MERGING = Config(commit={"intent_merge_threshold": 0.6})


async def common(stored: str, new: str) -> str:
    return f"all of {new}"


async def serve(world: Any, draft: Any, *intents: str, **settings: Any) -> None:
    """Commit an instruction for each intent, in episodes of their own."""
    for number, intent in enumerate(intents):
        given = draft(f"e{number}")
        given.instruction(intent, "asked", f"do {intent}", given.step(f"episodic-{intent}", None))
        await world.lane(**settings).commit(given.build(), merge_intent=common)


@pytest.mark.parametrize("order", list(permutations(["left", "right"])))
async def test_what_is_near_a_former_wording_is_the_same_intent(world, draft, order):
    """Two intents near the first one, not near each other nor near the common words."""
    world.embedder.place("middle", 0.0)
    for side, angle in (("left", 0.5), ("right", -0.5)):
        world.embedder.place(side, angle)
        world.embedder.place(f"all of {side}", 3 * angle)
    await serve(world, draft, "middle", *order)
    (intent,) = await world.of(Intent)
    assert intent.description == f"all of {order[-1]}"
    said = {one.text: one.sources for one in intent.wordings}
    assert said == {text: (f"episodic-{text}",) for text in ("middle", "left", "right")}


async def test_intents_of_one_changeset_are_near_former_wordings_too(world, draft):
    """Nothing is stored yet: the wordings of the changeset itself count."""
    world.embedder.place("middle", 0.0)
    for side, angle in (("left", 0.5), ("right", -0.5)):
        world.embedder.place(side, angle)
        world.embedder.place(f"all of {side}", 3 * angle)
    given = draft("e1")
    for text in ("middle", "left", "right"):
        given.instruction(text, "asked", f"do {text}", given.step(f"episodic-{text}", None))
    await world.commit(given.build(), merge_intent=common)
    assert len(await world.of(Intent)) == 1


async def test_an_intent_keeps_eight_wordings(world, draft):
    """Those that come after the eighth are united with the intent and not kept."""
    texts = [f"text {number}" for number in range(MOST_WORDINGS + 2)]
    for number, text in enumerate(texts):
        world.embedder.place(text, 0.05 * number)
        world.embedder.place(f"all of {text}", -0.5)
    await serve(world, draft, *texts, intent_identity_threshold=1.0)
    (intent,) = await world.of(Intent)
    assert [one.text for one in intent.wordings] == texts[:MOST_WORDINGS]


# ── Through a service ────────────────────────────────────────────────────────────────


@pytest.fixture
async def kit(open_kit: OpenKit, db: Path) -> Kit:
    """Two sessions whose intents became one, in words that are near neither."""
    model = ScriptedChatModel.answering({"merge_intent": {"intent": COMMON}})
    kit = await open_kit(model=model, config=MERGING, store=db)
    await learned(kit, RYE)
    await learned(kit, ROLLS)
    return kit


async def learned(kit: Kit, goal: str) -> None:
    session = await kit.repo.start_session(goal, session_id=goal)
    await session.append(f"asked for {goal.split()[-1]}", f"did {goal}")
    await session.close_and_commit()
    await session.aclose()


async def intents_of(kit: Kit) -> list[Any]:
    return await kit.repo.get_nodes(["intent"])


async def nearest(memory: Mnemo, repo_id: str, text: str, embedder: HashingEmbedder) -> list[str]:
    """Ids of intents near *text*, as an index that reads everything anew finds them."""
    index = RepositoryIndex(feed=memory._store.feed(repo_id), embedder=embedder, agent_name="Agent")
    await index.catch_up()
    (found,) = await index.nearest(await embedder.embed([text]), type="intent", threshold=0.6)
    return [id for id, _ in found]


async def test_forgetting_the_source_of_a_wording_removes_it(kit, db):
    """Its text and its vector go; what the other session called the intent stays."""
    (intent,) = await intents_of(kit)
    assert [one.text for one in intent.wordings] == [RYE, ROLLS]
    vector = np.asarray(intent.wordings[1].vector).tobytes()
    await kit.repo.forget(session_id=ROLLS)
    (intent,) = await intents_of(kit)
    assert [one.text for one in intent.wordings] == [RYE]
    assert await nearest(kit.memory, "r", GRILL, HashingEmbedder()) == [intent.id]
    assert await nearest(kit.memory, "r", "buy rolls bake", HashingEmbedder()) == []
    assert (await kit.memory.check()).problems == ()
    files = b"".join(path.read_bytes() for path in db.parent.iterdir() if path.is_file())
    assert ROLLS.encode() not in files
    assert vector not in files


async def test_forgetting_all_sources_removes_the_intent(kit):
    """With its last instruction an intent goes, with all its wordings."""
    await kit.repo.forget(session_id=ROLLS)
    await kit.repo.forget(session_id=RYE)
    assert await intents_of(kit) == []
    assert await nearest(kit.memory, "r", RYE, HashingEmbedder()) == []


async def test_wordings_travel_with_an_archive(kit, open_kit):
    """The imported repository attracts the same intents, and exports the same lines."""
    exported = await lines_of(kit.memory, "r")
    other = (await open_kit()).memory
    await other.import_repo("copy", exported)
    async with other.export_repo("copy") as lines:
        assert [line async for line in lines] == exported
    (intent,) = await intents_of(kit)
    assert await nearest(other, "copy", GRILL, HashingEmbedder()) == [intent.id]


async def test_wordings_move_to_another_space(kit):
    """After a move their vectors are of the new space, and attract there."""
    other = HashingEmbedder(96)
    await kit.memory.reembed("r", embedder=other)
    (intent,) = await intents_of(kit)
    assert [len(one.vector) for one in intent.wordings] == [96, 96]
    assert await nearest(kit.memory, "r", GRILL, other) == [intent.id]
    assert (await kit.memory.check()).problems == ()
