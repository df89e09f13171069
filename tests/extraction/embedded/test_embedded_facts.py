"""Facts from speech and from tool output, without a model."""

from __future__ import annotations

import pytest


async def test_a_first_person_event_names_actor_and_date(step, facts_of):
    """X26: "yesterday" of Ana on 2024-03-01 gives a fact with her name and 2024-02-29."""
    (fact,) = await facts_of(step(0, "I adopted a cat yesterday.", actor="Ana"))

    assert fact.proposition == "Ana adopted a cat yesterday [2024-02-29]."
    assert fact.steps == (0,)
    assert fact.concepts[0] == "Ana"


async def test_small_talk_gives_no_fact(step, facts_of):
    """X27: greetings, questions and thanks are not worth keeping."""
    assert await facts_of(step(0, "Hi! How are you? Thanks, that's great!")) == []


async def test_points_inside_names_and_versions_do_not_split(step, facts_of):
    """X28: an abbreviation, a version and a host name make one sentence and one fact."""
    (fact,) = await facts_of(step(0, "Dr. Lee uses v2.1.3 at example.org."))

    assert "Dr. Lee uses v2.1.3 at example.org" in fact.proposition


@pytest.mark.parametrize(
    "text",
    [
        '{"api_key": "sk-…", "region": "eu-west"}',
        '{"api_key": "sk-4f9a8b7c6d5e4f3a2b1c", "region": "eu-west"}',
        "export DB_PASSWORD=hunter22",
        "My password is hunter22 and my dentist is in Bremen.",
    ],
)
async def test_a_secret_enters_no_fact(step, facts_of, text):
    """X32: what looks like a key or password is in no proposition and no concept."""
    facts = await facts_of(step(0, text))

    told = " ".join(f"{f.proposition} {f.concepts}" for f in facts)
    assert not any(s in told for s in ("sk-", "hunter22", "4f9a8b"))


async def test_equal_input_gives_equal_facts(step, facts_of):
    """X33: the same steps give the same facts, in the same order."""
    steps = [step(0, "I moved to Porto last week. My sister Eva lives in Braga.", actor="Ana")]

    assert await facts_of(*steps) == await facts_of(*steps) != []
