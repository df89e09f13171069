"""Sessions whose store makes a write and then fails it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, get_args

import pytest
from helpers import BREAD, BUILD, TRIP, Kit, OpenKit, annotating
from lost_answers_kit import LosingStore, insistent

from mnemo import (
    CommitFailed,
    Config,
    Conflict,
    ModelUnavailable,
    Session,
    SessionError,
    Step,
    StoreError,
)
from mnemo.config import StoreConfig
from mnemo.events import AnnotationFailed, SessionTransitioned, StepAppended, TrajectoryCommitted
from mnemo.protocols import FeedCursor
from mnemo.stores import SqliteStore
from mnemo.testing import FailingStore, FailingWrite, ManualClock, ScriptedChatModel
from mnemo.values.graph import NodeType
from mnemo.values.journal import EpisodeClosed, StepsAnnotated

AUTO = Config(session={"auto_commit": True, "flush_timeout_s": None, "session_timeout_s": None})


def losing(path: Path, *, kind: FailingWrite, nth: int, probe: bool) -> LosingStore:
    """A store of its own that loses the answer to the *nth* write of *kind*."""
    path.mkdir()
    config = StoreConfig(synchronous="normal")
    store = SqliteStore(path / "m.db", config=config, clock=ManualClock(), lease_s=30)
    return LosingStore(store, kind=kind, nth=nth, probe=probe)


async def committed(session: Session) -> None:
    """Bring a session that is past its close to ``idle``, by asking again where that is refused."""
    state = await session.wait_for("ready", "failed", "idle")
    while state != "idle":
        await insistent(session.commit)
        state = await session.wait_for("ready", "failed", "idle")


async def told(session: Session, episode: str, count: int) -> dict[str, Step]:
    """Append *count* keyed steps, each until it is acknowledged."""
    steps = {}
    for number in range(count):
        key = f"{episode}{number}"
        append = partial(session.append, f"saw {key}", f"did {key}", key=key)
        steps[key] = await insistent(append)
    return steps


async def manual_life(kit: Kit) -> dict[str, Step]:
    """Three episodes: committed, discarded, committed; gives the acknowledged steps."""
    assert await insistent(kit.repo.threads) == []
    start = partial(kit.repo.start_session, "first goal", session_id="s")
    session = await insistent(start)
    steps = await told(session, "a", 2)
    await insistent(session.close)
    await committed(session)
    await insistent(partial(session.start_episode, "second goal"))
    steps |= await told(session, "b", 1)
    await insistent(session.close)
    assert await session.wait_for("ready", "failed") in ("ready", "failed")
    await insistent(session.discard)
    await insistent(partial(session.start_episode, "third goal"))
    steps |= await told(session, "c", 1)
    await insistent(session.close)
    await committed(session)
    return steps


async def automatic_life(kit: Kit) -> dict[str, Step]:
    """Two episodes with boundaries, whose trajectories are committed in the background."""
    assert await insistent(kit.repo.threads) == []
    start = partial(kit.repo.start_session, "first goal", session_id="s")
    session = await insistent(start)
    steps = await told(session, "a", 4)
    await kit.until(lambda: not session.busy and not session.statistics().append_backlog)
    await insistent(session.close)
    await committed(session)
    await insistent(partial(session.start_episode, "second goal"))
    steps |= await told(session, "b", 1)
    await insistent(session.close)
    await committed(session)
    return steps


async def kept(store: FailingStore, *types: NodeType) -> list[Any]:
    """The steps, and the nodes of *types* with their counts, without ids and times."""
    graph = store.graph("r")
    nodes = await graph.nodes(types=types)
    counts = await graph.metadata([node.id for node in nodes])
    changes = await store.feed("r").changes(FeedCursor(), limit=1_000)
    steps = [(step.key, step.index, step.observation) for step in changes.steps]
    found = [(n.type, n.text, counts[n.id].support_count, counts[n.id].reward_count) for n in nodes]
    return sorted(steps) + sorted(found)


async def keys_give_first_steps(kit: Kit, steps: dict[str, Step]) -> None:
    """Each key gives the step that was acknowledged for it, in whatever state."""
    session = await kit.repo.resume_session("s")
    for key, step in steps.items():
        again = await session.append("other words", "", key=key)
        assert (again.node_id, again.observation) == (step.node_id, step.observation)


def types_compared(store: LosingStore, *, probe: bool) -> tuple[NodeType, ...]:
    """Every type, or those that do not depend on an annotation that was made again."""
    made_again = probe and isinstance(store.lost_subject, StepsAnnotated)
    return ("episodic", "source") if made_again else get_args(NodeType)


@dataclass(frozen=True)
class Lives:
    """Whole lives of one kind, each in a store of its own."""

    open_kit: OpenKit
    path: Path
    life: Callable[[Kit], Any]
    config: Config
    probe: bool

    @asynccontextmanager
    async def losing(
        self, kind: FailingWrite, nth: int
    ) -> AsyncIterator[tuple[Kit, LosingStore, dict[str, Step]]]:
        """A life in which the answer to the *nth* write of *kind* was lost; 0: none."""
        annotate = annotating([TRIP, TRIP, BUILD, BREAD, BREAD])
        model = ScriptedChatModel.answering({"annotate": annotate})
        store = losing(self.path / f"{kind}{nth}", kind=kind, nth=nth, probe=self.probe)
        kit = await self.open_kit(model=model, config=self.config, store=store)
        steps = await self.life(kit)
        yield kit, store, steps
        await kit.memory.aclose()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["create", "append", "record", "apply"])
@pytest.mark.parametrize(
    "probe",
    [False, pytest.param(True, marks=pytest.mark.long)],
    ids=["answer lost", "answer and probe lost"],
)
@pytest.mark.parametrize(
    ("life", "config"), [(manual_life, Config()), (automatic_life, AUTO)], ids=["manual", "auto"]
)
async def test_a_lost_answer_at_any_write_changes_nothing(
    open_kit,
    tmp_path,
    life,
    config,
    probe,
    kind,
):
    """Whichever write's answer is lost, a caller who asks again gets to the same memory."""
    lives = Lives(open_kit, tmp_path, life, config, probe)
    async with lives.losing(kind, 0) as (_, whole, _):
        for nth in count(1):
            async with lives.losing(kind, nth) as (kit, store, steps):
                types = types_compared(store, probe=probe)
                assert await kept(store, *types) == await kept(whole, *types), (nth, store.lost)
                assert len(kit.seen.of(StepAppended)) == len(steps)
                await keys_give_first_steps(kit, steps)
                if store.lost is None:
                    break
    assert nth > 1


