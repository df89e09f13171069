"""The memory store keeps the contracts."""

import pytest

from mnemo.store.memory import MemoryStore
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


@pytest.fixture
def only_store() -> list[MemoryStore]:
    """The one store of a test: its data lives and dies with the object."""
    return []


class OverMemory:
    @pytest.fixture
    def make_store(self, only_store: list[MemoryStore]) -> MakeStore:
        def make(clock: object) -> MemoryStore:
            if not only_store:
                only_store.append(MemoryStore(clock=clock, lease_s=30))
            return only_store[0]

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
