"""A call takes a list of a bounded length, over whatever surface; the bound is one number."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from helpers import Kit

from mnemo.items.items import GetItem
from mnemo.runtime.validation import MOST_AT_ONCE, every

CALLS: dict[str, Callable[[Kit, Iterable[Any]], Any]] = {
    "remember": lambda kit, some: kit.repo.remember(f"Ada sings {n}." for n in some),
    "append": lambda kit, some: kit.repo.conversation("t").append(said(some)),
    "append_messages": lambda kit, some: kit.memory.session("s").append_messages(said(some)),
    "batch": lambda kit, some: kit.repo.items.batch(
        GetItem(namespace=("a",), key=str(n)) for n in some
    ),
    "forget_memories": lambda kit, some: kit.repo.forget(memory_ids=map(str, some)),
    "forget_messages": lambda kit, some: kit.repo.forget(message_ids=map(str, some)),
    "forget_steps": lambda kit, some: kit.repo.forget(steps=map(str, some)),
    "delete_nodes": lambda kit, some: kit.repo.delete_nodes(map(str, some)),
    "get_metadata": lambda kit, some: kit.repo.get_metadata(map(str, some)),
    "get_edges": lambda kit, some: kit.repo.get_edges(map(str, some)),
    "get_linked_nodes": lambda kit, some: kit.repo.get_linked_nodes(map(str, some)),
    "add_memory": lambda kit, some: kit.repo.add_memory("Ada sings.", tags=map(str, some)),
    "retry_jobs": lambda kit, some: kit.repo.retry_jobs(map(str, some)),
    "cancel_jobs": lambda kit, some: kit.repo.cancel_jobs(map(str, some)),
}


def said(numbers: Iterable[int]) -> Iterator[dict[str, str]]:
    """Messages, made as they are asked for."""
    return ({"role": "user", "content": f"Ada sings {n}."} for n in numbers)


@pytest.mark.parametrize("call", CALLS)
async def test_a_list_without_an_end_is_refused(open_kit, call):
    """One more than the bound is read and no further, and nothing is stored."""
    kit = await open_kit(embedded=True)
    await kit.repo.start_session("sing", session_id="s")
    taken = 0

    def endless() -> Iterator[int]:
        nonlocal taken
        while True:
            taken += 1
            yield taken

    with pytest.raises(ValueError, match="at most 1,000 at once"):
        await CALLS[call](kit, endless())
    assert taken == MOST_AT_ONCE + 1
    found = await kit.repo.statistics()
    assert (found.messages, found.steps) == (0, 0)


def test_a_list_of_the_greatest_length_is_taken():
    """The bound itself is allowed."""
    assert len(every("ids", range(MOST_AT_ONCE))) == MOST_AT_ONCE
