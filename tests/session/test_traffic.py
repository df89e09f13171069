"""Annotation waits for a pause in the writes of all sessions."""

import anyio
import pytest

from mnemo import Config, Mnemo
from mnemo.runtime import traffic as module
from mnemo.runtime.traffic import traffic
from mnemo.testing import HashingEmbedder


async def test_closing_does_not_wait_for_a_pause(open_kit, monkeypatch):
    """A close annotates at once, however busy the other sessions are."""
    monkeypatch.setattr(module, "QUIET_S", 3_600.0)
    kit = await open_kit(embedded=True)
    session = await kit.begun("The user lives in Lisbon.", "Noted.")
    await kit.until(lambda: bool(traffic()._waiters))
    assert session.statistics().append_backlog == 1
    with anyio.fail_after(120):
        receipt = await session.close_and_commit()
    assert receipt.status == "committed"


@pytest.mark.parametrize("batch_size", [8, 256])
async def test_annotation_without_a_model_lets_appends_go_first(monkeypatch, batch_size):
    """Whatever the batch of an annotator that asks a model may be."""
    waits = anyio.Event()

    async def pause(self: module.Pauses) -> None:
        waits.set()

    monkeypatch.setattr(module.Pauses, "pause", pause)
    config = Config(annotation={"batch_size": batch_size})
    async with Mnemo("memory:", embedder=HashingEmbedder(32), config=config) as memory:
        session = await (await memory.open_repo("r")).start_session("g")
        await session.append("The kettle is on.", "Noted.")
        with anyio.fail_after(120):
            await waits.wait()
