"""A session driven by every call there is, in any order, through every kind of trouble."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from engines import OverEngines, emptied, on_postgres
from helpers import BREAD, BUILD, TRIP, annotating, examples
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from world import store_at

from mnemo import (
    CommitFailed,
    Config,
    ExtractionFailed,
    Mnemo,
    Outcome,
    PendingOperation,
    SessionClosed,
    SessionError,
    StoreError,
)
from mnemo.errors import ModelUnavailable
from mnemo.events import SessionTransitioned
from mnemo.protocols import FeedCursor
from mnemo.testing import (
    FailingStore,
    HashingEmbedder,
    ManualClock,
    RecordingObserver,
    ScriptedChatModel,
)
from mnemo.values.graph import Episodic

# The pages' own words, written out once more so that the machine is not its own witness.

REFUSED = {
    ("idle", "append"): "not_collecting",
    ("idle", "close"): "not_collecting",
    ("idle", "commit"): "not_ready",
    ("idle", "discard"): "not_discardable",
    ("collecting", "start_episode"): "not_idle",
    ("collecting", "commit"): "not_ready",
    ("collecting", "discard"): "not_discardable",
    ("extracting", "start_episode"): "extraction_in_progress",
    ("extracting", "append"): "extraction_in_progress",
    ("extracting", "close"): "extraction_in_progress",
    ("extracting", "commit"): "extraction_in_progress",
    ("extracting", "discard"): "extraction_in_progress",
    ("ready", "start_episode"): "not_idle",
    ("ready", "append"): "not_collecting",
    ("ready", "close"): "not_collecting",
    ("failed", "start_episode"): "session_failed",
    ("failed", "append"): "not_collecting",
    ("failed", "close"): "not_collecting",
}
LEADS_TO = {
    ("idle", "start_episode"): "collecting",
    ("collecting", "append"): "collecting",
    ("collecting", "close"): "closed",
    ("ready", "commit"): "idle",
    ("failed", "commit"): "idle",
    ("ready", "discard"): "idle",
    ("failed", "discard"): "idle",
}
TRANSITIONS = {
    ("idle", "collecting"),
    ("collecting", "extracting"),
    ("extracting", "ready"),
    ("extracting", "failed"),
    ("ready", "idle"),
    ("failed", "idle"),
    ("failed", "extracting"),
}
VALUES = {
    "append": "appended",
    "start_episode": "started",
    "close": "closed",
    "commit": "committed",
    "discard": "discarded",
}
OPERATIONS = sorted(VALUES)
MAX_PENDING = 5
FLUSH_S, EXPIRY_S = 120, 600
TROUBLES: dict[str, tuple[Any, bool]] = {
    "apply": ("apply", True),
    "record": ("record", True),
    "append": ("append", True),
    "load": ("load", True),
    "lost apply": ("apply", False),
    "lost record": ("record", False),
    "lost append": ("append", False),
}
"""Name → the call of the store that fails next, and whether it fails before it is done."""


class HeldStore(FailingStore):
    """A store whose commits can also be held back, just before their transaction."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.gate: anyio.Event | None = None
        self.held = 0

    def graph(self, repo_id: str) -> Any:
        return HeldGraph(super().graph(repo_id), self)

    def let_go(self) -> None:
        if self.gate is not None:
            self.gate.set()
            self.gate = None

    def readable(self) -> None:
        """Let the journal be read again."""
        self._faults.pop("load", None)

    def heal(self) -> None:
        self.let_go()
        self._faults.clear()


class HeldGraph:
    def __init__(self, graph: Any, store: HeldStore) -> None:
        self._graph = graph
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graph, name)

    async def apply(self, *args: Any) -> Any:
        while self._store.gate is not None:
            self._store.held += 1
            try:
                await self._store.gate.wait()
            finally:
                self._store.held -= 1
        return await self._graph.apply(*args)


