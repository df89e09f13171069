"""
The form of what was said: properties that questions ask for, as bits of one number.

Words are English. In another language only capitals and quotation marks are recognised;
a signal that rests on the other bits then adds the same to every step.
"""

from __future__ import annotations

import re

__all__ = ["CAPITAL", "DATE", "FIRST", "NUMBER", "PLACE", "QUOTE", "REASON", "YOU", "form_of"]

FIRST, YOU, DATE, NUMBER, REASON, CAPITAL, PLACE, QUOTE = (1 << place for place in range(8))

MAX_FORMED_CHARACTERS = 2_048
"""Characters of a text whose form is read; bounds the work, and long texts have every bit."""

_LISTS = {
    FIRST: "i i'm i've i'd i'll me my mine myself we we're we've we'd we'll us our ours",
    YOU: "you you're you've you'd you'll your yours yourself",
    # "may" and "march" are verbs as often as months.
    DATE: """
    january february april june july august september october november december
    monday tuesday wednesday thursday friday saturday sunday mondays tuesdays wednesdays
    thursdays fridays saturdays sundays today tonight tomorrow yesterday ago recently lately
    week weeks weekend weekends month months year years
    """,
    NUMBER: """
    one two three four five six seven eight nine ten eleven twelve twenty thirty forty fifty
    hundred thousand dozen once twice couple half few several
    """,
    REASON: """
    because cause cuz since reason reasons due inspired inspires motivated motivates help
    helps helped wanted
    """,
}
_BITS = {word: bit for bit, listed in _LISTS.items() for word in listed.split()}
_WORDS = frozenset(_BITS)
# Cheaper than a regular expression over words, which was half the time of indexing a step.
_BLANKS = str.maketrans("’", "'", "") | str.maketrans(dict.fromkeys('.,;:!?()[]"“”*-–—…\n\t', " "))
_DIGIT = re.compile(r"\d")
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_CAPITAL = re.compile(r" (?<=[\w,;:'’)] )(?!I\b)[A-Z]")
_PLACE = re.compile(r" (?:in|at|to|from|near|around|visit(?:ed|ing)?) (?:the )?[A-Z]")
_QUOTE = re.compile(r"[\"“”][^\"“”]{2,60}[\"“”]")


def form_of(said: str) -> int:
    """The form of the first 2,048 characters of *said*, which has no head of who and when."""
    said = said[:MAX_FORMED_CHARACTERS]
    form = 0
    for word in _WORDS.intersection(said.lower().translate(_BLANKS).split()):
        form |= _BITS[word]
    if _DIGIT.search(said):
        form |= NUMBER | (DATE if _YEAR.search(said) else 0)
    if _CAPITAL.search(said):
        form |= CAPITAL | (PLACE if _PLACE.search(said) else 0)
    if ('"' in said or "“" in said) and _QUOTE.search(said):
        form |= QUOTE
    return form
