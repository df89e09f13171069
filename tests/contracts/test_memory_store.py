"""The store keeps the contracts in memory."""

import pytest

from mnemo.store.sqlite import SqliteStore
from mnemo.testing.contracts import (
    ArchiveContract,
    DerivedContract,
    DocumentFeedContract,
    ForgettingContract,
    GraphStoreContract,
    MessageVectorsContract,
    NoteArchiveContract,
    NoteStoreContract,
    OverhaulContract,
    RecordStoreContract,
    SessionStoreContract,
    TalkArchiveContract,
    TranscriptContract,
    UpkeepContract,
)
from mnemo.testing.contracts.kit import MakeStore
from mnemo.testing.stores import in_memory_store


class OverMemory:
    @pytest.fixture
    def make_store(self) -> MakeStore:
        made: list[SqliteStore] = []

        def make(clock: object) -> SqliteStore:
            if made:
                pytest.skip("a database in memory has one service and ends with it")
            made.append(in_memory_store(clock))
            return made[0]

        return make


class TestMemorySessions(OverMemory, SessionStoreContract):
    """``SessionStore``."""


class TestMemoryGraph(OverMemory, GraphStoreContract):
    """``GraphStore``."""


class TestMemoryFeed(OverMemory, DocumentFeedContract):
    """``DocumentFeed``."""


class TestMemoryUpkeep(OverMemory, UpkeepContract):
    """``GraphStore.apply`` with upkeep."""


class TestMemoryArchive(OverMemory, ArchiveContract):
    """``Archive``."""


class TestMemoryTalkArchive(OverMemory, TalkArchiveContract):
    """``Archive``: conversations."""


class TestMemoryNoteArchive(OverMemory, NoteArchiveContract):
    """``Archive``: notes."""


class TestMemoryForgetting(OverMemory, ForgettingContract):
    """``Overhaul.erase`` of conversations."""


class TestMemoryOverhaul(OverMemory, OverhaulContract):
    """``Overhaul``."""


class TestMemoryNotes(OverMemory, NoteStoreContract):
    """``NoteStore``."""


class TestMemoryTranscript(OverMemory, TranscriptContract):
    """``TranscriptStore``: threads, messages, the transaction."""


class TestMemoryDerived(OverMemory, DerivedContract):
    """``TranscriptStore``: what is derived from messages."""


class TestMemoryMessageVectors(OverMemory, MessageVectorsContract):
    """``TranscriptStore``: vectors of messages."""


class TestMemoryRecords(OverMemory, RecordStoreContract):
    """``RecordStore``."""
