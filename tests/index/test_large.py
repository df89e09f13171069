"""Repositories of many steps are searched in segments, and answer as if all were in memory."""

from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from engines import emptied, rows_of
from segments_kit import few, opened

from mnemo import Config, ErasureReport, Mnemo
from mnemo.recall import grouped
from mnemo.testing import HashingEmbedder

WORDS = [
    f"{a}{b}"
    for a in ("ba", "do", "fi", "lu", "me", "no", "pu", "ra")
    for b in ("lon", "mir", "tak")
]


def say(chance: Random) -> str:
    """A sentence of words of which some are rare."""
    rare = (WORDS[min(int(chance.expovariate(0.15)), len(WORDS) - 1)] for _ in range(7))
    return " ".join(rare) + chance.choice((".", ".", "?"))


async def filled(repo: Any, threads: int = 30) -> None:
    """Talks of two, sessions of their own, sessions that repeat messages, and facts."""
    chance, day = Random(5), datetime(2024, 3, 1, 12, tzinfo=UTC)
    for number in range(threads):
        at = day + timedelta(days=number)
        said = [
            {"role": "user", "content": say(chance), "actor": ("Ana", "Bo")[turn % 2]}
            | {"at": at + timedelta(minutes=turn), "metadata": {"n": number % 3}}
            for turn in range(12)
        ]
        talk = repo.conversation(f"t{number}")
        await talk.append(said)
        if number % 5 == 0:
            await talk.feed(await repo.start_session("look", session_id=f"fed{number}"), from_seq=0)
        if number % 4 == 0:
            session = await repo.start_session("work", session_id=f"s{number}")
            for turn in range(5):
                await session.append(say(chance), say(chance), at=at + timedelta(hours=1 + turn))
            await session.append(f"I live in {WORDS[number % 24]}town.", "Noted.", at=at)
            await session.close_and_commit()


async def sealed(repo: Any) -> list[int]:
    """Keep what there is; give the sizes of the large segments."""
    index = repo._parts.index
    await index.embed_waiting()
    await index.seal()
    return [len(one) for one in index._held.large["steps"]]


FILTERS: tuple[dict[str, Any], ...] = (
    {},
    {"session_id": "s8"},
    {"session_id": "fed10"},
    {"thread_id": "t3"},
    {"actor": "Ana"},
    {"where": {"n": 2}},
    {"until": datetime(2024, 3, 9, tzinfo=UTC)},
    {"since": datetime(2024, 3, 20, tzinfo=UTC)},
)


async def answers(repo: Any) -> list[list[tuple[Any, ...]]]:
    """What is found for some questions and filters, and whose words it is."""
    chance, found = Random(8), list[Any]()
    for question in [*(say(chance) for _ in range(12)), "Where do you live?"]:
        for filters in FILTERS:
            result = await repo.recall(question, k=10, **filters)
            found.append([(c.node.id, *map(_place, c.sources)) for c in result.candidates])
    return found


def _place(source: Any) -> tuple[Any, ...]:
    return source.session_id, source.thread_id, source.message_id, source.step_index, source.text


def agreement(found: list[Any], expected: list[Any]) -> float:
    """The share of what was expected that was found."""
    assert [*map(len, found)] == [*map(len, expected)]
    return shared(found, expected)


def shared(found: list[Any], expected: list[Any]) -> float:
    """Likewise, however much was found for each question."""
    both = sum(len({*one} & {*other}) for one, other in zip(found, expected, strict=True))
    return both / sum(map(len, expected))


async def test_a_large_repository_answers_as_a_small_one(place):
    """Whatever the filters, of steps, messages, steps that repeat messages, and facts."""
    async with opened(place) as (_, repo):
        await filled(repo)
        expected = await answers(repo)
        assert await sealed(repo) == []
    with few():
        async with opened(place) as (_, repo):
            await answers(repo)
            assert len(await sealed(repo)) >= 4
            assert agreement(await answers(repo), expected) >= 0.97
        async with opened(place) as (_, repo):
            assert agreement(await answers(repo), expected) >= 0.97
            assert len(repo._parts.index._held.large["steps"]) >= 4


