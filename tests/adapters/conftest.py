"""Fixtures of the adapters' tests: a repository without a chat model, and a blocking one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import Kit, OpenKit

import mnemo.sync
from mnemo.testing import HashingEmbedder


@pytest.fixture
async def kit(open_kit: OpenKit) -> Kit:
    """An open service."""
    return await open_kit(embedded=True)


@pytest.fixture
def blocking_repo(db: Path) -> Iterator[mnemo.sync.Repository]:
    """A blocking repository in a file."""
    with mnemo.sync.Mnemo(db, embedder=HashingEmbedder()) as memory:
        yield memory.open_repo()
