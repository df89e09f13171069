"""Questions about nothing that was said, asked of a repository as it is by default."""

import random
from string import ascii_lowercase

import pytest
from helpers import repository

THINGS = ("boat", "kite", "oven", "tent", "lamp", "harp")


def random_letters(count: int) -> list[str]:
    """Questions of three words of five to nine letters."""
    chance = random.Random(7)
    word = lambda: "".join(chance.choices(ascii_lowercase, k=chance.randint(5, 9)))  # noqa: E731
    return [f"{word()} {word()} {word()}" for _ in range(count)]


@pytest.mark.slow
async def test_random_letters_find_nothing_and_stored_words_do():
    """Through ``remember``, ``settle`` and ``recall``, with facts, steps and messages stored."""
    said = [f"I keep {n} {thing}s in the cellar." for n, thing in enumerate(THINGS * 4)]
    async with repository("memory:", "ada", embedder="static") as repo:
        await repo.remember(said, actor="Ada", wait=True)
        await repo.settle()
        for question in random_letters(20):
            silent = await repo.recall(question)
            assert (silent.candidates, silent.as_text()) == ([], "")
        for thing in THINGS:
            assert (await repo.recall(f"How many {thing}s are there?")).candidates
