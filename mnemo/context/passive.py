"""
Passive recall: memories that a turn brings up without being asked for; no model judges.

A memory must share enough telling words with the turn, be new to it, and fit. It is stored once per
turn, so that every rendering of the turn is the same.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import anyio.to_thread

from mnemo.config import Config
from mnemo.context.rendering import seen_by
from mnemo.context.zones import Budget
from mnemo.conversation.scope import ConversationParts, ThreadScope, ThreadSettings
from mnemo.errors import UsageError
from mnemo.events import RecallFailed
from mnemo.log.records import StoredRecords
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.recall.keyword import Excerpts, SearchHit, hit_of
from mnemo.runtime.clock import Breather
from mnemo.runtime.text import STOP_WORDS, fold, index_stem, one_line, unspaced_runs
from mnemo.values.derived import Goal, Snapshot, Surfaced
from mnemo.values.messages import StoredMessage
from mnemo.values.records import Hidden, Ranking, RecordHit, SurfacingQuery
from mnemo.values.untrusted import escaped

log: logging.Logger = logging.getLogger("mnemo")

HEADING = "## Recalled (may be irrelevant)"
LEAST_CHARS = 80
"""Characters that an excerpt is shortened to, at least."""
FEWEST_TERMS = 2
"""A turn of fewer terms brings nothing to mind."""
CANDIDATES = 50
"""Records that are looked at once they share enough terms (S)."""
REMEMBERED_FAILURES = 1_000
"""Threads whose failed turn is known, so that it is not tried again (S)."""

Place = tuple[str, str]
"""A record's stream and id."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """
    The beginning of a thread's latest turn; *recent*: what surfaced in the turns of the cooldown;
    *stored*: what surfaced in this turn before, ``None`` at the first look.
    """

    scope: ThreadScope
    message: StoredMessage
    goals: tuple[str, ...]
    hidden: Hidden
    recent: frozenset[Place]
    stored: Surfaced | None

    @property
    def place(self) -> Place:
        return self.message.thread_id, self.message.stored_id


class PassiveRecall:
    """Recalls memories for the turns of one repository's threads, out of its *records*."""

    def __init__(self, parts: ConversationParts, records: StoredRecords) -> None:
        self._parts = parts
        self._records = records
        self._count = parts.config.conversation.count
        self._failed: dict[str, int] = {}

    async def recalled(self, settings: ThreadSettings, budget_tokens: int) -> list[SearchHit]:
        """
        The memories of the latest turn of a handle's thread, best first; mostly none.

        Found once per turn and stored with it. A failure is logged, told by ``RecallFailed``, and
        not tried again in the same turn.

        *Raises* ``UsageError``: the repository is closed. *Cancellation*: safe; at worst what was
        found is stored.
        """
        config, thread_id = self._parts.config, settings.thread_id
        if not config.recall.passive_enabled or not config.recall.passive_max_hits:
            return []
        turn: _Turn | None = None
        try:
            turn = await self._parts.store.reading(
                lambda tx: _turn(tx, ThreadScope.of(tx, settings, config), config)
            )
            if turn is None or self._failed.get(thread_id) == turn.message.seq:
                return []
            surfaced = turn.stored or await self._surface(turn, budget_tokens)
            return [_hit(each) for each in surfaced.hits]
        except UsageError:
            raise  # the repository was closed, which is no failure of recall
        except Exception as error:
            log.exception("nothing comes to mind in thread %r", thread_id)
            self._fail(thread_id, turn, error)
            return []

    def section(self, hits: Sequence[SearchHit], cap_tokens: int) -> str:
        """Render *hits* as text, as many of the best as fit; ``""``: none does."""
        shown: list[SearchHit] = []
        for hit in hits:
            if self._count(_told([*shown, hit])) <= cap_tokens:
                shown.append(hit)
        return _told(shown) if shown else ""

    def _fail(self, thread_id: str, turn: _Turn | None, error: Exception) -> None:
        if turn is not None:
            while len(self._failed) >= REMEMBERED_FAILURES:
                del self._failed[next(iter(self._failed))]
            self._failed[thread_id] = turn.message.seq
        # What was said stays in the store: an event holds nothing of it.
        self._parts.tell(RecallFailed, query="", error=str(error) or type(error).__name__)

    # ── Once per turn ────────────────────────────────────────────────────────────────

    async def _surface(self, turn: _Turn, budget_tokens: int) -> Surfaced:
        found = await self._found(turn, budget_tokens)
        limit = self._parts.config.recall.passive_max_hits
        return await self._parts.store.writing(
            partial(_stored, turn=turn, hits=found, limit=limit, config=self._parts.config)
        )

    async def _found(self, turn: _Turn, budget_tokens: int) -> list[SearchHit]:
        """Candidates that pass, best first, each short enough to be told."""
        settings = self._parts.config.recall
        terms = await anyio.to_thread.run_sync(terms_of_turn, [turn.message.text, *turn.goals])
        if len(terms) < max(FEWEST_TERMS, settings.passive_min_terms):
            return []
        ranking = Ranking(self._parts.clock.now(), settings.recency_decay)
        surfacing = await self._records.surfacing(
            SurfacingQuery(
                terms=terms,
                ranking=ranking,
                min_terms=settings.passive_min_terms,
                hidden=turn.hidden,
                excluded=turn.recent | {turn.place},
                default_ttl_s=self._parts.config.conversation.ttl_s,
                limit=CANDIDATES,
            )
        )
        if not surfacing.hits:
            return []
        seen = await self._parts.store.reading(partial(_visible_texts, turn=turn))
        cap = Budget.of(budget_tokens, self._parts.config.viewport).recall
        choose = partial(self._chosen, surfacing.hits, seen, ranking, cap)
        return await anyio.to_thread.run_sync(choose)

    def _chosen(
        self,
        candidates: Sequence[tuple[RecordHit, frozenset[str]]],
        seen: set[str],
        ranking: Ranking,
        cap_tokens: int,
    ) -> list[SearchHit]:
        chosen: list[SearchHit] = []
        known = set(seen)
        for candidate, terms in candidates:
            text = _alike(candidate.record.text)
            if text in known:
                continue
            hit = self._fitted(candidate, sorted(terms), ranking, chosen, cap_tokens)
            if hit is not None:
                known.add(text)
                chosen.append(hit)
            if len(chosen) == self._parts.config.recall.passive_max_hits:
                break
        return chosen

    def _fitted(
        self,
        candidate: RecordHit,
        terms: Sequence[str],
        ranking: Ranking,
        before: Sequence[SearchHit],
        cap_tokens: int,
    ) -> SearchHit | None:
        """The candidate with as long an excerpt as fits behind *before*; ``None``: none does."""

        excerpts = Excerpts(candidate.record.text, terms)

        def shown(chars: int) -> SearchHit:
            return hit_of(candidate, ranking, excerpts.of(chars))

        def fits(hit: SearchHit) -> bool:
            return self._count(_told([*before, hit])) <= cap_tokens

        # To look for the words in a long text takes milliseconds, and one memory that was
        # shortened mostly leaves no room even for the name of another.
        if not fits(hit_of(candidate, ranking, "")):
            return None
        most = self._parts.config.recall.passive_excerpt_chars
        if fits(whole := shown(most)):
            return whole
        lengths = range(LEAST_CHARS, most)
        fitting = bisect_left(lengths, True, key=lambda chars: not fits(shown(chars)))
        return shown(lengths[fitting - 1]) if fitting else None


