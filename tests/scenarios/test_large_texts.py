"""Large texts through the public surface: what takes as long as they are leaves the loop."""

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers import repository

from mnemo import Conversation, InvalidNote, Repository, Session
from mnemo.recall import keyword
from mnemo.recall.request import MAX_QUERY_CHARACTERS
from mnemo.runtime.tasks import computed
from mnemo.runtime.text import SLICE, clean, words

LARGE = "The fox jumps over Lisbon, é. " * 4_000


class Watched(str):
    """A text that remembers which threads looked through it."""

    threads: set[int]

    def isascii(self) -> bool:
        """As ``str``; cleaning asks this first."""
        self.threads.add(threading.get_ident())
        return super().isascii()


def watched(text: str) -> Watched:
    """*text*, watched from now on."""
    made = Watched(text)
    made.threads = set()
    return made


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[tuple[Repository, Session, Conversation]]:
    """A repository without a model over a file, a session and a thread of it."""
    async with repository(path, "r") as repo:
        yield repo, await repo.start_session("g"), repo.conversation("t")


APPENDS: dict[str, Callable[[Session, Conversation, str], Any]] = {
    "observation": lambda session, talk, text: session.append(text, ""),
    "metadata": lambda session, talk, text: session.append("a", text, metadata={"of": ["x"]}),
    "append_messages": lambda session, talk, text: session.append_messages(
        {"role": "user", "content": text}
    ),
    "conversation": lambda session, talk, text: talk.append({"role": "user", "content": text}),
}


@pytest.mark.parametrize("name", APPENDS)
async def test_a_large_text_is_checked_in_a_worker_thread(tmp_path, name):
    """A small one is checked at once, where it is given."""
    async with opened(tmp_path / "m.db") as (_, session, talk):
        large, small = watched(LARGE), watched("I live in Oslo, é.")
        await APPENDS[name](session, talk, large)
        await APPENDS[name](session, talk, small)
    assert large.threads
    assert threading.get_ident() not in large.threads
    assert threading.get_ident() in small.threads


@pytest.mark.parametrize("large", [LARGE, [LARGE], {"a": [LARGE]}, ["x"] * 2_000])
async def test_work_on_large_values_leaves_the_event_loop(large):
    """Whatever they are nested in, and however many they are."""
    here = threading.get_ident()
    assert await computed(threading.get_ident, large) != here
    assert await computed(threading.get_ident, "small", {"x": [1, 2]}, None) == here


async def test_a_large_query_is_read_up_to_a_bound(tmp_path, monkeypatch):
    """Searching, recalling and listing read the beginning, and answer."""
    read: list[int] = []
    parse = keyword.parse
    monkeypatch.setattr(keyword, "parse", lambda query: read.append(len(query)) or parse(query))
    async with opened(tmp_path / "m.db") as (repo, session, talk):
        await session.append("The fox jumps over Lisbon, é.", "")
        await repo.notes.write("travel", "The fox jumps over Lisbon.", "About foxes")
        assert len(await repo.search(LARGE)) == 1
        assert (await repo.recall(LARGE, notes=True)).candidates
        assert len((await repo.notes.recall(LARGE)).hits) == 1
        assert len(await repo.notes.list(query=LARGE)) == 1
        await talk.append({"role": "user", "content": "hello"})
        assert len(await talk.load(query=LARGE)) == 1
    assert read == [MAX_QUERY_CHARACTERS]


async def test_a_note_that_is_far_too_long_is_refused_at_a_glance(tmp_path):
    """Nothing in it is looked at; what is hidden in a text may make it longer than its limit."""
    far = watched("x" * 64_001)
    async with opened(tmp_path / "m.db") as (repo, _, _):
        with pytest.raises(InvalidNote, match="has 64001") as caught:
            await repo.notes.write("travel", far, "about")
        assert caught.value.reason == "body_too_long"
        with pytest.raises(InvalidNote) as caught:
            await repo.notes.write("travel", "body", "x" * 3_201)
        assert caught.value.reason == "bad_description"
        await repo.notes.write("travel", "body" + "\u200b" * 60_000, "about")
        assert (await repo.notes.read("travel")).body == "body"
    assert far.threads == set()


def test_the_words_of_a_large_text_are_found_in_slices():
    """Slices end at white space, so no word is cut; a text without any is one slice."""
    text = "Ærø's a.b-c 東京 " * (SLICE // 8)
    assert words(text) == words("Ærø's a.b-c 東京 ") * (SLICE // 8)
    assert words("x" * (3 * SLICE)) == ["x" * (3 * SLICE)]


def test_cleaning_finds_a_lone_surrogate_anywhere():
    """In a text of any length, and beside pairs that are one character."""
    assert clean("é" * 1_000 + "\ud800\0🦊") == "é" * 1_000 + "\ufffd\ufffd🦊"
