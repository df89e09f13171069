"""Keyword search over everything said or observed; no string is a syntax error."""

from __future__ import annotations

import logging
import re
import unicodedata
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from heapq import merge
from itertools import chain, islice, repeat
from typing import Any, TypeAlias

import anyio.to_thread

from mnemo.config import Config
from mnemo.log.records import StoredRecords
from mnemo.protocols import Clock
from mnemo.recall.request import checked_query, checked_types
from mnemo.runtime.clock import Breather
from mnemo.runtime.text import STOP_WORDS, fold, has_unspaced, index_words, one_line, shown
from mnemo.runtime.validation import known_id, whole_number
from mnemo.values.filters import Filters
from mnemo.values.records import RECORD_KINDS, Group, Hidden, Query, Ranking, RecordHit, RecordQuery

log: logging.Logger = logging.getLogger("mnemo")

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
    Find what was said by its words, best first; see ``Repository.search``.

    Args:
        hidden: What to leave out.
        filters: As of ``Filters.checked``.

    Raises:
        ValueError: The query is blank, *limit* is out of range, or a filter is invalid.
        StoreError: The store could not be read. *Cancellation*: safe.
    """
    parsed, asked = parse(checked_query(query)), Filters.checked(**filters)
    whole_number("limit", limit, 1, MOST_HITS)
    kinds = None if types is None else checked_types(types, sorted(RECORD_KINDS))
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
    parts = any(map(has_unspaced, operands))
    texts = (Excerpts(hit.record.text, operands, substrings=parts).of(chars) for hit in hits)
    return [hit_of(hit, ranking, text) for hit, text in zip(hits, texts, strict=True)]


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

    Words must all occur; ``OR`` separates groups, ``NOT`` excludes what follows, both (and
    ``AND``) only between two operands. Function words are dropped where another operand stays.
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


# ── Excerpts ────────────────────────────────────────────────────────────────────────────


_BORDER = 40
_JOINING = "\u200d"
"""Makes one sign of two."""

Match: TypeAlias = tuple[int, int, int]
"""Where in a text an operand occurs: start, end, number of the operand."""


class Excerpts:
    """Excerpts of a text around *operands*; *substrings*: each may be a part of a word."""

    def __init__(self, text: str, operands: Sequence[str], *, substrings: bool = False) -> None:
        self._text = one_line(text)
        self._breather = Breather()
        phrases: dict[int, tuple[str, ...]] = {}
        streams: list[Iterator[Match]] = []
        for number, operand in enumerate(map(one_line, operands)):
            if substrings or has_unspaced(operand):
                streams.append(self._substrings(number, operand))
            elif phrase := tuple(stem for stem, _, _ in index_words(operand)):
                phrases[number] = phrase
        self._findable = len(streams) + len(phrases)
        self._seen: list[Match] = []
        self._unseen = merge(*streams, self._phrases(phrases))

    def of(self, chars: int) -> str:
        """
        Give the stretch of at most *chars* characters with the most distinct operands, the first.

        The match stands in its middle as far as the text allows; the ends are word borders
        where there are any; ``…`` stands on a side where text was left out.
        """
        text = self._text
        if len(text) <= chars:
            return text
        start, end = _stretch(text, *self._best(chars - 2), chars - 2)
        left = "…" if start > 0 else ""
        right = "…" if end < len(text) else ""
        return left + text[start:end].strip() + right

    def _best(self, room: int) -> tuple[int, int]:
        """Where the first stretch that holds the most distinct operands begins and ends."""
        most, best = 0, (0, 0)
        held, counts = deque[Match](), Counter[int]()
        for match in chain(self._matches(), (None,)):
            while held and (match is None or match[1] - held[0][0] > room):
                if len(counts) > most:
                    most, best = len(counts), (held[0][0], max(end for _, end, _ in held))
                    if most == self._findable:
                        return best
                _, _, operand = held.popleft()
                counts[operand] -= 1
                if not counts[operand]:
                    del counts[operand]
            if match is not None:
                held.append(match)
                counts[match[2]] += 1
        return best

    def _matches(self) -> Iterator[Match]:
        """Where the operands occur, in order; each is looked for once."""
        yield from self._seen
        for match in self._unseen:
            self._seen.append(match)
            yield match

    def _substrings(self, number: int, operand: str) -> Iterator[Match]:
        for found in re.finditer(re.escape(operand), self._text, re.IGNORECASE):
            yield found.start(), _past_marks(self._text, found.end()), number

    def _phrases(self, phrases: Mapping[int, tuple[str, ...]]) -> Iterator[Match]:
        longest = max(map(len, phrases.values()), default=0)
        run = deque[tuple[str, int, int]](maxlen=longest)
        words = index_words(self._text) if phrases else iter(())
        # Behind the last word nothing that is one, so that each word is once the first.
        for word in chain(words, repeat(("\n", 0, 0), longest - 1)):
            self._breather.breathe()
            run.append(word)
            if len(run) < longest:
                continue
            for number, phrase in phrases.items():
                if run[0][0] == phrase[0]:
                    said = [*islice(run, len(phrase))]
                    if tuple(stem for stem, _, _ in said) == phrase:
                        yield run[0][1], _past_marks(self._text, said[-1][2]), number


# ── Where to cut ─────────────────────────────────────────────────────────────────────


def _stretch(text: str, first: int, last: int, room: int) -> tuple[int, int]:
    """Where to cut *text* so that the match from *first* to *last* is in the middle."""
    if last - first >= room:
        return first, _whole_characters(text, first + room)
    start = max(0, min(first - (room - (last - first)) // 2, len(text) - room))
    end = min(len(text), start + room)
    return _border_after(text, start, first), _border_before(text, end, last)


def _border_after(text: str, start: int, limit: int) -> int:
    if start == 0 or text[start - 1] == " ":
        return start
    blank = text.find(" ", start, min(start + _BORDER, limit))
    if blank >= 0:
        return blank + 1
    while start < limit and _goes_on(text, start):
        start += 1
    return start


def _border_before(text: str, end: int, limit: int) -> int:
    if end == len(text) or text[end] == " ":
        return end
    blank = text.rfind(" ", max(end - _BORDER, limit), end)
    return blank if blank >= 0 else _whole_characters(text, end, limit)


def _whole_characters(text: str, end: int, limit: int = 0) -> int:
    """Move *end* back so that no character is parted from its marks."""
    while limit < end < len(text) and _goes_on(text, end):
        end -= 1
    return end


def _past_marks(text: str, end: int) -> int:
    while end < len(text) and _goes_on(text, end):
        end += 1
    return end


def _goes_on(text: str, at: int) -> bool:
    """Whether what stands at *at* belongs to the character before it."""
    here = text[at]
    return not here.isascii() and (
        unicodedata.category(here)[0] == "M"
        or here in _JOINING
        or "\U0001f3fb" <= here <= "\U0001f3ff"
        or "\u1160" <= here <= "\u11ff"
        or (at > 0 and text[at - 1] in _JOINING)
    )
