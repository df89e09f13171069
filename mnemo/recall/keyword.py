"""
Keyword search over everything said or observed, ranked by relevance and age.

The query language knows words, phrases, ``OR`` and ``NOT``; no string that a user or a
model can type is a syntax error.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

import anyio.to_thread

from mnemo.config import Config
from mnemo.log.records import StoredRecords
from mnemo.protocols import Clock
from mnemo.recall.excerpt import excerpt
from mnemo.recall.request import checked_query, checked_types
from mnemo.runtime.text import STOP_WORDS, fold, has_unspaced, shown
from mnemo.runtime.validation import known_id, whole_number
from mnemo.values.filters import Filters
from mnemo.values.records import RECORD_KINDS, Group, Hidden, Query, Ranking, RecordHit, RecordQuery

log = logging.getLogger("mnemo")

MOST_HITS = 100
"""Largest ``limit``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """
    One thing said or observed that a search found.

    Attributes:
        message_id: What ``view`` takes; of a step's half
            ``"<node id>/observation"`` or ``"<node id>/action"``.
        session_id: The session's id, or the thread's.
        kind: ``observation``, ``action``, ``snapshot``, or the message's kind.
        at: When it was said, aware.
        snippet: An excerpt around the match, white space collapsed, without markup.
        score: Relevance, lowered by age; greater is better.
    """

    message_id: str
    session_id: str
    kind: str
    at: datetime
    snippet: str
    score: float

    def __repr__(self) -> str:
        return f"<SearchHit {shown(self.message_id)!r} {self.score:.2f}: {shown(self.snippet)!r}>"


async def search(
    records: StoredRecords,
    query: str | None,
    *,
    clock: Clock,
    config: Config,
    session_id: str | None = None,
    limit: int = 5,
    hidden: Hidden | None = None,
    types: Sequence[str] | None = None,
    **filters: Any,
) -> list[SearchHit]:
    """
    Find what was said by its words, best first; ``[]`` if nothing matches.

    Args:
        query: Words that must all occur, quoted phrases, ``OR`` and ``NOT``; its first
            8,192 characters are read.
        session_id: Search one session or thread only.
        limit: Hits at most, 1 to 100.
        hidden: What to leave out; see ``context.visibility.seen_by``.
        types: Only records of these kinds; see ``SearchHit.kind``.
        filters: As of ``Filters.checked``.

    Raises:
        ValueError: The query is blank, *limit* is out of range, or a filter is invalid.
        StoreError: The store could not be read. *Cancellation*: safe.
    """
    parsed, asked = parse(checked_query(query)), Filters.checked(**filters)
    whole_number("limit", limit, 1, MOST_HITS)
    kinds = checked_types(types, sorted(RECORD_KINDS))
    if not parsed.groups:
        return []
    ranking = Ranking(clock.now(), config.recall.recency_decay)
    found = await _matching(
        records,
        RecordQuery(
            query=parsed,
            ranking=ranking,
            session_id=stream_id("session_id", session_id),
            hidden=hidden,
            default_ttl_s=config.conversation.ttl_s,
            limit=limit,
            scan_limit=config.recall.scan_limit,
            filters=asked,
            kinds=frozenset(kinds) if kinds else None,
            default_actor=config.extraction.default_actor,
            agent_name=config.extraction.agent_name,
        ),
    )
    show = partial(_shown, found, parsed.wanted, ranking, config.recall.snippet_chars)
    return await anyio.to_thread.run_sync(show)


def stream_id(name: str, given: object) -> str | None:
    """The id of a session or thread as it is stored. *Raises* ``ValueError``: it is no text."""
    return None if given is None else known_id(name, given)


async def _matching(records: StoredRecords, wanted: RecordQuery) -> list[RecordHit]:
    """The hits; should the index refuse the query, those of its words alone."""
    literal = Query((Group(wanted.query.wanted),))
    for attempt in (wanted, replace(wanted, query=literal)):
        try:
            return await records.search(attempt)
        except ValueError as error:
            log.warning("the full text refused %r: %s", attempt.query.expression, error)
    return []


def _shown(
    hits: Sequence[RecordHit], operands: Sequence[str], ranking: Ranking, chars: int
) -> list[SearchHit]:
    substrings = any(map(has_unspaced, operands))
    return [
        hit_of(hit, ranking, excerpt(hit.record.text, operands, chars, substrings=substrings))
        for hit in hits
    ]


def hit_of(hit: RecordHit, ranking: Ranking, snippet: str) -> SearchHit:
    """Make the public hit of *hit*, with *snippet* of its text."""
    record = hit.record
    return SearchHit(
        message_id=record.message_id,
        session_id=record.session_id,
        kind=record.kind,
        at=record.at,
        snippet=snippet,
        score=ranking.score(hit.relevance, record.at),
    )


# ── The query language ───────────────────────────────────────────────────────────────

MOST_OPERANDS = 64
"""Operands of a query that count; the rest is ignored."""


_OPERATORS = ("NOT", "OR", "AND")
"""Which of several between two operands counts: the first of these."""
_CHUNK = re.compile(r'"([^"]*)"|([^\s"]+)')


@dataclass(frozen=True, slots=True)
class _Operand:
    """A word, or a phrase if it was *quoted*, and the operator that joins it to what is before."""

    text: str
    quoted: bool
    joined_by: str


def parse(query: str) -> Query:
    """
    Read *query*; every string means something, if only nothing.

    Words must all occur; ``"several words"`` is a phrase; ``OR`` separates groups,
    ``NOT`` excludes what follows, both (and ``AND``) exactly upper case between two
    operands. Function words are dropped where another operand stays.
    """
    parts: list[list[_Operand]] = [[]]
    for operand in islice(_operands(_cleaned(query)), MOST_OPERANDS):
        if operand.joined_by == "OR":
            parts.append([])
        parts[-1].append(operand)
    return Query(tuple(group for part in parts if (group := _group(part))))


def _cleaned(query: str) -> str:
    text = "".join(
        " " if unicodedata.category(c) in ("Cc", "Cs") else c
        for c in unicodedata.normalize("NFC", query)
    )
    if text.count('"') % 2:
        head, _, tail = text.rpartition('"')
        text = f"{head} {tail}"
    return text


def _operands(text: str) -> Iterator[_Operand]:
    """Operands in order; what has no letter or digit is left out, and operators at either end."""
    between: set[str] = {"AND"}
    is_first = True
    for phrase, word in _CHUNK.findall(text):
        bare = word.strip("()")
        if bare in _OPERATORS:
            between.add(bare)
        elif any(map(str.isalnum, phrase or bare)):
            joined_by = next(operator for operator in _OPERATORS if operator in between)
            yield _Operand(phrase or bare, bool(phrase), "AND" if is_first else joined_by)
            between, is_first = {"AND"}, False


def _group(operands: Sequence[_Operand]) -> Group | None:
    """The group that *operands* say; ``None`` where nothing is wanted."""
    wanted = [operand for operand in operands if operand.joined_by != "NOT"]
    unwanted = [operand for operand in operands if operand.joined_by == "NOT"]
    # Nothing but function words is a name now and then: The Who.
    telling = [operand for operand in wanted if not _is_function_word(operand)] or wanted
    if not telling:
        return None
    excluded = [operand.text for operand in unwanted if not _is_function_word(operand)]
    # A word said twice finds nothing else, and the index would count all its places again.
    return Group(tuple(dict.fromkeys(operand.text for operand in telling)), tuple(excluded))


def _is_function_word(operand: _Operand) -> bool:
    return not operand.quoted and fold(re.sub(r"^\W+|\W+$", "", operand.text)) in STOP_WORDS
