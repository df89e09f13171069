"""Visible records: what an agent's window shows, which search and recall leave out."""

from __future__ import annotations

import re
from functools import partial

from mnemo.config import Config
from mnemo.context.budget import Budget
from mnemo.context.memory import memory_text
from mnemo.conversation.scope import current_snapshots
from mnemo.log.transcript import StoredTranscript, TranscriptReader
from mnemo.runtime.text import clean
from mnemo.runtime.validation import known_id
from mnemo.values.derived import Snapshot, Thread
from mnemo.values.records import Hidden

SEEN_STEPS = 5
"""Last steps of a session that its agent has before it."""
_SHOWN = re.compile(r"^\[messages (\d+)\.\.(\d+), ", re.MULTILINE)
# Escaped text cannot end its tag, so what is left is the framing.
_TOLD = re.compile(r"<memory trusted=\"false\">.*?</memory>", re.DOTALL)


async def hidden_in(
    transcript: StoredTranscript, stream: str | None, config: Config
) -> Hidden | None:
    """
    Read what ``seen_by`` gives of *stream*; ``None`` for ``None``.

    Raises:
        ValueError: *stream* is no text. *Cancellation*: safe.
    """
    if stream is None:
        return None
    known = known_id("not_visible_in", stream)
    return await transcript.reading(partial(seen_by, stream=known, config=config))


def seen_by(tx: TranscriptReader, stream: str, config: Config) -> Hidden:
    """
    Return what the agent of a thread or session sees.

    Of a thread: its messages from the boundary on, all of the epoch if it never had a
    viewport, and the snapshots shown in its memory. Of a session: its last five steps.
    """
    stream = clean(stream)
    thread = tx.thread(stream)
    return Hidden(
        stream=stream,
        message_seq=max(thread.boundary, thread.epoch_start),
        message_since=thread.alive_since(tx.now, config.conversation.ttl_s),
        last_steps=SEEN_STEPS,
        ids=frozenset(snapshot.id for snapshot in _shown(tx, thread, config)),
    )


def _shown(tx: TranscriptReader, thread: Thread, config: Config) -> list[Snapshot]:
    """Return the current snapshots that the memory of the thread's viewport shows."""
    if thread.budget_tokens is None:
        return []
    living = current_snapshots(tx, thread, thread.alive_since(tx.now, config.conversation.ttl_s))
    if not living:
        return []
    budget = Budget.of(thread.budget_tokens, config.viewport)
    memory = memory_text(living, budget, config.conversation.count)
    shown = {tuple(map(int, seqs)) for seqs in _SHOWN.findall(_TOLD.sub("", memory))}
    return [snapshot for snapshot in living if (snapshot.from_seq, snapshot.to_seq) in shown]
