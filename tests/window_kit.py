"""What the tests of the window share: messages as they stand in a thread."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from talk_kit import Talk, open_talk
from world import store_at

from mnemo.config import Config
from mnemo.context.eviction import EvictionVerdict, commit
from mnemo.context.goals import Goals, Pins
from mnemo.context.viewport import Viewport
from mnemo.context.zones import Budget, eviction_zone
from mnemo.conversation.log import append_drafts, drafts_of
from mnemo.conversation.scope import ThreadScope
from mnemo.events import Event
from mnemo.log.transcript import TranscriptWriter
from mnemo.runtime.text import count_tokens
from mnemo.testing import ManualClock
from mnemo.values.derived import Derived, EvictionOutcome, OutcomeKind, Snapshot
from mnemo.values.messages import Message, StoredMessage, ToolCall
from mnemo.values.units import units_of

D = TypeVar("D", bound=Derived)

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def stored(message: Message, seq: int, thread_id: str = "t", **fields: Any) -> StoredMessage:
    """*message* as it stands at *seq*."""
    values = {name: getattr(message, name) for name in Message.__slots__}
    values["id"] = values["id"] or f"m{seq}"
    values["token_count"] = values["token_count"] or 100
    values["at"] = values["at"] or START
    kept = {"epoch": 0, "recorded_at": START, **fields}
    return StoredMessage(**values, thread_id=thread_id, seq=seq, **kept)


def said(text: str = "hello", *, tokens: int = 100, role: str = "user", **fields: Any) -> Message:
    """Something said, of *tokens* tokens."""
    return Message(role=role, content=text, token_count=tokens, **fields)


def called(*ids: str, tokens: int = 100, text: str | None = None, name: str = "look") -> Message:
    """A message that makes calls."""
    calls = [ToolCall(id, name, {"q": f"arguments of {id}"}) for id in ids]
    return Message(role="assistant", content=text, tool_calls=calls, token_count=tokens)


def answered(id: str, *, tokens: int = 100, text: str = "found it", **fields: Any) -> Message:
    """A result."""
    return Message(role="tool", content=text, tool_call_id=id, token_count=tokens, **fields)


def thread_of(messages: Sequence[Message], **fields: Any) -> list[StoredMessage]:
    """*messages* as they stand in a thread from seq 0 on."""
    return [stored(message, seq, **fields) for seq, message in enumerate(messages)]


def snapshot(
    from_seq: int, to_seq: int, text: str, *, level: Any = 1, said_to: datetime = START
) -> Snapshot:
    """A text that stands for a range of thread ``t``."""
    return Snapshot(
        id=f"{level}-{from_seq}",
        thread_id="t",
        epoch=0,
        level=level,
        from_seq=from_seq,
        to_seq=to_seq,
        text=text,
        token_count=count_tokens(text),
        origin="model",
        at=START,
        said_from=START,
        said_to=said_to,
    )


class Nobody:
    """Watches without doing anything; what it was told is on its lists."""

    def __init__(self) -> None:
        self.watched: list[tuple[str, int]] = []
        self.noted: set[str] = set()
        self.poked: list[str] = []
        self.pending: dict[str, int] = {}

    def watch(self, thread_id: str, budget_tokens: int, *, notes: bool = False) -> None:
        """Remember it."""
        self.watched.append((thread_id, budget_tokens))
        self.pending[thread_id] = budget_tokens
        if notes:
            self.noted.add(thread_id)

    def to_keep(self, thread_id: str) -> int | None:
        """What was watched last and is not stored."""
        return self.pending.get(thread_id)

    def kept(self, thread_id: str, budget_tokens: int) -> None:
        """It is stored."""
        if self.pending.get(thread_id) == budget_tokens:
            del self.pending[thread_id]

    def poke(self, thread_id: str) -> None:
        """Remember it."""
        self.poked.append(thread_id)

    async def evict(self, thread_id: str) -> EvictionOutcome | None:
        """Remember it."""
        self.poked.append(thread_id)
        return None


@dataclass
class Threads(Talk):
    """The conversations of one repository, and what they share."""

    mneme: Nobody = field(default_factory=Nobody)

    @property
    def config(self) -> Config:
        """That of the parts."""
        return self.parts.config

    @property
    def events(self) -> list[Event]:
        """All so far."""
        return self.seen.events

    def with_config(self, **sections: Any) -> Threads:
        """The same conversations, seen by a service of another configuration."""
        return replace(self, parts=replace(self.parts, config=Config(**sections)), mneme=Nobody())

    def goals(self, thread_id: str = "t") -> Goals:
        """The thread's goals."""
        return Goals(self.parts, self.settings(thread_id))

    def pins(self, thread_id: str = "t", **settings: Any) -> Pins:
        """The thread's pins."""
        return Pins(self.parts, self.settings(thread_id, **settings))

    async def say(self, *messages: Message, thread_id: str = "t") -> list[StoredMessage]:
        """Append messages as a caller would."""
        drafts = drafts_of(messages, count_tokens)
        settings = self.settings(thread_id)

        def work(tx: TranscriptWriter) -> list[StoredMessage]:
            scope = ThreadScope.of(tx, settings, self.config)
            return append_drafts(tx, scope, drafts).messages

        return await self.parts.store.writing(work)

    def viewport(
        self, budget_tokens: int | None = 1_000, thread_id: str = "t", **parts: Any
    ) -> Viewport:
        """A viewport that nobody evicts from in the background."""
        return Viewport(
            self.parts,
            self.settings(thread_id),
            mneme=self.mneme,
            budget_tokens=budget_tokens,
            **parts,
        )

    async def evict(
        self, text: str = "s", *, kind: OutcomeKind = "snapshot", budget_tokens: int = 1_000
    ) -> EvictionOutcome:
        """Let the eviction zone leave, due or not, as a run of Mneme does that says so."""

        def work(tx: TranscriptWriter) -> EvictionOutcome:
            thread = tx.thread("t")
            zone = eviction_zone(
                units_of(tx.messages("t", from_seq=thread.boundary)),
                Budget.of(budget_tokens, self.config.viewport),
                from_seq=thread.boundary,
                now=tx.now,
                deadline_s=180,
            )
            assert zone is not None
            verdict = EvictionVerdict(kind=kind, attempts=1, text=text)
            committed = commit(tx, thread, zone, verdict, self.config)
            assert committed is not None
            return committed.outcome

        return await self.parts.store.writing(work)

    async def fold(self, text: str, *, from_seq: int, to_seq: int) -> None:
        """Keep a level-2 snapshot over a range, and cover what lies within it."""

        def work(tx: TranscriptWriter) -> None:
            upper = snapshot(from_seq, to_seq, text, level=2)
            lower = [
                s for s in tx.all(Snapshot, "t") if from_seq <= s.from_seq and s.to_seq <= to_seq
            ]
            tx.put(upper, *(replace(each, covered_by=upper.id) for each in lower))

        await self.parts.store.writing(work)

    async def kept(self, kind: type[D], thread_id: str = "t") -> list[D]:
        """What of *kind* was derived from the thread."""
        return await self.parts.store.reading(lambda tx: tx.all(kind, thread_id))


@asynccontextmanager
async def open_threads(
    place: Path | None, clock: ManualClock | None = None
) -> AsyncIterator[Threads]:
    """Conversations without a model and without anybody who watches, in a file or in memory."""
    clock = clock or ManualClock(START)
    async with open_talk(store_at(place, clock), clock, spawn=lambda *_: None) as talk:
        yield Threads(**vars(talk))
