"""What was derived from messages goes with them, before they are swept."""

from datetime import timedelta

from window_kit import START, said, snapshot

from mnemo.conversation.scope import living_snapshots


async def test_a_snapshot_lives_as_long_as_all_of_its_messages(threads):
    """Exactly at the cutoff a message is alive; an erased one takes nothing with it here."""
    for _ in range(4):
        await threads.say(said())
        threads.clock.advance(10)
    await threads.parts.store.writing(lambda tx: tx.erase("t", [1]))
    snapshots = [snapshot(0, 1, "a"), snapshot(1, 2, "b"), snapshot(2, 3, "c"), snapshot(1, 1, "d")]

    async def living(seconds):
        since = None if seconds is None else START + timedelta(seconds=seconds)
        found = await threads.parts.store.reading(lambda tx: living_snapshots(tx, snapshots, since))
        return [each.text for each in found]

    assert await living(None) == ["a", "b", "c", "d"]
    assert await living(0) == ["a", "b", "c"]
    assert await living(20) == ["b", "c"]
    assert await living(21) == []
