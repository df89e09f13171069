"""Background work waits for a pause in the writes of an event loop."""

from __future__ import annotations

import anyio

from mnemo.runtime.traffic import CALM_WRITES, Traffic


async def test_a_pause_without_writes_is_short():
    """Where nothing is written, whoever waits goes on after one look, together."""
    quiet = Traffic()
    with anyio.fail_after(1):
        for waiter in (quiet.pause(5.0), quiet.pause(5.0)):
            await waiter


async def test_writes_put_the_pause_off():
    """More than a few writes between two looks keep waiting work waiting."""
    busy = Traffic()
    waiter = busy.pause(5.0)
    for _ in range(CALM_WRITES + 1):
        busy.passed()
    busy._look()
    assert not waiter.done()
    busy._look()
    assert waiter.done()


async def test_patience_ends_under_lasting_writes():
    """Background work is late under load, but never put off for ever."""
    busy = Traffic()
    waiter = busy.pause(0.0)
    for _ in range(CALM_WRITES + 1):
        busy.passed()
    busy._look()
    assert waiter.done()
