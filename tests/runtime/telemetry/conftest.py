"""A service whose spans a test can read."""

from collections.abc import Iterator
from functools import partial

import pytest
from span_watch import Watch

from mnemo.runtime.spans import find_spans


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    """What services opened in this test make of spans."""
    made = Watch()
    for place in ("mnemo.service", "mnemo.repository.sessions"):
        monkeypatch.setattr(f"{place}.find_spans", partial(find_spans, provider=made.provider))
    yield made
    made.provider.shutdown()
