"""Appending: what is new, what is there already, what must not come back."""

from __future__ import annotations

from talk_kit import Talk, seqs, texts, turns


async def test_a_thread_begins_with_its_first_append(talk: Talk) -> None:
    """C1: of an unknown thread everything is empty, and asking creates nothing."""
    log = talk.log(ttl_s=5)
    assert await log.history() == []
    assert await talk.parts.store.reading(lambda tx: tx.threads()) == []


async def test_seqs_start_at_zero_and_grow_by_one(talk: Talk) -> None:
    """C2: three messages get 0, 1, 2, the next one 3."""
    log = talk.log()
    a, b, c, d = turns(4)
    assert seqs(await log.append([a, b, c])) == [0, 1, 2]
    assert seqs(await log.append(d)) == [3]
    assert texts(await log.history()) == ["m0", "m1", "m2", "m3"]
