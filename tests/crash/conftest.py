"""Fixture of the crash tests."""

from collections.abc import Iterator

import pytest
from crash.lives import Lives, forking


@pytest.fixture(scope="session")
def lives() -> Iterator[Lives]:
    """Runs child processes that are killed."""
    with forking() as made:
        yield made
