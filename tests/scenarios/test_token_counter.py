"""A counter of one's own counts whatever is fitted to a budget of tokens."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from helpers import repository

from mnemo import Config, Repository
from mnemo.values.counting import fitted


def words(text: str) -> int:
    """As many tokens as there are words: far fewer than the estimate."""
    return len(text.split())


@asynccontextmanager
async def opened(path: Path, count: Callable[[str], int] | None) -> AsyncIterator[Repository]:
    """A repository with twelve steps and three notes, counted with *count*."""
    config = Config(conversation={"token_counter": count})
    async with repository(path, "r", config=config) as repo:
        session = await repo.start_session("g")
        for n in range(12):
            await session.append(
                f"The fox number {n} unhesitatingly oversprings the river in Lisbon.", "Seen."
            )
        for name in ("foxes", "rivers", "lisbon"):
            await repo.notes.write(f"topic-{name}", f"The fox of {name}. " * 20, f"About {name}")
        yield repo


async def shown(repo: Repository, budget: int) -> dict[str, str]:
    """All that is fitted to a budget."""
    result = await repo.recall("fox river Lisbon", k=10)
    both = await repo.recall("fox river Lisbon", k=2, notes=True)
    (hit, *_) = await repo.search("fox")
    return {
        "recall": result.as_text(budget),
        "with notes": both.as_text(budget),
        "notes": (await repo.notes.recall("fox")).as_text(budget),
        "overview": await repo.notes.overview(budget),
        "view": (await repo.view(hit.message_id)).as_text(max(budget, 100)),
    }


@pytest.mark.parametrize("count", [len, words], ids=["characters", "words"])
async def test_no_text_exceeds_its_budget_as_it_is_counted(tmp_path, count):
    """One counter counts four times the estimate, the other a third of it."""
    async with opened(tmp_path / "m.db", count) as repo:
        for budget in (200, 260, 340):
            for name, text in (await shown(repo, budget)).items():
                assert text, name
                assert count(text) <= budget, name


async def test_a_budget_is_used_as_far_as_it_reaches(tmp_path):
    """Where words are counted, more is shown than the estimate would let in."""
    async with opened(tmp_path / "a.db", words) as repo:
        counted = await shown(repo, 140)
    async with opened(tmp_path / "b.db", None) as repo:
        estimated = await shown(repo, 140)
    for name in ("recall", "overview", "view"):
        assert len(counted[name]) >= len(estimated[name]), name
    assert len(counted["recall"]) > 1.3 * len(estimated["recall"])


async def test_words_put_to_an_answer_are_counted_too(tmp_path):
    """Of each type 512 tokens are put into words, and characters are more than the estimate."""
    async with opened(tmp_path / "a.db", lambda text: 20 * len(text)) as repo:
        answer = (await repo.recall("fox river Lisbon", reason=True)).answer
    assert answer is None or answer.episodic is None
    async with opened(tmp_path / "b.db", None) as repo:
        answer = (await repo.recall("fox river Lisbon", reason=True)).answer
    assert answer is not None
    assert answer.episodic is not None


@pytest.mark.parametrize("budget", [0, 1, 10, 99, 1_000])
@pytest.mark.parametrize("count", [len, words, lambda text: 10 * len(text)])
def test_the_longest_text_that_fits_is_found(count, budget):
    """Nearly all of the budget is used, and never more."""
    whole = "four " * 300
    text = fitted(lambda size: whole[:size], budget, count)
    assert count(text) <= budget
    if count(whole) > budget:
        longer = whole[: int(len(text) * 1.2) + 12]
        assert count(longer) > budget
    else:
        assert text == whole
