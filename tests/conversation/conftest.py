"""Fixtures of the conversations' tests: every store, a clock that stands still."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from talk_kit import STORES, OpenTalk, Talk, make_store, open_talk

from mnemo.testing import ManualClock


@pytest.fixture(params=STORES)
async def open_conversations(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[OpenTalk]:
    """
    Opens conversations over a store of each sort; arguments as of ``open_talk``.

    With ``after=talk`` that one is closed, and what it stored is opened again.
    """
    async with AsyncExitStack() as stack:

        async def make(
            *, clock: ManualClock | None = None, after: Talk | None = None, **arguments: Any
        ) -> Talk:
            clock = clock or (after.clock if after else ManualClock())
            if after is not None:
                await after.store.aclose()
            in_memory = after is not None and request.param == "memory"
            store = after.store if in_memory else make_store(request.param, tmp_path, clock)
            return await stack.enter_async_context(open_talk(store, clock, **arguments))

        yield make


@pytest.fixture
async def talk(open_conversations: OpenTalk) -> Talk:
    """Conversations with the usual parts."""
    return await open_conversations()
