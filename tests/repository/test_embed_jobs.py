"""Jobs that embed: whichever process makes the vectors, each is made, and none of what is gone."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, Literal

import anyio
import numpy as np
import pytest
from engines import change, emptied, rows_of
from helpers import until
from postgres_server import ON_POSTGRES, execute

from mnemo import Config, Mnemo, Repository
from mnemo.errors import ModelUnavailable
from mnemo.index import embedding
from mnemo.index.embedding import Embedding
from mnemo.log import job_rules
from mnemo.log.feed import StoredFeed
from mnemo.repository import remembering
from mnemo.testing import HashingEmbedder
from mnemo.values.codec import decode_vector
from mnemo.values.jobs import Job
from mnemo.values.messages import Message

pytestmark = pytest.mark.slow

MANY = 600
"""More than a process embeds without a job."""


class Noting(HashingEmbedder):
    """It notes the documents, and can be held back from a text on, or fail."""

    def __init__(self, dimensions: int = 256) -> None:
        super().__init__(dimensions)
        self.documents: list[str] = []
        self.held_at: str | None = None
        self.is_held, self.go_on = anyio.Event(), anyio.Event()
        self.broken = False

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> Any:
        """Embed *texts*, once it may."""
        if self.broken:
            raise ModelUnavailable("no vectors today")
        if kind == "document":
            if self.held_at is not None and self.held_at in texts:
                self.is_held.set()
                await self.go_on.wait()
            self.documents += texts
        return await super().embed(texts, kind=kind)


@pytest.fixture(params=["file", ON_POSTGRES])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Where a store begins empty."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    return emptied(url, tmp_path)


def service(place: Any, embedder: Noting, *, background: bool = True, **options: Any) -> Mnemo:
    jobs = {"poll_s": 0.02, "quiet_s": 3_600, "background": background}
    config = Config(jobs=jobs, session={"lease_s": 600})
    return Mnemo(place, embedder=embedder, config=config, **options)


@asynccontextmanager
async def working(memory: Mnemo) -> AsyncIterator[None]:
    async with anyio.create_task_group() as group:
        group.start_soon(partial(memory.work, kinds=["embed"]))
        yield
        group.cancel_scope.cancel()


def text(number: int) -> str:
    return f"number {number:04} of the bees"


async def say(repo: Repository, numbers: range, said: Callable[[int], str] = text) -> None:
    await repo.conversation("t").append([Message(role="user", content=said(n)) for n in numbers])


def vectors(place: Any) -> int:
    return int(rows_of(place, "SELECT count(*) FROM vectors")[0][0])


def states(place: Any) -> list[str]:
    return [state for (state,) in rows_of(place, "SELECT state FROM jobs WHERE kind = 'embed'")]


def declare_dead(place: Any, memory: Mnemo) -> None:
    """Have everybody take the service for one of a machine that is gone."""
    token = memory._owner.token  # type: ignore[union-attr]
    dead = f"UPDATE owners SET lease_until = 0, host = 'gone' WHERE token = '{token}'"
    if not isinstance(place, str):
        change(place, dead)
        return
    server, _, schema = place.partition("&schema=")
    execute(server, f"SET search_path = {schema}; {dead}")


async def test_a_worker_makes_the_vectors_that_a_service_leaves(place):
    """Each text once, and the documents are in the memory of neither."""
    mine, its = Noting(), Noting()
    async with service(place, mine, background=False) as app, service(place, its) as other:
        repo = await app.open_repo("r")
        await say(repo, range(MANY))
        async with working(other):
            await until(lambda: (vectors(place), states(place)) == (MANY, ["done"]))
            assert not other.repo("r")._parts.index.is_held
            await say(repo, range(MANY, MANY + 3))
            await until(lambda: (vectors(place), states(place)) == (MANY + 3, ["done"]))
        assert not repo._parts.index.is_held
        assert mine.documents == []
        assert sorted(its.documents) == [text(n) for n in range(MANY + 3)]
        assert (await repo.statistics()).on_its_way == {}


async def test_a_worker_reads_what_came_since_the_last_job_alone(place, monkeypatch):
    """A job of a process that opens the repository anew does not look at what has its vectors."""
    changes, work_off, begun = StoredFeed.changes, Embedding.work_off, []
    is_job = ContextVar("is_job", default=False)

    async def noted(feed: StoredFeed, after: Any, **options: Any) -> Any:
        if is_job.get():  # who has just opened may have looked at a page before
            begun.append(after)
        return await changes(feed, after, **options)

    async def as_job(*given: Any, **options: Any) -> Any:
        is_job.set(True)
        return await work_off(*given, **options)

    monkeypatch.setattr(StoredFeed, "changes", noted)
    monkeypatch.setattr(Embedding, "work_off", as_job)
    mine, its = Noting(), Noting()
    async with service(place, mine, background=False) as app:
        repo = await app.open_repo("r")
        for numbers in (range(MANY), range(MANY, MANY + 3)):
            await say(repo, numbers)
            async with service(place, its) as other, working(other):
                await until(lambda end=numbers.stop: vectors(place) == end)
                await until(lambda: states(place) == ["done"])
                read = await other.repo("r")._parts.feed.changes(
                    other.repo("r")._parts.index._paid[1]
                )
                assert read.messages == {}
            assert not numbers.start or min(cursor.message for cursor in begun) >= MANY
            begun.clear()
        ((until_,),) = rows_of(place, "SELECT needs FROM jobs WHERE kind = 'embed'")
        assert str(MANY + 3) in str(until_)


async def test_equal_texts_are_embedded_once(place):
    """Also those of different pages and windows."""
    mine, its = Noting(), Noting()
    async with service(place, mine, background=False) as app, service(place, its) as other:
        repo = await app.open_repo("r")
        await say(repo, range(MANY), lambda n: text(n % 7))
        async with working(other):
            await until(lambda: vectors(place) == MANY)
    assert sorted(its.documents) == [text(n) for n in range(7)]


async def test_who_embeds_is_relieved_by_a_worker(place, monkeypatch):
    """A service without workers embeds what nobody takes, until somebody does."""
    monkeypatch.setattr(embedding, "TURN_S", 0)  # whether somebody does is seen at once
    mine, its = Noting(), Noting()
    mine.held_at = text(0)
    async with service(place, mine, workers=0) as app, service(place, its) as other:
        repo = await app.open_repo("r")
        await say(repo, range(MANY))
        await mine.is_held.wait()
        async with working(other):
            await until(lambda: (vectors(place), states(place)) == (MANY, ["done"]))
        assert set(its.documents) == {text(n) for n in range(MANY)}
        mine.go_on.set()
        await until(lambda: not repo._parts.index.statistics().waiting)
        await repo._parts.index.catch_up()
    assert vectors(place) == MANY
    assert len(mine.documents) < MANY


async def test_two_that_have_it_open_do_not_make_vectors_twice(place):
    """One takes the job; the other sees that, and leaves it to it."""
    mine, its = Noting(), Noting()
    mine.held_at = text(0)
    async with service(place, mine) as app, service(place, its) as other:
        repo, same = await app.open_repo("r"), await other.open_repo("r")
        await say(repo, range(MANY))
        await mine.is_held.wait()
        await same._parts.index.catch_up()
        same._parts.index.poke()
        await until(lambda: "again" in str(rows_of(place, "SELECT needs FROM jobs")))
        mine.go_on.set()
        await until(lambda: (vectors(place), states(place)) == (MANY, ["done"]))
    assert its.documents == []
    assert sorted(mine.documents) == [text(n) for n in range(MANY)]


async def test_what_a_dead_worker_left_is_embedded_by_another(place):
    """What it saved stays, nothing is lost, and what it writes later is the same again."""
    mine, its, third = Noting(), Noting(), Noting()
    its.held_at = text(MANY - 1)
    async with (
        service(place, mine, background=False) as app,
        service(place, its) as other,
        service(place, third) as heir,
    ):
        repo = await app.open_repo("r")
        await say(repo, range(MANY))
        async with working(other):
            await its.is_held.wait()
            before = vectors(place)
            declare_dead(place, other)
            async with working(heir):
                await until(lambda: (vectors(place), states(place)) == (MANY, ["done"]))
            its.go_on.set()
            await until(lambda: len(its.documents) == MANY)
    assert 0 < before < MANY
    assert len(third.documents) == MANY - before
    assert (vectors(place), states(place)) == (MANY, ["done"])


async def test_what_is_forgotten_meanwhile_gets_no_vector(place):
    """Its text was read and embedded; nothing of it is kept."""
    mine, its = Noting(), Noting()
    its.held_at = text(17)
    async with service(place, mine, background=False) as app, service(place, its) as other:
        repo = await app.open_repo("r")
        await say(repo, range(20))
        async with working(other):
            await its.is_held.wait()
            messages = await repo.conversation("t").history()
            await repo.forget(message_ids=[messages[17].stored_id])
            its.go_on.set()
            await until(lambda: (vectors(place), states(place)) == (19, ["done"]))
        assert (await app.check()).problems == ()
    assert text(17) in its.documents


@pytest.mark.parametrize("number", [3, MANY])
async def test_an_index_that_was_let_go_stays_let_go(place, number):
    """What is appended gets its vectors, and recall finds it afterwards."""
    mine = Noting()
    async with service(place, mine) as memory:
        repo = await memory.open_repo("r")
        await say(repo, range(5))
        await repo.conversation("t").settle()
        index = repo._parts.index
        await until(index.let_go)
        await say(repo, range(5, 5 + number))
        await until(lambda: vectors(place) == 5 + number)
        assert not index.is_held
        assert (await index.corpus()).owed == 0
    assert sorted(mine.documents) == [text(n) for n in range(5 + number)]


async def test_what_an_earlier_run_left_is_embedded_without_reading_all(place):
    """A repository that opens makes it up; its documents are read when somebody asks."""
    mine = Noting()
    async with service(place, Noting(), background=False) as app:
        await say(await app.open_repo("r"), range(40))
    async with service(place, mine) as memory:
        repo = await memory.open_repo("r")
        await until(lambda: vectors(place) == 40)
        assert not repo._parts.index.is_held
    assert sorted(mine.documents) == [text(n) for n in range(40)]


async def test_a_job_that_others_ended_meanwhile_begins_here_when_the_old_run_has_ended(place):
    """A service that lost its lease while it embeds, and then owes more, has one run of it."""
    mine = Noting()
    mine.held_at = text(0)
    async with service(place, mine) as memory:
        repo = await memory.open_repo("r")
        jobs, slots = repo._jobs, repo._jobs._slots
        await say(repo, range(MANY))
        await mine.is_held.wait()
        await until(lambda: jobs.running)

        def end_elsewhere(tx: Any) -> None:
            job = tx.job("embed", "")
            tx.put_job(job.claimed("other").finished(more=False))

        await repo._parts.transcript.writing(end_elsewhere)
        assert await jobs.embed()
        assert (states(place), slots.running, list(jobs.running)) == (
            ["waiting"],
            1,
            [("embed", "")],
        )
        mine.go_on.set()
        await until(lambda: (vectors(place), states(place)) == (MANY, ["done"]))
        await until(lambda: not jobs.running)
        assert (slots.running, dict(slots.busy)) == (0, {})


async def test_who_is_left_in_the_old_space_takes_no_job_from_the_new_one(place):
    """The repository moved; what an old process appends is embedded in the new space."""
    mine, its = Noting(), Noting(32)
    async with service(place, mine) as old, service(place, its) as new:
        repo = await old.open_repo("r")
        await say(repo, range(20))
        await until(lambda: vectors(place) == 20)
        await new.reembed("r")
        moved = await new.open_repo("r")
        its.held_at = text(20)
        await say(moved, range(20, MANY))
        await its.is_held.wait()
        await until(lambda: states(place) == ["running"])
        before = rows_of(place, "SELECT token, owner FROM jobs WHERE kind = 'embed'")
        await say(repo, range(MANY, MANY + 1))
        assert not await repo._jobs.embed()
        assert rows_of(place, "SELECT token, owner FROM jobs WHERE kind = 'embed'") == before
        its.go_on.set()
        moved._parts.index.poke()
        await until(lambda: (vectors(place), states(place)) == (MANY + 1, ["done"]))
        await until(lambda: not moved._jobs.running)
        assert new._slots.running == 0


async def test_what_was_embedded_in_the_old_space_is_not_taken_for_embedded(place):
    """A job that waits while the repository moves begins at the first text again."""
    mine, its = Noting(), Noting(32)
    async with service(place, mine, background=False) as old, service(place, its) as new:
        repo = await old.open_repo("r")

        def owe(tx: Any) -> None:
            needs = {"space": str(mine.space), "until": [0, 0, 0, 0, 9]}
            tx.put_job(Job(kind="embed", subject="", due_at=tx.lease_now, needs=needs))

        await say(repo, range(3))
        await repo._parts.index.embed_waiting()
        await repo._parts.transcript.writing(owe)
        await new.reembed("r")
        (found,) = rows_of(place, "SELECT needs FROM jobs WHERE kind = 'embed'")
        assert json.loads(found[0]) == {"space": str(its.space)}


async def test_who_opens_a_repository_takes_up_what_was_owed_in_another_space(place):
    """Nobody else could do that job, and it would be on its way for ever."""
    mine, its = Noting(), Noting(32)
    async with service(place, mine, background=False) as app:
        await say(await app.open_repo("r"), range(3))
        await until(lambda: states(place) == ["waiting"])
    async with service(place, its, workers=0) as left:
        await (await left.open_repo("r"))._parts.index.embed_waiting()
    assert (vectors(place), states(place)) == (3, ["waiting"])
    async with service(place, its) as other:
        await (await other.open_repo("r")).settle()
        await until(lambda: states(place) == ["done"])


async def test_appends_that_have_nothing_to_say_of_the_job_write_nothing(place, monkeypatch):
    """It is owed already: a second transaction of each append would halve their number."""
    demand, written = job_rules.demand_embedding, []

    def noted(*args: Any, **options: Any) -> Any:
        written.append(options)
        return demand(*args, **options)

    monkeypatch.setattr(job_rules, "demand_embedding", noted)
    async with service(place, Noting(), background=False) as app:
        repo = await app.open_repo("r")
        for number in range(20):
            await say(repo, range(number, number + 1))
        await until(lambda: states(place) == ["waiting"])
        await repo._jobs.embed()
    assert len(written) == 1


@pytest.mark.parametrize(("workers", "parallel"), [(1, 4), (None, 1)])
async def test_what_is_said_is_extracted_while_a_backlog_is_embedded(place, workers, parallel):
    """One place is enough, of the service or of the repository."""
    mine = Noting()
    mine.held_at = text(0)
    places = Config(extraction={"max_parallel": parallel})
    async with service(place, mine, workers=workers) as memory:
        repo = await memory.open_repo("r", config=places)
        await say(repo, range(MANY))
        await mine.is_held.wait()
        await until(lambda: repo._jobs.running)
        with anyio.fail_after(20):
            await repo.remember("I work as a nurse.", thread_id="u", wait=True)
        await until(lambda: [*repo._jobs.running] == [("embed", "")])
        mine.go_on.set()
        await until(lambda: (memory._slots.running, memory._slots.embedding) == (0, 0))


async def test_a_text_that_is_always_refused_has_nothing_read_again(place, monkeypatch):
    """It alone is tried again; what else there is was read once, and has its vector."""
    monkeypatch.setattr(embedding, "RETRY_S", 0.01)
    monkeypatch.setattr(embedding, "MAX_RETRY_S", 0.02)
    changes, begun, tries = StoredFeed.changes, [], []

    async def noted(feed: StoredFeed, after: Any, **options: Any) -> Any:
        begun.append(after)
        return await changes(feed, after, **options)

    class Picky(Noting):
        async def embed(self, texts: Sequence[str], **options: Any) -> Any:
            if text(3) in texts and refuses:
                tries.append(len(texts))
                raise ModelUnavailable("not this one")
            return await super().embed(texts, **options)

    refuses, its = True, Picky()
    async with service(place, Noting(), background=False) as app, service(place, its) as other:
        repo = await app.open_repo("r")
        await say(repo, range(40))
        async with working(other):
            await until(lambda: vectors(place) == 39)
            monkeypatch.setattr(StoredFeed, "changes", noted)
            before = len(tries)
            await until(lambda: len(begun) > 4 and len(tries) > before + 4)
            assert min(cursor.message for cursor in begun[1:]) >= 40
            assert {*tries[before + 1 :]} == {1}
            refuses = False
            await until(lambda: (vectors(place), states(place)) == (40, ["done"]))


async def test_a_text_that_was_refused_and_is_forgotten_is_not_tried_again(place, monkeypatch):
    """Its job ends."""
    monkeypatch.setattr(embedding, "RETRY_S", 0.01)
    monkeypatch.setattr(embedding, "MAX_RETRY_S", 0.02)

    class Picky(Noting):
        async def embed(self, texts: Sequence[str], **options: Any) -> Any:
            if text(3) in texts:
                raise ModelUnavailable("not this one")
            return await super().embed(texts, **options)

    its = Picky()
    async with service(place, Noting(), background=False) as app, service(place, its) as other:
        repo = await app.open_repo("r")
        await say(repo, range(40))
        async with working(other):
            await until(lambda: vectors(place) == 39)
            await until(lambda: other.repo("r")._parts.index._pace.left)
            messages = await repo.conversation("t").history()
            await repo.forget(message_ids=[messages[3].stored_id])
            await until(lambda: (vectors(place), states(place)) == (39, ["done"]))
            assert not other.repo("r")._parts.index._pace.left


@pytest.mark.parametrize("is_held", [False, True])
async def test_a_fact_that_is_said_anew_keeps_no_vector_of_its_old_words(tmp_path, is_held):
    """Its old text was read and is being embedded when an erasure says it anew, with its id."""
    its, place = Noting(), tmp_path / "m.db"
    its.held_at = "Mara grows pears in Bern."
    async with service(place, Noting(), background=False) as app, service(place, its) as other:
        repo = await app.open_repo("r")
        await repo.add_memory("Mara grows pears in Bern.")
        change(place, "DELETE FROM vectors")
        if is_held:
            index = (await other.open_repo("r"))._parts.index
            await index.corpus()
            assert index.is_held
        repo._parts.index.poke()
        async with working(other):
            await its.is_held.wait()
            change(
                place,
                "UPDATE repos SET revision = revision + 1",
                "UPDATE nodes SET revision = (SELECT max(revision) FROM repos), body ="
                " replace(body, 'grows pears in Bern', 'sells bicycles in Oslo')"
                " WHERE type = 'semantic'",
            )
            its.go_on.set()
            repo._parts.index.poke()
            await until(lambda: "Mara sells bicycles in Oslo." in its.documents)
            await until(lambda: (vectors(place), states(place)) == (1, ["done"]))
    ((vector,),) = rows_of(place, "SELECT vector FROM vectors")
    (wanted,) = await HashingEmbedder().embed(["Mara sells bicycles in Oslo."])
    assert float(np.dot(decode_vector(vector), wanted / np.linalg.norm(wanted))) > 0.99


async def test_who_has_lost_the_claim_stops(place, monkeypatch):
    """It was paused while another took the job over; that one makes what is left."""
    monkeypatch.setattr(remembering, "FENCE_S", 0.01)
    looks, look = list[Any](), remembering.held_job

    def noted(tx: Any, job: Any) -> Any:
        looks.append(look(tx, job))
        return looks[-1]

    monkeypatch.setattr(remembering, "held_job", noted)
    its = Noting()
    its.held_at = text(0)
    async with service(place, Noting(), background=False) as app, service(place, its) as other:
        repo = await app.open_repo("r")
        await say(repo, range(999))
        async with working(other):
            await its.is_held.wait()
            takes = partial(take_over, owner=app._owner.token)
            await repo._parts.transcript.writing(takes)
            await until(lambda: None in looks)
            jobs = other.repo("r")._jobs
            its.go_on.set()
            await until(lambda: not jobs.running)
            assert 0 < vectors(place) < 999
            assert states(place) == ["running"]


def take_over(tx: Any, owner: str) -> None:
    tx.put_job(tx.job("embed", "").claimed(owner))


async def test_an_embedder_that_fails_leaves_the_job_to_others(place):
    """It is put back, and never dead; another worker does it."""
    mine, its, third = Noting(), Noting(), Noting()
    its.broken = True
    async with (
        service(place, mine, background=False) as app,
        service(place, its) as other,
        service(place, third) as able,
    ):
        repo = await app.open_repo("r")
        await say(repo, range(MANY))
        async with working(other):
            await until(lambda: other._repos and other.repo("r")._parts.index.statistics().failing)
            async with working(able):
                await until(lambda: (vectors(place), states(place)) == (MANY, ["done"]))
    assert sorted(third.documents) == [text(n) for n in range(MANY)]
