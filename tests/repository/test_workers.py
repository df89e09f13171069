"""Workers: services that leave jobs to others, and those that work off the jobs of a store."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from engines import change

from mnemo import (
    Config,
    ExtractionFailed,
    Mnemo,
    ModelUnavailable,
    Repository,
    SessionBusy,
    UsageError,
    WorkerStatistics,
)
from mnemo.events import SessionTransitioned
from mnemo.prompts.profiles import Profile
from mnemo.protocols import ChatReply, ChatRequest
from mnemo.testing import HashingEmbedder, RecordingObserver, ScriptedChatModel

CONFIG = Config(jobs={"quiet_s": 0, "poll_s": 0.02, "retry_backoff_s": 0}, shutdown_grace_s=5)


def service(path: Path, *, model: ScriptedChatModel | None = None, **options: Any) -> Mnemo:
    """One on the file; its model answers."""
    options = {"embedder": HashingEmbedder(), "config": CONFIG} | options
    return Mnemo(path, chat_model=model or ScriptedChatModel.answering(), **options)


@asynccontextmanager
async def working(
    memory: Mnemo, until: Callable[[WorkerStatistics], bool] | None = None, **options: Any
) -> AsyncIterator[list[WorkerStatistics]]:
    """Work while the block runs, which begins after a look; at its end, until one finds *until*."""
    looks: list[WorkerStatistics] = []
    began, found = anyio.Event(), anyio.Event()

    def looked(statistics: WorkerStatistics) -> None:
        looks.append(statistics)
        began.set()
        if until is None or until(statistics):
            found.set()

    async with anyio.create_task_group() as group:

        async def work() -> None:
            await memory.work(on_look=looked, **options)

        group.start_soon(work)
        await began.wait()
        yield looks
        with anyio.fail_after(120):
            await found.wait()
        group.cancel_scope.cancel()


async def keys(repo: Repository) -> list[str]:
    """Of the messages that were extracted, sorted."""
    return sorted(str(getattr(node, "key", "")) for node in await repo.get_nodes(["episodic"]))


@pytest.mark.slow
async def test_jobs_left_to_others_are_done_by_a_worker(db):
    """``remember(wait=True)`` and ``settle`` behave as if the work had been local."""
    async with service(db, workers=0) as app, service(db) as other:
        repo = await app.open_repo("r")
        await repo.remember("Ada plays the cello.", key="k")
        assert (await repo.statistics()).jobs.waiting == 1
        async with working(other):
            made = await repo.remember("Ada owns a boat.", key="l", wait=True, timeout_s=120)
            await repo.settle(timeout_s=120)
        assert made.node_ids
        assert await keys(repo) == ["k", "l"]
        assert (await repo.recall("Who owns a boat?", types=["semantic"])).candidates
        jobs = (await repo.statistics()).jobs
        assert (jobs.waiting, jobs.running, jobs.dead) == (0, 0, 0)


class CountingModel(ScriptedChatModel):
    """Answers once two extractions ask it; knows how many do at once, at most."""

    def __init__(self, *scripts: Any) -> None:
        super().__init__(*scripts)
        self.asking = self.most = 0
        self.two = anyio.Event()

    async def complete(self, request: ChatRequest) -> ChatReply:
        if request.purpose != "semantic":
            return await super().complete(request)
        self.asking += 1
        self.most = max(self.most, self.asking)
        if self.asking == 2:
            self.two.set()
        await self.two.wait()
        try:
            return await super().complete(request)
        finally:
            self.asking -= 1


@pytest.mark.slow
async def test_a_service_runs_no_more_jobs_than_it_may(db):
    """``workers`` is a bound over all its repositories."""
    model = CountingModel.answering()
    async with service(db, model=model, workers=2) as memory:
        repos = [await memory.open_repo(id) for id in "abc"]
        for repo in repos:
            for n in range(3):
                await repo.remember(f"Bo has {n} boats.", thread_id=str(n))
        for repo in repos:
            await repo.settle(timeout_s=120)
    assert model.most == 2


@pytest.mark.slow
async def test_a_worker_takes_the_repositories_of_its_pattern(db):
    """The others keep their jobs."""
    async with service(db, workers=0) as app:
        for id in ("team a", "team b", "other"):
            await (await app.open_repo(id)).remember("Ada rows.", key=id)
        async with service(db) as other:
            async with working(other, lambda found: found.done == 2, repos="team *") as looks:
                pass
            assert (looks[-1].failed, looks[-1].refused) == (0, {})
        assert await keys(app.repo("team a")) == ["team a"]
        assert await keys(app.repo("other")) == []


async def test_a_repository_of_another_space_is_left_to_others(db):
    """It is told why, and the others are worked off."""
    async with service(db) as app:
        foreign = await app.open_repo("foreign", embedder=HashingEmbedder(dimensions=32))
        await foreign.remember("Bo sails.", wait=True)
    async with service(db, workers=0) as app, service(db) as other:
        foreign = await app.open_repo("foreign", embedder=HashingEmbedder(dimensions=32))
        await foreign.remember("Bo rows.")
        await (await app.open_repo("ours")).remember("Ada rows.")
        async with working(other, lambda found: found.done == 1) as looks:
            pass
        assert "embedd" in looks[-1].refused["foreign"]
        assert (await foreign.statistics()).jobs.waiting == 1


async def test_a_worker_of_other_kinds_leaves_a_job(db):
    """What is not of its kinds waits for another one."""
    async with service(db, workers=0) as app, service(db) as other:
        repo = await app.open_repo("r")
        await repo.remember("Ada rows.")
        async with working(other, kinds=[]):
            pass
        assert (await repo.statistics()).jobs.waiting == 1


async def test_a_worker_that_closes_finishes_what_it_holds(db):
    """Within the grace; what it does not hold waits, and nothing stays claimed."""
    began, go_on = anyio.Event(), anyio.Event()

    class GatedModel(ScriptedChatModel):
        async def complete(self, request: ChatRequest) -> ChatReply:
            if request.purpose == "semantic":
                began.set()
                await go_on.wait()
            return await super().complete(request)

    async with service(db, workers=0) as app:
        repo = await app.open_repo("r")
        for key in "ab":
            await repo.remember(f"Ada keeps boat {key}.", thread_id=key, key=key)
        async with service(db, model=GatedModel.answering(), workers=1) as other:
            async with working(other):
                await began.wait()
            async with anyio.create_task_group() as group:
                group.start_soon(other.aclose)
                await anyio.lowlevel.checkpoint()
                go_on.set()
        assert len(await keys(repo)) == 1
        jobs = (await repo.statistics()).jobs
        assert (jobs.waiting, jobs.running) == (1, 0)
        assert await repo.unfinished_sessions() == []


async def test_wrong_arguments_are_told(db):
    """A count, a pattern, kinds, a service that leaves jobs to others or works already."""
    for wrong in (-1, True, 1.5):
        with pytest.raises(ValueError, match="workers"):
            service(db, workers=wrong)
    async with service(db, workers=0) as app, service(db) as other:
        with pytest.raises(UsageError, match="workers=0"):
            await app.work()
        with pytest.raises(ValueError, match="pattern"):
            await other.work(" ")
        with pytest.raises(ValueError, match=r"\['extract'\]"):
            await other.work(kinds="extract")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="no jobs of kind 'paint'"):
            await other.work(kinds=["paint"])  # type: ignore[list-item]
        async with working(other):
            with pytest.raises(UsageError, match="already"):
                await other.work()


async def test_work_ends_with_its_service(db):
    """Who goes on working is told that it was closed."""
    memory, told, looked = service(db), list[str](), anyio.Event()
    await memory.open()

    async def work() -> None:
        with pytest.raises(UsageError, match="closed") as error:
            await memory.work(on_look=lambda _: looked.set())
        told.append(str(error.value))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(work)
            await looked.wait()
            await memory.aclose()
    assert told


async def test_a_failing_look_is_logged(db, caplog):
    """What ``on_look`` raises ends nothing."""
    async with service(db) as other:
        looked = anyio.Event()

        def fail(_: WorkerStatistics) -> None:
            if "on_look" in caplog.text:
                looked.set()
            raise LookupError("no health")

        async with anyio.create_task_group() as group:

            async def work() -> None:
                await other.work(on_look=fail)

            group.start_soon(work)
            with anyio.fail_after(120):
                await looked.wait()
            group.cancel_scope.cancel()
    assert "no health" in caplog.text


# ── Sessions ─────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
async def test_a_job_of_a_session_that_another_process_has_open_waits(db, caplog):
    """It is put back without a failure, more often than it may fail, and done in the end."""
    caplog.set_level("INFO", logger="mnemo")
    async with service(db) as other:
        async with service(db, workers=0) as app:
            repo = await app.open_repo("r")
            session = await repo.start_session("Talk", session_id="s")
            await session.append("Mara lives in Osaka.", "Noted it", key="k")
            await session.close()
            while not (await repo.statistics()).jobs.waiting:
                await anyio.lowlevel.checkpoint()
            change(db, "UPDATE jobs SET needs = json_remove(needs, '$.home')")

            def is_put_back(_: WorkerStatistics) -> bool:
                return caplog.text.count("is put back") > CONFIG.jobs.max_tries

            async with working(other, is_put_back) as looks:
                pass
            assert (looks[-1].done, looks[-1].failed) == (0, 0)
            assert (await repo.statistics()).jobs.dead == 0
        async with working(other, lambda found: found.done == 1) as looks:
            pass
        assert looks[-1].failed == 0


@pytest.mark.slow
async def test_a_closed_episode_is_extracted_by_a_worker(db):
    """State, events, queued calls and ``wait_for`` behave as if the work had been local."""
    local = ScriptedChatModel.answering()
    async with service(db, model=local, workers=0) as app, service(db) as other:
        repo = await app.open_repo("r")
        seen = RecordingObserver()
        app.subscribe(seen)
        async with working(other):
            session = await repo.start_session("Talk", session_id="s")
            await session.append("Mara lives in Osaka.", "Noted it", key="k")
            await session.close()
            assert session.state == "extracting"
            committed = session.commit_async()
            again = session.start_episode_async("More talk")
            with anyio.fail_after(120):
                assert await committed == "committed"
                assert await again == "started"
        states = [e.to_state for e in seen.events if isinstance(e, SessionTransitioned)]
        assert states[-4:] == ["extracting", "ready", "idle", "collecting"]
        assert not local.calls("semantic")
        assert local.calls("annotate")
        await session.append("Mara moved to Bern.", "")
        assert await keys(repo) == ["k"]


async def test_a_failed_extraction_of_a_worker_fails_the_session(db):
    """Its model's error is the session's; another try is the worker's again."""
    replies = ['{"nonsense"', '{"nonsense"', '{"facts": []}']
    model = ScriptedChatModel.answering({"semantic": replies})
    async with service(db, workers=0) as app, service(db, model=model) as other:
        repo = await app.open_repo("r")
        async with working(other):
            session = await repo.start_session("Talk")
            await session.append("Mara lives in Osaka.", "Noted it")
            await session.close()
            with anyio.fail_after(120):
                assert await session.wait_for("ready", "failed") == "failed"
                assert isinstance(session.error, ExtractionFailed)
                assert (await session.commit()).status == "retrying"
                assert await session.wait_for("ready", "failed") == "ready"
            assert (await session.commit()).status == "committed"
        assert (await repo.statistics()).jobs.dead == 0


