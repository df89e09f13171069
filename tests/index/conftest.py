"""Where the stores of these tests begin, and how few documents their segments are made of."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engines import emptied
from postgres_server import ON_POSTGRES

from mnemo.index import at_rest, held, segments


@pytest.fixture(params=["file", ON_POSTGRES])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Where a store begins empty."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    return emptied(url, tmp_path)


@pytest.fixture(params=["memory", ON_POSTGRES])
def begun(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Gives where a store begins empty, again and again."""
    if request.param == "memory":
        return lambda: "memory:"
    url = request.getfixturevalue("postgres_url")
    return lambda: str(emptied(url, ""))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments are made of few documents."""
    for module in (held, at_rest, segments):
        monkeypatch.setattr(module, "SEALED_FROM", 4)
