"""Background work waits for a pause in the writes of an event loop."""

import anyio
import pytest

from mnemo.runtime import traffic as room
from mnemo.runtime.traffic import BUSY_WRITES, CALM_WRITES, SPAN_S, Traffic


async def test_a_pause_without_writes_is_short():
    """Where nothing is written, whoever waits goes on after one look, together."""
    quiet = Traffic()
    with anyio.fail_after(120):
        for waiter in (quiet.pause(5.0), quiet.pause(5.0)):
            await waiter


@pytest.mark.parametrize("patience_s", [5.0, 0.0])
async def test_writes_put_the_pause_off(patience_s):
    """More than a few between two looks keep waiting work waiting, but not beyond its patience."""
    busy = Traffic()
    waiter = busy.pause(patience_s)
    for _ in range(CALM_WRITES + 1):
        busy.passed()
    busy._look()
    assert waiter.done() == (patience_s == 0)
    busy._look()
    assert waiter.done()


async def test_work_beside_writes_rests_after_each_portion(monkeypatch):
    """Four times as long as the portion took; not at all where nothing was written anywhere."""
    now, rests = [100.0], list[float]()
    monkeypatch.setattr(room, "elapsed", lambda: now[0])

    async def rest(seconds: float) -> None:
        rests.append(seconds)

    monkeypatch.setattr(anyio, "sleep", rest)
    loop = Traffic()
    for writes in (CALM_WRITES + 1, CALM_WRITES):
        async with loop.beside():
            for _ in range(writes):
                loop.passed()
            now[0] += 0.5
    async with loop.beside():
        loop.elsewhere += CALM_WRITES + 1
        now[0] += 0.25
    assert rests == [2.0, 1.0]
    assert not loop.is_busy


def test_a_loop_is_busy_while_and_shortly_after_much_is_written(monkeypatch):
    """Bursts count as lasting writes; a quarter of a second without them is calm."""
    now = [100.0]
    monkeypatch.setattr(room, "elapsed", lambda: now[0])
    loop = Traffic()
    for _ in range(BUSY_WRITES - 1):
        loop.passed()
    assert not loop.is_busy
    loop.passed()
    assert loop.is_busy
    now[0] += SPAN_S
    assert loop.is_busy
    now[0] += SPAN_S
    assert not loop.is_busy
    loop.passed()
    assert not loop.is_busy