async def test_a_retry_without_the_model_needs_no_worker(db):
    """What a worker failed at is extracted where it is asked for; nothing is left to do."""
    model = ScriptedChatModel.answering({"semantic": ModelUnavailable("down")})
    async with service(db, workers=0) as app, service(db, model=model) as other:
        repo = await app.open_repo("r")
        session = await repo.start_session("Talk")
        await session.append("Mara lives in Osaka.", "Noted it")
        async with working(other):
            await session.close()
            with anyio.fail_after(120):
                assert await session.wait_for("ready", "failed") == "failed"
        assert (await session.commit(use_model=False)).status == "retrying"
        with anyio.fail_after(120):
            assert await session.wait_for("ready", "failed") == "ready"
        assert (await session.commit()).status == "committed"
        jobs = (await repo.statistics()).jobs
        assert (jobs.waiting, jobs.running, jobs.dead) == (0, 0, 0)


@pytest.mark.slow
async def test_sessions_with_models_of_their_own_and_auto_commit_keep_their_work(db):
    """No worker is needed for them."""
    async with service(db, workers=0) as app:
        repo = await app.open_repo("r")
        own = await repo.start_session("Talk", chat_model=ScriptedChatModel.answering())
        auto = await repo.start_session("Talk", config=Config(session={"auto_commit": True}))
        for session in (own, auto):
            await session.append("Mara lives in Osaka.", "Noted it")
            with anyio.fail_after(120):
                assert (await session.close_and_commit()).status == "committed"
        assert (await repo.statistics()).jobs.waiting == 0


