"""
The engine for a summary of a range: compaction, eviction and folding are cases of it.

What is due is read, its text is made with no transaction held, and that is kept only if the range
is still what was read; otherwise what is due is judged anew.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from mnemo.errors import UsageError
from mnemo.log.transcript import StoredTranscript, TranscriptReader, TranscriptWriter
from mnemo.runtime.flights import Backoff

Due = TypeVar("Due")
Text = TypeVar("Text")
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeSummary(Generic[Due, Text, Made]):
    """
    One kind of summary of a thread's ranges.

    Attributes:
        key: What attempts are counted by, and what waits after a failure.
        due: Reads the range that is due; ``None``: none is.
        about: Names the range; at another one the attempts are counted anew.
        ask: Makes the text, knowing how many attempts failed; raises what is wrong.
        keep: Writes it; ``None``: nothing was written, the range is not what was read.
        told: Called with what is durable.
        failed: Called with why an attempt failed.
        again: Called when the time of the next attempt has come.
        is_final: Whether no further attempt can do better.
        by_rule: Gives the text after the last attempt; ``None``: there is none, and the next
            call begins anew.
    """

    key: Hashable
    due: Callable[[TranscriptReader], Due | None]
    about: Callable[[Due], Hashable]
    ask: Callable[[Due, int], Awaitable[Text]]
    keep: Callable[[TranscriptWriter, Due, Text], Made | None]
    told: Callable[[Due, Text, Made], None]
    failed: Callable[[Exception], None]
    again: Callable[[], None]
    is_final: Callable[[Exception], bool] = lambda error: False
    by_rule: Callable[[Due, int], Text] | None = None

    async def kept(self, store: StoredTranscript, due: Due, text: Text) -> Made | None:
        """Write *text* in one transaction; see ``keep``."""
        return await store.writing(lambda tx: self.keep(tx, due, text))


async def summarise(
    kind: RangeSummary[Due, Text, Made],
    store: StoredTranscript,
    backoff: Backoff,
    *,
    max_attempts: int,
) -> Made | None:
    """
    Make one summary if one is due; called within the thread's single flight.

    ``None``: nothing is due, the attempt failed, or the next one has to wait.

    *Raises* ``StoreError``: what is due, or the text by rule, met a store that failed;
    ``UsageError``: the repository closes. *Cancellation*: safe; a write completes.
    """
    while not backoff.holds(kind.key):
        due = await store.reading(kind.due)
        if due is None:
            return None
        about = kind.about(due)
        try:
            text = await kind.ask(due, backoff.attempts(kind.key, about))
            made = await kind.kept(store, due, text)
        except UsageError:  # the repository closes: the next who opens it finds what is due
            raise
        except Exception as error:
            kind.failed(error)
            failed = backoff.failed(kind.key, about)
            if failed < max_attempts and not kind.is_final(error):
                backoff.begin(kind.key, kind.again)
                return None
            if kind.by_rule is None:
                backoff.done(kind.key)
                return None
            text = kind.by_rule(due, failed)
            made = await kind.kept(store, due, text)
        backoff.done(kind.key)
        if made is not None:
            kind.told(due, text, made)
            return made
    return None