@pytest.mark.postgres
@pytest.mark.slow
async def test_machines_map_segments_of_a_server_and_drop_what_was_erased(postgres_url, tmp_path):
    """Each from a folder of its own; when an erasure returns, neither holds what nothing lists."""
    place = emptied(postgres_url, tmp_path)
    marked = {"role": "user", "content": "A wombat ate it."}
    async with opened(place) as (_, repo):
        await repo.conversation("t0").append(marked)
        await filled(repo, 12)
    with few():
        config = Config(jobs={"poll_s": 0.1}, recall={"record_access": False})
        async with AsyncExitStack() as stack:
            repos, folders = [], [tmp_path / "one", tmp_path / "other"]
            for folder in folders:
                config = config.overlaid(Config(index={"folder": str(folder)}))
                memory = Mnemo(place, embedder=HashingEmbedder(), config=config)
                await stack.enter_async_context(memory)
                repos.append(await memory.open_repo("r"))
                await answers(repos[-1])
                assert len(await sealed(repos[-1])) >= 2
            assert all(_files_with(b"wombat", folder) for folder in folders)
            report = await repos[0].forget(thread_id="t0")
            assert (report.messages, report.unconfirmed) == (13, ())
            assert not any(_files_with(b"wombat", folder) for folder in folders)
            listed = {digest for (digest,) in rows_of(place, "SELECT digest FROM segments")}
            assert all(file.name in listed for folder in folders for file in _files(folder))
            assert await answers(repos[0]) == await answers(repos[1])
            assert all(_files(folder) for folder in folders)


def _files(folder: Path) -> list[Path]:
    """The segments in it."""
    return [file for file in folder.rglob("*") if len(file.name) == 40]


def _files_with(word: bytes, folder: Path) -> list[Path]:
    return [file for file in _files(folder) if word in file.read_bytes()]


@pytest.mark.parametrize(
    ("erase", "word"),
    [
        (lambda memory, repo: repo.forget(thread_id="secret"), "quagga"),
        pytest.param(
            lambda memory, repo: repo.forget(session_id="okapis"), "okapi", marks=pytest.mark.long
        ),
        pytest.param(
            lambda memory, repo: expired(memory, repo, 6), "quagga", marks=pytest.mark.long
        ),
    ],
    ids=["thread", "session", "expiry"],
)
@pytest.mark.slow
async def test_no_file_holds_what_is_erased(tmp_path, erase, word):
    """Nor is it found, by whoever erased it or by others; of the other files all stay."""
    place, files = tmp_path / "m.db", tmp_path / "m.db.index"
    with few():
        async with opened(place) as (memory, repo), opened(place) as (_, other):
            session = await repo.start_session("zoo", session_id="okapis")
            for number in range(4):
                await session.append(f"The okapi came {number} times", "Seen.")
            await filled(repo, 10)
            await repo.conversation("secret").append(spoken("The quagga said", 6))
            for number in range(12):
                talk = repo.conversation(f"later{number}")
                await talk.append(spoken(f"{number} said balon", 12))
            assert len(before := await sealed(repo)) >= 4
            assert await said(repo, word)
            assert await said(other, word)
            names = {*files.iterdir()}
            assert holding(files, word)
            assert (await erase(memory, repo)).scrubbed
            assert not holding(tmp_path, word)
            assert not await said(repo, word)
            assert not await said(other, word)
            assert len(await sealed(repo)) == len(before)
            assert len(names & {*files.iterdir()}) == len(names) - 1
            found = [await answers(repo), await answers(other)]
    async with opened(place) as (_, repo):
        expected = await answers(repo)
    assert [shared(one, expected) >= 0.97 for one in found] == [True, True]


