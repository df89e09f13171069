"""
A conversation of 5,000 messages in a window of 4,000 tokens, killed five times.

The model fails at one request in five. ``pytest -rP`` on this file shows by which way each
of the planted facts is reached at the end.
"""

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import long_talk
import pytest
from long_talk import BUDGET, CATERER, LENGTH, SESSION, THREAD, Fact, opened, script

from mnemo import Repository
from mnemo.repository.conversation import Conversation
from mnemo.values.derived import EvictionOutcome, Snapshot

PROGRAM = Path(long_talk.__file__)
KILLS = 5
WAYS = ("window", "memory", "snapshots", "pins", "search", "recall")


# ── Lives and deaths ─────────────────────────────────────────────────────────────────


def lived(path: Path, life: int, *, until: int | None = None) -> list[list[Any]]:
    """What a process told: killed once it has said that seq, or at its own end."""
    child = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(path), str(life)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    told: list[str] = []
    assert child.stdout is not None
    for line in child.stdout:
        told.append(line)
        if until is not None and json.loads(line) == ["said", until]:
            child.kill()
            break
    rest, errors = child.communicate()
    assert child.returncode == (0 if until is None else -9), errors
    told += [line for line in rest.splitlines(keepends=True) if line.endswith("\n")]
    return [json.loads(line) for line in told]


def said(told: Sequence[Sequence[Any]]) -> list[int]:
    """The seqs that a process was told are stored."""
    return [line[1] for line in told if line[0] == "said"]


def check_lives(lives: Sequence[Sequence[Sequence[Any]]]) -> None:
    """Nothing that was told is missing at the next start, and what has left stays away."""
    for before, after in pairwise(lives):
        (_, outcomes_before), (next_seq, outcomes) = before[0][1:], after[0][1:]
        assert next_seq > max(said(before))
        assert outcomes >= outcomes_before
        assert said(after)[0] < next_seq, "the end of the last life is said again"
    (asked, failed) = (sum(counts.values()) for counts in lives[-1][-1][1:])
    assert 0.1 < failed / asked < 0.3


# ── The end ──────────────────────────────────────────────────────────────────────────


async def check_history(talk: Conversation) -> None:
    """Every message once, unchanged, in order, without a gap."""
    messages, _ = script()
    history = await talk.history()
    assert len(history) == LENGTH
    assert [one.seq for one in history] == list(range(LENGTH))
    told = [(one.id, one.role, one.kind, one.text, one.tool_call_id) for one in history]
    assert told == [(one.id, one.role, one.kind, one.text, one.tool_call_id) for one in messages]


async def check_window(talk: Conversation) -> None:
    """The invariants of the window: coverage, no blind band, the budget kept."""
    outcomes = await talk.snapshots.outcomes()
    check_coverage(outcomes, await talk.snapshots.list())
    boundary = outcomes[-1].to_seq + 1
    viewport = talk.viewport(BUDGET)
    rendered = await viewport.render()
    assert rendered.token_count <= BUDGET
    assert not rendered.over_budget
    assert rendered.degraded is None
    shown = {message.id for message in await viewport.messages()}
    live = {message.id for message in await talk.history(from_seq=boundary)}
    assert live <= shown
    assert live, "the newest unit is in the window"


def check_coverage(outcomes: Sequence[EvictionOutcome], snapshots: Sequence[Snapshot]) -> None:
    """Contiguous outcomes, a snapshot for each that has a text, one chain above each of these."""
    assert outcomes[0].from_seq == 0
    assert all(one.to_seq + 1 == other.from_seq for one, other in pairwise(outcomes))
    assert {one.kind for one in outcomes} >= {"snapshot", "fallback"}
    texts = [(one.snapshot_id, one.from_seq, one.to_seq) for one in outcomes if one.kind != "ok"]
    first = [(one.id, one.from_seq, one.to_seq) for one in snapshots if one.level == 1]
    assert first == texts
    known = {one.id: one for one in snapshots}
    for one in snapshots:
        if one.covered_by is not None:
            above = known[one.covered_by]
            assert above.level == 2
            assert above.from_seq <= one.from_seq <= one.to_seq <= above.to_seq


async def check_records(talk: Conversation) -> None:
    """Summaries of the log overlap nowhere, and the newest messages are loaded as they are."""
    records = await talk.compactions()
    assert records
    assert all(one.end_seq < other.start_seq for one, other in pairwise(records))
    assert (await talk.load())[-1].id == f"m{LENGTH - 1}"


async def check_steps(repo: Repository) -> None:
    """The session that was fed has a step of every message that says something, each once."""
    session = await repo.resume_session(SESSION)
    held = session.held_messages(THREAD)[::-1]
    assert held == [one.id for one in script()[0]]
    await session.aclose()


# ── The facts ────────────────────────────────────────────────────────────────────────


async def ways_to(repo: Repository, talk: Conversation, fact: Fact) -> dict[str, bool]:
    """By which ways a fact is reached."""
    rendered = await talk.viewport(BUDGET).render()
    snapshots = await talk.snapshots.list()
    pins = await talk.pins.list()
    hits = await repo.search(fact.question, session_id=THREAD, limit=20)
    recalled = await repo.recall(fact.question, reason=False)
    return {
        "window": any(fact.telling in message.text for message in rendered.window),
        "memory": fact.telling in rendered.memory,
        "snapshots": any(fact.telling in one.text for one in snapshots),
        "pins": any(fact.telling in pin.excerpt for pin in pins),
        "search": f"m{fact.seq}" in {hit.message_id for hit in hits},
        "recall": f"m{fact.seq}" in {source.message_id for source in recalled.sources},
    }


def table(facts: Sequence[Fact], found: Sequence[dict[str, bool]]) -> str:
    """Which fact is reached by what, for people."""
    lines = [f"{'message':>8}  " + "  ".join(WAYS) + "  fact"]
    for fact, ways in zip(facts, found, strict=True):
        marks = "  ".join(("yes" if ways[way] else "-").center(len(way)) for way in WAYS)
        lines.append(f"{fact.seq:>8}  {marks}  {fact.text}")
    return "\n".join(lines)


@pytest.mark.long
@pytest.mark.slow
async def test_a_long_conversation_loses_nothing(tmp_path):
    """Issue 5, point 5: 20 facts of 5,000 messages are reached, whatever failed and died."""
    path = tmp_path / "long.db"
    chance = random.Random(3)
    ends = [chance.randint(share - 300, share) for share in range(800, 801 + 850 * KILLS, 850)]
    lives = [lived(path, number, until=end) for number, end in enumerate(ends[:KILLS])]
    lives.append(lived(path, KILLS))
    check_lives(lives)
    async with opened(str(path)) as memory:
        repo = await memory.open_repo("office")
        talk = repo.conversation(THREAD)
        await talk.settle()
        await check_history(talk)
        await check_window(talk)
        await check_records(talk)
        await check_steps(repo)
        facts = script()[1]
        found = [await ways_to(repo, talk, fact) for fact in facts]
        print(table(facts, found))  # noqa: T201 - for people, by ``pytest -rP``
        assert len(facts) == 20
        assert all(any(ways.values()) for ways in found)
        assert all(any(ways[way] for ways in found) for way in WAYS), "every way reaches some"
        assert all(ways["search"] for ways in found), "what was said is always searchable"
        held = [fact.goal for fact, ways in zip(facts, found, strict=True) if ways["pins"]]
        assert held
        assert CATERER not in held, "a goal that is reached holds nothing"
        assert (await memory.check()).problems == ()
