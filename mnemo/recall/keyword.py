"""
Keyword search over everything said or observed: a small query language, ranked by
relevance and age, with an excerpt around the match.

Three parts, in this order: what a query means (``parse``), how good a hit is, and
what of its text is shown. No string a user or model can type is a syntax error.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import groupby

import anyio.to_thread

from mnemo._clock import Breather, as_utc
from mnemo._text import STOP_WORDS, fold, is_blank, one_line, stem
from mnemo.protocols import Clock, DocumentFeed, KeywordHit

__all__ = ["Query", "SearchHit", "excerpt", "parse", "search"]

logger = logging.getLogger(__name__)

MOST_OPERANDS = 64
"""Operands of a query that count; the rest is ignored."""
PAGES = (200, 2_000)
"""Hits by relevance alone that are ranked by age, unless fewer already decide."""
DAYS_OF_A_YEAR = 365.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
    """
    One thing said or observed that a search found.

    Attributes:
        message_id: What ``view`` takes; of a step's half
            ``"<node id>/observation"`` or ``"<node id>/action"``.
        kind: ``observation`` or ``action``.
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


async def search(
    feed: DocumentFeed,
    query: str | None,
    *,
    clock: Clock,
    session_id: str | None = None,
    limit: int = 5,
    recency_decay: float = 0.3,
    snippet_chars: int = 300,
) -> list[SearchHit]:
    """
    Find what was said by its words, best first; ``[]`` if nothing matches.

    Args:
        query: Words that must all occur, quoted phrases, ``OR`` and ``NOT``.
        session_id: Search one session only.
        limit: Hits at most, 1 to 100.
        recency_decay: A hit one year old weighs ``1 / (1 + recency_decay)``; at least 0.
        snippet_chars: Length of an excerpt at most, in characters.

    Raises:
        ValueError: The query is blank, or *limit* is out of range.
        StoreError: The store could not be read. *Cancellation*: safe.
    """
    if query is not None and not isinstance(query, str):
        raise ValueError(f"query must be text, not {type(query).__name__}")
    if query is None or is_blank(query):
        raise ValueError("Query cannot be blank")
    if not 1 <= limit <= 100:
        raise ValueError(f"limit must be from 1 to 100, not {limit}")
    parsed = parse(query)
    if not parsed.groups:
        return []
    ranked = _Ranking(clock.now(), recency_decay)
    found = await _candidates(feed, parsed, session_id, limit, ranked)
    show = partial(_shown, found[:limit], parsed.wanted, ranked, snippet_chars)
    return await anyio.to_thread.run_sync(show)


# ── What a query means ───────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Group:
    """Operands that must all occur, and those of which none may."""

    wanted: tuple[str, ...]
    unwanted: tuple[str, ...] = ()

    @property
    def expression(self) -> str:
        """It in the words of a full-text index."""
        return " NOT ".join([" AND ".join(map(_quoted, self.wanted)), *map(_quoted, self.unwanted)])