async def test_an_episode_outlives_the_process_that_closed_it(db):
    """Its job is done all the same; the session is resumed ready, here or elsewhere."""
    async with service(db, workers=0) as app:
        repo = await app.open_repo("r")
        session = await repo.start_session("Talk", session_id="s")
        await session.append("Mara lives in Osaka.", "Noted it")
        await session.close()
        with anyio.fail_after(120):
            while not (await repo.statistics()).jobs.waiting:
                await anyio.lowlevel.checkpoint()
    async with service(db) as other:
        async with working(other, lambda found: found.done == 1):
            pass
        resumed = await (await other.open_repo("r", exist_ok=True)).resume_session("s")
        assert resumed.state == "ready"


async def test_workers_extract_sessions_of_equal_ids_apart(db):
    """A job names its session in its repository: each is resumed with what was said in it."""
    towns = {"ada": "Osaka", "bea": "Lisbon"}
    async with service(db, workers=0) as app:
        for name, town in towns.items():
            repo = await app.open_repo(name)
            session = await repo.start_session("Talk", session_id="s")
            await session.append(f"Mara lives in {town}.", "Noted it")
            await session.close()
            with anyio.fail_after(120):
                while not (await repo.statistics()).jobs.waiting:
                    await anyio.lowlevel.checkpoint()
    async with service(db) as other:
        async with working(other, lambda found: found.done == 2):
            pass
        for name, town in towns.items():
            repo = await other.open_repo(name, exist_ok=True)
            session = await repo.resume_session("s")
            assert session.state == "ready"
            await session.commit()
            assert [town in node.text for node in await repo.get_nodes(["episodic"])] == [True]


