"""What belongs together with a message, wherever it lies in its thread: one rule for all rooms."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from math import inf
from operator import itemgetter
from typing import TypeAlias

from mnemo.log.record_rows import BY_PLACE, LAST_SEQ, MESSAGES_BESIDE
from mnemo.store.rows import Passed, listed
from mnemo.store.tables import MESSAGES
from mnemo.store.tx import Tx
from mnemo.values.codec import utc_text
from mnemo.values.messages import StoredMessage, answered_ids
from mnemo.values.units import Unit, leads, units_of

_AT = BY_PLACE + "AND m.seq IN $numbers ORDER BY m.seq"
_USES = """
SELECT c.call_id, c.seq, 1 FROM message_calls AS c JOIN messages AS m
ON m.repo = c.repo AND m.thread = c.thread AND m.seq = c.seq
WHERE c.repo = ? AND c.thread = ? AND c.call_id IN $texts {since}
UNION ALL SELECT m.tool_call_id, m.seq, 0 FROM messages AS m $by(messages_answers)
WHERE m.repo = ? AND m.thread = ? AND m.tool_call_id IN $texts {since} ORDER BY 2
"""

Runs: TypeAlias = Sequence[tuple[int, int]]
"""The first and last seq of each, both inclusive; ascending, apart from each other."""
EVERYWHERE: Runs = ((0, LAST_SEQ),)


def lies_in(runs: Runs, seq: int) -> bool:
    """Whether one of *runs* holds *seq*."""
    place = bisect_right(runs, seq, key=itemgetter(0))
    return place > 0 and seq <= runs[place - 1][1]


def messages_at(
    tx: Tx, repo: int, thread: int, seqs: Iterable[int], passed: Passed | None = None
) -> list[StoredMessage]:
    """The messages at *seqs* of a thread, ascending; damaged rows: as of ``Around``."""
    return MESSAGES.rows.all(tx.run(_AT, (repo, thread, listed(seqs))), passed)


@dataclass(frozen=True, slots=True)
class Around:
    """
    What belongs together among the messages somebody may see, recorded *since* then, in *runs*.

    *passed*: Gets damaged rows, which are left out then; ``None``: they raise.
    """

    tx: Tx
    repo: int
    thread: int
    since: datetime | None = None
    runs: Runs = EVERYWHERE
    passed: Passed | None = None

    def units(
        self, messages: Iterable[StoredMessage], known: Iterable[StoredMessage] = ()
    ) -> list[Unit]:
        """The whole units, ascending, of seen *messages*; *known* are others already read."""
        wanted = {message.seq: message for message in messages}
        found = {message.seq: message for message in known} | wanted
        looked_at = set[int]()
        while True:
            units = [one for one in units_of(found.values()) if _holds(one, wanted)]
            members = [message for unit in units for message in unit.messages]
            fresh = [message for message in members if message.seq not in looked_at]
            if not fresh:
                return units
            looked_at.update(message.seq for message in fresh)
            near = (self._of_same_calls(fresh, found), *(self._beside(m, found) for m in fresh))
            for message in chain.from_iterable(near):
                found[message.seq] = message

    def _of_same_calls(
        self, messages: Sequence[StoredMessage], found: Mapping[int, StoredMessage]
    ) -> Iterable[StoredMessage]:
        """What makes or answers the calls that *messages* make or answer, unless it is *found*."""
        asked = defaultdict[str, list[int]](list)
        for message in messages:
            for id in (*(call.id for call in message.tool_calls), *answered_ids(message)):
                asked[id].append(message.seq)
        if not asked:
            return ()
        uses, calls = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
        since = () if self.since is None else (utc_text(self.since),)
        query = _USES.format(since="AND m.recorded_at >= ?" if since else "")
        for id, seq, is_call in self.tx.run(
            query, (self.repo, self.thread, listed(asked), *since) * 2
        ):
            if lies_in(self.runs, seq):
                uses[id].append(seq)
                calls[id] += [seq] if is_call else []
        near = {
            use
            for id, seqs in asked.items()
            for seq in seqs
            for use in _near(uses[id], calls[id], seq)
        }
        return messages_at(self.tx, self.repo, self.thread, near - found.keys(), self.passed)

    def _beside(
        self, message: StoredMessage, found: Mapping[int, StoredMessage]
    ) -> Iterator[StoredMessage]:
        """What is next to *message*, if it leads that or is led by it and it is not *found*."""
        seq, since = message.seq, "" if self.since is None else utc_text(self.since)
        sides = [(-1, seq - 1 not in found), (1, leads(message) and seq + 1 not in found)]
        for step in (step for step, is_asked in sides if is_asked):
            query = MESSAGES_BESIDE.format("DESC" if step < 0 else "")
            for first, last in self.runs[::step]:
                ends = (first, min(last, seq - 1)) if step < 0 else (max(first, seq + 1), last)
                if ends[0] > ends[1]:
                    continue
                row = self.tx.run(query, (self.repo, self.thread, *ends, since, 1)).fetchone()
                if row is not None:
                    yield from MESSAGES.rows.all([row], self.passed)
                    break


def _holds(unit: Unit, wanted: Mapping[int, StoredMessage]) -> bool:
    return any(message.seq in wanted for message in unit.messages)


def _near(uses: Sequence[int], calls: Sequence[int], seq: int) -> Sequence[int]:
    """
    Those *uses* of a call's id that may be of one unit with that at *seq*.

    An agent may use an id again and again: a result answers the nearest call before it, only
    one before all *calls* the first of them.
    """
    before = bisect_right(calls, seq)
    first = calls[before - 1] if before > 1 else 0
    following = max(before, 1)
    end = calls[following] if following < len(calls) else inf
    return uses[bisect_left(uses, first) : bisect_left(uses, end)]
