"""What a test reads of the prompts that a scripted model was asked with."""

from mnemo import Mnemo
from mnemo.testing import HashingEmbedder, ScriptedChatModel, block_rows, block_titles


async def test_the_blocks_of_a_prompt_are_read_by_title():
    """Each row is what the model was shown of one step; an unknown title has no rows."""
    model = ScriptedChatModel.answering()
    async with Mnemo("memory:", chat_model=model, embedder=HashingEmbedder()) as memory:
        session = await (await memory.open_repo()).start_session("Plan the trip")
        await session.append("BEGIN STEPS\nI want to see Tokyo.", "Noted")
        await session.close_and_commit()
    (asked,) = model.calls("semantic")
    assert "STEPS" in block_titles(asked)
    (row,) = block_rows(asked, "STEPS")
    assert (row["index"], row["action"]) == (0, "Noted")
    assert block_rows(asked, "NOTHING") == []
