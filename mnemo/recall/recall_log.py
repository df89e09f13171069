"""
The recall log: the last questions of a repository and what answered them, if it is switched on.

An entry is written behind its recall. It goes with the first thing erased that it names or shares a
content word with; what was asked before an erasure is not written after it.
"""

from __future__ import annotations

import json
import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import fields, replace
from datetime import datetime
from typing import Any, NamedTuple

from mnemo.errors import MnemoError
from mnemo.log.feed import removals_behind
from mnemo.recall.request import RecallRequest, RecallRun
from mnemo.recall.result import UNSURE, Candidate, RecallResult
from mnemo.runtime.clock import Breather
from mnemo.runtime.flights import Errand
from mnemo.runtime.tasks import Places, Threads
from mnemo.runtime.text import terms
from mnemo.runtime.validation import MOST_AT_ONCE, MOST_NUMBER, known_id, whole_number
from mnemo.store.engine import OfRepository
from mnemo.store.rows import Passed, listed, repo_row
from mnemo.store.tables import RECALLS
from mnemo.store.tx import Tx
from mnemo.values.codec import utc_text
from mnemo.values.feed import document_number
from mnemo.values.graph import KeyedItem
from mnemo.values.recalls import RecallRecord

log: logging.Logger = logging.getLogger("mnemo")

CALLER: ContextVar[str | None] = ContextVar("mnemo.recall.caller", default=None)
"""Who asks, for the log."""
MERGE_S = 1.0
"""Seconds over which what recalls leave behind is gathered into one write."""
MOST_CANDIDATES = 100
CANDIDATE_CHARACTERS = 1_000
TEXT_CHARACTERS = 16_384

# ── Rows ─────────────────────────────────────────────────────────────────────────────

# Whoever takes something from recall holds the repository's row until that is done.
_HOLD = "UPDATE repos SET revision = revision WHERE no = ?"
_FORGOTTEN = "SELECT forgotten FROM repos WHERE no = ?"
_FORGET = """
UPDATE repos SET forgotten = (SELECT coalesce(max(seq), 0) FROM removals WHERE repo = ?)
WHERE no = ?
"""
_TRIM = """
DELETE FROM recalls WHERE repo = ? AND no <=
(SELECT no FROM recalls WHERE repo = ? ORDER BY no DESC LIMIT 1 OFFSET ?)
"""
_COLUMNS = ", ".join(RECALLS.columns)
_PAGE = f"SELECT no, {_COLUMNS} FROM recalls WHERE repo = ? AND no < ? ORDER BY no DESC LIMIT ?"
_ANY = "SELECT 1 FROM recalls WHERE repo = ? LIMIT 1"
_ALL = f"SELECT no, {_COLUMNS} FROM recalls WHERE repo = ?"
_DROP = "DELETE FROM recalls WHERE $also repo = ? AND no IN $numbers"
_DROP_BEFORE = "DELETE FROM recalls WHERE repo = ? AND at < ?"
_MESSAGE_TEXTS = "SELECT content, blocks FROM messages WHERE $also repo = ? AND no IN $numbers"


_ROLES = frozenset(terms("user assistant agent system tool"))
"""Actors that tell of nobody."""
_ORIGIN = re.compile(r"(?: \([^()]*\))? \[\d+\]$", re.MULTILINE)
"""Day, speaker and citation behind a memory's text."""


class Logged(NamedTuple):
    """An entry, and the revision and the last removal that its recall saw."""

    record: RecallRecord
    revision: int
    removal: int


