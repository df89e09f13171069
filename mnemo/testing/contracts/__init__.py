"""
What every store must do, as pytest classes.

Subclass the three in a test module and give them a ``make_store`` fixture::

    class TestMyStoreSessions(SessionStoreContract):
        @pytest.fixture
        def make_store(self, tmp_path):
            return lambda clock: MyStore(tmp_path / "store", clock=clock)

Every call of it gives an unopened store over the same data.
"""

from mnemo.testing.contracts.feed import DocumentFeedContract
from mnemo.testing.contracts.graph import GraphStoreContract
from mnemo.testing.contracts.sessions import SessionStoreContract

__all__ = ["DocumentFeedContract", "GraphStoreContract", "SessionStoreContract"]
