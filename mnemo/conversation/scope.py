"""
Settings of a conversation handle, what a repository's handles share, and what one may see.

Messages of the present epoch that have not expired. What was derived from an expired message goes
with it at once, not when it is swept.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from mnemo.config import Config
from mnemo.events import Event
from mnemo.log.record_rows import LAST_SEQ
from mnemo.log.transcript import StoredTranscript, TranscriptReader
from mnemo.log.units import Runs
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatModel, Clock, Embedder
from mnemo.runtime.spans import NO_SPANS, Spans
from mnemo.runtime.validation import exact_id, flag, seconds
from mnemo.values.derived import Compaction, Derived, Pin, Snapshot, Thread, alive_since
from mnemo.values.erasure import Erased, Selection
from mnemo.values.messages import StoredMessage
from mnemo.values.strategies import (
    OMITTED,
    Composite,
    Nearest,
    Recent,
    Retrieval,
    Summary,
    ToolOutputPruner,
)
from mnemo.values.units import Unit

D = TypeVar("D", bound=Derived)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSettings:
    """
    One handle's settings; *ttl_s*: seconds, 0 for ever, ``None`` as the configuration says;
    *remember*: what is appended is also to be extracted.
    """

    thread_id: str
    retrieval: Retrieval
    compressions: tuple[Summary | ToolOutputPruner, ...] = ()
    ttl_s: float | None = None
    remember: bool = False

    @property
    def summaries(self) -> list[Summary]:
        """The summaries among the compressions, in order."""
        return [one for one in self.compressions if isinstance(one, Summary)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationParts:
    """
    What the conversations of one repository depend on; all callbacks but *forget* are plain.

    *spawn* starts a task that is cancelled when the repository closes. *appended* is called after
    each append that stored something; *demand* requests the extraction job in the transaction that
    stores, and returns whether it is due; *poke_jobs* is called once that is durable.
    """

    repo_id: str
    store: StoredTranscript
    embedder: Embedder
    chat_model: ChatModel | None
    clock: Clock
    config: Config
    publish: Callable[[Event], None]
    spawn: Callable[..., object]
    meter: UsageMeter
    forget: Callable[[Selection], Awaitable[Erased]]
    appended: Callable[[ThreadSettings], None]
    demand: Callable[..., bool] | None = None
    poke_jobs: Callable[[], None] = lambda: None
    spans: Spans = NO_SPANS

    def tell(self, kind: Callable[..., Event], /, **facts: Any) -> None:
        """Publish an event of this repository, as of now."""
        self.publish(kind(repo_id=self.repo_id, at=self.clock.now(), **facts))


def settings_of(
    thread_id: str,
    config: Config,
    *,
    retrieval: Retrieval = OMITTED,
    compression: Summary | ToolOutputPruner | Sequence[Summary | ToolOutputPruner] | None = OMITTED,
    ttl_s: float | None = OMITTED,
    remember: bool = False,
) -> ThreadSettings:
    """
    Make the settings of a handle's keywords; those omitted are as *config* says.

    Raises:
        ValueError: A keyword is not what it must be, or the id blank, too long or not storable.
    """
    exact_id("a thread's id", thread_id)
    own = config.conversation
    chosen = own.retrieval if retrieval is OMITTED else retrieval
    if not isinstance(chosen, Recent | Nearest | Composite):
        raise ValueError("retrieval must be Recent, Nearest or Composite")
    return ThreadSettings(
        thread_id=thread_id,
        retrieval=chosen,
        compressions=own.compressions if compression is OMITTED else _compressions(compression),
        ttl_s=None if ttl_s is OMITTED else _ttl(ttl_s),
        remember=flag("remember", remember),
    )


def _compressions(given: object) -> tuple[Summary | ToolOutputPruner, ...]:
    if given is None:
        return ()
    strategies = tuple(given) if isinstance(given, list | tuple) else (given,)
    for strategy in strategies:
        if not isinstance(strategy, Summary | ToolOutputPruner):
            raise ValueError("compression must be Summary, ToolOutputPruner, several or None")
    return strategies


def _ttl(ttl_s: object) -> float:
    return 0.0 if ttl_s is None else seconds("ttl_s", ttl_s, above=True)


@dataclass(frozen=True, slots=True)
class ThreadScope:
    """
    A thread as one handle sees it in one transaction; *thread* has the handle's ``ttl_s``.

    *since*: Messages recorded before are expired. *is_stale*: The stored row has another ``ttl_s``.
    """

    thread: Thread
    since: datetime | None
    is_new: bool
    is_stale: bool

    @classmethod
    def of(cls, tx: TranscriptReader, settings: ThreadSettings, config: Config) -> ThreadScope:
        """Read the thread as a handle of these *settings* sees it."""
        return cls.stored(tx, settings.thread_id, config, ttl_s=settings.ttl_s)

    @classmethod
    def stored(
        cls, tx: TranscriptReader, thread_id: str, config: Config, *, ttl_s: float | None = None
    ) -> ThreadScope:
        """Read the thread as it is stored, unless *ttl_s* is given."""
        stored = tx.thread(thread_id)
        thread = stored if ttl_s is None else replace(stored, ttl_s=ttl_s)
        is_new = stored == Thread(id=thread_id)
        return cls(
            thread=thread,
            since=alive_since(thread.ttl_s, config.conversation.ttl_s, tx.now),
            is_new=is_new,
            is_stale=not is_new and thread != stored,
        )

    def messages(self, tx: TranscriptReader, **where: Any) -> list[StoredMessage]:
        """Read messages that have not expired; see ``TranscriptReader.messages``."""
        return tx.messages(self.thread.id, since=self.since, **where)

    def units(
        self,
        tx: TranscriptReader,
        messages: Sequence[StoredMessage],
        runs: Runs,
        known: Iterable[StoredMessage] = (),
    ) -> list[Unit]:
        """The units of *messages*, whole as far as they lie in *runs* and have not expired."""
        return tx.whole_units(messages, known, since=self.since, runs=runs)

    def uncovered(self, records: Sequence[Compaction]) -> list[tuple[int, int]]:
        """The runs of seqs of the epoch that none of *records*, ascending, stands for."""
        starts = [self.thread.epoch_start, *(record.end_seq + 1 for record in records)]
        ends = [*(record.start_seq - 1 for record in records), LAST_SEQ]
        return [(first, last) for first, last in zip(starts, ends, strict=True) if first <= last]

    def is_alive(self, message: StoredMessage) -> bool:
        """Whether *message* has not expired."""
        return self.since is None or message.recorded_at >= self.since

    def all(self, tx: TranscriptReader, kind: type[D], *, live: bool = False) -> list[D]:
        """The rows of *kind* in the present epoch, ascending, without those of expired messages."""
        found = tx.all(kind, self.thread.id, epoch=self.thread.epoch, live=live)
        return [one for one in found if self.since is None or self._lives(tx, *_ends(one))]

    def _lives(self, tx: TranscriptReader, *ends: int) -> bool:
        """
        Whether no message of a range has expired. Messages are recorded in the order of their seqs,
        but for a clock that is set back, so the ends tell; where one of them was erased, the whole
        range is read.
        """
        found = [m for seq in sorted({*ends}) for m in self._at(tx, seq, seq)]
        if len(found) < len({*ends}):
            found = self._at(tx, *ends)
        return all(map(self.is_alive, found))

    def _at(self, tx: TranscriptReader, first: int, last: int) -> list[StoredMessage]:
        return tx.messages(self.thread.id, from_seq=first, to_seq=last)


def _ends(derived: Derived) -> tuple[int, ...]:
    """The seqs of the first and the last message that *derived* tells of; of others none."""
    match derived:
        case Compaction():
            return derived.start_seq, derived.end_seq
        case Snapshot():
            return derived.from_seq, derived.to_seq
        case Pin():
            return derived.seq, derived.seq
    return ()


class OfThread:
    """What a conversation keeps of one thread, with the *settings* of a handle."""

    def __init__(self, parts: ConversationParts, settings: ThreadSettings) -> None:
        self._parts = parts
        self._settings = settings
        self._thread_id = settings.thread_id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._thread_id!r}>"

    def _scope(self, tx: TranscriptReader) -> ThreadScope:
        return ThreadScope.of(tx, self._settings, self._parts.config)