class Accepted:
    """An operation that was accepted, and what came of it."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.operation: PendingOperation | None = None
        self.outcomes: list[Outcome] = []
        self.direct = False
        self.cancelled = False

    @property
    def done(self) -> bool:
        assert self.operation is not None
        return self.operation.done

    @property
    def begun(self) -> bool:
        assert self.operation is not None
        return self.operation._begun


class SessionMachine(OverEngines):
    """One session, with a model and a store that can be made to fail."""

    auto = False

    # ── The world ────────────────────────────────────────────────────────────────────

    @initialize()
    def open(self) -> None:
        """A service, a repository and a collecting session."""
        self.runner = asyncio.Runner()
        self.accepted: list[Accepted] = []
        self.acknowledged: list[str] = []
        self.troubled = self.extraction_failed = self.unsure = False
        self.number = 0
        self.next_index = 0
        self.run(self._open)

    def _empty_store(self) -> Any:
        if self.url is None:
            return store_at(None, self.clock)
        return store_at(emptied(self.url, ""), self.clock)

    async def _open(self) -> None:
        self.clock = ManualClock()
        self.store = HeldStore(self._empty_store())
        self.model = ScriptedChatModel.answering(
            {"annotate": annotating([TRIP, TRIP, BUILD, BREAD])}
        )
        self.failing = False
        answer = self.model._scripts["semantic"]
        self.model.script("semantic", lambda request: self._semantic(request, answer))
        session = {
            "auto_commit": self.auto,
            "flush_timeout_s": FLUSH_S,
            "session_timeout_s": EXPIRY_S,
            "max_pending": MAX_PENDING,
        }
        self.memory = Mnemo(
            self.store,
            config=Config(session=session, annotation={"batch_size": 1}, shutdown_grace_s=5),
            chat_model=self.model,
            embedder=HashingEmbedder(32),
            clock=self.clock,
        )
        await self.memory.open()
        self.seen = RecordingObserver()
        self.memory.subscribe(self.seen)
        self.repo = await self.memory.open_repo("r")
        self.session = await self.repo.start_session("first goal", session_id="s")

    def _semantic(self, request: Any, answer: Any) -> Any:
        if self.failing:
            self.extraction_failed = True
            return ModelUnavailable("down", purpose="semantic", retryable=False)
        return answer(request)

    def run(self, work: Callable[[], Awaitable[Any]]) -> Any:
        async def then_settle() -> Any:
            result = await work()
            await self.settle()
            self.unsure |= self._work.in_doubt
            return result

        return self.runner.run(then_settle())

    async def settle(self) -> None:
        """Let everything run that is not held back by the model or the store."""
        calm = 0
        with anyio.fail_after(120):
            while calm < 4:
                calm = calm + 1 if self._calm() else 0
                await anyio.sleep(0 if calm else 0.0005)

    def _calm(self) -> bool:
        owed = any(one.done and not one.outcomes for one in self.accepted)
        writer = self.store.engine._writing
        if owed or self._work.life.aimed is not None or (writer is not None and writer.waiting):
            return False
        if self.ended:
            return True
        stuck = self.session.busy and (self.model.waiting > 0 or self.store.held > 0)
        levels = self.session.statistics()
        still = not self.session.busy and not levels.append_backlog
        return stuck or (still and not self._live() and not self._about_to_expire())

    def _about_to_expire(self) -> bool:
        collecting = self.session.state == "collecting"
        return self.auto and collecting and not self._work.expiry_timer.armed

    @property
    def _work(self) -> Any:
        return self.session._work

    @property
    def ended(self) -> bool:
        return self.session._shut is not None and self.session._shut.is_set()

    def _live(self) -> list[Accepted]:
        """Accepted operations that count for those behind them: neither ended nor direct."""
        return [one for one in self.accepted if not one.done and not one.direct]

    def _snapshot(self) -> tuple[Any, ...]:
        levels, session = self.session.statistics(), self.session
        return (
            session.state,
            session.episode_id,
            session.goal,
            session.error,
            levels.steps,
            levels.pending_operations,
            session.context(),
        )

    # ── Awaited calls ────────────────────────────────────────────────────────────────

    def _refusal(self, name: str) -> str | None:
        """The reason that the pages give for refusing an awaited *name* now; or none."""
        if self._work.life.closing:
            return "session_closed"
        reason = REFUSED.get((str(self.session.state), name))
        if reason is None and name == "close" and self.session.busy:
            return "extraction_in_progress"
        if reason is None and name == "commit" and self.session.busy:
            return "commit_in_progress"
        if reason is None and name == "discard" and self.session.busy:
            return "not_discardable"
        return reason

    def _text(self) -> str:
        self.number += 1
        return f"unique{self.number}"

    def _call(self, name: str, text: str) -> Awaitable[Any]:
        match name:
            case "append":
                return self.session.append(f"seen {text}", f"did {self.number}")
            case "start_episode":
                return self.session.start_episode(f"goal {text}")
        call: Callable[[], Awaitable[Any]] = getattr(self.session, name)
        return call()

    def _would_be_held(self, name: str) -> bool:
        ready = self.session.state == "ready" and not self.session.busy
        return name == "commit" and self.store.gate is not None and ready

    @rule(choice=st.integers(0, 9))
    def await_a_legal_one(self, choice: int) -> None:
        """An awaited call that the pages allow now, so that all states are visited often."""
        legal = [name for name in OPERATIONS if self._refusal(name) is None]
        if legal:
            self.await_one(legal[choice % len(legal)])

    @rule(name=st.sampled_from(OPERATIONS))
    def await_one(self, name: str) -> None:
        """Any awaited call in any state: done, or refused with its reason and no effect."""
        if not self._would_be_held(name):
            self.run(lambda: self._await_one(name, self._text()))

    async def _await_one(self, name: str, text: str) -> None:
        if self._work.in_doubt:
            await self._await_one_in_doubt(name, text)
            return
        before, reason = self._snapshot(), self._refusal(name)
        state, steps = str(self.session.state), self.session.statistics().steps
        if reason is not None:
            with pytest.raises(SessionError) as refused:
                await self._call(name, text)
            assert refused.value.reason == reason
            assert self._snapshot() == before
            return
        try:
            result = await self._call(name, text)
        except StoreError:
            # Nothing else may fail that the pages allow, and this only when it was told to.
            if not self.troubled or self.session.state != state:
                raise
            return
        if name == "append":
            self.acknowledged.append(text)
            assert result.index == steps
        elif name == "commit":
            assert result.status == ("committed" if state == "ready" else "retrying")

    async def _await_one_in_doubt(self, name: str, text: str) -> None:
        """The journal decides what is legal; an append that is acknowledged is kept."""
        self.unsure = True
        try:
            await self._call(name, text)
        except (SessionError, StoreError):
            return
        if name == "append":
            self.acknowledged.append(text)

    @rule()
    @precondition(lambda self: self.store.gate is None)
    def await_the_whole_end(self) -> None:
        """close_and_commit from wherever it is legal, unless the model would hold it."""
        if self.model._blocks or self.session.state != "collecting" or self._work.life.closing:
            return

        async def end() -> None:
            try:
                receipt = await self.session.close_and_commit(max_retries=1)
            except (ExtractionFailed, StoreError):
                assert self.failing or self.troubled
            except SessionError:
                assert self.unsure
            else:
                assert receipt.status == "committed"

        self.run(end)

    # ── Queued calls ─────────────────────────────────────────────────────────────────

    def _projected(self) -> str:
        """Where everything in flight and ahead leads, as the pages say it."""
        live, state = self._live(), str(self.session.state)
        if live and live[0].begun:
            assert live[0].name == "commit", "only a commit can be seen at work when all is calm"
            state, live = "idle", live[1:]
        elif state == "ready" and self.session.busy:
            state = "idle"
        elif state == "extracting":
            state = self._closed()
        for one in live:
            state = LEADS_TO[state, one.name]
            state = self._closed() if state == "closed" else state
        return state

    def _closed(self) -> str:
        return "idle" if self.auto else "ready"

    def _verdict(self, name: str) -> str | None:
        """The reason that the pages give for refusing a queued *name* now; or none."""
        if self._work.life.closing:
            return "session_closed"
        live, state = self._live(), self._projected()
        at_once = not live and not self.session.busy
        if name == "append" and not live and self.session.state == "collecting":
            return None
        if (state, name) not in LEADS_TO:
            return "invalid_operation" if at_once else "invalid_queued_operation"
        waiting = [one for one in live if not one.begun]
        if live and not self.session.busy:
            # The first of them is not begun in this turn, but it is the one being run.
            waiting = waiting[1:]
        full = not at_once and len(waiting) >= MAX_PENDING
        return "pending_queue_full" if full else None

    def _queue(self, one: Accepted, *, slow: bool, raising: bool) -> PendingOperation:
        async def slowly(outcome: Outcome) -> None:
            await anyio.lowlevel.checkpoint()
            one.outcomes.append(outcome)

        def callback(outcome: Outcome) -> None:
            one.outcomes.append(outcome)
            if raising:
                raise RuntimeError("a callback's own trouble")

        told = slowly if slow else callback
        match one.name:
            case "append":
                return self.session.append_async(f"seen {one.text}", f"did {self.number}", told)
            case "start_episode":
                return self.session.start_episode_async(f"goal {one.text}", told)
        call: Callable[..., PendingOperation] = getattr(self.session, f"{one.name}_async")
        return call(told)

    @rule(
        names=st.lists(st.sampled_from([*OPERATIONS, "append"]), min_size=1, max_size=8),
        slow=st.booleans(),
        raising=st.booleans(),
    )
    def queue_some(self, names: list[str], slow: bool, raising: bool) -> None:
        """Queued calls in one turn: each accepted or refused as the pages say."""

        async def queue() -> None:
            for name in names:
                self._queue_one(name, slow=slow, raising=raising)

        self.run(queue)

    @rule(
        names=st.sampled_from(
            [
                ("start_episode", "append", "close", "commit"),
                ("append", "close", "commit", "start_episode", "append"),
                ("close", "discard", "start_episode"),
                ("commit", "start_episode", "append", "close"),
            ]
        )
    )
    def queue_a_story(self, names: tuple[str, ...]) -> None:
        """Queued calls that often are legal one after another."""
        self.queue_some(list(names), False, False)

    def _queue_one(self, name: str, *, slow: bool, raising: bool) -> None:
        one, reason, before = Accepted(name, self._text()), self._verdict(name), self._snapshot()
        collecting = self.session.state == "collecting"
        # In doubt, an append waits for the look at the journal as queued operations do.
        direct = name == "append" and not self._live() and collecting and not self._work.in_doubt
        if reason is not None:
            with pytest.raises(SessionError) as refused:
                self._queue(one, slow=slow, raising=raising)
            assert refused.value.reason == reason
            assert self._snapshot() == before
            return
        one.operation, one.direct = self._queue(one, slow=slow, raising=raising), direct
        self.accepted.append(one)

    @rule(then=st.sampled_from(["answer", "fail", "block"]))
    @precondition(lambda self: self.session.state == "collecting")
    def let_an_extraction_fail(self, then: str) -> None:
        """A failed episode, and a world in which its retry ends differently."""
        self.change_the_world("fail")
        self.queue_some(["append", "close"], False, False)
        self.change_the_world(then)

    @rule(behind=st.lists(st.sampled_from(OPERATIONS), min_size=1, max_size=3))
    @precondition(lambda self: self.session.state == "failed")
    def queue_behind_a_retry(self, behind: list[str]) -> None:
        """A commit that retries a failed extraction is one operation and leads to idle."""
        self.change_the_world("block")
        self.queue_some(["commit"], False, False)
        self.queue_some(behind, False, False)

    @rule(choice=st.integers(0, 20))
    def withdraw_one(self, choice: int) -> None:
        """op.cancel(): True only while it waits, and then it takes those behind it along."""
        if not self.accepted:
            return
        one = self.accepted[choice % len(self.accepted)]

        async def withdraw() -> None:
            waits = not one.done and not one.begun and one in self._live()
            assert one.operation is not None
            behind = self._live()[self._live().index(one) + 1 :] if waits else []
            assert one.operation.cancel() is waits
            one.cancelled = one.cancelled or waits
            assert all(later.done for later in behind)

        self.run(withdraw)

    # ── Trouble and time ─────────────────────────────────────────────────────────────

    @rule(
        change=st.sampled_from(
            [
                "block",
                "fail",
                "answer",
                "answer",
                "hold",
                "release",
                "release",
                *TROUBLES,
            ]
        )
    )
    def change_the_world(self, change: Any) -> None:
        """Extractions hang, fail or succeed; commits are held; a write, or its answer, is lost."""

        async def apply() -> None:
            if change == "block":
                self.model.block("semantic")
            elif change in ("fail", "answer"):
                self.failing = change == "fail"
                self.model.unblock("semantic")
            elif change == "hold":
                self.store.gate = self.store.gate or anyio.Event()
            elif change == "release":
                self.store.let_go()
            else:
                self.troubled = True
                call, before = TROUBLES[change]
                self.store.fail(call, before=before)

        self.run(apply)

    @rule(name=st.sampled_from(["append", "commit"]), behind=st.sampled_from(OPERATIONS))
    def queue_a_pair(self, name: str, behind: str) -> None:
        """Two queued calls in different turns: what the first leads to judges the second."""
        self.queue_some([name], False, False)
        self.queue_some([behind], False, False)

    @rule(seconds=st.sampled_from([60, FLUSH_S, FLUSH_S, EXPIRY_S]))
    def pass_time(self, seconds: int) -> None:
        """Timers become due, under auto-commit."""

        async def advance() -> None:
            await self.clock.advance(seconds)

        self.run(advance)

    @rule()
    @precondition(lambda self: self.store.gate is None)
    def end_and_resume(self) -> None:
        """The session ends, or has ended, and is taken up where its last durable act left it."""
        self.run(self._resumed)

    async def _resumed(self) -> None:
        before = self.session
        await before.aclose()
        with pytest.raises(SessionClosed):
            await before.append("too late", "")
        (record,) = await self.repo.sessions()
        self.store.readable()
        self.session = await self.repo.resume_session("s")
        assert self.session is not before
        assert self.session.state == record.state

    # ── What always holds ────────────────────────────────────────────────────────────

    @invariant()
    def transitions_are_those_of_the_table(self) -> None:
        """Every transition that was seen is a row, and they lead to the present state."""
        seen = self.seen.of(SessionTransitioned)
        allowed = TRANSITIONS | ({("extracting", "idle")} if self.auto else set())
        assert {(str(e.from_state), str(e.to_state)) for e in seen} <= allowed
        states = {"idle", "collecting", "extracting", "ready", "failed"}
        assert str(self.session.state) in states
        if seen and not self.troubled:
            assert seen[-1].to_state == self.session.state
            assert all(a.to_state == b.from_state for a, b in pairwise(seen))

    @invariant()
    def operations_end_as_they_may(self) -> None:
        """Each ended operation has one callback behind it and an outcome that the pages allow."""
        for position, one in enumerate(self.accepted):
            if not one.done:
                assert one.outcomes == []
                continue
            (outcome,) = one.outcomes
            assert one.operation is not None
            assert one.operation.outcome == outcome
            if outcome.error is None:
                assert outcome.value == VALUES[one.name]
            else:
                self._allowed(one, outcome.error, self.accepted[:position])

    def _allowed(self, one: Accepted, error: BaseException, ahead: list[Accepted]) -> None:
        if not isinstance(error, SessionError):
            assert isinstance(error, StoreError)
            assert self.troubled
            return
        if one.cancelled:
            assert error.reason == "cancelled"
        elif error.reason == "preceding_op_failed":
            assert isinstance(error.__cause__, Exception)
            fallen = [a.operation.outcome for a in ahead if a.operation and a.done]
            known = any(outcome and outcome.error is error.__cause__ for outcome in fallen)
            assert known or isinstance(error.__cause__, CommitFailed)
        elif error.reason == "extraction_failed":
            assert self.extraction_failed or self.troubled
        elif not self.unsure:
            assert error.reason == "session_closed", f"{one.name} was illegal: {error.reason}"

    # ── The end ──────────────────────────────────────────────────────────────────────

    def teardown(self) -> None:
        """Heal everything: whatever was accepted ends, whatever was acknowledged is there."""
        if not hasattr(self, "runner"):
            return
        try:
            self.runner.run(self._heal())
            self.operations_end_as_they_may()
            assert all(one.done for one in self.accepted)
            self.runner.run(self._nothing_is_lost())
        finally:
            self.runner.run(self._close())
            self.runner.close()

    async def _heal(self) -> None:
        self.failing = False
        self.store.heal()
        self.model.unblock()
        await self.settle()

    async def _close(self) -> None:
        self.store.heal()
        self.model.unblock()
        await self.memory.aclose()

    async def _nothing_is_lost(self) -> None:
        if self.ended:
            self.session = await self.repo.resume_session("s")
            await self.settle()
        await self._bring_to_idle()
        assert self.session.state == "idle"
        nodes = await self.repo.get_nodes(["episodic"])
        remembered = Counter(n.observation for n in nodes if isinstance(n, Episodic))
        kept = (await self.store.feed("r").changes(FeedCursor(), limit=10_000)).steps
        assert remembered == Counter(step.observation for step in kept)
        assert set(remembered.values()) <= {1}
        appended = [
            one.text for one in self.accepted if one.name == "append" and not one.outcomes[0].error
        ]
        for text in (*self.acknowledged, *appended):
            assert len(await self.repo.search(text)) == 1, "an acknowledged step is lost"

    async def _bring_to_idle(self) -> None:
        match str(self.session.state):
            case "collecting":
                await self.session.close_and_commit()
            case "ready":
                await self.session.commit()
            case "failed":
                await self.session.commit()
                if await self.session.wait_for("ready", "idle") == "ready":
                    await self.session.commit()


class AutoCommitMachine(SessionMachine):
    """The same under auto-commit."""

    auto = True


BUDGET = settings(
    max_examples=examples(100),
    stateful_step_count=25,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)

TestManual = pytest.mark.slow(SessionMachine.TestCase)
TestManual.settings = BUDGET
TestAutoCommit = pytest.mark.slow(AutoCommitMachine.TestCase)
TestAutoCommit.settings = BUDGET
TestOnPostgres = on_postgres(SessionMachine, tries=20, steps=15)
TestAutoCommitOnPostgres = on_postgres(AutoCommitMachine, tries=20, steps=15)
