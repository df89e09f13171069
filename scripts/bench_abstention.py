"""
Questions about nothing that a repository holds: how many find nothing.

Each dialogue is a repository, with its facts. Questions of random letters, and questions about
other dialogues of the file, are asked through ``Repository.recall`` as it is by default.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from string import ascii_lowercase
from tempfile import TemporaryDirectory
from typing import Any

from bench_dialogues import Dialogue

from mnemo import Mnemo
from mnemo.protocols import Embedder
from mnemo.repository import Repository

ASKED = 200
"""Questions of each kind."""
Ingest = Callable[[Mnemo, Dialogue], Awaitable[None]]


def random_letters(count: int) -> list[str]:
    """Questions of three words of five to nine letters; the same each time."""
    chance = random.Random(1)

    def word() -> str:
        return "".join(chance.choice(ascii_lowercase) for _ in range(chance.randint(5, 9)))

    return [f"{word()} {word()} {word()}" for _ in range(count)]


async def abstention(
    dialogues: Sequence[Dialogue], embedder: Embedder, ingest: Ingest
) -> dict[str, Any]:
    """How many questions of each kind were asked, and how many found nothing."""
    asked, silent = dict.fromkeys(_KINDS, 0), dict.fromkeys(_KINDS, 0)
    with TemporaryDirectory() as folder:
        async with Mnemo(Path(folder) / "mnemo.db", embedder=embedder) as memory:
            for place, dialogue in enumerate(dialogues):
                await ingest(memory, dialogue)
                repo = await memory.open_repo(dialogue.id, exist_ok=True)
                for kind, questions in _questions(dialogues, place).items():
                    asked[kind] += len(questions)
                    silent[kind] += await _silent(repo, questions)
                await memory.close_repo(dialogue.id)
    return {"dialogues": len(dialogues), "asked": asked, "found nothing": silent}


_KINDS = ("random letters", "about other dialogues", "about the dialogue itself")


def _questions(dialogues: Sequence[Dialogue], place: int) -> dict[str, list[str]]:
    """The share of this dialogue in the questions of each kind."""
    count = len(dialogues)
    mine = slice(place, ASKED, count)
    others = [q.text for d in dialogues if d is not dialogues[place] for q in d.questions]
    own = [question.text for question in dialogues[place].questions]
    chance = random.Random(place)
    share = len(range(ASKED)[mine])
    return {
        "random letters": random_letters(ASKED)[mine],
        "about other dialogues": chance.sample(others, min(share, len(others))),
        "about the dialogue itself": chance.sample(own, min(share, len(own))),
    }


async def _silent(repo: Repository, questions: Sequence[str]) -> int:
    """How many of *questions* find nothing."""
    found = [await repo.recall(question) for question in questions]
    return sum(not result.candidates for result in found)
