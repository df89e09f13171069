"""What the kinds of signal do to the order of whole dialogues, and what they must not do."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from ranked_dialogues import GERMAN, GERMAN_QUESTIONS, TOOL_QUESTIONS, TOOLS, Turn

import mnemo
from mnemo import Mnemo
from mnemo.index.pieces import CHAT, DOCUMENT, NOTE
from mnemo.recall import score
from mnemo.recall.result import GROUPS
from mnemo.repository.repository import Repository
from mnemo.testing import HashingEmbedder

PACKAGE = Path(mnemo.__file__).parent
BEGAN = datetime(2024, 3, 1, 9, tzinfo=UTC)


def test_the_guide_and_the_inspector_describe_every_signal():
    """The page on recall has a row with the weights of each signal, the inspector words."""
    guide = (PACKAGE / "guide" / "recall.md").read_text().partition("| signal |")[2]
    guide = guide.partition("\n\n")[0]
    rows = dict(re.findall(r"^\| `([^`]+)` \|([^|]+\|[^|]+\|[^|]+)\|", guide, re.M))
    told = {
        name: {kind: float(weight) for kind, weight in enumerate(row.split("|")) if weight.strip()}
        for name, row in rows.items()
    }
    assert told == score.WEIGHTS
    view = (PACKAGE / "web" / "static" / "views" / "recall.js").read_text()
    shown = view.partition("const SIGNALS = {")[2].partition("\n};")[0]
    groups = re.findall(r'^  "?([^"\n]+?)"?: \{$', shown, re.M)
    named = re.findall(r'^    "?([^"\n]+?)"?: \["', shown, re.M)
    # The page shows who and when as one.
    assert groups == [*list(GROUPS)[:2], "who, when"]
    assert named == [name for names in GROUPS.values() for name in names]
    assert set(named) == {*score.WEIGHTS, *score.ANSWERS}


# ── One repository with and without the signals ──────────────────────────────────────


async def said(memory: Mnemo, sessions: Sequence[Sequence[Turn]]) -> Repository:
    """A repository with one step per turn, a day between sessions."""
    repo = await memory.open_repo()
    for number, turns in enumerate(sessions):
        session = await repo.start_session("talk")
        for place, (speaker, text) in enumerate(turns):
            at = BEGAN + timedelta(days=number, minutes=place)
            await session.append(text, "", actor=speaker, at=at)
    await repo.settle()
    return repo


@contextmanager
def only(*kept: str) -> Iterator[None]:
    """Within this block the signals *kept* count, and no others."""
    shipped = dict(score.WEIGHTS)
    nothing = dict.fromkeys((NOTE, CHAT, DOCUMENT), 0.0)
    score.WEIGHTS.update(dict.fromkeys(shipped.keys() - set(kept), nothing))
    try:
        yield
    finally:
        score.WEIGHTS.update(shipped)


async def rank(repo: Repository, question: str, answer: str) -> int:
    """The place of the first source that holds *answer*, from 1; 51 where none does."""
    found = await repo.recall(question, k=50)
    assert all(np.isfinite(c.score) and 0 <= c.relevance <= 1 for c in found.candidates)
    places = (n for n, source in enumerate(found.sources, 1) if answer in source.text)
    return next(places, 51)


async def ranks(repo: Repository, asked: Sequence[tuple[str, str]]) -> list[int]:
    return [await rank(repo, question, answer) for question, answer in asked]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sessions", "asked"), [(GERMAN, GERMAN_QUESTIONS), (TOOLS, TOOL_QUESTIONS)]
)
async def test_other_languages_and_shapes_are_not_worse(sessions, asked):
    """A German chat and a tool log: at most one question loses its place to English signals."""
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        repo = await said(memory, sessions)
        mine = await ranks(repo, asked)
        with only(*GROUPS["words"], *GROUPS["meaning"]):
            plain = await ranks(repo, asked)
    for first in (1, 3, 5):
        assert sum(r <= first for r in mine) >= sum(r <= first for r in plain) - 1, (mine, plain)


def _talk(text: str) -> list[list[Turn]]:
    """Thirty steps by two speakers, of which one says *text*."""
    turns = [(("Ana", "Bo")[n % 2], f"remark {n} about the weather") for n in range(30)]
    turns[14] = ("Ana", text)
    return [turns]


NEEDLE = "zanzibar quay"
BAD = {
    "no capitals or points": _talk("i think zanzibar quay is in lisbon and you know it"),
    "another script": [
        [(who, f"{n} 今日は天気がいいですね") for n, (who, _) in enumerate(_talk(NEEDLE)[0])],
        [("太郎", "来週 zanzibar quay に行きます")],
    ],
    "one word": [[("Ana", word) for word in "abcdefghijklmnopqrstu"], [("Bo", NEEDLE)]],
    "a hundred thousand words": _talk(NEEDLE + " and so on" * 33_000),
    "one speaker": [[("Ana", text) for _, text in _talk(NEEDLE)[0]]],
    "nobody that can be named": [[("?", text) for _, text in _talk(NEEDLE)[0]]],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BAD)
async def test_no_text_breaks_the_ranking(name):
    """Odd steps and questions of one or a thousand words: finite scores, no worse a place."""
    asked = [(NEEDLE, "zanzibar"), ("zanzibar?", "zanzibar"), (f"{NEEDLE} " * 500, "zanzibar")]
    asked += [("When did they go to “Zanzibar Quay”, and why? " * 20, "zanzibar")]
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        repo = await said(memory, BAD[name])
        mine = await ranks(repo, asked)
        with only("words", "cosine"):
            plain = await ranks(repo, asked)
    assert all(m <= p for m, p in zip(mine, plain, strict=True)), (mine, plain)


async def test_who_is_named_leads(world):
    """Of turns that match alike, those by whom the question names come first."""
    for n in range(30):
        await world.say(f"remark {n} about the weather", actor="Cleo")
    for actor in ("Bo", "Ana", "Bo"):
        await world.say("my boat is moored in the harbour", actor=actor, session="s2")
    result = await world.recall.recall("Where is the boat of Ana moored?", explain=True)
    assert result.sources[0].actor == "Ana"
    added = {c.sources[0].actor: c.why.signals.get("speaker", 0) for c in result.candidates}
    assert added["Ana"] > 0 == added["Bo"]


async def test_an_answer_has_the_form_that_was_asked_for(world):
    """Who asks where is given the turn with a place before one that matches alike."""
    for session, text in (
        ("s2", "the boat was painted at length"),
        ("s3", "the boat was painted at Lengthwick"),
    ):
        await world.say(text, session=session, actor="Ana")
        await world.say("well done", session=session, actor="Bo")
    asked = "Where was the boat painted?"
    found = await world.recall.recall(asked, explain=True)
    assert found.sources[0].text.endswith("Lengthwick")
    added = [candidate.why.signals.get("where: place", 0) for candidate in found.candidates]
    assert added[0] > 0 == added[1]
