"""A repository."""

from pathlib import Path

import pytest
from helpers import OpenKit
from maintenance_kit import Memory


@pytest.fixture
async def memory(open_kit: OpenKit, tmp_path: Path) -> Memory:
    """A repository."""
    return Memory(await open_kit(store=tmp_path / "m.db"))
