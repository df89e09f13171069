"""Notes against a plain model: whatever is done in whatever order, both agree."""

import asyncio
import shutil
import tempfile
from typing import Any

import pytest
from engines import OverEngines, emptied, on_postgres
from helpers import examples
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule
from world import store_at

from mnemo.config import NotesConfig
from mnemo.errors import Conflict, InvalidNote, NotFound
from mnemo.notes.notes import Notes
from mnemo.notes.shelf import NotesParts
from mnemo.prompts.usage import UsageMeter
from mnemo.testing import HashingEmbedder, ManualClock

TOPICS = st.sampled_from(["alpha", "beta", "gamma"])
BODIES = st.sampled_from(["- one", "- two", "- one\n- two", "- three"])
EXPECTED = st.sampled_from([None, 0, 1, 2, 3, 4])


class NotesMachine(OverEngines):
    """Drives notes and a dictionary of histories side by side."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self._folder = tempfile.mkdtemp()
        self._place = emptied(self.url, self._folder)
        self.clock = ManualClock()
        self.model: dict[str, list[str | None]] = {}
        self._open()

    def _open(self) -> None:
        self.store = store_at(self._place, self.clock)
        self.notes = self._run(self._opened())

    async def _opened(self) -> Notes:
        await self.store.open()
        parts = NotesParts(
            repo_id="r",
            store=self.store.notes("r"),
            embedder=HashingEmbedder(),
            chat_model=None,
            clock=self.clock,
            config=NotesConfig(),
            publish=lambda event: None,
            spawn=lambda *args: None,
            meter=UsageMeter(),
            scrub=self.store.engine.scrub,
        )
        return Notes(parts)

    def _run(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)

    def _fails(self, work: Any, *errors: type[Exception]) -> None:
        with pytest.raises(errors):
            self._run(work)

    def _present(self, topic: str) -> str | None:
        return (self.model.get(topic) or [None])[-1]

    def _version(self, topic: str) -> int:
        return len(self.model.get(topic, ())) if self._present(topic) is not None else 0

    @rule(topic=TOPICS, body=BODIES, expected=EXPECTED)
    def write(self, topic: str, body: str, expected: int | None) -> None:
        """A write makes a version unless the text is there; of another version it fails."""
        work = self.notes.write(topic, body, "about", expected_version=expected)
        is_there = self._present(topic) == body
        if expected not in (None, self._version(topic)):
            self._fails(work, Conflict)
            return
        note = self._run(work)
        if not is_there:
            self.model.setdefault(topic, []).append(body)
        assert (note.body, note.version) == (body, len(self.model[topic]))

    @rule(topic=TOPICS, expected=EXPECTED)
    def delete(self, topic: str, expected: int | None) -> None:
        """A deletion is a version too; the same one again is that of a lost answer."""
        work = self.notes.delete(topic, expected_version=expected)
        history = self.model.get(topic, [])
        if self._present(topic) is None:
            if history and expected == len(history) - 1:
                self._run(work)
            else:
                self._fails(work, NotFound)
        elif expected is not None and expected != self._version(topic):
            self._fails(work, Conflict)
        else:
            self._run(work)
            self.model[topic].append(None)

    @rule(topic=TOPICS, version=st.integers(1, 6))
    def restore(self, topic: str, version: int) -> None:
        """An old text comes back as a new version."""
        history = self.model.get(topic, [])
        work = self.notes.restore(topic, version)
        if version > len(history):
            self._fails(work, NotFound)
        elif history[version - 1] is None:
            self._fails(work, InvalidNote)
        else:
            assert self._run(work).body == history[version - 1]
            history.append(history[version - 1])

    @rule(topic=TOPICS)
    def purge(self, topic: str) -> None:
        """A purged note never was."""
        if topic not in self.model:
            self._fails(self.notes.purge(topic), NotFound)
        else:
            self._run(self.notes.purge(topic))
            del self.model[topic]

    @rule(topic=TOPICS)
    def read(self, topic: str) -> None:
        """What is read is what was written last."""
        if self._present(topic) is None:
            self._fails(self.notes.read(topic), NotFound)
        else:
            assert self._run(self.notes.read(topic)).body == self._present(topic)

    @rule()
    def time_passes(self) -> None:
        """A minute."""
        self.clock.advance(60)

    @invariant()
    def lists_agree(self) -> None:
        """Lists, recall, histories and counts are those of the model."""
        there = {topic for topic in self.model if self._present(topic) is not None}
        assert {note.topic for note in self._run(self.notes.list())} == there
        for word in ("one", "three"):
            holding = {topic for topic in there if word in (self._present(topic) or "")}
            found = self._run(self.store.notes("r").reading(lambda tx, w=word: tx.matching([w])))
            assert found[word] == holding
        for topic, history in self.model.items():
            kept = self._run(self.notes.history(topic))
            assert [version.body or None for version in kept] == history
            assert [version.version for version in kept] == [*range(1, len(history) + 1)]
        statistics = self._run(self.notes.statistics())
        versions = sum(len(history) for history in self.model.values())
        assert (statistics.notes, statistics.versions) == (len(there), versions)

    def teardown(self) -> None:
        """Close what is open."""
        self._run(self.store.aclose())
        self._loop.close()
        shutil.rmtree(self._folder)

    @rule()
    def reopen(self) -> None:
        """What was written is there after a restart."""
        self._run(self.store.aclose())
        self._open()


TestNotes = NotesMachine.TestCase
TestNotes.settings = settings(
    max_examples=examples(25),
    stateful_step_count=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestNotes.pytestmark = [pytest.mark.slow]
TestNotesOnPostgres = on_postgres(NotesMachine, tries=20, steps=20)