# ── In transactions ──────────────────────────────────────────────────────────────────


def _turn(tx: TranscriptReader, scope: ThreadScope, config: Config) -> _Turn | None:
    """The latest turn; ``None``: no user has spoken in the window."""
    thread_id, hidden = scope.thread.id, seen_by(tx, scope, config)
    latest = scope.messages(tx, from_seq=hidden.message_seq, newest=1, role="user")
    if not latest:
        return None
    goals = scope.all(tx, Goal, live=True)
    cooldown = config.recall.passive_cooldown_turns
    recent = _surfaced_lately(tx, thread_id, latest[0].seq, cooldown)
    stored = [s for s in tx.all(Surfaced, thread_id, newest=1) if s.seq == latest[0].seq]
    return _Turn(
        scope=scope,
        message=latest[0],
        goals=tuple(goal.description for goal in goals),
        hidden=hidden,
        recent=recent,
        stored=stored[0] if stored else None,
    )


def _surfaced_lately(
    tx: TranscriptReader, thread_id: str, seq: int, turns: int
) -> frozenset[Place]:
    """List what surfaced within so many user turns ahead of *seq*, or since."""
    if not turns:
        return frozenset()
    asked = tx.messages(thread_id, to_seq=seq - 1, newest=turns, role="user") if seq else []
    if not asked:
        return frozenset()
    shown = tx.all(Surfaced, thread_id, newest=turns + 1)
    return frozenset(
        place for one in shown if asked[0].seq <= one.seq != seq for place in one.shown
    )


