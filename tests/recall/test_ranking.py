"""What the fitted signals add to the score of a step, and what they must not do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from ranked_dialogues import GERMAN, GERMAN_QUESTIONS, TOOL_QUESTIONS, TOOLS, Turn

import mnemo
from mnemo import Mnemo
from mnemo.recall import hop_zero, ranking
from mnemo.repository import Repository
from mnemo.values.form import DATE, FIRST, NUMBER, PLACE, form_of

PACKAGE = Path(mnemo.__file__).parent
BEGAN = datetime(2024, 3, 1, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("said", "form"),
    [
        ("I’ve been there", FIRST),
        ("Your turn?", 0),
        ("we left yesterday, in 2023", FIRST | DATE | NUMBER),
        ("it took (two) hours", NUMBER),
        ("Then Ada came", 0),
        ("a house in Porto", PLACE),
        ("in the end, at I don't know whose", FIRST),
        ("Only. Sentences. Begin.", 0),
        ("", 0),
        ("猫が好きです", 0),
        ("\ud800 \0", 0),
    ],
)
def test_the_form_of_what_was_said(said: str, form: int) -> None:
    """Each bit stands for words or signs that are there, in any case and with any apostrophe."""
    assert form_of(said) == form


def test_the_table_says_where_its_weights_come_from() -> None:
    """The shipped table names known signals, and its fit's date, files and figures."""
    table = ranking.table()
    for weights in table["weights"].values():
        assert weights
        assert weights.keys() <= ranking.SIGNALS.keys()
    assert datetime.fromisoformat(table["fitted"])
    assert table["recall@10"].keys() == {file["name"] for file in table["files"]}
    assert all(file["questions"] > 0 for file in table["files"])


def test_the_guide_and_the_inspector_describe_every_signal() -> None:
    """The page on recall has a row for each signal that --explain prints, the inspector words."""
    rows = re.findall(r"^\| `([^`]+)` \|", (PACKAGE / "guide" / "recall.md").read_text(), re.M)
    assert set(ranking.SIGNALS) < set(rows)
    assert {"words", "joined", "session", "cosine", "restated", "neighbours", "priors"} < set(rows)
    view = (PACKAGE / "web" / "static" / "views" / "recall.js").read_text()
    shown = view.partition("const SIGNALS = {")[2].partition("};")[0]
    assert sorted(re.findall(r'^  "?([^"\n]+?)"?: \["', shown, re.M)) == sorted(rows)


# ── One repository with and without the signals ──────────────────────────────────────


async def said(memory: Mnemo, sessions: Sequence[Sequence[Turn]]) -> Repository:
    """A repository with one step per turn, a day between sessions."""
    repo = await memory.open_repo()
    for number, turns in enumerate(sessions):
        session = await repo.start_session("talk")
        for place, (speaker, text) in enumerate(turns):
            at = BEGAN + timedelta(days=number, minutes=place)
            await session.append(text, "", actor=speaker, at=at)
    with anyio.fail_after(60):
        await repo.recall("warm up")
        while (await repo.statistics()).index.waiting:  # noqa: ASYNC110 - made in background
            await anyio.sleep(0.005)
    return repo


@contextmanager
def signals_off() -> Iterator[None]:
    """Within this block steps are ranked by their score alone."""
    shipped = hop_zero.step_weights
    hop_zero.step_weights = lambda *given: replace(shipped(*given), fitted={})
    try:
        yield
    finally:
        hop_zero.step_weights = shipped


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
async def test_other_languages_and_shapes_are_not_worse(
    sessions: list[list[Turn]], asked: list[tuple[str, str]]
) -> None:
    """A German chat and a tool log: evidence is among the first as often as by score alone."""
    async with Mnemo("memory:") as memory:
        repo = await said(memory, sessions)
        mine = await ranks(repo, asked)
        with signals_off():
            plain = await ranks(repo, asked)
    for first in (1, 3, 5):
        assert sum(r <= first for r in mine) >= sum(r <= first for r in plain), (mine, plain)


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
async def test_no_text_breaks_the_ranking(name: str) -> None:
    """Odd steps and questions of one or a thousand words: finite scores, no worse a place."""
    asked = [(NEEDLE, "zanzibar"), ("zanzibar?", "zanzibar"), (f"{NEEDLE} " * 500, "zanzibar")]
    asked += [("When did Ana and Bo go to “Zanzibar Quay”, and why? " * 20, "zanzibar")]
    async with Mnemo("memory:") as memory:
        repo = await said(memory, BAD[name])
        mine = await ranks(repo, asked)
        with signals_off():
            plain = await ranks(repo, asked)
    assert all(m <= p for m, p in zip(mine, plain, strict=True)), (mine, plain)


async def test_who_is_named_leads(world: Any) -> None:
    """Of two steps that match alike, the one by whom the question names comes first."""
    for n in range(30):
        await world.say(f"remark {n} about the weather", actor="Cleo")
    for actor in ("Bo", "Ana", "Bo"):
        await world.say("my boat is moored in the harbour", actor=actor, session=f"by {actor}")
    result = await world.recall.recall("Where is the boat of Ana moored?", explain=True)
    assert result.sources[0].actor == "Ana"
    added = {c.sources[0].actor: c.why.signals for c in result.candidates}
    assert added["Ana"]["speaker"] > 0 > added["Bo"]["speaker"]


async def test_an_answer_has_the_form_that_was_asked_for(world: Any) -> None:
    """Who asks where is given the step with a place before one that matches alike."""
    for n in range(30):
        await world.say(f"remark {n} about the weather")
    for session, text in (
        ("s2", "the boat was painted at length"),
        ("s3", "the boat was painted at Lengthwick"),
    ):
        await world.say(text, session=session)
    asked = "Where was the boat painted?"
    found = await world.recall.recall(asked, explain=True)
    assert found.sources[0].text.endswith("Lengthwick")
    added = [candidate.why.signals.get("where: place", 0) for candidate in found.candidates]
    assert added[0] > 0 > added[1]


async def test_what_the_score_finds_stays_found(world: Any) -> None:
    """The signals set the order; they turn no candidate away."""
    for n in range(20):
        await world.say(f"remark {n} about the weather", session="s1")
    for n in range(6):
        await world.say(f"heron {n}: are you there", actor="Bo", session="s1")
    found = await world.recall.recall("Ana, User: where are the heron?", k=50)
    with signals_off():
        plain = await world.recall.recall("Ana, User: where are the heron?", k=50)
    assert {c.node.id for c in plain.candidates} <= {c.node.id for c in found.candidates}


def test_the_table_is_json_that_a_person_can_read() -> None:
    """One weight per line, each rounded to two decimals at most."""
    text = (PACKAGE / "recall" / "ranking.json").read_text("utf-8")
    for weights in json.loads(text)["weights"].values():
        for name, weight in weights.items():
            assert f'"{name}": {weight}' in text
            assert weight == round(weight, 2)
