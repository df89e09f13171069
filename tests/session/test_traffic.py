"""Annotation waits for a pause in the writes of all sessions."""

import anyio

from mnemo.runtime import traffic as module
from mnemo.runtime.traffic import traffic


async def test_closing_does_not_wait_for_a_pause(open_kit, monkeypatch):
    """A close annotates at once, however busy the other sessions are."""
    monkeypatch.setattr(module, "QUIET_S", 3_600.0)
    kit = await open_kit(embedded=True)
    session = await kit.started()
    await session.append("The user lives in Lisbon.", "Noted.")
    await kit.until(lambda: bool(traffic()._waiters))
    assert session.statistics().append_backlog == 1
    with anyio.fail_after(120):
        receipt = await session.close_and_commit()
    assert receipt.status == "committed"
