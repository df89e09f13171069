"""Odd ids and numbers through every public call: a typed error or an answer, never a raw one."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mnemo import (
    Changeset,
    ConfigError,
    Conversation,
    InvalidArchive,
    Mnemo,
    MnemoError,
    Repository,
    Semantic,
    Session,
    StoreError,
)
from mnemo.testing import HashingEmbedder


@dataclass
class Opened:
    """A service with one of everything."""

    memory: Mnemo
    repo: Repository
    session: Session
    talk: Conversation


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Opened]:
    """Opens one over a file."""
    async with Mnemo(path, embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("r")
        session, talk = await repo.start_session("g"), repo.conversation("t")
        await session.append("I live in Oslo.", "Noted.")
        await talk.append({"role": "user", "content": "hello"})
        await repo.notes.write("topic-a", "body", "about")
        yield Opened(memory, repo, session, talk)


async def exported(memory: Mnemo, repo_id: str) -> list[str]:
    """The lines of a repository."""
    async with memory.export_repo(repo_id) as lines:
        return [line async for line in lines]


Call = Callable[[Opened, Any], Any]
USER = {"role": "user", "content": "x"}
WITH_IDS: dict[str, Call] = {
    "open_repo": lambda o, id: o.memory.open_repo(id),
    "repo": lambda o, id: o.memory.repo(id),
    "session": lambda o, id: o.memory.session(id),
    "close_repo": lambda o, id: o.memory.close_repo(id),
    "reembed": lambda o, id: o.memory.reembed(id),
    "export_repo": lambda o, id: exported(o.memory, id),
    "import_repo": lambda o, id: o.memory.import_repo(id, []),
    "start_session": lambda o, id: o.repo.start_session("g", session_id=id),
    "resume_session": lambda o, id: o.repo.resume_session(id),
    "conversation": lambda o, id: o.repo.conversation(id),
    "search": lambda o, id: o.repo.search("hello", session_id=id),
    "not_visible_in": lambda o, id: o.repo.search("hello", not_visible_in=id),
    "view": lambda o, id: o.repo.view(id),
    "view in": lambda o, id: o.repo.view("x", session_id=id),
    "recall_in_context": lambda o, id: o.repo.recall_in_context(id, "hello"),
    "get_node": lambda o, id: o.repo.get_node(id),
    "get_nodes": lambda o, id: o.repo.get_nodes([id]),
    "get_metadata": lambda o, id: o.repo.get_metadata([id]),
    "get_edges": lambda o, id: o.repo.get_edges([id]),
    "get_linked_nodes": lambda o, id: o.repo.get_linked_nodes([id]),
    "delete_nodes": lambda o, id: o.repo.delete_nodes([id]),
    "apply": lambda o, id: o.repo.apply(Changeset(nodes=(Semantic("fact", id=id),))),
    "forget session": lambda o, id: o.repo.forget(session_id=id),
    "forget thread": lambda o, id: o.repo.forget(thread_id=id),
    "key": lambda o, id: o.session.append("a", "b", key=id),
    "append_async key": lambda o, id: o.session.append_async("a", "b", key=id),
    "actor": lambda o, id: o.session.append("a", "b", actor=id),
    "held_messages": lambda o, id: o.session.held_messages(id),
    "append_messages": lambda o, id: o.session.append_messages({**USER, "id": id}),
    "message": lambda o, id: o.talk.append({**USER, "id": id}),
    "tool_call_id": lambda o, id: o.talk.append(
        {"role": "tool", "content": "x", "tool_call_id": id}
    ),
    "note": lambda o, id: o.repo.notes.read(id),
    "note version": lambda o, id: o.repo.notes.history(id),
    "purge": lambda o, id: o.repo.notes.purge(id),
    "undo": lambda o, id: o.repo.notes.undo(id),
}
WITH_NUMBERS: dict[str, Call] = {
    "latest": lambda o, n: o.repo.latest(n),
    "k": lambda o, n: o.repo.recall("hello", k=n),
    "max_hops": lambda o, n: o.repo.recall("hello", max_hops=n),
    "limit": lambda o, n: o.repo.search("hello", limit=n),
    "before": lambda o, n: o.repo.view("x", before=n),
    "after": lambda o, n: o.repo.view("x", after=n),
    "view budget": lambda o, n: o.repo.view("x", budget_tokens=n),
    "history": lambda o, n: o.talk.history(from_seq=n),
    "history to": lambda o, n: o.talk.history(to_seq=n),
    "load": lambda o, n: o.talk.load(budget_tokens=n),
    "compact": lambda o, n: o.talk.compact(0, n, "x"),
    "expected_seq": lambda o, n: o.talk.append(USER, expected_seq=n),
    "token_count": lambda o, n: o.talk.append({**USER, "token_count": n}),
    "viewport": lambda o, n: o.talk.viewport(n),
    "look": lambda o, n: o.talk.look(n),
    "goal": lambda o, n: o.talk.goals.complete(n),
    "goal update": lambda o, n: o.talk.goals.update(n, "x"),
    "parent": lambda o, n: o.talk.goals.add("x", parent_id=n),
    "pins": lambda o, n: o.talk.pins.attach([n], [n]),
    "feed": lambda o, n: o.talk.feed(o.session, from_seq=n),
    "ttl_s": lambda o, n: o.repo.conversation("u", ttl_s=n).append(USER),
    "settle": lambda o, n: o.talk.settle(n),
    "wait_for": lambda o, n: o.session.wait_for("collecting", timeout_s=n),
    "notes list": lambda o, n: o.repo.notes.list(limit=n),
    "notes recall": lambda o, n: o.repo.notes.recall("hello", k=n),
    "overview": lambda o, n: o.repo.notes.overview(n),
    "restore": lambda o, n: o.repo.notes.restore("topic-a", n),
    "write": lambda o, n: o.repo.notes.write("topic-b", "x", "y", expected_version=n),
    "delete": lambda o, n: o.repo.notes.delete("topic-a", expected_version=n),
    "consolidate": lambda o, n: o.repo.consolidate(threshold=n),
    "decay": lambda o, n: o.repo.decay(threshold=n),
    "events": lambda o, n: o.memory.events(buffer=n),
}
RAW = (UnicodeError, OverflowError, StoreError, AttributeError)


async def made(call: Call, given: Opened, value: Any) -> None:
    """Make *call*, and await what it gives if that can be awaited."""
    answer = call(given, value)
    if isinstance(answer, Awaitable):
        await answer


async def answered(call: Call, given: Opened, value: Any) -> None:
    """Have *call* answer or raise what its docstring may name; anything else fails the test."""
    try:
        await made(call, given, value)
    except RAW as error:
        raise AssertionError(f"{type(error).__name__} for {value!r}") from error
    except (ValueError, MnemoError):
        return


async def test_no_id_brings_a_raw_error(tmp_path: Path) -> None:
    """U+0000, lone surrogates, 600 bytes, numbers and NaN in the place of every id."""
    async with opened(tmp_path / "m.db") as everything:
        for odd in ("a\0b", "a\ud800b", "x" * 600, "", 5, math.nan, b"x"):
            for call in WITH_IDS.values():
                await answered(call, everything, odd)


@pytest.mark.parametrize("name", ["open_repo", "start_session", "conversation"])
async def test_what_names_a_container_is_refused_instead_of_changed(
    tmp_path: Path, name: str
) -> None:
    """Two names that differ only in such a character would otherwise become one."""
    async with opened(tmp_path / "m.db") as everything:
        for odd in ("a\0b", "a\ud800b", "x" * 600):
            with pytest.raises(ValueError, match=r"cannot hold|512 bytes|200 characters"):
                await made(WITH_IDS[name], everything, odd)


async def test_no_number_brings_a_raw_error(tmp_path: Path) -> None:
    """Numbers beyond 64 bits, negative, infinite, and such as are none."""
    async with opened(tmp_path / "m.db") as everything:
        for odd in (2**63, 10**30, -(2**63) - 1, math.inf, math.nan, 1.5, "3"):
            for call in WITH_NUMBERS.values():
                await answered(call, everything, odd)


async def test_the_largest_number_of_a_store_is_a_number(tmp_path: Path) -> None:
    """As many as a store could hold is all that there is."""
    async with opened(tmp_path / "m.db") as o:
        await o.session.close_and_commit()
        assert len(await o.repo.latest(2**63 - 1)) == len(await o.repo.latest(1_000))
        with pytest.raises(ValueError, match="top_k must be a whole number"):
            await o.repo.latest(2**63)


@pytest.mark.parametrize("path", ["a\0.db", "sqlite:///a\0.db", "a\ud800.db"])
async def test_a_path_that_no_file_can_have_is_refused(path: str) -> None:
    """Where the service is made, not where SQLite meets it."""
    with pytest.raises(ConfigError, match="path cannot hold"):
        Mnemo(path)


async def test_an_archive_with_numbers_or_ids_that_are_none_is_refused(tmp_path: Path) -> None:
    """NaN, infinity and integers beyond 64 bits in the place of any value; nothing is written."""
    async with opened(tmp_path / "m.db") as o:
        await o.session.close_and_commit()
        lines = await exported(o.memory, "r")
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
                        await o.memory.import_repo("other", given)