class StoredRecalls(OfRepository):
    """The recall log of one repository, as transactions."""

    async def add(self, entries: Sequence[Logged], keep_last: int) -> None:
        """Write those that nothing erased is in, and keep the last. *Cancellation*: completes."""

        def write(tx: Tx) -> None:
            repo, revision, _, _ = repo_row(tx, self._repo_id)
            tx.run(_HOLD, (repo,))
            forgotten = tx.run(_FORGOTTEN, (repo,)).fetchone()
            removals, _ = removals_behind(tx, repo, min(one.removal for one in entries))
            # A lower revision is that of another repository with the same id.
            known = [one for one in entries if forgotten and one.revision <= revision]
            for one in (one for one in known if one.removal >= forgotten[0]):
                gone = {id for number, id in removals if number > one.removal}
                if gone.isdisjoint(candidate["id"] for candidate in one.record.candidates):
                    RECALLS.add(tx, repo, one.record)
            tx.run(_TRIM, (repo, repo, keep_last))

        await self._engine.writing(write, locks=[("recalls", self._repo_id)])

    async def page(self, limit: int, before: int) -> list[tuple[int, RecallRecord]]:
        """Number and entry of at most *limit* before a number, newest first, if undamaged."""

        def read(tx: Tx) -> list[tuple[int, RecallRecord]]:
            repo = repo_row(tx, self._repo_id)[0]
            rows = tx.run(_PAGE, (repo, before, limit)).fetchall()
            return [(row[0], one) for row in rows for one in RECALLS.rows.intact([row[1:]])]

        return await self._engine.reading(read)


def drop_recalls(
    tx: Tx, repo: int, names: Iterable[str], words: Callable[[], frozenset[str]] = frozenset
) -> None:
    """Delete what holds one of the ids *names* or of the *words*, or is damaged."""
    if tx.run(_ANY, (repo,)).fetchone() is None:
        return
    names, erased, breather = frozenset(names), words() - _ROLES, Breather()

    def holds(entry: RecallRecord) -> bool:
        ids = [one.get("id") for one in entry.candidates]
        if not names.isdisjoint((*ids, *filter(_is_text, entry.arguments.values()))):
            return True
        said = json.dumps(entry.arguments, ensure_ascii=False)
        lines = _ORIGIN.sub("", entry.text.removeprefix(UNSURE))
        texts = (entry.query, said, lines, *(str(one["text"]) for one in entry.candidates))
        return bool(erased) and any(not erased.isdisjoint(terms(text)) for text in texts)

    gone = []
    for no, *row in tx.run(_ALL, (repo,)).fetchall():
        breather.breathe()
        damaged: Passed = []
        found = RECALLS.rows.all([row], damaged)
        gone += [no] if damaged or holds(*found) else []
    tx.run(_DROP, (repo, listed(gone)))


def mark_forgotten(tx: Tx, repo: int) -> None:
    """Let no recall be written that has not seen what is removed by now."""
    tx.run(_FORGET, (repo, repo))


def drop_recalls_before(tx: Tx, repo: int, time: datetime) -> int:
    """Delete what was asked before *time*; give how many entries there were."""
    return tx.run(_DROP_BEFORE, (repo, utc_text(time))).rowcount


def leave_recalls(tx: Tx, repo: int, ids: Sequence[str], expired: bool) -> None:
    """Delete what holds one of *ids*, which leave recall, or words of the messages among them."""
    numbers = listed(no for id in ids if (no := document_number(id)) is not None)

    def words() -> frozenset[str]:
        rows = tx.run(_MESSAGE_TEXTS, (repo, numbers)).fetchall()
        # Blocks are JSON: their keys are words as well, which costs entries and keeps nothing.
        return frozenset(term for row in rows for text in row if text for term in terms(str(text)))

    drop_recalls(tx, repo, ids, words)
    if expired:
        mark_forgotten(tx, repo)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


# ── Behind recalls ───────────────────────────────────────────────────────────────────


_DEFAULTS = {one.name: one.default for one in fields(RecallRequest)}


