"""Import of dialogues: nothing twice, nothing lost, whenever it is stopped."""

from collections import Counter

import anyio
import pytest
from helpers import repository

from mnemo import Config, Conflict, ExtractionFailed, Mnemo, ModelUnavailable, SessionState
from mnemo.importing import dialogues
from mnemo.importing.dialogues import stream_talks
from mnemo.importing.records import Talk, Turn
from mnemo.importing.writing import Arrival, import_items
from mnemo.testing import HashingEmbedder, ScriptedChatModel


def talk(name: str, count: int, first: int = 0) -> Talk:
    """A talk of *count* turns."""
    turns = tuple(
        Turn(key=f"k{n}", observation=f"{name} says {n}", action="", actor="Ada", at=None)
        for n in range(first, count)
    )
    return Talk(name, f"goal of {name}", turns)


TALKS = [talk(name, 6) for name in ("a", "b", "c", "d", "e", "f")]


async def test_an_import_brings_every_turn_in_once_and_commits(db):
    """One session per talk, one step per turn, with its key and actor."""
    async with repository(db, "r") as repo:
        tally = await import_items(repo, iter(TALKS))
        found = await repo.recall("e says 3", session_id="r/e", k=1)
        statistics = await repo.statistics()
        states = {record.state for record in await repo.sessions()}
    assert tally == Arrival(added=36, sessions=Counter(new=6))
    assert states == {SessionState.IDLE}
    assert (statistics.steps, statistics.nodes["episodic"]) == (36, 36)
    (source, *_) = found.sources
    assert (source.session_id, source.key, source.actor) == ("r/e", "k3", "Ada")


async def test_a_second_import_adds_nothing(db):
    """Running it twice: same revision, same counts, also in a new service."""
    async with repository(db, "r") as repo:
        await import_items(repo, iter(TALKS))
        before = await repo.statistics()
    async with repository(db, "r") as repo:
        tally = await import_items(repo, iter(TALKS))
        after = await repo.statistics()
    assert tally == Arrival(known=36, sessions=Counter(complete=6))
    assert (after.revision, after.steps, after.nodes) == (
        before.revision,
        before.steps,
        before.nodes,
    )


async def test_a_grown_talk_gets_only_what_is_new(db):
    """A log that is written on: its session goes on in a new episode."""
    async with repository(db, "r") as repo:
        await import_items(repo, iter([talk("a", 3)]))
        grown = await import_items(repo, iter([talk("a", 5)]))
        again = await import_items(repo, iter([talk("a", 5)]))
        steps = (await repo.statistics()).steps
    assert grown == Arrival(added=2, known=3, sessions=Counter(resumed=1))
    assert again == Arrival(known=5, sessions=Counter(complete=1))
    assert steps == 5