@dataclass(frozen=True, slots=True)
class Query:
    """A query as groups of which one must match; no group: nothing searchable."""

    groups: tuple[Group, ...]

    @property
    def expression(self) -> str:
        """For the index: quoted operands, ``NOT`` before ``AND`` before ``OR``."""
        return " OR ".join(group.expression for group in self.groups)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The operands that speak for a hit, each once."""
        return tuple(dict.fromkeys(word for group in self.groups for word in group.wanted))


@dataclass(frozen=True, slots=True)
class _Operand:
    text: str
    quoted: bool


_OPERATORS = ("NOT", "OR", "AND")
"""Which of a run counts: the first of these that is in it."""
_CHUNK = re.compile(r'"([^"]*)"|([^\s"]+)')


def parse(query: str) -> Query:
    """
    Read *query*; every string means something, if only nothing.

    Words must all occur; ``"several words"`` is a phrase; ``OR`` separates groups,
    ``NOT`` excludes what follows, both (and ``AND``) exactly upper case between two
    operands. Function words are dropped where another operand stays.
    """
    items = _without_idle_operators(_items(_cleaned(query)))
    return Query(tuple(group for part in _alternatives(items) if (group := _group(part))))


def _cleaned(query: str) -> str:
    text = "".join(
        " " if unicodedata.category(c) in ("Cc", "Cs") else c
        for c in unicodedata.normalize("NFC", query)
    )
    if text.count('"') % 2:
        head, _, tail = text.rpartition('"')
        text = f"{head} {tail}"
    return text


def _items(text: str) -> Iterator[_Operand | str]:
    """Operands and operators in order; what has no letter or digit is left out."""
    for quoted, word in _CHUNK.findall(text):
        bare = word.strip("()")
        if bare in _OPERATORS:
            yield bare
        elif any(map(str.isalnum, quoted or bare)):
            yield _Operand(quoted or bare, quoted=bool(quoted))


def _without_idle_operators(items: Iterable[_Operand | str]) -> Iterator[_Operand | str]:
    """*items* with one operator between two operands at most, and none at either end."""
    operands = 0
    waiting: list[str] = []
    for are_operators, run in groupby(items, key=lambda item: isinstance(item, str)):
        if are_operators:
            waiting = [item for item in run if isinstance(item, str)]
            continue
        if operands and waiting:
            yield next(operator for operator in _OPERATORS if operator in waiting)
        for item in run:
            if operands == MOST_OPERANDS:
                return
            operands += 1
            yield item


def _alternatives(items: Iterable[_Operand | str]) -> list[list[_Operand | str]]:
    parts: list[list[_Operand | str]] = [[]]
    for item in items:
        if item == "OR":
            parts.append([])
        else:
            parts[-1].append(item)
    return parts


def _group(items: Sequence[_Operand | str]) -> Group | None:
    """The group that *items* say; ``None`` where nothing is wanted."""
    wanted: list[_Operand] = []
    unwanted: list[_Operand] = []
    for before, item in zip(("AND", *items), items, strict=False):
        if isinstance(item, _Operand):
            (unwanted if before == "NOT" else wanted).append(item)
    # Nothing but function words is a name now and then: The Who.
    telling = [operand for operand in wanted if not _is_function_word(operand)] or wanted
    if not telling:
        return None
    excluded = [operand.text for operand in unwanted if not _is_function_word(operand)]
    return Group(tuple(operand.text for operand in telling), tuple(excluded))


def _is_function_word(operand: _Operand) -> bool:
    return not operand.quoted and fold(re.sub(r"^\W+|\W+$", "", operand.text)) in STOP_WORDS


def _quoted(operand: str) -> str:
    return '"' + operand.replace('"', '""') + '"'


# ── How good a hit is ────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Ranking:
    """Relevance against age, as seen at *now*."""

    now: datetime
    decay: float

    def score(self, hit: KeywordHit) -> float:
        days = max(0.0, (self.now - as_utc(hit.step.at)).total_seconds() / 86_400)
        return hit.relevance / (1 + self.decay * days / DAYS_OF_A_YEAR)

    def order(self, hit: KeywordHit) -> tuple[float, float, str, int]:
        """Smallest first: score, then newer, then session, then the later said."""
        place = 2 * hit.step.ordinal + (hit.part == "action")
        at = as_utc(hit.step.at).timestamp()
        return -round(self.score(hit), 9), -at, hit.step.session_id, -place


async def _candidates(
    feed: DocumentFeed, query: Query, session_id: str | None, limit: int, ranking: _Ranking
) -> list[KeywordHit]:
    """The hits in order; read on while one not yet seen could still be among the best."""
    hits: list[KeywordHit] = []
    for page in PAGES:
        hits = await _matching(feed, query, session_id, page)
        least = min((hit.relevance for hit in hits), default=0.0)
        hits.sort(key=ranking.order)
        # Age only lowers a score: what the index has not given is worth *least* at most.
        if len(hits) < page or ranking.score(hits[limit - 1]) > least:
            break
    return hits


async def _matching(
    feed: DocumentFeed, query: Query, session_id: str | None, limit: int
) -> list[KeywordHit]:
    literal = Query((Group(query.wanted),))
    for attempt in (query, literal):
        try:
            return await feed.search(attempt.expression, session_id=session_id, limit=limit)
        except ValueError as error:
            logger.warning("the full text refused %r: %s", attempt.expression, error)
    return []


# ── What is shown ────────────────────────────────────────────────────────────────────

_WORD = re.compile(r"(?:[^\W_][\u0300-\u036f]*)+")
_WINDOW = 32_768
_OVERLAP = 512
_AROUND = 4_000
_BORDER = 40


@dataclass(frozen=True, slots=True)
class _Match:
    """Where in a text an operand occurs."""

    start: int
    end: int
    operand: int


def _shown(
    hits: Sequence[KeywordHit], operands: Sequence[str], ranking: _Ranking, chars: int
) -> list[SearchHit]:
    return [
        SearchHit(
            message_id=f"{hit.step.node_id}/{hit.part}",
            session_id=hit.step.session_id,
            kind=hit.part,
            at=hit.step.at,
            snippet=excerpt(getattr(hit.step, hit.part), operands, chars),
            score=ranking.score(hit),
        )
        for hit in hits
    ]


def excerpt(text: str, operands: Sequence[str], chars: int) -> str:
    """
    Give the stretch of *text* with the most distinct *operands*, the first such one.

    The match stands in its middle as far as the text allows; the ends are word
    borders where there are any; ``…`` stands on a side where text was left out.

    Args:
        chars: Characters at most, with the marks; a shorter text is given whole.
    """
    before, region, after = _region(text, operands, chars)
    region = one_line(region)
    if len(region) <= chars and not (before or after):
        return region
    _, first, last = _best(_matches(region, operands, chars - 2), chars - 2)
    start, end = _stretch(region, first, last, chars - 2)
    left = "…" if before or start > 0 else ""
    right = "…" if after or end < len(region) else ""
    return left + region[start:end].strip() + right


def _region(text: str, operands: Sequence[str], chars: int) -> tuple[bool, str, bool]:
    """The part of a long text around its best match, and whether there is more on its sides."""
    around = _AROUND + 2 * chars
    if len(text) <= 2 * around:
        return False, text, False
    _, first, last = _best(_matches(text, operands, chars), chars)
    start, end = max(0, first - around), min(len(text), max(last, first) + around)
    return start > 0, text[start:end], end < len(text)


def _matches(text: str, operands: Sequence[str], room: int) -> list[_Match]:
    """
    Where the operands occur, in order, up to the first stretch that holds them all.

    By windows, so that a huge text blocks nobody.
    """
    phrases = [phrase for operand in operands if (phrase := tuple(_stems(operand)))]
    breather = Breather()
    found: dict[tuple[int, int], _Match] = {}
    for start in range(0, max(len(text), 1), _WINDOW):
        breather.breathe()
        window = text[start : start + _WINDOW + _OVERLAP]
        if not _may_hold(window, phrases):
            continue
        here = list(_matches_in(window, start, phrases, breather))
        for match in here:
            found.setdefault((match.start, match.operand), match)
        if _best(here, room)[0] == len(phrases):
            break
    return sorted(found.values(), key=lambda match: (match.start, match.operand))


def _may_hold(window: str, phrases: Sequence[tuple[str, ...]]) -> bool:
    folded = fold(window)
    return any(phrase[0][:3] in folded for phrase in phrases)


def _matches_in(
    window: str, offset: int, phrases: Sequence[tuple[str, ...]], breather: Breather
) -> Iterator[_Match]:
    words: list[tuple[str, int, int]] = []
    for found in _WORD.finditer(window):
        breather.breathe()
        words.append((_stem(found.group()), found.start() + offset, found.end() + offset))
    for i, (word, start, _) in enumerate(words):
        breather.breathe()
        for operand, phrase in enumerate(phrases):
            run = words[i : i + len(phrase)]
            if word == phrase[0] and tuple(w for w, _, _ in run) == phrase:
                yield _Match(start, run[-1][2], operand)


def _stems(text: str) -> list[str]:
    return [_stem(word) for word in _WORD.findall(text)]


def _stem(word: str) -> str:
    return stem(fold(word))


def _best(matches: Sequence[_Match], room: int) -> tuple[int, int, int]:
    """
    The stretch that holds the most distinct operands, the first such one.

    Returns:
        How many it holds, where its matches begin, and where they end.
    """
    best = (0, 0, 0)
    last = 0
    counts: dict[int, int] = {}
    for i, first in enumerate(matches):
        last = max(last, i)
        while last < len(matches) and (matches[last].end - first.start <= room or last == i):
            counts[matches[last].operand] = counts.get(matches[last].operand, 0) + 1
            last += 1
        if len(counts) > best[0]:
            best = (len(counts), first.start, max(m.end for m in matches[i:last]))
        counts[first.operand] -= 1
        if not counts[first.operand]:
            del counts[first.operand]
    return best


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
    while start < limit and unicodedata.combining(text[start]):
        start += 1
    return start


def _border_before(text: str, end: int, limit: int) -> int:
    if end == len(text) or text[end] == " ":
        return end
    blank = text.rfind(" ", max(end - _BORDER, limit), end)
    return blank if blank >= 0 else _whole_characters(text, end, limit)


def _whole_characters(text: str, end: int, limit: int = 0) -> int:
    """*end*, moved back so that no character is parted from its marks."""
    while limit < end < len(text) and unicodedata.combining(text[end]):
        end -= 1
    return end
