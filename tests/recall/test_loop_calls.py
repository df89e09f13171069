"""What a recall costs the event loop: calls of Python and C functions, not seconds."""

import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest
from helpers import repository

from mnemo.testing import HashingEmbedder

MOST_CALLS = 8_300
NAMES = ("Ada", "Omar", "Berta", "Jun", "Lena", "Tomas", "Ines", "Wim", "Yara", "Sami")
THINGS = ("kettle", "lamp", "table", "violin", "map", "bicycle", "clock", "mirror", "chair", "vase")
PLACES = ("Bern", "Oslo", "Faro", "Graz", "Pisa", "Lyon", "Cork", "Riga", "Brno", "Gent")
RECALLS = 10


@pytest.mark.slow
async def test_a_recall_computes_beside_the_event_loop(db):
    """Scores and rivals are found in a worker thread, however short the texts are."""
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            calls[frame.f_code.co_qualname] += 1

    async with repository(db, "r", embedder=HashingEmbedder(64)) as repo:
        for name in NAMES:
            session = await repo.start_session(f"Listen to {name}")
            for thing, place in zip(THINGS, PLACES, strict=True):
                await session.append(
                    f"{name} bought the {thing} in {place} for a friend.", "Noted."
                )
            await session.close_and_commit()
        await repo.recall("Who bought the lamp in Oslo?")
        for thing, place in zip(THINGS[:RECALLS], PLACES, strict=True):
            sys.setprofile(count)
            try:
                result = await repo.recall(f"Who bought the {thing} in {place}?")
            finally:
                sys.setprofile(None)
            assert len(result.candidates) == 10
    assert RECALLS < calls.total() <= MOST_CALLS * RECALLS, calls.most_common(40)