@pytest.mark.slow
async def test_the_scrub_of_an_idle_store_leaves_no_file_with_what_is_erased(tmp_path):
    """Where one cannot be removed, the scrub is not done."""
    place, files = tmp_path / "m.db", tmp_path / "m.db.index"
    with few():
        async with opened(place) as (memory, repo):
            await repo.conversation("secret").append(spoken("The quagga said", 6))
            await filled(repo, 10)
            assert await sealed(repo)
            assert holding(files, "quagga")
            await expired(memory, repo, 6, scrub=False)
            engine = memory._store.engine
            sweep, engine.sweep = engine.sweep, lambda _: False
            assert not await engine._scrubber.scrub(at_once=True)
            assert engine._scrubber.is_held_up
            engine.sweep = sweep
            assert await engine._scrubber.scrub(at_once=True)
            assert not holding(tmp_path, "quagga")


def spoken(words: str, times: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"{words} {number}"} for number in range(times)]


async def expired(memory: Any, repo: Any, messages: int, *, scrub: bool = True) -> ErasureReport:
    """Messages expire, and are found no more; later somebody scrubs."""
    store = memory._store.transcript("r")
    await store.writing(lambda tx: tx.erase("secret", range(messages)))
    assert not await said(repo, "quagga")
    return ErasureReport(scrubbed=scrub and await memory.scrub())


async def said(repo: Any, word: str) -> list[str]:
    """What is found that says *word*."""
    found = (await repo.recall(word, k=5)).candidates
    return [source.text for one in found for source in one.sources if word in source.text]


def holding(folder: Path, word: str) -> list[str]:
    """The files that hold *word*."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return [file.name for file in files if word.encode() in file.read_bytes()]


async def test_facts_that_were_not_looked_at_do_not_outrank_those_that_were(place, monkeypatch):
    """A fact is worth what the turn is that it was made of, and names it."""
    for name, value in (("BEST", 8), ("COARSE", 40), ("TALKS", 2)):
        monkeypatch.setattr(grouped, name, value)

    async def best(repo: Any) -> list[float]:
        found = await repo.recall("Where does the user live, in which town?", k=10)
        sources = [source for c in found.candidates for source in c.sources]
        assert all(source.session_id for source in sources), found.as_text()
        return [c.score for c in found.candidates]

    async with opened(place) as (_, repo):
        for number in range(30):
            session = await repo.start_session("chat", session_id=f"s{number}")
            for turn in range(3):
                town = f"{WORDS[(3 * number + turn) % len(WORDS)]}{number}town"
                await session.append(f"I live in {town}.", "Is that so?")
            await session.close_and_commit()
        expected = await best(repo)
    with few():
        async with opened(place) as (_, repo):
            assert len(await sealed(repo)) >= 2
            assert await best(repo) == pytest.approx(expected, abs=0.01)


async def test_a_segment_of_which_only_repeats_are_left_is_searched(place):
    """Also until a time, which it has none of."""
    chance = Random(1)

    def said(turns: int) -> list[dict[str, str]]:
        return [{"role": "user", "content": say(chance)} for _ in range(turns)]

    async def work(session_id: str, steps: int) -> None:
        session = await repo.start_session("work", session_id=session_id)
        for _ in range(steps):
            await session.append(say(chance), say(chance))

    with few():
        async with opened(place) as (_, repo):
            await repo.conversation("kept").append(said(72))
            fed = await repo.start_session("look", session_id="fed")
            await repo.conversation("kept").feed(fed, from_seq=0)
            await repo.conversation("gone").append(said(40))
            await work("w", 20)
            await repo.conversation("gone").append(said(100))
            await work("x", 60)
            await sealed(repo)
            await repo.conversation("later").append(said(150))
            await sealed(repo)
            for forgotten in ({"thread_id": "gone"}, {"session_id": "w"}, {"session_id": "x"}):
                await repo.forget(**forgotten)
            await sealed(repo)
            large = repo._parts.index._held.large["steps"]
            assert any(not len(one) and len(one.sealed["steps"].batch.repeats) for one in large)
            for filters in ({}, {"until": datetime.now(UTC)}, {"session_id": "fed"}):
                assert (await repo.recall("lumir batak", k=5, **filters)).candidates
