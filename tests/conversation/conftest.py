"""Fixtures of the conversations' tests: a clock that stands still."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from talk_kit import OpenTalk, Talk, open_talk
from world import store_at

from mnemo.conversation.log import MessageLog
from mnemo.testing import ManualClock


@pytest.fixture
async def open_conversations(tmp_path: Path) -> AsyncIterator[OpenTalk]:
    """
    Opens conversations over a store; arguments as of ``open_talk``.

    With ``after=talk`` that one is closed, and what it stored is opened again.
    """
    async with AsyncExitStack() as stack:

        async def make(
            *, clock: ManualClock | None = None, after: Talk | None = None, **arguments: Any
        ) -> Talk:
            clock = clock or (after.clock if after else ManualClock())
            if after is not None:
                await after.store.aclose()
            opened = open_talk(store_at(tmp_path / "talk.db", clock), clock, **arguments)
            return await stack.enter_async_context(opened)

        yield make


@pytest.fixture
async def talk(open_conversations: OpenTalk) -> Talk:
    """Conversations with the usual parts."""
    return await open_conversations()


@pytest.fixture
def log(talk: Talk) -> MessageLog:
    """The thread ``t`` of them."""
    return talk.log()
