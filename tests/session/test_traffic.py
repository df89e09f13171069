"""Background work waits for a pause in the appends of all sessions."""

from __future__ import annotations

import anyio
from helpers import OpenKit

from mnemo.session import annotation as module
from mnemo.session.annotation import Traffic, traffic


async def test_a_pause_without_appends_is_short():
    """Where nothing is appended, whoever waits goes on after one look, together."""
    quiet = Traffic()
    with anyio.fail_after(1):
        for waiter in (quiet.pause(), quiet.pause()):
            await waiter


async def test_appends_put_the_pause_off():
    """More than a few appends between two looks keep waiting work waiting."""
    busy = Traffic()
    waiter = busy.pause()
    for _ in range(module.QUIET_APPENDS + 1):
        busy.passed()
    busy._look()
    assert not waiter.done()
    busy._look()
    assert waiter.done()


async def test_patience_ends_under_lasting_appends(monkeypatch):
    """Annotation is late under load, but never put off for ever."""
    monkeypatch.setattr(module, "PATIENCE_S", 0.0)
    busy = Traffic()
    waiter = busy.pause()
    for _ in range(module.QUIET_APPENDS + 1):
        busy.passed()
    busy._look()
    assert waiter.done()


async def test_closing_does_not_wait_for_a_pause(open_kit: OpenKit, monkeypatch):
    """A close annotates at once, however busy the other sessions are."""
    monkeypatch.setattr(module, "QUIET_S", 3_600.0)
    kit = await open_kit(embedded=True)
    session = await kit.started()
    await session.append("The user lives in Lisbon.", "Noted.")
    await kit.until(lambda: bool(traffic()._waiters))
    assert session.statistics().append_backlog == 1
    with anyio.fail_after(5):
        receipt = await session.close_and_commit()
    assert receipt.status == "committed"