@pytest.mark.parametrize("after", [1, 5, 13, 35])
async def test_an_import_that_is_cancelled_is_completed_by_the_next(db, after):
    """Stopped after any number of turns, run again: every turn once, all committed."""
    with anyio.CancelScope() as scope:
        async with repository(db, "r") as repo:
            await import_items(repo, iter(TALKS), advance=_cancelling(scope, after))
    assert scope.cancelled_caught
    async with Mnemo(db, embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("r")
        tally = await import_items(repo, iter(TALKS))
        statistics = await repo.statistics()
        unfinished = await repo.unfinished_sessions()
        problems = (await memory.check()).problems
    assert tally.added + tally.known == 36
    assert tally.known >= after
    assert (statistics.steps, statistics.nodes["episodic"]) == (36, 36)
    assert unfinished == []
    assert problems == ()


def _cancelling(scope: anyio.CancelScope, after: int):
    turns = iter(range(1, after))

    def advance(_count: int) -> None:
        if next(turns, None) is None:
            scope.cancel()

    return advance


@pytest.mark.parametrize("state", ["collecting", "extracting", "ready"])
async def test_a_session_is_taken_up_in_whatever_state_it_was_left(db, state):
    """Begun by hand as an import would, left in each unfinished state, then completed."""
    async with repository(db, "r") as repo:
        session = await repo.start_session("goal of a", session_id="r/a")
        await session.append("a says 0", "", key="k0", actor="Ada")
        if state != "collecting":
            await session.close()
        if state == "ready":
            await session.wait_for("ready")
    async with repository(db, "r") as repo:
        tally = await import_items(repo, iter([talk("a", 3)]))
        (record,) = await repo.sessions()
        nodes = (await repo.statistics()).nodes["episodic"]
    assert tally == Arrival(added=2, known=1, sessions=Counter(resumed=1))
    assert record.state is SessionState.IDLE
    assert nodes == 3


async def test_a_failed_extraction_is_one_error_and_the_next_import_retries_it(db):
    """The failure itself is raised, not a group; its steps are kept and extracted later."""
    model = ScriptedChatModel.answering({"semantic": ModelUnavailable("down", retryable=False)})
    async with repository(db, "r", chat_model=model) as repo:
        with pytest.raises(ExtractionFailed):
            await import_items(repo, iter([talk("a", 3)]))
        (left,) = await repo.unfinished_sessions()
    assert (left.state, left.steps) == (SessionState.FAILED, 3)
    async with repository(db, "r") as repo:
        tally = await import_items(repo, iter([talk("a", 3)]))
        nodes = (await repo.statistics()).nodes["episodic"]
    assert tally == Arrival(known=3, sessions=Counter(resumed=1))
    assert nodes == 3


async def test_auto_commit_changes_nothing_in_what_is_there(db):
    """Under auto-commit the same steps, once and committed, also the second time."""
    auto = Config(session={"auto_commit": True})
    async with repository(db, "r", config=auto) as repo:
        first = await import_items(repo, iter(TALKS))
        second = await import_items(repo, iter(TALKS))
        statistics = await repo.statistics()
        unfinished = await repo.unfinished_sessions()
    assert first == Arrival(added=36, sessions=Counter(new=6))
    assert second == Arrival(known=36, sessions=Counter(complete=6))
    assert (statistics.steps, statistics.nodes["episodic"], unfinished) == (36, 36, [])


async def test_another_text_under_a_known_key_is_refused(db):
    """The first text stays; the difference is told, not swallowed."""
    changed = Talk("a", "goal", (Turn(key="k0", observation="x", action="", actor="A", at=None),))
    async with repository(db, "r") as repo:
        await import_items(repo, iter([talk("a", 2)]))
        with pytest.raises(Conflict, match="'k0'"):
            await import_items(repo, iter([changed]))
        hits = await repo.search("says")
    assert {hit.snippet for hit in hits} == {"a says 0", "a says 1"}


async def test_unstorable_characters_do_not_look_like_another_text(db, write):
    """A lone surrogate is stored as a mark; the second import knows it again."""
    file = write("log.jsonl", '{"role": "user", "content": "odd \\ud800 and \\u0000 text"}')
    async with repository(db, "r") as repo:
        await import_items(repo, stream_talks(file))
        assert await import_items(repo, stream_talks(file)) == Arrival(
            known=1, sessions=Counter(complete=1)
        )


async def test_parts_of_a_session_count_as_one_session(db, write, monkeypatch):
    """Every turn is there once, the second time as well."""
    monkeypatch.setattr(dialogues, "HELD", 30)
    lines = [{"role": "user", "content": f"message {n}", "session": n % 3} for n in range(18)]
    file = write("log.jsonl", lines)
    async with repository(db, "r") as repo:
        first = await import_items(repo, stream_talks(file))
        second = await import_items(repo, stream_talks(file))
        said = sorted(node.observation for node in await repo.get_nodes(["episodic"]))
    assert (first.sessions["new"], first.added, first.sessions["resumed"]) == (3, 18, 0)
    assert (second.sessions["complete"], second.known, second.added) == (3, 18, 0)
    assert said == sorted(f"message {n}" for n in range(18))
