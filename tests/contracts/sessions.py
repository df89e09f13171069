"""The contract of the journal."""

from datetime import datetime, timedelta, timezone
from functools import partial

import anyio
import numpy as np
import pytest
from world import NOON, Kit, StoreContract, draft, unit_vector

from mnemo.errors import Conflict, NotFound, SessionBusy
from mnemo.values.changeset import Changeset, NodeChange
from mnemo.values.graph import Edge, EdgeKind, MetadataDelta, Semantic, Tag
from mnemo.values.journal import (
    ChangesetStaged,
    ExtractionAbandoned,
    ExtractionRetried,
    SessionState,
    StagedTrajectory,
    StepsAnnotated,
    TrajectoryStaged,
)
from mnemo.values.steps import Annotation, Step

FACT = Semantic(
    "Ana lives in Porto", id="f", created_at=NOON, valid_from=NOON, vector=unit_vector(1, 2, 3, 4)
)
TAG = Tag("Porto", id="t")
CHANGESET = Changeset(
    nodes=(FACT, TAG),
    edges=(Edge("t", "f", EdgeKind.MEMBERSHIP),),
    metadata={"f": MetadataDelta(cumulative_reward=0.5, reward_count=1, support_count=1)},
    id="c-1",
    changes=(NodeChange("old", {"valid_to": NOON, "reward": 0.5, "vector": unit_vector(1, 0)}),),
    replaces={"f": ("old",)},
)


def annotation(index: int, **values: object) -> Annotation:
    known = {"state": "asked", "subgoal": "find a flat", "reward": None, "trajectory_id": "t-0"}
    return Annotation(index=index, **{**known, **values})  # type: ignore[arg-type]


def staged(key: str, *steps: int) -> StagedTrajectory:
    return StagedTrajectory(key=key, trajectory_id=key[:3], steps=steps, changeset=CHANGESET)


