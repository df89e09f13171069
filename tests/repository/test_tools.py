"""The agent tools of a repository: chosen by name."""

from datetime import UTC, datetime

import pytest

HIDDEN = "The \u202elamp\u202c \x1b[2Jis\u200b \U000e0041green."
SPELLED = r"The \u202elamp\u202c \u001b[2Jis\u200b \U000e0041green."


async def test_what_nobody_sees_is_spelled_in_every_text_for_a_model(open_kit):
    """Results, tools, notes and context show it; what is stored keeps it."""
    repo = (await open_kit(embedded=True)).repo
    talk = repo.conversation("t")
    (stored,) = await talk.append({"role": "user", "content": HIDDEN, "actor": "A\u202eda"})
    await talk.goals.add(HIDDEN)
    await repo.add_memory(HIDDEN)
    await repo.notes.write("lamp", HIDDEN, HIDDEN)
    view = await repo.view(stored.id)
    tools = {tool.name: tool for tool in repo.tools(names=("list_memories", "search_messages"))}
    told = [
        (await repo.recall("lamp", notes=True)).as_text(),
        (await repo.recall("lamp")).as_text(style="full"),
        (await repo.notes.recall("lamp")).as_text(),
        await repo.notes.overview(1_000),
        view.as_text(),
        await tools["list_memories"].call({}),
        await tools["search_messages"].call({"query": "lamp"}),
        *(str(m.content) for m in (await talk.viewport(4_000).render()).messages if m.id is None),
    ]
    for text in told:
        assert not set("\u202e\u202c\x1b\u200b\U000e0041") & set(text)
    # Notes lose it when they are written.
    assert [SPELLED in text for text in told] == [True, True, False, False, True, True, True, True]
    assert view.target.text == HIDDEN


async def test_no_answer_repeats_hidden_characters_of_a_question(open_kit):
    """A model that was tricked into asking shows what it asked."""
    (search,) = (await open_kit()).repo.tools(names=("search_messages",))
    assert await search.call({"query": "a\u202eb"}) == r'No results found for "a\u202eb".'


async def test_tools_come_in_the_order_in_which_they_are_named(open_kit):
    """Without names, searching and viewing; an unknown name is refused with those that exist."""
    repo = (await open_kit()).repo
    assert [tool.name for tool in repo.tools()] == ["search_messages", "view_messages"]
    assert [tool.name for tool in repo.tools(names=("forget", "recall"))] == ["forget", "recall"]
    with pytest.raises(ValueError, match="no tool 'erase'; there are search_messages"):
        repo.tools(names=("erase",))


async def test_an_answer_tells_programs_why_it_is_none(open_kit):
    """``call`` gives the text alone."""
    (recall,) = (await open_kit()).repo.tools(names=("recall",))
    answer = await recall.answer({})
    assert (answer.text, answer.reason) == ("Error: query is required", "invalid_argument")
    assert await recall.call({}) == answer.text
    known = await recall.answer({"query": "anything at all"})
    assert (known.text, known.reason) == ("Nothing is known about that.", None)


async def test_memories_are_listed_with_the_day_from_which_they_hold(open_kit):
    """Not with that on which they were stored."""
    repo = (await open_kit()).repo
    await repo.remember("I live in Leeds.", at=datetime(2020, 5, 4, tzinfo=UTC), wait=True)
    (tool,) = repo.tools(names=("list_memories",))
    assert "2020-05-04] " in await tool.call({})
