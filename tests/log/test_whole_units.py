"""What belongs together with a message is found wherever it lies, and nothing else is."""

from datetime import timedelta

import anyio
from helpers import examples
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as some
from talk_kit import open_talk
from world import store_at

from mnemo.log.record_rows import LAST_SEQ
from mnemo.log.units import lies_in
from mnemo.testing import ManualClock
from mnemo.values.messages import StoredMessage, ToolCall
from mnemo.values.units import units_of

ITEM = '{"format": "responses", "item": {}}'
AT = ManualClock().now()
words = some.sampled_from(
    ["u", "s", "p", "t", "i", ".", "c:a", "c:b", "c:a,b", "r:a", "r:b", "o:a"]
)


def message(seq: int, word: str) -> StoredMessage:
    """
    One at *seq*: ``u``, ``s``, ``p`` speak, ``c`` calls, ``r``, ``o`` answer, ``t``, ``i`` lead.
    """
    kind, _, ids = word.partition(":")
    roles = {"u": "user", "s": "system", "p": "system", "r": "tool", "o": "tool"}
    return StoredMessage(
        role=roles.get(kind, "assistant"),  # type: ignore[arg-type]
        tool_calls=[ToolCall(id, "f") for id in ids.split(",")] if kind == "c" else (),
        tool_call_id=ids if kind in "ro" else None,
        kind="thought" if kind == "t" else None,
        content=None if kind in "iop" else word,
        extra=ITEM if kind in "itop" else None,
        id=f"m{seq}",
        token_count=1,
        thread_id="t",
        seq=seq,
        epoch=0,
        recorded_at=AT + timedelta(seconds=seq),
        at=AT,
    )


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    said=some.lists(words, max_size=24),
    covered=some.tuples(some.integers(0, 24), some.integers(0, 9)),
    expired=some.integers(0, 6),
    picks=some.sets(some.integers(0, 23), min_size=1, max_size=4),
    known=some.integers(0, 24),
)
@example(said=["c:a", "r:a", "c:a"], covered=(24, 0), expired=1, picks={1}, known=24)
def test_the_units_are_those_of_all_that_is_seen(said, covered, expired, picks, known):
    """Whatever is erased, expired or covered, and whatever part of the thread was read before."""
    messages = [message(seq, word) for seq, word in enumerate(said) if word != "."]
    start, length = covered
    runs = [(0, start - 1), (start + length, LAST_SEQ)] if start else [(length, LAST_SEQ)]
    since = AT + timedelta(seconds=expired)
    seen = [m for m in messages if lies_in(runs, m.seq) and m.seq >= expired]
    wanted = [m for m in seen if m.seq in picks]
    before = [m for m in seen if m.seq >= known]
    whole = [u for u in units_of(seen) if any(m in wanted for m in u.messages)]

    async def run() -> None:
        clock = ManualClock()
        async with open_talk(store_at(None, clock), clock) as talk:
            await talk.parts.store.writing(lambda tx: tx.add(messages))
            found = await talk.parts.store.reading(
                lambda tx: tx.whole_units(wanted, before, since=since, runs=runs)
            )
            assert found == whole

    anyio.run(run)
