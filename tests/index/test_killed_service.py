"""A process that is killed while it seals, unites or erases leaves segments that are true."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from engines import rows_of
from helpers import child_environment
from index.killed_service import ACTS, SECRET, sized
from index.test_large_changes import same_as_in_memory
from segments_kit import index_of, opened

from mnemo.index.batches import with_codes
from mnemo.index.segments import Batch
from mnemo.values.codec import decode_vector

pytestmark = [pytest.mark.slow, pytest.mark.long]

LEAST = {"seal": 40, "unite": 30, "merge": 6, "forget_thread": 60, "forget_facts": 40}
"""Operations of each act, at least."""


@pytest.mark.parametrize("act", ACTS)
async def test_killed_before_any_operation_segments_hold_what_the_rows_say(act, tmp_path):
    """They are none, old or new; nothing else is in the folder, and of the erased no byte."""
    program = Path(__file__).with_name("killed_service.py")
    environment = {**child_environment(), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(program), str(tmp_path), act]
    await anyio.run_process(command, env=environment, stderr=None)
    lives = sorted(int(path.name) for path in tmp_path.iterdir() if path.name.isdecimal())
    assert len(lives) >= LEAST[act]
    secrets, states = [*traces(base := tmp_path / "base" / "m.db")], dict[Any, Path]()
    if act.startswith("forget"):
        assert all(holding(base, [secret]) for secret in secrets)
    for life in lives:
        states.setdefault(state_of(place := tmp_path / str(life) / "m.db"), place)
    assert len(states) >= 2
    with sized(act):
        for place in states.values():
            await check(place, act, secrets)
            await check(place, act, secrets)  # what was done anew


def state_of(place: Path) -> Any:
    """What the store and the folder beside it hold, in short."""
    segments = rows_of(place, "SELECT chain, no, part, digest, length(bytes) FROM segments")
    counts = rows_of(place, "SELECT (SELECT count(*) FROM messages), (SELECT count(*) FROM nodes)")
    files = [(path.name[-40:], path.stat().st_size) for path in folder_of(place)]
    return repr((sorted(segments, key=str), counts, sorted(files)))


def folder_of(place: Path) -> list[Path]:
    return [*place.with_name("m.db.index").glob("*")]


def traces(place: Path) -> Iterator[bytes]:
    """What the secret is found by: the word, and its vectors as rows and segments have them."""
    yield SECRET.encode()
    messages = rows_of(place, f"SELECT no FROM messages WHERE content LIKE '%{SECRET}%'")
    nodes = rows_of(place, f"SELECT id FROM nodes WHERE body LIKE '%{SECRET}%'")
    owners = {*(f"message-{no}" for (no,) in messages), *(id for (id,) in nodes)}
    for key, vector in rows_of(place, "SELECT key, vector FROM vectors"):
        if key.partition("/")[0] in owners:
            row = decode_vector(vector)
            yield vector
            yield with_codes(Batch({}, {}), np.ones(1), row[None]).columns["codes"].tobytes()


def holding(place: Path, secrets: list[bytes]) -> list[str]:
    """The files that hold one of them."""
    files = (path for path in place.parent.rglob("*") if path.is_file())
    return [path.name for path in files if any(one in path.read_bytes() for one in secrets)]


async def check(place: Path, act: str, secrets: list[bytes]) -> None:
    """Check what is left, and do again what was not done."""
    async with opened(place) as (memory, repo):
        assert (await memory.check()).problems == ()
        for _ in range(2):
            index = index_of(memory, kept=True)
            await same_as_in_memory(index, memory)
            await index.seal()
        await memory._store.engine.unswept()
        digests = rows_of(place, "SELECT DISTINCT digest FROM segments WHERE digest IS NOT NULL")
        assert {path.name for path in folder_of(place)} <= {digest for (digest,) in digests}
        if act.startswith("forget"):
            talk = await repo.conversation("secret").history()
            facts = [one for one in await repo.memories() if SECRET in one.text]
            left = talk if act == "forget_thread" else facts
            assert len(left) in (0, 6 if act == "forget_thread" else 4)
            await repo.forget(thread_id="secret")
            if facts:
                await ACTS["forget_facts"](repo)
            assert not holding(place, secrets)
        await same_as_in_memory(index_of(memory, kept=True), memory)