class _Noted(NamedTuple):
    run: RecallRun
    given: Mapping[str, Any]
    result: RecallResult
    seconds: float
    caller: str | None

    def logged(self) -> Logged:
        run, result = self.run, self.result
        shown = [_without_item(one) for one in result.candidates]
        record = RecallRecord(
            at=run.now,
            query=run.request.query,
            arguments=_arguments(self.given),
            candidates=tuple(
                {
                    "id": one.node.id,
                    "type": one.node.type,
                    "score": one.score,
                    "text": _cut(one.node.text, CANDIDATE_CHARACTERS),
                }
                for one in shown[:MOST_CANDIDATES]
            ),
            text=_cut(replace(result, candidates=shown, notes=None).as_text(), TEXT_CHARACTERS),
            milliseconds=1_000 * self.seconds,
            caller=self.caller,
        )
        return Logged(record, result.trace.revision, run.removal)


class RecallLog:
    """Writes the last *keep_last* recalls behind them, some seconds' together."""

    def __init__(
        self,
        store: StoredRecalls,
        keep_last: int,
        sleep: Callable[[float], Any],
        spawn: Callable[..., object],
    ) -> None:
        self._store, self._keep_last, self._sleep = store, keep_last, sleep
        # Those before the last so many would be dropped by the write itself.
        self._waiting = deque[_Noted](maxlen=keep_last)
        self._writing = Errand(spawn, self._write)
        self._threads = Threads()
        self._turn = Places()

    def note(
        self, run: RecallRun, given: Mapping[str, Any], result: RecallResult, seconds: float
    ) -> None:
        """Have a recall written soon; a plain call."""
        self._waiting.append(_Noted(run, given, result, seconds, CALLER.get()))
        self._writing.poke()

    async def _write(self) -> None:
        await self._sleep(MERGE_S)
        await self.flush()

    async def page(
        self, limit: int, after: str | None
    ) -> tuple[tuple[RecallRecord, ...], str | None]:
        """A page of the log, newest first, and what is ``after`` for the next one."""
        whole_number("limit", limit, 1, MOST_AT_ONCE)
        before = MOST_NUMBER
        if after is not None:
            number = known_id("after", after)
            if not (number.isascii() and number.isdigit()):
                raise ValueError(f"after must be the next of a page, not {after!r}")
            before = min(int(number), MOST_NUMBER)
        await self.flush()
        found = await self._store.page(limit + 1, before)
        more = str(found[limit - 1][0]) if len(found) > limit else None
        return tuple(record for _, record in found[:limit]), more

    async def flush(self) -> None:
        """Write what was noted, or keep it. *Cancellation*: it is written twice at worst."""
        async with self._turn:
            noted = [*self._waiting]
            self._waiting.clear()
            if noted:
                await self._written(noted)

    async def _written(self, noted: Sequence[_Noted]) -> None:
        try:
            entries = await self._threads.run(lambda: [one.logged() for one in noted])
            await self._store.add(entries, self._keep_last)
        except MnemoError as error:
            self._keep(noted)
            # Nothing depends on the log.
            log.info("the recall log could not be written: %s", error)
        except Exception:
            log.exception("recalls are left out of the log: they cannot be written")
        except BaseException:
            self._keep(noted)
            raise

    def _keep(self, noted: Sequence[_Noted]) -> None:
        self._waiting = deque([*noted, *self._waiting], self._keep_last)


def _without_item(candidate: Candidate) -> Candidate:
    """A keyed item is put anew under its key, or expires: the log has its id alone."""
    node = candidate.node
    if not isinstance(node, KeyedItem):
        return candidate
    return replace(candidate, node=replace(node, value={}, texts=(("", "(keyed item)"),)))


def _arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    said = {
        name: value
        for name, value in given.items()
        if value is not None and value != _DEFAULTS.get(name) and name != "context"
    }
    found: dict[str, Any] = json.loads(json.dumps(said, default=_plain))
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    return sorted(value) if isinstance(value, set | frozenset) else str(value)


def _cut(text: str, most: int) -> str:
    """At most so many characters of *text*, in whole words: part of one no erasure would find."""
    head = text[:most]
    return text if text == head else head[: max(head.rfind("\n"), head.rfind(" "), 0)]
