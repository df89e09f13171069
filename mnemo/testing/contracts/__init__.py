"""
What every store must do, as pytest classes.

Subclass them in a test module and give them a ``make_store`` fixture::

    class TestMyStoreSessions(SessionStoreContract):
        @pytest.fixture
        def make_store(self, tmp_path):
            return lambda clock: MyStore(tmp_path / "store", clock=clock)

Every call of it gives an unopened store over the same data.
"""

import pytest

# Before they are imported: a failing contract should show its values as any test does.
pytest.register_assert_rewrite(
    "mnemo.testing.contracts.archive",
    "mnemo.testing.contracts.archive_notes",
    "mnemo.testing.contracts.archive_talk",
    "mnemo.testing.contracts.checkpoints",
    "mnemo.testing.contracts.feed",
    "mnemo.testing.contracts.forgetting",
    "mnemo.testing.contracts.graph",
    "mnemo.testing.contracts.items",
    "mnemo.testing.contracts.jobs",
    "mnemo.testing.contracts.notes",
    "mnemo.testing.contracts.overhaul",
    "mnemo.testing.contracts.records",
    "mnemo.testing.contracts.sessions",
    "mnemo.testing.contracts.talk",
    "mnemo.testing.contracts.transcript",
    "mnemo.testing.contracts.transcript_derived",
    "mnemo.testing.contracts.upkeep",
)

from mnemo.testing.contracts.archive import ArchiveContract  # noqa: E402
from mnemo.testing.contracts.archive_notes import NoteArchiveContract  # noqa: E402
from mnemo.testing.contracts.archive_talk import TalkArchiveContract  # noqa: E402
from mnemo.testing.contracts.checkpoints import CheckpointContract  # noqa: E402
from mnemo.testing.contracts.feed import DocumentFeedContract  # noqa: E402
from mnemo.testing.contracts.forgetting import ForgettingContract  # noqa: E402
from mnemo.testing.contracts.graph import GraphStoreContract  # noqa: E402
from mnemo.testing.contracts.items import ItemStoreContract  # noqa: E402
from mnemo.testing.contracts.jobs import JobContract  # noqa: E402
from mnemo.testing.contracts.notes import NoteStoreContract  # noqa: E402
from mnemo.testing.contracts.overhaul import OverhaulContract  # noqa: E402
from mnemo.testing.contracts.records import RecordStoreContract  # noqa: E402
from mnemo.testing.contracts.sessions import SessionStoreContract  # noqa: E402
from mnemo.testing.contracts.transcript import TranscriptContract  # noqa: E402
from mnemo.testing.contracts.transcript_derived import DerivedContract, MessageVectorsContract  # noqa: E402
from mnemo.testing.contracts.upkeep import UpkeepContract  # noqa: E402

__all__ = [
    "ArchiveContract",
    "CheckpointContract",
    "DerivedContract",
    "DocumentFeedContract",
    "ForgettingContract",
    "GraphStoreContract",
    "ItemStoreContract",
    "JobContract",
    "MessageVectorsContract",
    "NoteArchiveContract",
    "NoteStoreContract",
    "OverhaulContract",
    "RecordStoreContract",
    "SessionStoreContract",
    "TalkArchiveContract",
    "TranscriptContract",
    "UpkeepContract",
]