async def test_a_background_commit_that_was_made_is_not_made_again(open_kit, failing_store):
    """Its answer and the look after it are lost: the close commits the rest, and it once."""
    model = ScriptedChatModel.answering({"annotate": annotating([TRIP, TRIP, BUILD])})
    store = failing_store()
    kit = await open_kit(model=model, config=AUTO, store=store)
    store.fail("apply", before=False)
    store.fail("first_answer")
    session = await kit.started()
    for number in range(3):
        await session.append(f"o{number}", f"a{number}")
    await kit.until(lambda: isinstance(session.error, CommitFailed))
    receipt = await session.close_and_commit()
    nodes = await kit.repo.get_nodes(["episodic"])
    assert sorted(node.step_index for node in nodes) == [0, 1, 2]
    assert {node.id for node in nodes} <= set(receipt.node_ids)
    assert len(kit.seen.of(TrajectoryCommitted)) == 1


async def test_nothing_is_committed_beside_a_close_that_may_be_made(open_kit, failing_store):
    """Its answer and look are lost, then the flush timer is due: it waits for the next call."""
    config = Config(session={"auto_commit": True, "flush_timeout_s": 10, "session_timeout_s": None})
    store = failing_store()
    kit = await open_kit(config=config, store=store)
    session = await kit.begun()
    await kit.at_rest()
    store.fail("record", before=False, only=lambda act: isinstance(act, EpisodeClosed))
    store.fail("load")
    with pytest.raises(StoreError):
        await session.close()
    await kit.pass_time(11)
    await kit.at_rest()
    assert await kit.repo.get_nodes(["episodic"]) == []
    await session.close()
    assert await session.wait_for("idle", "failed") == "idle"
    assert len(await kit.repo.get_nodes(["episodic"])) == 1


async def test_an_append_that_was_made_leaves_no_gap(failing_kit):
    """Answer and look are lost: later steps are annotated, and the key gives the first step."""
    kit, store = failing_kit
    session = await kit.started()
    store.fail("append", before=False)
    store.fail("load")
    with pytest.raises(StoreError):
        await session.append("first", "", key="k")
    second = await session.append("second", "")
    assert second.index == 1
    assert (await session.append("again", "", key="k")).observation == "first"
    await session.close_and_commit()
    found = await kit.repo.get_nodes(["episodic"])
    assert [node.observation for node in found] == ["first", "second"]
    assert not kit.seen.of(AnnotationFailed)