def _visible_texts(tx: TranscriptReader, turn: _Turn) -> set[str]:
    """The texts of the window and of the memory above it, alike ones as one."""
    messages = turn.scope.messages(tx, from_seq=turn.hidden.message_seq)
    snapshots = turn.scope.all(tx, Snapshot, live=True)
    shown = [s.text for s in snapshots if s.id in turn.hidden.ids]
    return {_alike(text) for text in (*(message.text for message in messages), *shown)}


def _stored(
    tx: TranscriptWriter, turn: _Turn, hits: Sequence[SearchHit], limit: int, config: Config
) -> Surfaced:
    """Return what was stored for the turn first; all that is shown is recorded."""
    thread_id, seq = turn.message.thread_id, turn.message.seq
    before = [s for s in tx.all(Surfaced, thread_id, newest=1) if s.seq == seq]
    if before:
        return before[0]
    cooldown = config.recall.passive_cooldown_turns
    recent = _surfaced_lately(tx, thread_id, seq, cooldown)
    left = [hit for hit in hits if _may_be_shown(tx, hit, recent)][:limit]
    surfaced = Surfaced(
        thread_id=thread_id,
        epoch=turn.scope.thread.epoch,
        seq=seq,
        shown=tuple((hit.session_id, hit.message_id) for hit in left),
        hits=tuple(map(_written, left)),
        at=tx.now,
    )
    # Of a turn that was cleared or erased meanwhile nothing is kept.
    if turn.message.stored_id in tx.by_id(thread_id, [turn.message.stored_id]):
        tx.put(surfaced)
    return surfaced


def _may_be_shown(tx: TranscriptReader, hit: SearchHit, recent: frozenset[Place]) -> bool:
    """Whether nobody showed or erased it since it was found."""
    if (hit.session_id, hit.message_id) in recent:
        return False
    return not tx.erased_ids(hit.session_id, [hit.message_id])


# ── In words ─────────────────────────────────────────────────────────────────────────


def _alike(text: str) -> str:
    return one_line(text).casefold()


def _told(hits: Sequence[SearchHit]) -> str:
    return "\n".join([HEADING, *map(_line, hits)])


def _line(hit: SearchHit) -> str:
    who = ", ".join(map(one_line, (hit.message_id, hit.session_id, hit.kind)))
    return f'message {escaped(who)}, {hit.at.date().isoformat()}: "{escaped(hit.snippet)}"'


def _written(hit: SearchHit) -> dict[str, Any]:
    names = ("message_id", "session_id", "kind", "snippet", "score")
    return {name: getattr(hit, name) for name in names} | {"at": hit.at.isoformat()}


def _hit(written: Mapping[str, Any]) -> SearchHit:
    return SearchHit(**{**written, "at": datetime.fromisoformat(written["at"])})


# ── The terms of a turn ──────────────────────────────────────────────────────────────────


MOST_TERMS = 32
"""Terms of a turn that count."""
SHORTEST = 3
"""Characters of a term, at least; of an unspaced script, exactly."""
TASK_VERBS = frozenset(
    ("fix", "add", "create", "update", "remove", "implement", "check", "set", "get", "make", "use")
)
"""What is asked for in so many turns that it says nothing of any."""
_WORD = re.compile(r"[^\W_]+(?:['’.][^\W_]+)*")


def terms_of_turn(texts: Iterable[str]) -> tuple[str, ...]:
    """
    The distinct terms of *texts* in order, at most 32.

    Words of at least three characters that are neither function words nor bare task
    verbs; of scripts written without blanks every run of three characters.
    """
    found: dict[str, str] = {}
    breather = Breather()
    for text in texts:
        for key, term in _terms(unicodedata.normalize("NFC", text)):
            breather.breathe()
            found.setdefault(key, term)
            if len(found) == MOST_TERMS:
                return tuple(found.values())
    return tuple(found.values())


def _terms(text: str) -> Iterator[tuple[str, str]]:
    """Give terms as they stand, each with the key by which two of them are the same."""
    at = 0
    for start, end in unspaced_runs(text):
        yield from _words(text[at:start])
        yield from ((text[i : i + SHORTEST],) * 2 for i in range(start, end - SHORTEST + 1))
        at = end
    yield from _words(text[at:])


def _words(text: str) -> Iterator[tuple[str, str]]:
    for found in _WORD.finditer(text):
        word = found.group()
        folded = fold(word)
        if len(word) >= SHORTEST and folded not in STOP_WORDS and folded not in TASK_VERBS:
            yield index_stem(word), word
