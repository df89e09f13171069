"""A service killed with SIGKILL at many moments loses nothing that it had acknowledged."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from crash.lives import Lives, Told
from engines import rows_of

from mnemo import Config, Episodic, Mnemo, Repository
from mnemo.testing import HashingEmbedder

STORES_PER_MODE, LIVES_PER_STORE = 4, 26
KILLS_PER_MODE = STORES_PER_MODE * LIVES_PER_STORE

LONGEST_OPENING_S, LONGEST_LIFE_S = 0.03, 0.1
MOST_LINES = 40


# ── The moment of a kill ─────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Moment:
    """When a life ends: so many lines told, the last of them *after*, and so much later."""

    lines: int
    delay_s: float = 0.0
    after: str | None = None

    @classmethod
    def drawn(cls, chance: random.Random, *, auto: bool) -> Moment:
        """While it opens, at any time of its work, right after any line or after one kind."""
        match chance.choices(("opening", "working", "line", "kind"), (2, 8, 6, 4))[0]:
            case "opening":
                return cls(0, chance.uniform(0, LONGEST_OPENING_S))
            case "working":
                return cls(1, chance.uniform(0, LONGEST_LIFE_S))
            case "line":
                return cls(chance.randint(2, MOST_LINES))
        kinds = ("step", "closed", "ended") if auto else ("step", "closed", "ready", "committed")
        return cls(chance.randint(1, MOST_LINES // 2), after=chance.choice(kinds))

    def has_come(self, told: Told) -> bool:
        """Whether the process may die now."""
        enough = len(told) >= self.lines
        return enough and (self.after is None or told[-1][0] == self.after)


# ── What it had been told ────────────────────────────────────────────────────────────


@dataclass
class Episode:
    """What the processes were told about one episode."""

    session: str
    steps: dict[int, str] = field(default_factory=dict)
    reached: set[str] = field(default_factory=set)
    node_ids: list[str] = field(default_factory=list)


class Ledger:
    """Everything that was acknowledged, over all lives."""

    def __init__(self) -> None:
        self.episodes: dict[str, Episode] = {}

    def enter(self, told: Told) -> None:
        for what, *rest in told:
            if what == "open":
                continue
            session, id, *more = rest
            episode = self.episodes.setdefault(id, Episode(session))
            if what == "step":
                self._step(episode, *more)
            elif what == "resumed":
                assert more[0] in ("collecting", "extracting", "ready")
            else:
                episode.reached.add(what)
                episode.node_ids += more[0] if more else []

    @staticmethod
    def _step(episode: Episode, index: int, key: str) -> None:
        assert episode.steps.get(index, key) == key, "one index was given to two steps"
        episode.steps[index] = key


# ── What is there ────────────────────────────────────────────────────────────────────


_STEPS = """
SELECT e.id, t.idx, t.key, t.observation, t.committed
FROM steps t JOIN episodes e ON e.no = t.episode
"""
_STATES = """
SELECT e.id, CASE WHEN coalesce(s.state, 'idle') = 'idle' THEN e.status ELSE s.state END
FROM episodes e LEFT JOIN sessions s ON s.episode = e.no
"""


@dataclass
class Found:
    """What the store holds, read past the service so that it vouches for itself in nothing."""

    states: dict[str, str]
    steps: dict[str, dict[int, str]]
    committed: dict[str, set[int]]

    @classmethod
    def read(cls, place: Path | str) -> Found:
        rows = rows_of(place, _STEPS)
        found = cls(dict(rows_of(place, _STATES)), defaultdict(dict), defaultdict(set))
        for episode, index, key, observation, committed in rows:
            assert index not in found.steps[episode], "two steps have one place"
            assert observation.endswith(f"({key})")
            found.steps[episode][index] = key
            if committed:
                found.committed[episode].add(index)
        assert len({key for _, _, key, _, _ in rows}) == len(rows), "a step is there twice"
        return found


async def verify(
    memory: Mnemo, repo: Repository, place: Path | str, ledger: Ledger, *, auto: bool
) -> None:
    """Everything acknowledged is there once, nothing is there by half."""
    report = await memory.check()
    assert report.problems == ()
    found = Found.read(place)
    episodic = [node for node in await repo.get_nodes(["episodic"]) if isinstance(node, Episodic)]
    nodes = Counter((node.episode_id, node.step_index) for node in episodic)
    assert set(nodes.values()) <= {1}, "a step has two nodes"
    assert set(nodes) == {(e, i) for e, indexes in found.committed.items() for i in indexes}
    for id, episode in ledger.episodes.items():
        assert episode.steps.items() <= found.steps[id].items(), "an acknowledged step is lost"
        _verify_state(id, episode, found)
    if not auto:
        for id, committed in found.committed.items():
            assert committed in (set(), set(found.steps[id])), "an episode is committed by half"
    receipts = {node for episode in ledger.episodes.values() for node in episode.node_ids}
    assert set(await repo.get_metadata(sorted(receipts))) == receipts


def _verify_state(id: str, episode: Episode, found: Found) -> None:
    state, reached = found.states[id], episode.reached
    if reached & {"committed", "ended"}:
        assert state == "committed"
        assert found.committed[id] == set(found.steps[id])
    elif "discarded" in reached:
        assert (state, found.committed[id]) == ("discarded", set())
    elif "ready" in reached:
        assert state in ("ready", "committed", "discarded")
    elif "closed" in reached:
        assert state in ("extracting", "ready", "committed", "discarded")
    else:
        assert state != "failed"


async def finish_all(repo: Repository, ledger: Ledger) -> None:
    """Resume every unfinished session, ask again for what was lost on the way, and commit."""
    for record in await repo.unfinished_sessions():
        session = await repo.resume_session(record.id)
        id = session.episode_id
        assert id is not None
        if session.state == "collecting":
            known = ledger.episodes[id].steps if id in ledger.episodes else {}
            for step in session.recent_steps(100):
                again = await session.append("repeated", "repeated", key=step.key)
                assert again.index == step.index
            step = await session.append(f"the last step ({id})", "", key=id)
            assert step.index >= len(known)
            await session.close_and_commit()
        elif await session.wait_for("ready", "idle") == "ready":
            await session.commit()
        ledger.enter([["committed", session.id, id]])
        assert session.state == "idle"
        await session.aclose()
    assert await repo.unfinished_sessions() == []


# ── The test ─────────────────────────────────────────────────────────────────────────


async def many_lives(
    place: Path | str, lives: Lives, *, auto: bool, seed: int, number: int = LIVES_PER_STORE
) -> tuple[int, Counter[str]]:
    """Kill one process after another over one store; give how many, and what was met."""
    chance, ledger, kills, met = random.Random(seed), Ledger(), 0, Counter[str]()
    for life in range(number):
        moment = Moment.drawn(chance, auto=auto)
        told = lives.killed(
            "work",
            when=moment.has_come,
            delay_s=moment.delay_s,
            path=str(place),
            auto=auto,
            seed=seed * 1_000 + life,
        )
        kills += 1
        ledger.enter(told)
        met.update(what for what, *_ in told)
        config = Config(session={"auto_commit": auto})
        async with Mnemo(place, config=config, embedder=HashingEmbedder()) as memory:
            repo = await memory.open_repo("r")
            met.update(f"found {record.state}" for record in await repo.unfinished_sessions())
            await verify(memory, repo, place, ledger, auto=auto)
            if life % 5 == 4 or life == number - 1:
                await finish_all(repo, ledger)
                await verify(memory, repo, place, ledger, auto=auto)
    return kills, met


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    "auto",
    [
        pytest.param(False, id="manual"),
        pytest.param(True, id="auto_commit"),
    ],
)
async def test_nothing_acknowledged_is_lost_or_doubled(
    tmp_path: Path, lives: Lives, auto: bool
) -> None:
    """
    Over more than 200 kills (both modes together) nothing is lost.

    Every acknowledged step, close and commit is there exactly once, no changeset by half,
    full text and vectors agree with what they belong to, and what was unfinished is taken
    up, partly by the next process, which is killed too, and ends.
    """
    kills, met = 0, Counter[str]()
    for seed in range(STORES_PER_MODE):
        path = tmp_path / f"{seed}.db"
        more, what = await many_lives(path, lives, auto=auto, seed=seed + 100 * auto)
        kills += more
        met.update(what)
    assert kills == KILLS_PER_MODE
    assert 2 * KILLS_PER_MODE >= 200
    expected = {"step", "closed", "committed", "resumed", "found collecting", "found extracting"}
    assert expected | ({"ended"} if auto else {"discarded", "found ready"}) <= set(met)


@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.parametrize("auto", [False, True], ids=["manual", "auto_commit"])
async def test_nothing_acknowledged_is_lost_or_doubled_on_postgres(
    postgres_url: str, lives: Lives, auto: bool
) -> None:
    """As in a file; the server finishes or undoes what a killed process had begun."""
    seed = 200 + auto
    kills, met = await many_lives(postgres_url, lives, auto=auto, seed=seed, number=12)
    assert kills == 12
    assert {"step", "closed", "resumed"} <= set(met)
