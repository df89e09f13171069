"""
Words that say that something is no longer as it was, and the typed values of a sentence.

English, with a few words of German, Spanish and Chinese. The lists were written from
knowledge of the languages, never from the files that recall's rivals are checked with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from mnemo.english.entities import dates, numbers
from mnemo.english.words import MONTHS, WEEKDAYS
from mnemo.runtime.text import fold

# Without accents: they are compared with folded text.
_WORDS = {
    # Another value took the place of one, a measure went up or down, or it holds from a time on.
    "change": r"""
        now|nowadays|these days|any ?more|any longer|no longer|instead|rather than|changed?
        |changes|changing|switch(?:ed|es|ing)?|swapp?(?:ed)?|moved|moving|replac(?:ed?|es|ing)
        |tak(?:es?|ing|en) (?:it )?over|took (?:it )?over|hand(?:ed|s) (?:over|\w+ to)
        |bec[ao]me|turned into|from (?:now|here|then|today|\w+day) on|as of|starting|effective
        |renamed|migrated?|upgraded?|downgraded|bumped|reassigned|transferred|rescheduled
        |postponed|pushed (?:back|to|out)|brought forward|delayed|slip(?:s|ped)|shifted
        |back (?:to|in|at|on|from)|ended up|after all|in the end|turn(?:s|ed) out|updated?
        |revised|correct(?:ion|ed)|actually|used to|steps? in|stepped in|convert(?:ed|s)
        |rewr(?:ote|itten)|ported|promoted|for good|at last|finally|until further notice
        |since (?:last|then|monday|the|we|i|this)|not \w+ but|sorry|scratch that|i was wrong
        |my mistake|unlike before|compared to before|different|jetzt|inzwischen|mittlerweile
        |nicht mehr|stattdessen|seit|umgezogen|gewechselt|geandert|verschoben|doch|kunftig
        |ab (?:januar|februar|marz|april|mai|juni|juli|august|sofort|jetzt)|ahora|ya no|desde
        |cambi(?:ado|o|e|amos|aron)|en vez de|mud(?:e|ado|amos)|al final|went (?:up|down)
        |go(?:es|ing) (?:up|down)|raised?|raises|increas(?:ed?|es)|rose|risen|reduc(?:ed?|es)
        |lower(?:ed|s)?|cut (?:to|down|it)|(?:up|down) (?:to|from)|from \S+ to \S+|doubled
        |halved|tripled|extend(?:ed|s)|shortened|brought down|more expensive|cheaper|grew
        |grown|shrunk|gained|another \d+|erhoht|gesenkt|gestiegen|sub(?:io|ido|ieron)
        |baj(?:o|ado)|new|newer|neue[rsnm]?|nuev[oa]s?
    """,
    # It is over, with or without what comes in its place.
    "end": r"""
        quit|quits|quitting|resigned|retired?|retires|left|leav(?:es|ing)|fired|laid off
        |sacked|sold|g[ai]ve(?:n|s)? (?:\w+ )?(?:up|away|back)|handed (?:in|back)|got rid
        |thr[eo]wn?|died|dead|passed away|put (?:down|to sleep)|lost|broke up|split(?: up)?
        |separated|divorced?|cancel(?:l?ed|ling|s)?|call(?:ed|ing|s) (?:\w+ )?off|fell through
        |(?:is|are|was|'s) (?:off|over|gone|out|done)|done|finished|ended|ends|closed|closing
        |shut|stop(?:s|ped)|dropped|won'?t|fixed|resolved|solved|repaired|merged|shipped
        |delivered|paid off|moved out|healed|removed|deleted|disabled|ran out|expired
        |never ?mind|scrapped|abandoned|rejected|reverted|rolled back|said no|not happening
        |not going|no more|never again|stolen|broken|decommissioned|deprecated|gone|turned off
        |switched off|gekundigt|verkauft|gestorben|abgesagt|getrennt|aufgehort|fertig|vorbei
        |kaputt|dej(?:e|o|amos|ado)|vend(?:i|io|imos|ido)|muri(?:o|eron)|cancel(?:ado|o)
        |termin(?:ado|o|e)
    """,
    # Something began that may have taken a place.
    "begin": r"""
        start(?:ed|s)?|beg[au]n|join(?:ed|s)|bought|signed|hired|married|engaged|born|adopted
        |enabled|got (?:the|a|my|an|it|our|myself)|took (?:the|a|on)|offered|accepted
        |installed|arrived|(?:went|go(?:es|ing)?) with|decided|settled on|chose|agreed
        |moved (?:in|to)|picked|it is|it's|will be|angefangen|gekauft|bekommen|umgestellt
        |empec[eo]|compr(?:e|o|amos)
    """,
    # One more of many.
    "more": r"""
        also|too|another|besides|as well|both|second|third|additionally|plus|auch|noch ein\w*
        |ausserdem|tambien|ademas|otr[oa]
    """,
}
_UNSPACED = {"change": "现在|不再|换|改|搬|新|涨|降", "end": "取消|辞|卖|去世|分手"}

KINDS = tuple(_WORDS)
"""Kinds of words that tell whether a sentence replaces an older one, or adds to it."""


def _pattern(kind: str) -> re.Pattern[str]:
    words = re.sub(r"\s*\n\s*", "", _WORDS[kind])
    spaced = rf"(?<![\w-])(?:{words})(?![\w-])"
    return re.compile("|".join(filter(None, (spaced, _UNSPACED.get(kind)))))


_PATTERNS = {kind: _pattern(kind) for kind in KINDS}


@lru_cache(maxsize=512)
def kinds_of(text: str) -> frozenset[str]:
    """The kinds of words of change in *text*, of ``KINDS``."""
    folded = fold(text).replace("’", "'")
    return frozenset(kind for kind, pattern in _PATTERNS.items() if pattern.search(folded))


VALUES = ("money", "time", "day", "number")
"""Types of values that a sentence may give."""

_AMOUNT = r"\d[\d.,]*"
_CURRENCY = r"(?:[€$£¥]|(?:eur|euros?|dollars?|usd|pounds?|quid|bucks|francs?|chf|kr)\b)"
_MONEY = re.compile(rf"[€$£¥]\s?({_AMOUNT})|({_AMOUNT}k?)\s?{_CURRENCY}")
_TIME = re.compile(r"\b(\d{1,2}(?:[:.]\d\d)?\s?(?:am|pm)|\d{1,2}:\d\d)(?!\w)")
_DAY = re.compile(
    r"\b(" + "|".join((*WEEKDAYS, *(m for m in MONTHS if m not in ("may", "march")))) + r")s?\b"
    r"|\b(\d{1,2}(?:st|nd|rd|th))\b|\b(\d{4}-\d\d-\d\d)\b"
)


@lru_cache(maxsize=512)
def values_of(text: str) -> Mapping[str, frozenset[str]]:
    """The values of *text* by type; a number of another type is no bare number."""
    folded = fold(text)
    found = {
        "money": _found(_MONEY, folded),
        "time": _found(_TIME, folded),
        "day": _found(_DAY, folded) | dates(text),
    }
    rest = _DAY.sub(" ", _TIME.sub(" ", _MONEY.sub(" ", folded)))
    return found | {"number": numbers(rest)}


def _found(pattern: re.Pattern[str], text: str) -> frozenset[str]:
    return frozenset(
        next(filter(None, match.groups())).rstrip(".,").replace(" ", "")
        for match in pattern.finditer(text)
    )