async def test_a_step_younger_than_the_look_for_a_lost_one_is_extracted(failing_kit, monkeypatch):
    """Its answer comes while the journal is read that does not have it yet."""
    kit, store = failing_kit
    session = await kit.started()
    sessions = session._work.parts.store
    load = sessions.load

    async def late(id):
        found = await load(id)
        monkeypatch.undo()
        await session.append("second", "")
        return found

    monkeypatch.setattr(sessions, "load", late)
    store.fail("append", before=False)
    await session.append("first", "")
    await session.close_and_commit()
    found = await kit.repo.get_nodes(["episodic"])
    assert [node.observation for node in found] == ["first", "second"]


async def test_steps_behind_one_whose_answer_is_lost_keep_their_order(failing_kit):
    """Several appends at once, the first answer lost: each is acknowledged with its place."""
    kit, store = failing_kit
    session = await kit.started()
    store.fail("append", before=False)
    operations = [session.append_async(f"o{number}", "") for number in range(4)]
    assert [await operation for operation in operations] == ["appended"] * 4
    assert [step.observation for step in session.recent_steps(9)] == ["o0", "o1", "o2", "o3"]
    assert [event.step_index for event in kit.seen.of(StepAppended)] == [0, 1, 2, 3]


@pytest.mark.parametrize("queued", [False, True], ids=["awaited", "queued"])
async def test_an_act_that_was_made_is_done_when_it_is_asked_for_again(failing_kit, queued):
    """Close, commit, start and discard, each with answer and look lost, each called again."""
    kit, store = failing_kit
    session = await kit.begun()
    calls = {
        "close": session.close_async if queued else session.close,
        "commit": session.commit_async if queued else session.commit,
        "start": partial(session.start_episode_async if queued else session.start_episode, "n"),
        "discard": session.discard_async if queued else session.discard,
    }
    for name, state in (
        ("close", "ready"),
        ("commit", "idle"),
        ("start", "collecting"),
        ("close", "ready"),
        ("discard", "idle"),
    ):
        call = "apply" if name == "commit" else "record"
        store.fail(call, before=False)
        store.fail("first_answer" if name == "commit" else "load")
        with pytest.raises(StoreError):
            await calls[name]()
        await calls[name]()
        assert await session.wait_for(state) == state
    assert len(await kit.repo.get_nodes(["episodic"])) == 1


async def test_a_queued_commit_whose_retry_was_made_commits(open_kit, failing_store):
    """Answer and look of the retry are lost: asked again, it ends when something is committed."""
    store = failing_store()
    answers = {"semantic": [ModelUnavailable("down"), {"facts": []}]}
    kit = await open_kit(model=ScriptedChatModel.answering(answers), store=store)
    session = await kit.closed(until="failed")
    store.fail("record", before=False)
    store.fail("load")
    with pytest.raises(StoreError):
        await session.commit()
    assert await session.commit_async() == "committed"
    assert session.state == "idle"
    assert len(await kit.repo.get_nodes(["episodic"])) == 1


async def test_another_call_after_an_act_that_was_made_meets_its_state(failing_kit):
    """A close in doubt: an append is refused by the table, and the episode is extracted."""
    kit, store = failing_kit
    session = await kit.begun()
    store.fail("record", before=False, only=lambda act: isinstance(act, EpisodeClosed))
    store.fail("load")
    with pytest.raises(StoreError):
        await session.close()
    assert session.state == "collecting"
    with pytest.raises(SessionError) as refused:
        await session.append("late", "")
    assert refused.value.reason in ("extraction_in_progress", "not_collecting")
    assert await session.wait_for("ready") == "ready"


async def test_a_discard_after_a_commit_that_was_made_is_refused(failing_kit):
    """The commit is shown with its nodes, and nothing is discarded."""
    kit, store = failing_kit
    session = await kit.closed(until="ready")
    store.fail("apply", before=False)
    store.fail("first_answer")
    with pytest.raises(CommitFailed):
        await session.commit()
    with pytest.raises(SessionError) as refused:
        await session.discard()
    assert refused.value.reason == "not_discardable"
    assert session.state == "idle"
    assert kit.seen.of(SessionTransitioned)[-1].node_ids
    assert len(await kit.repo.get_nodes(["episodic"])) == 1


