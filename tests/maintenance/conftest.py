"""A repository over each store."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import OpenKit
from maintenance_kit import Memory


@pytest.fixture(params=["memory", "sqlite"])
async def memory(request: pytest.FixtureRequest, open_kit: OpenKit, tmp_path: Path) -> Memory:
    """A repository over each store."""
    store = "memory:" if request.param == "memory" else tmp_path / "m.db"
    return Memory(await open_kit(store=store))
