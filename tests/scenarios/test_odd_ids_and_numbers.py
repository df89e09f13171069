"""Odd ids and numbers through every public call: a typed error or an answer, never a raw one."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from helpers import lines_of
from hostile_values import World, places, world

from mnemo import Changeset, ConfigError, InvalidArchive, Mnemo, MnemoError, Semantic, StoreError

ODD_IDS = ("nul", "surrogate", "600", "empty", "bytes", "None")
ODD_NUMBERS = ("2**63", "10**400", "-2**63", "inf", "nan", "1.5", "0", "-1")
USER = {"role": "user", "content": "x"}
INSIDE = {
    "apply": lambda made, id: made.repo.apply(Changeset(nodes=(Semantic("fact", id=id),))),
    "step": lambda made, id: made.session.append_messages({**USER, "id": id}),
    "message": lambda made, id: made.talk.append({**USER, "id": id}),
    "call": lambda made, id: made.talk.append({"role": "tool", "content": "x", "tool_call_id": id}),
    "ttl": lambda made, number: made.repo.conversation("u", ttl_s=number).append(USER),
    "tokens": lambda made, number: made.talk.append({**USER, "token_count": number}),
}


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[World]:
    """One of everything, over a file."""
    async with world(tmp_path / "m.db", tmp_path) as made:
        yield made


async def test_no_id_and_no_number_brings_a_raw_error(made):
    """In the place of every argument that takes one: an answer, or what is documented."""
    for place in places(made):
        for name in (*ODD_IDS, *ODD_NUMBERS):
            if name in place.values:
                await made.call(place, place.values[name])


@pytest.mark.parametrize("place", INSIDE)
async def test_nor_does_one_inside_of_a_value(made, place):
    """Ids of nodes, messages and calls, and counts of tokens: stored, or refused."""
    for odd in ("a\0b", "a\ud800b", "x" * 600, "", b"x", 2**63, 10**30, float("nan"), 1.5):
        try:
            await INSIDE[place](made, odd)
        except (UnicodeError, StoreError):
            raise
        except (ValueError, MnemoError):
            continue


async def test_what_names_a_container_is_refused_instead_of_changed(made):
    """Two names that differ only in such a character would otherwise become one."""
    refused = pytest.raises(ValueError, match=r"cannot hold|512 bytes|200 characters")
    for odd in ("a\0b", "a\ud800b", "x" * 600):
        with refused:
            await made.memory.open_repo(odd)
        with refused:
            await made.repo.start_session("g", session_id=odd)
        with refused:
            made.repo.conversation(odd)


async def test_the_largest_number_of_a_store_is_a_number(made):
    """As many as a store could hold is all that there is."""
    await made.session.close_and_commit()
    assert len(await made.repo.latest(2**63 - 1)) == len(await made.repo.latest(1_000))
    with pytest.raises(ValueError, match="top_k must be a whole number"):
        await made.repo.latest(2**63)


@pytest.mark.parametrize("path", ["a\0.db", "sqlite:///a\0.db", "a\ud800.db"])
async def test_a_path_that_no_file_can_have_is_refused(path):
    """Where the service is made, not where SQLite meets it."""
    with pytest.raises(ConfigError, match="path cannot hold"):
        Mnemo(path)


async def test_an_archive_with_numbers_or_ids_that_are_none_is_refused(made):
    """NaN, infinity and integers beyond 64 bits in the place of any value; nothing is written."""
    await made.session.close_and_commit()
    lines = await lines_of(made.memory, "r")
    for place, line in enumerate(lines):
        read = json.loads(line)
        for name, value in read.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not (is_number or name.endswith(("id", "key", "thread"))) or value is None:
                continue
            for odd in ("NaN", "1e999", "9" * 30) if is_number else ("NaN", "5"):
                broken = json.dumps({**read, name: "ODD"}).replace('"ODD"', odd)
                given = [*lines[:place], broken + "\n", *lines[place + 1 :]]
                with pytest.raises(InvalidArchive):
                    await made.memory.import_repo("other", given)
