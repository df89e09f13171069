"""``MnemoMemoryBlock`` in LlamaIndex's own ``Memory``."""

from collections.abc import AsyncIterator, Callable

import pytest
from helpers import Kit
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock
from llama_index.core.memory import Memory
from sqlalchemy.ext.asyncio import create_async_engine

from mnemo import ConfigError, Mnemo
from mnemo.adapters.llama_index import MnemoMemoryBlock

pytestmark = pytest.mark.slow


@pytest.fixture
async def memory() -> AsyncIterator[Callable[[MnemoMemoryBlock, str], Memory]]:
    """Memories of so few tokens that all but the last turn leaves them."""
    engine = create_async_engine("sqlite+aiosqlite:///:memory:")
    yield lambda block, session: Memory.from_defaults(
        session_id=session,
        memory_blocks=[block],
        token_limit=400,
        chat_history_token_ratio=0.1,
        token_flush_size=10,
        async_engine=engine,
    )
    await engine.dispose()


async def told(kept: Memory, *texts: str) -> None:
    for number, text in enumerate(texts):
        await kept.aput(ChatMessage(role=("user", "assistant")[number % 2], content=text))


LONG = "That is a long and friendly answer about nothing in particular, to fill what there is. " * 4


async def test_what_leaves_the_short_term_memory_is_recalled(kit: Kit, memory):
    """Also in another session; the thread has its messages, in their order and once."""
    first = memory(MnemoMemoryBlock(kit.repo), "monday")
    await told(first, "I am allergic to peanuts.", LONG, "My sister lives in Osaka.", LONG)
    stored = await kit.repo.conversation("monday").recent()
    assert [one.text for one in stored][:2] == ["I am allergic to peanuts.", LONG]
    second = memory(MnemoMemoryBlock(kit.repo), "friday")
    await told(second, "Am I allergic to peanuts?")
    system, question = await second.aget()
    assert "I am allergic to peanuts" in (system.content or "")
    assert question.content == "Am I allergic to peanuts?"


async def test_nothing_known_adds_nothing(kit: Kit, memory):
    """Nor does a memory without a question."""
    block = MnemoMemoryBlock(kit.repo)
    assert await block.aget([]) == await block.aget(None) == ""
    kept = memory(block, "s")
    await told(kept, "Where is the key?")
    assert [one.content for one in await kept.aget()] == ["Where is the key?"]


async def test_tools_and_blocks_without_words_are_kept_by_name(kit: Kit):
    """A result of a tool is one; a picture is named."""
    block = MnemoMemoryBlock(kit.repo, name="other")
    result = ChatMessage(role="tool", content="4711", additional_kwargs={"tool_call_id": "c1"})
    picture = ChatMessage(role="user", blocks=[TextBlock(text="Look:"), ImageBlock(image=b"x")])
    await block.aput([picture, result])
    stored = await kit.repo.conversation("other").recent()
    assert [(one.kind, one.text) for one in stored] == [
        ("user", "Look:\n[image]"),
        ("tool_result", "4711"),
    ]


async def test_a_block_gives_up_its_last_lines_first(kit: Kit):
    """As many as it must; all of them, in the end."""
    block = MnemoMemoryBlock(kit.repo)
    assert await block.atruncate("- one [1]\n- two [2]", 2) == "- one [1]"
    assert await block.atruncate("- one [1]\n- two [2]", 100) is None


async def test_a_block_wants_an_open_repository():
    """It says what to give."""
    with pytest.raises(ConfigError, match="give an open"):
        MnemoMemoryBlock(Mnemo("memory:"))  # type: ignore[arg-type]
