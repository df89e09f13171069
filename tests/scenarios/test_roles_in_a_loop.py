"""Who speaks in an agent's loop decides what is learnt, through the public API, without a model."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from helpers import committed

from mnemo import Mnemo, Repository

CALL = {"id": "c1", "name": "git_commit", "arguments": {"message": "x"}}
LOOP: list[dict[str, Any]] = [
    {"role": "system", "content": "You are a helpful assistant.", "id": "m0"},
    {"role": "user", "content": "Commit it. You must not run migrations.", "id": "m1"},
    {"role": "assistant", "content": "You seem to prefer Postgres.", "id": "m2",
     "tool_calls": [CALL]},
    {"role": "tool", "content": "4 files stored", "id": "m3", "tool_call_id": "c1",
     "name": "git_commit"},
    {"role": "user", "content": "The reviewer likes the lanterns in the cellar.", "id": "m4"},
    {"role": "assistant", "content": "I noted that you like lanterns.", "id": "m5"},
]  # fmt: skip


@pytest.fixture
async def repo() -> AsyncIterator[Repository]:
    async with Mnemo("memory:") as memory:
        yield await memory.open_repo("loop")


@pytest.mark.parametrize("by_conversation", [True, False])
async def test_a_loop_of_messages_is_read_by_its_roles(repo, by_conversation):
    """The user's words and wish, the tool's result; the assistant's guesses are no facts."""
    session = await repo.start_session("commit")
    if by_conversation:
        chat = repo.conversation("t")
        await chat.append(LOOP)
        await session.append_messages(await chat.history())
    else:
        await session.append_messages(LOOP)
    await session.close_and_commit()

    facts = {fact.proposition: fact.confidence for fact in await repo.get_nodes(("semantic",))}
    wishes = [how.instruction for how in await repo.get_nodes(("procedural",))]

    assert facts.pop("`git_commit` returned 4 files stored.") == 0.9
    (said,) = facts
    assert "reviewer likes the lanterns" in said
    assert facts[said] < 0.9
    assert "You must not run migrations." in wishes


async def test_a_person_is_one_whatever_the_name_and_the_words(repo):
    """Messages without ids: a user called "shell" wishes, and a pasted line is no call's result."""
    session = await repo.start_session("commit")
    await session.append_messages(
        [
            {"role": "user", "content": "You must not run migrations.", "name": "shell"},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "user", "content": "4 files stored", "name": "shell"},
        ]
    )
    await session.close_and_commit()

    facts = [fact.proposition for fact in await repo.get_nodes(("semantic",))]
    wishes = [how.instruction for how in await repo.get_nodes(("procedural",))]

    assert not any("returned" in fact for fact in facts)
    assert "You must not run migrations." in wishes


async def test_steps_of_a_loop_are_read_by_their_actors(repo):
    """A step whose actor is ``tool`` takes no wish away; its printed text has one "when"."""
    session = await repo.start_session("deploy")
    await session.append("Always deploy to staging first.", "make deploy", actor="Ana")
    await session.append("Deploy to staging done.", "", actor="tool")
    await session.append("Peanuts make Lea sick.", "", actor="Ana")
    await session.close_and_commit()

    facts = {fact.proposition for fact in await repo.get_nodes(("semantic",))}
    shown = (await repo.recall("deploy to staging", reason=False)).as_text()

    assert "Peanuts make Lea sick." in facts
    assert "`make deploy` returned Deploy to staging done." in facts
    assert "when assisting Ana: Always deploy to staging first; expect no reminder" in shown
    assert "when when" not in shown.lower()


@pytest.mark.parametrize(
    ("first", "then", "holds"),
    [
        ("I work as a nurse.", "I'm a paramedic now", "paramedic"),
        ("My address is 4 Oak Road.", "My new address is 12 Elm Street.", "Elm"),
        ("The deadline is March 10", "The deadline is March 20", "20"),
        ("Deadline: March 10", "Deadline: March 20", "20"),
    ],
)
async def test_a_new_value_of_a_slot_supersedes_the_former(repo, first, then, holds):
    """Of two sessions that fill one slot the later one holds."""
    for said in (first, then):
        session = await committed(repo, said, "", actor="Ana", goal="talk")
        await session.aclose()

    facts = await repo.get_nodes(("semantic",))

    assert len(facts) == 2
    (holding,) = [fact for fact in facts if fact.valid_to is None]
    assert holds in holding.proposition
