"""A ranking depends on what is stored and asked, whatever way it came into the index."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
from engines import emptied
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mnemo import Changeset, Config, Message, Mnemo, Repository, Semantic
from mnemo.log.feed import StoredFeed
from mnemo.testing import HashingEmbedder

BEGAN = datetime(2024, 3, 1, 9, tzinfo=UTC)
LONG = "the crew of the ferry went over the whole list of spare parts once more " * 7
THREADS: dict[str, list[tuple[str, str]]] = {
    "chat": [
        ("Ana", "Where did you leave the boat?"),
        ("Bo", "In the harbour of Porto."),
        ("Ana", "This line is erased later, boat and all."),
        ("Bo", "It needs red paint."),
        ("Ana", "I will bring the paint next week."),
    ],
    "notes": [
        ("User", "My bees swarm in the orchard."),
        ("User", "The boat needs a new rope."),
        ("User", "I paint the hive red."),
        ("User", "I sold the old boat in May."),
    ],
    "reports": [
        ("User", f"How is the ferry? {LONG}"),
        ("Agent", f"Its engine was replaced in May. {LONG} {LONG}"),
        ("User", f"And the red boat? {LONG}"),
    ],
    "gone": [
        ("Ana", "The boat of Ana is red, red is the boat."),
        ("Bo", "No, the boat is blue. The paint of the boat is blue."),
    ],
}
ERASED = {("chat", 2), ("gone", 0), ("gone", 1)}
STEPS = [("Ana", "The ferry is late."), ("Bo", "Take the red boat instead?"), ("Ana", "I will.")]
FACTS = ["Ana's boat is red.", "Bo keeps bees.", "The ferry sails at noon."]
QUESTIONS = [
    "Where is the boat?",
    "Who paints something red?",
    "What did Ana say about the paint?",
    "How is the ferry?",
    "What happened in May?",
    "What swarms?",
]
WRITES = [*(name for name, said in THREADS.items() for _ in said), *(["steps"] * 3), "facts"]
NOISE = ("others", "settle", "recall", "statistics")
PLAIN: list[list[tuple[str, float]]] = []
"""``plain_answers``, once they are known."""
CONFIG = Config(recall={"cut": 0, "record_access": False})


class Story:
    """Writes what there is to say, a piece at a time, and asks."""

    def __init__(self, memory: Mnemo, repo: Repository, others: Repository) -> None:
        self.memory, self.repo, self.others = memory, repo, others
        self.written = dict.fromkeys((*THREADS, "steps", "others"), 0)
        self.session: Any = None

    @classmethod
    async def begin(cls, memory: Mnemo) -> Story:
        """With two empty repositories."""
        return cls(memory, await memory.open_repo("mine"), await memory.open_repo("others"))

    async def write(self, what: str) -> None:
        """Add the next message of a thread, the next step, or the facts."""
        if what == "facts":
            facts = (Semantic(text, valid_from=BEGAN) for text in FACTS)
            await self.repo.apply(Changeset(nodes=tuple(facts)))
            return
        number = self.written[what]
        self.written[what] += 1
        if what == "steps":
            self.session = self.session or await self.repo.start_session("Cross the river")
            actor, text = STEPS[number]
            at = BEGAN + timedelta(days=30, minutes=number)
            await self.session.append(text, "", actor=actor, at=at)
            return
        await self._say(self.repo, what, number)

    async def _say(self, repo: Repository, thread: str, number: int) -> None:
        actor, text = THREADS[thread][number]
        day = 40 * number if thread == "notes" else 10 * list(THREADS).index(thread)
        at = BEGAN + timedelta(days=day, minutes=number)
        role = "assistant" if actor == "Agent" else "user"
        said = Message(role, text, id=f"{thread}-{number}", actor=actor, at=at)
        await repo.conversation(thread).append(said)

    async def make_noise(self, what: str) -> None:
        """Let others speak, or have the index read what there is, with or without vectors."""
        if what == "others":
            number = self.written["others"] % len(THREADS["gone"])
            self.written["others"] += 1
            await self._say(self.others, "gone", number)
            await self.others.recall("boat")
        elif what == "settle":
            await self.repo.settle()
        elif what == "recall":
            await self.repo.recall("Where is the boat?")
        else:
            await self.repo.statistics()

    async def erase(self) -> None:
        """Take back a message in the middle of a chat, and a whole thread."""
        await self.repo.forget(thread_id="chat", message_ids=["chat-2"])
        await self.repo.forget(thread_id="gone")

    async def answers(self) -> list[list[tuple[str, float]]]:
        """What each question finds, best first, once nothing is owed."""
        await self.repo.settle()
        found = [await self.repo.recall(question, k=50) for question in QUESTIONS]
        return [[(c.node.text, c.score) for c in result.candidates] for result in found]


def same(mine: Sequence[Sequence[tuple[str, float]]], plain: Sequence[Any]) -> None:
    """Check that two rankings of each question are equal but for ties."""
    for one, other in zip(mine, plain, strict=True):
        expected = dict(other)
        assert dict(one) == pytest.approx(expected, abs=1e-5)
        order = [expected[text] for text, _ in one]
        assert order == pytest.approx([score for _, score in other], abs=1e-5)


@st.composite
def ways(draw: st.DrawFn) -> tuple[list[str], list[int]]:
    """An order of writing, with noise and one erasure in it, and the sizes of pages."""
    acts: list[str] = []
    for what in draw(st.permutations(WRITES)):
        acts += [what, *draw(st.lists(st.sampled_from(NOISE), max_size=1))]
    last = max(n for n, what in enumerate(acts) if what in ("gone", "chat"))
    acts.insert(draw(st.integers(last + 1, len(acts))), "erase")
    return acts, draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))


async def plain_answers() -> list[list[tuple[str, float]]]:
    """Of a repository into which nothing was written but what is to be found."""
    async with Mnemo("memory:", embedder=HashingEmbedder(), config=CONFIG) as memory:
        story = await Story.begin(memory)
        for what in WRITES:
            if (what, story.written.get(what)) in ERASED:
                story.written[what] += 1
            else:
                await story.write(what)
        return await story.answers()


async def told(place: Any, way: tuple[list[str], list[int]]) -> None:
    """Go one way in a store, compare, and compare again after it was opened anew."""
    acts, sizes = way
    read, pages = StoredFeed.changes, cycle(sizes)

    async def in_pages(self: StoredFeed, after: Any, *, limit: int = 0) -> Any:
        return await read(self, after, limit=next(pages))

    PLAIN[:] = PLAIN or await plain_answers()
    with patch.object(StoredFeed, "changes", in_pages):
        async with Mnemo(place, embedder=HashingEmbedder(), config=CONFIG) as memory:
            story = await Story.begin(memory)
            for act in acts:
                if act == "erase":
                    await story.erase()
                else:
                    await (story.make_noise if act in NOISE else story.write)(act)
            same(await story.answers(), PLAIN)
        if place != "memory:":
            async with Mnemo(place, embedder=HashingEmbedder(), config=CONFIG) as memory:
                same(await (await Story.begin(memory)).answers(), PLAIN)


@pytest.mark.long
@pytest.mark.slow
@given(way=ways())
async def test_order_and_portions_change_no_ranking(way: tuple[list[str], list[int]]) -> None:
    """In memory: others' messages, pages, vectors and an erasure between leave no trace."""
    await told("memory:", way)


@pytest.mark.long
@pytest.mark.slow
@given(way=ways())
@settings(max_examples=8)
async def test_in_a_file_they_change_none_either(way: tuple[list[str], list[int]]) -> None:
    """Nor does it when the file is opened anew."""
    with TemporaryDirectory() as folder:
        await told(emptied(None, Path(folder)), way)


@pytest.mark.slow
@pytest.mark.postgres
@given(way=ways())
@settings(max_examples=4, suppress_health_check=list(HealthCheck))
async def test_on_postgresql_they_change_none_either(
    postgres_url: str, way: tuple[list[str], list[int]]
) -> None:
    """Nor does it after the service has connected anew."""
    await told(emptied(postgres_url, ""), way)
