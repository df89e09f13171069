"""The embedded store keeps the contracts."""

from pathlib import Path

import pytest

from mnemo.config import StoreConfig
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


class OverSqlite:
    @pytest.fixture
    def make_store(self, tmp_path: Path) -> MakeStore:
        return lambda clock: SqliteStore(
            tmp_path / "mnemo.db", config=StoreConfig(), clock=clock, lease_s=30
        )


class TestSqliteSessions(OverSqlite, SessionStoreContract):
    """``SessionStore``."""


class TestSqliteGraph(OverSqlite, GraphStoreContract):
    """``GraphStore``."""


class TestSqliteFeed(OverSqlite, DocumentFeedContract):
    """``DocumentFeed``."""


class TestSqliteUpkeep(OverSqlite, UpkeepContract):
    """``GraphStore.apply`` with upkeep."""


class TestSqliteArchive(OverSqlite, ArchiveContract):
    """``Archive``."""


class TestSqliteTalkArchive(OverSqlite, TalkArchiveContract):
    """``Archive``: conversations."""


class TestSqliteNoteArchive(OverSqlite, NoteArchiveContract):
    """``Archive``: notes."""


class TestSqliteForgetting(OverSqlite, ForgettingContract):
    """``Overhaul.erase`` of conversations."""


class TestSqliteOverhaul(OverSqlite, OverhaulContract):
    """``Overhaul``."""


class TestSqliteNotes(OverSqlite, NoteStoreContract):
    """``NoteStore``."""


class TestSqliteTranscript(OverSqlite, TranscriptContract):
    """``TranscriptStore``: threads, messages, the transaction."""


class TestSqliteDerived(OverSqlite, DerivedContract):
    """``TranscriptStore``: what is derived from messages."""


class TestSqliteMessageVectors(OverSqlite, MessageVectorsContract):
    """``TranscriptStore``: vectors of messages."""


class TestSqliteRecords(OverSqlite, RecordStoreContract):
    """``RecordStore``."""