class SessionStoreContract(StoreContract):
    """Every act is whole or absent, and is found again after the store was opened anew."""

    # ── Creating ─────────────────────────────────────────────────────────────────────

    async def test_a_new_session_collects_into_its_episode(self, kit):
        """The record of a new session is found with its goal and its open episode."""
        await kit.start(goal="plan a trip")
        record = (await kit.load()).record
        assert (record.id, record.repo_id, record.goal) == ("s", "r", "plan a trip")
        assert (record.state, record.episode_id) == (SessionState.COLLECTING, "s-1")
        assert (record.steps, record.updated_at) == (0, kit.clock.now())

    async def test_an_id_is_used_once_in_its_repository(self, kit):
        """That of an ended session is a conflict, in another repository it is free."""
        await kit.start()
        await kit.close()
        await kit.discard()
        with pytest.raises(Conflict, match="used before"):
            await kit.start()
        await kit.start(repo="b")
        (record,) = await kit.store.sessions("b").records(unfinished=False)
        assert (record.repo_id, record.state) == ("b", SessionState.COLLECTING)
        assert (await kit.load()).record.state is SessionState.IDLE

    async def test_equal_ids_of_two_repositories_share_nothing(self, kit):
        """Steps, keys, acts, owners: each repository has its own session and episode."""
        for repo in ("r", "b"):
            await kit.start(repo=repo, goal=f"plan in {repo}")
        steps = [await kit.append(f"told in {repo}", repo=repo, key="k") for repo in ("r", "b")]
        await kit.close(repo="b")
        mine, other = await kit.load(), await kit.load(repo="b")
        assert (mine.steps, other.steps) == ((steps[0],), (steps[1],))
        assert (mine.keys, other.keys) == ({"k": steps[0]}, {"k": steps[1]})
        assert (mine.record.goal, other.record.goal) == ("plan in r", "plan in b")
        states = (mine.record.state, other.record.state)
        assert states == (SessionState.COLLECTING, SessionState.EXTRACTING)
        assert await kit.store.feed("b").goals(["s-1"]) == {"s-1": "plan in b"}
        await kit.store.sessions("b").release(kit.owner, "s")
        store, stranger = await kit.another()
        await store.sessions("b").claim("s", stranger)
        with pytest.raises(SessionBusy):
            await store.sessions("r").claim("s", stranger)
        assert (await kit.append("told again")).index == 1
        assert (await kit.store.check()).problems == ()

    async def test_a_batch_for_equal_ids_goes_to_the_right_sessions(self, kit):
        """Handed over in one turn of the loop, written in one transaction."""
        repos = ("r", "b")
        for repo in repos:
            await kit.start(repo=repo)
        texts = {repo: [(f"{n} in {repo}", "") for n in range(9)] for repo in repos}
        async with anyio.create_task_group() as group:
            for repo in repos:
                group.start_soon(partial(kit.append_all, texts[repo], repo=repo))
        for repo in repos:
            steps = (await kit.load(repo=repo)).steps
            assert [(s.index, s.observation) for s in steps] == [
                (n, f"{n} in {repo}") for n in range(9)
            ]

    async def test_a_session_of_another_repository_is_unknown(self, kit):
        """Not to be told from one that was never there."""
        await kit.start(repo="b")
        sessions = kit.store.sessions("r")
        assert await sessions.load("s") is None
        for id in ("s", "nobody"):
            with pytest.raises(NotFound):
                await sessions.claim(id, kit.owner)
            (refused,) = await kit.append_all([("x", "")], session=id)
            assert type(refused) is NotFound
            with pytest.raises(NotFound):
                await kit.close(id)
            await sessions.release(kit.owner, id)
        assert (await kit.append("still mine", repo="b")).index == 0

    # ── Appending ────────────────────────────────────────────────────────────────────

    async def test_steps_are_numbered_in_order_of_arrival(self, kit):
        """Appends of one turn of the loop get indexes without gaps, ordinals ascend."""
        await kit.start()
        results = await kit.append_all([(f"observed {i}", "") for i in range(200)])
        steps = [step for step in results if isinstance(step, Step)]
        assert [(s.index, s.observation) for s in steps] == [
            (i, f"observed {i}") for i in range(200)
        ]
        ordinals = [step.ordinal for step in steps]
        assert ordinals == sorted(set(ordinals))
        assert (await kit.load()).steps == tuple(steps)

    async def test_nobody_is_told_within_their_own_call(self, kit):
        """The outcome arrives in a later turn of the loop, whatever the store."""
        await kit.start()
        order = []
        results = kit.append_all([("a", "b")])
        pending = results.__await__()
        next(pending)
        order.append("handed over")
        pending.close()
        await kit.append("c")
        order.append("told")
        assert order == ["handed over", "told"]
        assert [s.observation for s in (await kit.load()).steps] == ["a", "c"]

    async def test_a_step_comes_back_as_it_was_given(self, kit):
        """Texts of any script, nested metadata, the key and the time with its zone stay."""
        await kit.start()
        at = datetime(2023, 5, 8, 13, 56, 1, 250, tzinfo=timezone(timedelta(hours=-5, minutes=-30)))
        metadata = {"n": 1, "x": 0.1, "deep": {"list": [1, None, True, "é"]}, "": "empty"}
        given = await kit.append(
            "東京 🗼\r\n\ttabs",
            "naïve ‘quotes’ \"and\" 'more'",
            at=at,
            key="k-1",
            metadata=metadata,
        )
        (stored,) = (await kit.load()).steps
        assert stored == given
        assert stored.metadata == metadata
        assert stored.at.isoformat() == at.isoformat()

    async def test_either_half_may_be_empty(self, kit):
        """A step with one side only is stored with one side only."""
        await kit.start()
        await kit.append("", "only acted")
        await kit.append("only observed", "")
        halves = [(s.observation, s.action) for s in (await kit.load()).steps]
        assert halves == [("", "only acted"), ("only observed", "")]

    async def test_a_used_key_is_refused_alone(self, kit):
        """A second step under one key leaves no step, no gap, and its neighbours alone."""
        await kit.start()
        first = await kit.append("first", key="k")
        with pytest.raises(Conflict):
            await kit.append("second", key="k")
        third = await kit.append("third", key="other")
        assert (first.index, third.index) == (0, 1)
        assert (await kit.load()).keys == {"k": first, "other": third}

    async def test_one_bad_step_among_many_leaves_no_gap(self, kit):
        """Of steps that are handed over together only the bad ones fail."""
        await kit.start()
        results = await kit.append_all([("x", "")] * 3, key="same")
        assert [type(result) for result in results] == [Step, Conflict, Conflict]
        assert (await kit.append("next")).index == 1

    async def test_only_the_owner_appends(self, kit):
        """A service that lost the session is refused, and the numbering goes on."""
        await kit.start()
        _, stranger = await kit.another()
        (refusal,) = await kit.append_all([("x", "")], owner=stranger)
        assert isinstance(refusal, Conflict)
        assert (await kit.append("mine")).index == 0

    async def test_a_closed_episode_takes_no_step(self, kit):
        """Steps after the close are refused; those before it are all there."""
        await kit.start()
        await kit.append("before")
        await kit.close()
        with pytest.raises(Conflict):
            await kit.append("after")
        assert [s.observation for s in (await kit.load()).steps] == ["before"]

    async def test_appends_before_a_close_belong_to_the_episode(self, kit):
        """What was handed over before the close is written before it."""
        await kit.start()
        results: list[object] = []
        kit.store.sessions("r").append("s", "s-1", draft("late"), kit.owner, results.append)
        await kit.close()
        (step,) = (await kit.load()).steps
        assert results == [step]

    # ── Acts and what a session resumes as ───────────────────────────────────────────

    async def test_collecting_resumes_collecting(self, kit):
        """After opening anew the steps are there once, and the next index follows."""
        await kit.start()
        step = await kit.append("observed", "acted")
        await kit.reopen()
        await kit.store.sessions("r").claim("s", kit.owner)
        journal = await kit.load()
        assert (journal.record.state, journal.steps) == (SessionState.COLLECTING, (step,))
        assert (await kit.append("again")).index == 1

    async def test_annotations_are_kept_with_their_steps(self, kit):
        """State, subgoal, reward, trajectory, boundary and vector come back; None stays None."""
        await kit.start()
        await kit.append_all([("a", ""), ("b", "")])
        vector = unit_vector(1, 2, 3, 4)
        found = (annotation(0, boundary=False, vector=vector), annotation(1, embedded=True))
        await kit.record(_annotated(kit, *found))
        steps = (await kit.load()).steps
        assert [step.annotation for step in steps] == list(found)
        first = steps[0].annotation
        assert first is not None
        assert np.array_equal(first.vector, vector)  # type: ignore[arg-type]

    async def test_a_reward_that_comes_late_replaces_the_annotation(self, kit):
        """Annotating a step again leaves what was found last."""
        await kit.start()
        await kit.append("a")
        await kit.record(_annotated(kit, annotation(0)))
        await kit.record(_annotated(kit, annotation(0, reward=0.75)))
        assert (await kit.load()).steps[0].reward == 0.75

    async def test_an_annotation_of_no_step_writes_nothing(self, kit):
        """One unknown index refuses the whole act."""
        await kit.start()
        await kit.append("a")
        with pytest.raises(NotFound, match="7"):
            await kit.record(_annotated(kit, annotation(0), annotation(7)))
        assert (await kit.load()).steps[0].annotation is None

    async def test_a_close_resumes_as_extracting(self, kit):
        """A closed episode is found as extracting, with its staged trajectories."""
        await kit.start()
        await kit.append_all([("a", ""), ("b", "")])
        await kit.close()
        await kit.record(TrajectoryStaged(staged=staged("t-1:1", 1), **kit.place()))
        await kit.record(TrajectoryStaged(staged=staged("t-0:0", 0), **kit.place()))
        await kit.reopen()
        journal = await kit.load()
        assert journal.record.state is SessionState.EXTRACTING
        assert set(journal.staged) == {"t-0:0", "t-1:1"}
        assert journal.staged["t-0:0"].steps == (0,)
        assert_same(journal.staged["t-0:0"].changeset, CHANGESET)

    async def test_a_failure_is_kept_and_a_retry_clears_it(self, kit):
        """Failed sessions resume with their error; trying again forgets it, keeps the rest."""
        await kit.start()
        await kit.append("a")
        await kit.close()
        await kit.record(TrajectoryStaged(staged=staged("t-0:0", 0), **kit.place()))
        await kit.record(
            ExtractionAbandoned(error="the model is down", trajectory_id="t-0", **kit.place())
        )
        failed = await kit.load()
        await kit.record(ExtractionRetried(**kit.place()))
        retried = await kit.load()
        assert failed.record.state is SessionState.FAILED
        assert (failed.error, failed.error_trajectory) == ("the model is down", "t-0")
        assert retried.record.state is SessionState.EXTRACTING
        assert (retried.error, set(retried.staged)) == (None, {"t-0:0"})

    async def test_a_staged_changeset_resumes_as_ready(self, kit):
        """The same changeset under the same id, vectors included; staged parts are gone."""
        await kit.start()
        await kit.append("a")
        await kit.close()
        await kit.record(TrajectoryStaged(staged=staged("t-0:0", 0), **kit.place()))
        await kit.record(ChangesetStaged(changeset=CHANGESET, steps=(0,), **kit.place()))
        await kit.reopen()
        journal = await kit.load()
        assert journal.record.state is SessionState.READY
        assert (journal.changeset_steps, dict(journal.staged)) == ((0,), {})
        assert journal.changeset is not None
        assert_same(journal.changeset, CHANGESET)

    async def test_a_discard_ends_in_idle_with_nothing_left(self, kit):
        """After a discard the session is idle and carries nothing into the next episode."""
        await kit.start()
        await kit.append("a", key="k")
        await kit.close()
        await kit.record(ChangesetStaged(changeset=CHANGESET, steps=(0,), **kit.place()))
        await kit.discard()
        idle = await kit.load()
        await kit.begin("s-2", goal="another")
        clean = await kit.load()
        assert (idle.record.state, idle.record.episode_id) == (SessionState.IDLE, None)
        assert (idle.steps, idle.changeset, set(idle.keys)) == ((), None, {"k"})
        assert (clean.record.goal, clean.record.episode_id) == ("another", "s-2")
        assert (clean.steps, clean.committed, clean.changeset) == ((), frozenset(), None)

    async def test_keys_of_earlier_episodes_are_known(self, kit):
        """A client that lost the answer may ask with its key long after the episode."""
        await kit.start()
        first = await kit.append("a", key="k")
        await kit.close()
        await kit.discard()
        await kit.begin("s-2")
        (second,) = await kit.append_all([("b", "")], episode="s-2", key="k2")
        journal = await kit.load()
        assert journal.keys == {"k": first, "k2": second}
        assert journal.steps == (second,)

    async def test_an_episode_that_is_over_is_not_written_to(self, kit):
        """An act for a discarded episode is a conflict and changes nothing."""
        await kit.start()
        await kit.close()
        await kit.discard()
        with pytest.raises(Conflict):
            await kit.close()
        assert (await kit.load()).record.state is SessionState.IDLE

    async def test_an_unknown_episode_is_not_written_to(self, kit):
        """An act, or a step, for an episode that does not exist is refused and changes nothing."""
        await kit.start()
        with pytest.raises(NotFound, match="other"):
            await kit.close(episode="other")
        with pytest.raises(NotFound, match="other"):
            await kit.append("x", episode="other")
        journal = await kit.load()
        assert (journal.record.state, journal.steps) == (SessionState.COLLECTING, ())

    async def test_an_episode_begins_only_when_the_last_one_is_over(self, kit):
        """A second open episode is Conflict, also while the first one is closed but not over."""
        await kit.start()
        with pytest.raises(Conflict):
            await kit.begin("second")
        await kit.close()
        with pytest.raises(Conflict):
            await kit.begin("second")
        assert (await kit.load()).record.state is SessionState.EXTRACTING

    async def test_only_the_owner_writes_acts(self, kit):
        """An act of a service that lost the session changes nothing."""
        await kit.start()
        _, stranger = await kit.another()
        with pytest.raises(Conflict):
            await kit.record(ExtractionRetried(**kit.place()), owner=stranger)
        assert (await kit.load()).record.state is SessionState.COLLECTING

    # ── Records ──────────────────────────────────────────────────────────────────────

    async def test_records_come_newest_act_first(self, kit):
        """An append counts as an act, and so does one that changes no state; steps are counted."""
        for session in ("a", "b", "c"):
            await kit.start(session)
            kit.clock.advance(1)
        await kit.append("x", session="a")
        kit.clock.advance(1)
        await kit.record(TrajectoryStaged(staged=staged("t-0:0", 0), **kit.place("b")))
        records = await kit.store.sessions("r").records(unfinished=False)
        assert [(r.id, r.steps) for r in records] == [("b", 0), ("a", 1), ("c", 0)]
        assert records[0].updated_at == kit.clock.now()

    async def test_unfinished_sessions_are_those_not_idle(self, kit):
        """Idle sessions and those of other repositories are not listed."""
        await kit.start("open")
        await kit.start("done")
        await kit.start("elsewhere", repo="a%' --/")
        await kit.close("done")
        await kit.discard("done")
        unfinished = await kit.store.sessions("r").records(unfinished=True)
        every = await kit.store.sessions("r").records(unfinished=False)
        assert [r.id for r in unfinished] == ["open"]
        assert {r.id for r in every} == {"open", "done"}

    # ── Ownership ────────────────────────────────────────────────────────────────────

    async def test_a_live_owner_keeps_its_session(self, kit):
        """While a lease runs, another service of the process is refused."""
        await kit.start()
        store, other = await kit.another()
        kit.clock.advance(29)
        with pytest.raises(SessionBusy) as refused:
            await store.sessions("r").claim("s", other)
        assert refused.value.reason == "owned_elsewhere"

    async def test_a_released_session_is_free(self, kit):
        """Releasing one session frees that one only; claiming one's own is harmless."""
        await kit.start("s")
        await kit.start("kept")
        await kit.store.sessions("r").claim("s", kit.owner)
        await kit.store.sessions("r").release(kit.owner, "s")
        store, other = await kit.another()
        await store.sessions("r").claim("s", other)
        with pytest.raises(SessionBusy):
            await store.sessions("r").claim("kept", other)

    async def test_releasing_the_owner_frees_everything(self, kit):
        """A service that leaves in peace leaves all its sessions."""
        await kit.start("a")
        await kit.start("b")
        store, other = await kit.another()
        await kit.store.release(kit.owner)
        await store.sessions("r").claim("a", other)
        await store.sessions("r").claim("b", other)

    async def test_a_lapsed_lease_is_taken_over(self, kit):
        """After the lease the session changes hands, and the old owner writes no more."""
        await kit.start()
        kit.clock.advance(30)
        store, other = await kit.another()
        await store.sessions("r").claim("s", other)
        with pytest.raises(Conflict):
            await kit.append("too late")
        (step,) = await kit.append_all([("in time", "")], owner=other)
        assert isinstance(step, Step)
        assert step.index == 0

    async def test_a_renewed_lease_holds_on(self, kit):
        """Renewing counts from the moment it is done."""
        await kit.start()
        store, other = await kit.another()
        kit.clock.advance(29)
        await kit.store.renew(kit.owner, 30)
        kit.clock.advance(29)
        with pytest.raises(SessionBusy):
            await store.sessions("r").claim("s", other)
        kit.clock.advance(1)
        await store.sessions("r").claim("s", other)

    async def test_a_session_left_to_a_worker_is_claimed_by_that_one(self, kit):
        """Who names the owner that left it may have it; the owner before writes no more."""
        await kit.start()
        store, other = await kit.another()
        with pytest.raises(SessionBusy):
            await store.sessions("r").claim("s", other, left_by="somebody")
        await store.sessions("r").claim("s", other, left_by=kit.owner.token)
        (refused,) = await kit.append_all([("too late", "")])
        assert isinstance(refused, Conflict)
        with pytest.raises(SessionBusy):
            await kit.store.sessions("r").claim("s", kit.owner)


def _annotated(kit: Kit, *found: Annotation) -> StepsAnnotated:
    return StepsAnnotated(annotations=found, **kit.place())


def assert_same(found: Changeset, expected: Changeset) -> None:
    """Equal, vectors included, which nodes leave out of their comparison."""
    assert (found.nodes, found.edges, found.id) == (expected.nodes, expected.edges, expected.id)
    assert dict(found.metadata) == dict(expected.metadata)
    assert dict(found.replaces) == dict(expected.replaces)
    for mine, theirs in zip(found.nodes, expected.nodes, strict=True):
        assert (mine.vector is None) == (theirs.vector is None)
        if mine.vector is not None and theirs.vector is not None:
            assert np.array_equal(mine.vector, theirs.vector)
    for change, wanted in zip(found.changes, expected.changes, strict=True):
        assert change.id == wanted.id
        assert change.fields.keys() == wanted.fields.keys()
        for name, value in wanted.fields.items():
            assert np.array_equal(change.fields[name], value)
