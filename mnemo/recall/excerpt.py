"""Excerpts: the stretch of a text around its matches."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mnemo.runtime.clock import Breather
from mnemo.runtime.text import fold, has_unspaced, index_words, one_line

_WINDOW = 32_768
_OVERLAP = 512
_AROUND = 4_000
_BORDER = 40
_JOINING = "\u200d"
"""Makes one sign of two."""


@dataclass(frozen=True, slots=True, order=True)
class _Match:
    """Where in a text an operand occurs."""

    start: int
    end: int
    operand: int


def excerpt(text: str, operands: Sequence[str], chars: int, *, substrings: bool = False) -> str:
    """
    Give the stretch of *text* with the most distinct *operands*, the first such one.

    The match stands in its middle as far as the text allows; the ends are word
    borders where there are any; ``…`` stands on a side where text was left out.

    Args:
        chars: Characters at most, with the marks; a shorter text is given whole.
        substrings: Whether every operand was found as a part of words; otherwise only
            those of scripts that are written without blanks.
    """
    return Excerpts(text, operands, substrings=substrings).of(chars)


class Excerpts:
    """
    Excerpts of several lengths of one text, which is looked through once.

    Args:
        text, operands, substrings: As ``excerpt`` has them.
    """

    def __init__(self, text: str, operands: Sequence[str], *, substrings: bool = False) -> None:
        self._text = text
        self._patterns: dict[int, re.Pattern[str]] = {}
        self._phrases: dict[int, tuple[str, ...]] = {}
        self._seen: dict[str, list[_Match]] = {}
        sought = [*map(one_line, operands)]
        self._overlap = max(_OVERLAP, 4 * max(map(len, sought), default=0))
        for number, operand in enumerate(sought):
            if substrings or has_unspaced(operand):
                pattern = r"\s+".join(map(re.escape, operand.split()))
                self._patterns[number] = re.compile(pattern, re.IGNORECASE)
            elif phrase := tuple(stem for stem, _, _ in index_words(operand)):
                self._phrases[number] = phrase

    def of(self, chars: int) -> str:
        """Return the excerpt of at most so many characters; see ``excerpt``."""
        before, region, after = self._region(chars)
        region = one_line(region)
        if len(region) <= chars and not (before or after):
            return region
        _, first, last = _best(self._matches(region, chars - 2), chars - 2)
        start, end = _stretch(region, first, last, chars - 2)
        left = "…" if before or start > 0 else ""
        right = "…" if after or end < len(region) else ""
        return left + region[start:end].strip() + right

    def _region(self, chars: int) -> tuple[bool, str, bool]:
        """The part of a long text around its best match; is there more on its sides?"""
        text, around = self._text, _AROUND + 2 * chars
        if len(text) <= 2 * around:
            return False, text, False
        _, first, last = _best(self._matches(text, chars), chars)
        start, end = max(0, first - around), min(len(text), max(last, first) + around)
        return bool(text[:start].strip()), text[start:end], bool(text[end:].strip())

    # ── Where operands occur ─────────────────────────────────────────────────────────

    def _matches(self, text: str, room: int) -> list[_Match]:
        """
        Where the operands occur, in order, up to the first stretch that holds them all.

        By windows, so that a huge text blocks nobody; one is looked through once.
        """
        breather = Breather()
        findable = len(self._patterns) + len(self._phrases)
        found: dict[tuple[int, int], _Match] = {}
        for start in range(0, max(len(text), 1), _WINDOW):
            breather.breathe()
            window = text[start : start + _WINDOW + self._overlap]
            if window not in self._seen:
                phrases = self._phrases_in(window, breather)
                self._seen[window] = sorted((*self._substrings_in(window), *phrases))
            here = [_Match(start + m.start, start + m.end, m.operand) for m in self._seen[window]]
            for match in here:
                found.setdefault((match.start, match.operand), match)
            if here and _best(here, room)[0] == findable:
                break
        return sorted(found.values())

    def _substrings_in(self, window: str) -> Iterator[_Match]:
        for operand, pattern in self._patterns.items():
            for found in pattern.finditer(window):
                yield _Match(found.start(), _past_marks(window, found.end()), operand)

    def _phrases_in(self, window: str, breather: Breather) -> Iterator[_Match]:
        folded = fold(window) if self._phrases else ""
        if not any(phrase[0][:2] in folded for phrase in self._phrases.values()):
            return
        words: list[tuple[str, int, int]] = []
        for found in index_words(window):
            breather.breathe()
            words.append(found)
        for i, (word, start, _) in enumerate(words):
            breather.breathe()
            for operand, phrase in self._phrases.items():
                run = words[i : i + len(phrase)]
                if word == phrase[0] and tuple(w for w, _, _ in run) == phrase:
                    yield _Match(start, _past_marks(window, run[-1][2]), operand)


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