async def test_nobody_else_takes_a_session_that_waits_for_a_worker(db):
    """It stays its process's until a worker has it."""
    async with service(db, workers=0) as app, service(db, workers=0) as other:
        session = await (await app.open_repo("r")).start_session("Talk", session_id="s")
        await session.append("Mara lives in Osaka.", "Noted it")
        await session.close()
        with pytest.raises(SessionBusy):
            await (await other.open_repo("r")).resume_session("s")


async def test_a_session_is_waited_for_until_a_worker_lets_go_of_it(db):
    """Its job may end, by another worker, while the first one still holds the session."""
    async with service(db, workers=0) as app, service(db, workers=0) as other:
        repo = await app.open_repo("r")
        session = await repo.start_session("Talk", session_id="s")
        await session.append("Mara lives in Osaka.", "Noted it")
        await session.close()
        jobs = repo._parts.transcript  # type: ignore[attr-defined]
        with anyio.fail_after(120):
            while await jobs.reading(lambda tx: tx.job("session", "s")) is None:
                await anyio.lowlevel.checkpoint()
        await other._store.sessions("r").claim("s", other._owner, left_by=app._owner.token)  # type: ignore[union-attr, arg-type]
        await jobs.writing(lambda tx: tx.put_job(tx.job("session", "s").finished(more=False)))
        with pytest.raises(TimeoutError):
            await session.wait_for("failed", timeout_s=0.2)
        await other._store.sessions("r").release(other._owner, "s")  # type: ignore[union-attr, arg-type]
        assert await session.wait_for("failed") == "failed"
        assert "its job was cancelled" in str(session._work.error)


@pytest.mark.slow
async def test_a_job_is_done_with_the_config_that_it_carries(db):
    """A worker without the profile leaves it; one with it uses the job's limits."""
    profile = Profile(name="gardening", domain_context="About gardens.")
    wanted = CONFIG.overlaid(Config(extraction={"profile": profile, "max_facts": 0}))
    model = ScriptedChatModel.answering()
    async with service(db, workers=0, config=wanted) as app:
        repo = await app.open_repo("r")
        await repo.remember("Ada grows pears.", key="k")
        async with service(db) as unable, working(unable):
            pass
        assert (await repo.statistics()).jobs.waiting == 1
        able = CONFIG.overlaid(Config(extraction={"profile": profile}))
        async with service(db, config=able, model=model) as other, working(other):
            await repo.settle(timeout_s=120)
        assert await keys(repo) == ["k"]
        assert await repo.get_nodes(["semantic"]) == []


async def test_an_owed_job_moves_with_its_repository_to_another_space(db):
    """After ``reembed`` it is done by workers of the new space."""
    async with service(db, workers=0) as app:
        repo = await app.open_repo("r")
        await repo.add_memory("Ada owns a boat.")
        await repo.remember("Ada rows.", key="k")
        moved = HashingEmbedder(dimensions=32)
        await app.reembed("r", embedder=moved)
        async with service(db, embedder=moved) as other, working(other):
            await repo.settle(timeout_s=120)
        assert await keys(repo) == ["k"]


async def test_a_job_that_is_tried_again_is_done_in_the_space_of_who_asks(db):
    """A repository without vectors may have got another embedder since."""
    config = CONFIG.overlaid(Config(jobs={"background": False}))
    async with service(db, workers=0, config=config) as app:
        repo = await app.open_repo("r", embedder=HashingEmbedder(dimensions=16))
        await repo.remember("Bo rows.", thread_id="u", key="k")
    async with service(db, embedder=HashingEmbedder(dimensions=8)) as other:
        repo = await other.open_repo("r")
        assert (await repo.statistics()).jobs.waiting == 1
        assert await repo.retry_jobs(["u"]) == ("u",)
        await repo.settle(timeout_s=120)
        assert await keys(repo) == ["k"]
