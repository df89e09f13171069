"""Times given as ISO 8601 text, wherever a call takes a time."""

from datetime import UTC, datetime
from typing import Any

import pytest
from helpers import Kit, OpenKit

from mnemo import Message

LUND = "I live in Lund."
EARLY, LATE = "2026-01-01", "2026-02-01T12:00:00+01:00"


@pytest.fixture
async def kit(open_kit: OpenKit) -> Kit:
    """A repository with a fact and a message of January 2026."""
    kit = await open_kit(embedded=True)
    await kit.repo.remember(LUND, at="2026-01-15", wait=True)
    return kit


async def test_times_are_stored_as_their_text_says(kit):
    """Without a zone they are of UTC, a date is its midnight."""
    (said,) = await kit.repo.conversation("default").history()
    assert said.at == datetime(2026, 1, 15, tzinfo=UTC)
    (said,) = await kit.repo.conversation("t").append(Message("user", "Hello.", at=LATE))
    assert said.at == datetime.fromisoformat(LATE)
    (said,) = await kit.repo.conversation("t").append(
        {"role": "user", "content": "Hi.", "at": EARLY}
    )
    assert said.at == datetime(2026, 1, 1, tzinfo=UTC)
    session = await kit.started()
    step = await session.append("I sail.", "", at=EARLY)
    assert step.at == datetime(2026, 1, 1, tzinfo=UTC)
    assert await session.append_async("I ski.", "", at=EARLY) == "appended"
    memory = await kit.repo.add_memory("Ada sails.", at=EARLY)
    assert memory.valid_from == datetime(2026, 1, 1, tzinfo=UTC)


async def test_bounds_may_be_text(kit):
    """``since``, ``until`` and ``before`` bound as the ``datetime`` of that text does."""
    repo = kit.repo
    for since, until, found in ((EARLY, LATE, True), (LATE, None, False), (None, EARLY, False)):
        bounds: dict[str, Any] = {"since": since, "until": until}
        assert bool(await repo.memories(**bounds)) is found
        assert bool((await repo.recall("Where do I live?", **bounds)).candidates) is found
        assert bool(await repo.search("Lund", **bounds)) is found
    assert not await repo.changes(since=EARLY, until=LATE)
    session = await kit.started()
    assert (await repo.recall_in_context(session, "Where do I live?", since=EARLY)).candidates
    await repo.forget(thread_id="default", before=EARLY)
    assert len(await repo.search("Lund")) == 1
    await repo.forget(thread_id="default", before=LATE)
    assert await repo.search("Lund") == []


@pytest.mark.parametrize("given", ["yesterday", "", "2026-13-01", 5])
async def test_what_is_no_time_is_refused_with_an_example(kit, given):
    """The error names the argument and shows what is taken."""
    words = "must be a datetime or an ISO 8601 time such as '2026-03-01'"
    for name, call in (
        ("since", lambda: kit.repo.memories(since=given)),
        ("until", lambda: kit.repo.recall("x", until=given)),
        ("since", lambda: kit.repo.changes(since=given)),
        ("before", lambda: kit.repo.forget(before=given)),
        ("at", lambda: kit.repo.remember("x", at=given)),
        ("at", lambda: kit.repo.add_memory("x", at=given)),
    ):
        with pytest.raises(ValueError, match=f"{name} {words}"):
            await call()
