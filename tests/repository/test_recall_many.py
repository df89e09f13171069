"""Several questions in one call."""

import pytest
from helpers import repository

from mnemo import RecallFailed


async def test_each_question_is_answered_as_by_itself():
    """In the order in which they were asked, with the arguments of all."""
    async with repository() as repo:
        await repo.remember(["I sail to the pier.", "The kettle boils."], actor="Ada")
        queries = [f"{word} {n}?" for n in range(8) for word in ("kettle", "pier")]
        found = await repo.recall_many(queries, k=1, actor="Ada")
        alone = [await repo.recall(query, k=1, actor="Ada") for query in queries]
        told = [[(one.node.id, one.score) for one in result.candidates] for result in found]
        assert told == [[(one.node.id, one.score) for one in result.candidates] for result in alone]
        assert await repo.recall_many([]) == []


@pytest.mark.parametrize("wrong", ["kettle", ["kettle", " "], ["x"] * 65, [1]])
async def test_questions_that_are_none_are_refused_together(wrong):
    """Nothing is asked for the others."""
    async with repository() as repo:
        with pytest.raises(ValueError, match=r"quer|Query"):
            await repo.recall_many(wrong)


async def test_a_failure_of_one_is_that_of_the_call(monkeypatch):
    """As one exception, as of ``recall``."""
    async with repository() as repo:
        await repo.remember("I sail to the pier.")

        async def fail(*_: object, **__: object) -> None:
            raise OSError("the disk is gone")

        monkeypatch.setattr(repo._parts.index, "corpus", fail)
        with pytest.raises(RecallFailed, match="the disk is gone"):
            await repo.recall_many(["kettle?", "pier?"])
