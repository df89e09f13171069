"""Compression, indexing and expiry through the public API: seen, and never in the way."""

from pathlib import Path
from typing import Any

import pytest
from helpers import Kit, OpenKit

from mnemo import Config, SessionClosed
from mnemo.runtime.flights import Backoff
from mnemo.testing import ScriptedChatModel
from mnemo.values.messages import Message
from mnemo.values.strategies import Summary

SUMMARY = Summary(max_tokens=100, keep_last=2)


def said(count: int, *, tokens: int = 10) -> list[Message]:
    """*count* messages of a user, each of *tokens* tokens."""
    return [Message(role="user", content=f"m{n}", token_count=tokens) for n in range(count)]


async def opened(
    open_kit: OpenKit,
    db: Path,
    script: Any,
    *,
    viewport: dict[str, Any] | None = None,
    **config: Any,
) -> Kit:
    """A repository whose model answers ``summarize`` by *script*."""
    model = ScriptedChatModel.answering({"summarize": script})
    settings = Config(conversation={"compression": SUMMARY, **config}, viewport=viewport or {})
    return await open_kit(model=model, store=db, config=settings)


async def test_records_and_vectors_outlive_the_service(open_kit, db):
    """Reopened, the next record begins right after the last one's end."""
    for number, expected in enumerate([[(0, 8)], [(0, 8), (9, 17)]]):
        kit = await opened(open_kit, db, "Said.")
        talk = kit.repo.conversation("t")
        await talk.append(said(11 if not number else 9))
        await talk.settle()
        assert [(r.start_seq, r.end_seq) for r in await talk.compactions()] == expected
        await kit.memory.aclose()


async def test_purging_a_thread_takes_the_steps_made_of_it(open_kit, db):
    """What a session learned from a purged thread alone goes; its open session is ended."""
    kit = await opened(open_kit, db, "Said.")
    talk = kit.repo.conversation("t")
    await talk.append({"role": "user", "content": "My locker code is 4711."})
    session = await kit.started("note it down")
    await session.append("Something else entirely.", "")
    await session.append_messages(await talk.history())
    report = await talk.purge()
    assert (report.messages, report.steps) == (1, 1)
    with pytest.raises(SessionClosed):
        await session.append_messages({"role": "user", "content": "more"})
    resumed = await kit.repo.resume_session(session.id)
    assert resumed.held_messages("t") == []
    assert await kit.repo.search("4711") == []
    assert len(await kit.repo.search("entirely")) == 1


async def test_work_that_breaks_ends_no_other_work(
    open_kit,
    db,
    monkeypatch,
    caplog,
):
    """A fault in one department is logged; messages are appended, seen and indexed as ever."""

    async def broken(*_: Any) -> None:
        raise ValueError("a fault of ours")

    monkeypatch.setattr(Backoff, "_wait", broken)
    kit = await opened(open_kit, db, RuntimeError("boom"), viewport={"max_attempts": 1})
    talk = kit.repo.conversation("t")
    await talk.append(said(20))
    await talk.settle()
    assert [one.exc_info[0] for one in caplog.records if one.levelname == "ERROR"] == [ValueError]
    viewport = talk.viewport(150)
    await talk.append(said(10))
    await talk.settle()
    assert (await viewport.render()).token_count <= 150
    assert (await talk.snapshots.outcomes()) != []
    assert (await kit.repo.statistics()).index.waiting == 0
