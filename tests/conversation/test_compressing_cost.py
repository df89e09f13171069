"""What judging a thread costs does not grow with what is covered already."""

from typing import Any

import pytest
from compress_kit import compressed
from talk_kit import assistant, result, user

from mnemo.conversation.compression import PAGE, due_range
from mnemo.conversation.scope import ThreadScope
from mnemo.log.record_rows import LAST_SEQ
from mnemo.values.strategies import Summary

SUMMARY = Summary(max_tokens=200, keep_last=2)


class Counting:
    """A transaction that counts the messages it gives, and the ranges of sums."""

    def __init__(self, tx: Any) -> None:
        self._tx = tx
        self.read = 0
        self.sums: list[tuple[int, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    def messages(self, *args: Any, **named: Any) -> Any:
        found = self._tx.messages(*args, **named)
        self.read += len(found)
        return found

    def span(self, thread_id: str, *, from_seq: int, to_seq: int, since: Any = None) -> Any:
        self.sums.append((from_seq, to_seq))
        return self._tx.span(thread_id, from_seq=from_seq, to_seq=to_seq, since=since)


@pytest.mark.parametrize("history", [100, 1_000])
async def test_a_judgement_reads_what_is_uncovered_alone(open_conversations, history):
    """However long the covered past, only the messages behind the last record are looked at."""
    kit = await compressed(open_conversations, SUMMARY)
    quiet = kit.talk.log()
    await quiet.append([user(f"m{n}", token_count=10) for n in range(history)])
    await quiet.compact(0, history - 1, "so far")
    await quiet.append([user(f"n{n}", token_count=10) for n in range(30)])
    counted: list[Counting] = []

    def judge(tx: Any) -> Any:
        counted.append(Counting(tx))
        scope = ThreadScope.of(tx, kit.settings, kit.talk.parts.config)
        return due_range(counted[0], scope, SUMMARY, deadline_s=180)  # type: ignore[arg-type]

    due = await kit.talk.parts.store.reading(judge)
    assert (due.start_seq, due.end_seq) == (history, history + 27)
    assert counted[0].sums == [(history, LAST_SEQ)]
    assert counted[0].read <= 100


@pytest.mark.parametrize("held_up", [100, 900])
async def test_a_call_that_holds_everything_up_costs_no_more_for_that(open_conversations, held_up):
    """However much stands behind a call without a result, only its beginning is looked at."""
    kit = await compressed(open_conversations, SUMMARY)
    quiet = kit.talk.log()
    await quiet.append([user("before"), assistant(None, "a"), result("a")])
    await quiet.append([assistant(None, "b", "c"), result("b")])
    await quiet.append([user(f"m{n}", token_count=10) for n in range(held_up)])
    counted: list[Counting] = []

    async def judged(deadline_s: float = 180) -> Any:
        def judge(tx: Any) -> Any:
            counted.append(Counting(tx))
            scope = ThreadScope.of(tx, kit.settings, kit.talk.parts.config)
            return due_range(counted[-1], scope, SUMMARY, deadline_s=deadline_s)  # type: ignore[arg-type]

        return await kit.talk.parts.store.reading(judge)

    due = await judged()
    assert (due.start_seq, due.end_seq) == (0, 2)
    await quiet.compact(0, 2, "so far")
    assert await judged() is None
    # One more before the page: it might lead the first.
    assert max(one.read for one in counted) <= PAGE + 64 + 1
    due = await judged(deadline_s=0)
    assert (due.start_seq, due.end_seq) == (3, held_up + 2)


async def test_erased_beginnings_are_not_gone_through_again(open_conversations):
    """What the sweep left nothing of costs no sum over the rest of the history."""
    kit = await compressed(open_conversations, SUMMARY)
    quiet = kit.talk.log()
    for start in (0, 650):
        await quiet.append([user(f"m{n}", token_count=10) for n in range(start, start + 650)])
    await kit.talk.parts.store.writing(lambda tx: tx.erase("t", range(1_200)))
    await quiet.compact(1_200, 1_299, "so far")
    counted: list[Counting] = []

    def judge(tx: Any) -> Any:
        counted.append(Counting(tx))
        scope = ThreadScope.of(tx, kit.settings, kit.talk.parts.config)
        return due_range(counted[0], scope, SUMMARY, deadline_s=180)  # type: ignore[arg-type]

    assert await kit.talk.parts.store.reading(judge) is None
    assert counted[0].sums == [(1_300, LAST_SEQ), (0, 1_199)]
    assert counted[0].read == 0
