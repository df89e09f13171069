"""The next messages of a thread that its ``extract`` job takes, up to a clean cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mnemo.config import Config
from mnemo.conversation.scope import ThreadScope
from mnemo.conversation.settings import settings_of
from mnemo.log.transcript import TranscriptReader
from mnemo.values.messages import StoredMessage
from mnemo.values.units import clean_cuts, units_of

MOST_MESSAGES = 64
"""Messages of one portion, unless one tool group has more (S)."""
LONGEST_GROUP = 4_096
"""Seqs among which the end of a long tool group is looked for; a longer one is cut (S)."""
CONTEXT_MESSAGES = 3
"""Messages before a portion that are shown for understanding only (S)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """
    Messages to extract.

    Attributes:
        messages: Ascending; expired ones and those of a session by hand are left out.
        context: The last messages before them, ascending.
        to_seq: Where the next portion begins.
        waits: Whether there is none yet, because a call still waits for its result.
    """

    messages: tuple[StoredMessage, ...]
    context: tuple[StoredMessage, ...]
    to_seq: int
    waits: bool = False

    @property
    def ids(self) -> list[str]:
        """The ids of its messages."""
        return [message.stored_id for message in self.messages]

    def up_to(self, message_id: str) -> Portion:
        """The part of it that ends with this message."""
        place = self.ids.index(message_id) + 1
        part = self.messages[:place]
        return replace(self, messages=part, to_seq=part[-1].seq + 1)


def next_portion(tx: TranscriptReader, thread_id: str, config: Config) -> Portion:
    """Read the portion that begins with the thread's ``extracted_seq``."""
    scope = ThreadScope.of(tx, settings_of(thread_id, config), config)
    start = scope.thread.extracted_seq or 0
    messages, end = _up_to_cut(tx, scope, start, config.conversation.tool_deadline_s)
    fed = tx.fed(thread_id, [message.stored_id for message in messages])
    before: list[StoredMessage] = []
    if start:
        before = tx.messages(
            thread_id, to_seq=start - 1, newest=CONTEXT_MESSAGES, since=scope.since
        )
    return Portion(
        messages=tuple(message for message in messages if message.id not in fed),
        context=tuple(before),
        to_seq=end,
        waits=end == start < scope.thread.next_seq,
    )


def _up_to_cut(
    tx: TranscriptReader, scope: ThreadScope, start: int, deadline_s: float
) -> tuple[list[StoredMessage], int]:
    """Messages from *start* on and the seq behind them; no tool group goes on there."""
    thread = scope.thread
    for most in (MOST_MESSAGES, LONGEST_GROUP):
        end = min(thread.next_seq, start + most)
        # One more: what leads a message is not parted from it.
        known = tx.messages(thread.id, from_seq=start, to_seq=end, since=scope.since)
        window = [message for message in known if message.seq < end]
        if not window:
            return [], end
        cuts = [cut for cut in _cuts(tx, scope, known, deadline_s) if start < cut <= end]
        if cuts:
            cut = cuts[-1] if most == MOST_MESSAGES else cuts[0]
            return [message for message in window if message.seq < cut], cut
        if end == thread.next_seq:
            return [], start
    return window, end


def _cuts(
    tx: TranscriptReader, scope: ThreadScope, known: Sequence[StoredMessage], deadline_s: float
) -> list[int]:
    calls = sorted({call.id for unit in units_of(known) for call in unit.unanswered})
    behind = tx.of_calls(scope.thread.id, calls) if calls else []
    found = {message.seq: message for message in known}
    found |= {m.seq: m for m in behind if m.seq > known[-1].seq and scope.is_alive(m)}
    return clean_cuts(units_of(found.values()), now=tx.now, deadline_s=deadline_s)
