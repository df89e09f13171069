"""The store keeps the contracts, in memory, in a file and in PostgreSQL."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from contracts.archive import ArchiveContract
from contracts.archive_notes import NoteArchiveContract
from contracts.archive_talk import TalkArchiveContract
from contracts.checkpoints import CheckpointContract
from contracts.feed import DocumentFeedContract
from contracts.forgetting import ForgettingContract
from contracts.graph import GraphStoreContract
from contracts.items import ItemStoreContract
from contracts.jobs import JobContract
from contracts.notes import NoteStoreContract
from contracts.overhaul import OverhaulContract
from contracts.races import RacesContract
from contracts.records import RecordStoreContract
from contracts.sessions import SessionStoreContract
from contracts.transcript import TranscriptContract
from contracts.transcript_derived import DerivedContract, MessageVectorsContract
from contracts.upkeep import UpkeepContract
from postgres_server import ON_POSTGRES
from world import MakeStore, store_at

from mnemo.stores import SqliteStore


class OverEngines:
    """The store in memory, the one in a file, and the one in a schema of PostgreSQL."""

    # Most other tests are over a store in memory.
    @pytest.fixture(params=[pytest.param("memory", marks=pytest.mark.long), "file", ON_POSTGRES])
    def make_store(self, request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
        made: list[SqliteStore] = []

        def in_memory(clock: object) -> SqliteStore:
            if made:
                pytest.skip("a database in memory has one service and ends with it")
            made.append(store_at(None, clock))
            return made[0]

        if request.param == "memory":
            return in_memory
        of_server = request.param == "postgres"
        place = request.getfixturevalue("postgres_url") if of_server else tmp_path / "mnemo.db"
        return partial(store_at, place)


class TestSessions(OverEngines, SessionStoreContract):
    """``StoredSessions``."""


class TestGraph(OverEngines, GraphStoreContract):
    """``StoredGraph``."""


class TestItems(OverEngines, ItemStoreContract):
    """``StoredItems``."""


class TestFeed(OverEngines, DocumentFeedContract):
    """``StoredFeed``."""


class TestUpkeep(OverEngines, UpkeepContract):
    """``StoredGraph.apply`` with upkeep."""


class TestArchive(OverEngines, ArchiveContract):
    """``Archive``."""


class TestTalkArchive(OverEngines, TalkArchiveContract):
    """``Archive``: conversations."""


class TestNoteArchive(OverEngines, NoteArchiveContract):
    """``Archive``: notes."""


class TestForgetting(OverEngines, ForgettingContract):
    """``Overhaul.erase`` of conversations."""


class TestOverhaul(OverEngines, OverhaulContract):
    """``Overhaul``."""


class TestNotes(OverEngines, NoteStoreContract):
    """``StoredNotes``."""


class TestTranscript(OverEngines, TranscriptContract):
    """``StoredTranscript``: threads, messages, the transaction."""


class TestDerived(OverEngines, DerivedContract):
    """``StoredTranscript``: what is derived from messages."""


class TestMessageVectors(OverEngines, MessageVectorsContract):
    """``StoredTranscript``: vectors of messages."""


class TestRecords(OverEngines, RecordStoreContract):
    """``StoredRecords``."""


class TestJobs(OverEngines, JobContract):
    """Jobs of a ``StoredTranscript``."""


class TestCheckpoints(OverEngines, CheckpointContract):
    """``StoredCheckpoints``."""


class TestRaces(OverEngines, RacesContract):
    """``StoredSessions`` beside the sweep, the job and an erasure."""