async def test_a_session_whose_start_was_made_is_given(failing_kit):
    """The answer and the look are lost: the same id again gives the session, not Conflict."""
    kit, store = failing_kit
    store.fail("create", before=False)
    store.fail("load")
    with pytest.raises(StoreError):
        await kit.started("one goal", session_id="mine")
    with pytest.raises(Conflict):
        await kit.started("another goal", session_id="mine")
    session = await kit.started("one goal", session_id="mine")
    assert (session.id, session.state) == ("mine", "collecting")
    assert (await session.append("seen", "")).index == 0


async def test_starts_in_doubt_are_bounded_and_none_is_forgotten(failing_kit, monkeypatch):
    """With a full list the store says one outcome, that of the oldest, or refuses the start."""
    monkeypatch.setattr("mnemo.repository.sessions.MOST_IN_DOUBT", 2)
    kit, store = failing_kit

    async def fails(*, made: bool, **named: str) -> None:
        store.fail("create", before=not made)
        store.fail("load")
        with pytest.raises(StoreError):
            await kit.started("one goal", **named)

    for _ in range(3):
        await fails(made=True)
    await fails(made=True, session_id="made")
    await fails(made=False, session_id="not made")
    store.fail("load")
    with pytest.raises(StoreError, match="load"):
        await kit.started("one goal", session_id="other")
    assert (await kit.started("one goal", session_id="made")).state == "collecting"
    await fails(made=True, session_id="third")
    assert (await kit.started("one goal", session_id="other")).id == "other"
    for id in ("third", "not made"):
        assert (await kit.started("one goal", session_id=id)).state == "collecting"


async def test_starts_that_were_made_keep_no_other_from_starting(failing_kit, monkeypatch):
    """Nobody asks for them again: one look for each start; the oldest can still be resumed."""
    monkeypatch.setattr("mnemo.repository.sessions.MOST_IN_DOUBT", 3)
    kit, store = failing_kit
    for number in range(3):
        store.fail("create", before=False)
        store.fail("load")
        with pytest.raises(StoreError):
            await kit.started("one goal", session_id=f"made {number}")
    loaded = []
    sessions, load = kit.repo._parts.sessions, kit.repo._parts.sessions.load

    async def load_noted(session_id: str) -> Any:
        loaded.append(session_id)
        return await load(session_id)

    monkeypatch.setattr(sessions, "load", load_noted)
    for id in ("new", "newer"):
        assert (await kit.started("one goal", session_id=id)).id == id
    assert loaded == ["made 0"]
    with pytest.raises(Conflict):
        await kit.started("one goal", session_id="made 0")
    assert (await kit.repo.resume_session("made 0")).state == "collecting"
    for id in ("made 1", "made 2"):
        assert (await kit.started("one goal", session_id=id)).state == "collecting"


async def test_a_session_whose_start_was_made_is_not_started_beside_its_resumption(failing_kit):
    """Once it is resumed, its id was used before."""
    kit, store = failing_kit
    store.fail("create", before=False)
    store.fail("load")
    with pytest.raises(StoreError):
        await kit.started("one goal", session_id="mine")
    session = await kit.repo.resume_session("mine")
    await session.append("seen", "")
    with pytest.raises(Conflict):
        await kit.started("one goal", session_id="mine")
    assert (await session.append("seen more", "")).index == 1


async def test_a_start_that_was_made_and_gone_on_with_is_found_as_it_is(open_kit, db):
    """Another service had it meanwhile: it is claimed again, with the steps of the other."""
    store = FailingStore(db, clock=ManualClock())
    kit, other = await open_kit(store=store), await open_kit(store=db)
    store.fail("create", before=False)
    store.fail("load")
    with pytest.raises(StoreError):
        await kit.started("one goal", session_id="mine")
    parts = kit.repo._parts
    await parts.sessions.release(parts.owner, "mine")  # as after a lease that is over
    taken = await other.repo.resume_session("mine")
    await taken.append("seen", "")
    with pytest.raises(SessionError, match="owned_elsewhere"):
        await kit.started("one goal", session_id="mine")
    await taken.aclose()
    session = await kit.started("one goal", session_id="mine")
    assert [step.observation for step in session.recent_steps(9)] == ["seen"]
    assert (await session.append("seen more", "")).index == 1
