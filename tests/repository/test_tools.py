"""The agent tools of a repository: chosen by name."""

from __future__ import annotations

import pytest


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
