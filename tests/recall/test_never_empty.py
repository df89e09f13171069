"""What asks for something is answered, and what is no language is not."""

import random
from string import ascii_lowercase

import pytest
from helpers import repository
from hypothesis import given
from hypothesis import strategies as st

from mnemo.english.letters import is_gibberish
from mnemo.recall.request import MAX_QUERY_CHARACTERS
from mnemo.runtime.text import clean

said = st.lists(st.text(min_size=1, max_size=60).filter(lambda t: clean(t).strip()), min_size=1)
questions = st.one_of(
    st.text(min_size=1, max_size=80),
    st.sampled_from(
        ["What is her job?", "¿Dónde vive?", "她住在哪里？", "Wo wohnt sie?", "?", "the"]
    ),
)


@given(stored=said, question=questions.filter(lambda q: q.strip()), k=st.integers(1, 12))
async def test_no_answer_is_empty(stored, question, k):
    """Whatever is stored and asked, unless the question is no language."""
    async with repository() as repo:
        for text in stored[:6]:
            await repo.remember(text)
        found = await repo.recall(question, k=k)
    if not is_gibberish(clean(question[:MAX_QUERY_CHARACTERS])):
        assert found.candidates
        assert not found.trace.abstained
    assert len(found.candidates) <= k
    assert found.trace.abstained <= (found.candidates == [])


def nonsense(count: int) -> list[str]:
    """Questions of random letters."""
    chance = random.Random(1)

    def word() -> str:
        return "".join(chance.choice(ascii_lowercase) for _ in range(chance.randint(5, 9)))

    return [f"{word()} {word()} {word()}" for _ in range(count)]


async def test_random_letters_find_nothing(world):
    """No language and no stored word: silence, and the trace says so; not so with a word."""
    for number in range(25):
        await world.say(f"I keep bees in orchard {number} behind the house.", actor="Ana")
    await world.embedded()
    for question in nonsense(200):
        silent = await world.recall.recall(question)
        assert (silent.candidates, silent.trace.abstained) == ([], True)
    found = await world.recall.recall("xqzv kzwpgh orchard")
    assert "orchard" in found.candidates[0].node.text
    assert not found.trace.abstained


@pytest.mark.parametrize("only", [{"actor": "Bo"}, {"thread_id": "none"}, {"min_score": 0.9}])
async def test_an_answer_is_empty_where_nothing_passes(world, only):
    """What is filtered away does not answer; nothing was abstained from."""
    await world.say("I keep bees.", actor="Ana")
    found = await world.recall.recall("What is her job?", **only)
    assert (found.candidates, found.trace.abstained) == ([], False)


async def test_at_most_five_are_far_below_the_best(world):
    """Behind the fifth, ``config.recall.cut`` of the best value is needed."""
    await world.say("The red boat of Ana is moored in Porto.", actor="Ana")
    for number in range(20):
        await world.say(f"Remark {number} about the weather.", actor="Ana")
    found = (await world.recall.recall("Where is the red boat of Ana moored?", k=15)).candidates
    assert len(found) == 5
    assert found[0].relevance > 2 * found[1].relevance
    few = (await world.recall.recall("Where is the red boat of Ana moored?", k=3)).candidates
    assert [c.node.id for c in few] == [c.node.id for c in found[:3]]


async def test_all_that_match_alike_stay(world):
    """``cut`` leaves what is next to the best, however many that is."""
    for number in range(12):
        await world.say(f"The heron came on day {number}.", actor="Ana")
    assert len((await world.recall.recall("When did the heron come?", k=12)).candidates) == 12
