"""The form of what was said: whether it names oneself, a date, a number or a place."""

from __future__ import annotations

import re

FIRST, DATE, NUMBER, PLACE = (1 << place for place in range(4))

MAX_FORMED_CHARACTERS = 2_048
"""Characters of a text whose form is read; bounds the work, and long texts have every bit."""

_LISTS = {
    FIRST: "i i'm i've i'd i'll me my mine myself we we're we've we'd we'll us our ours",
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
}
_BITS = {word: bit for bit, listed in _LISTS.items() for word in listed.split()}
_WORDS = frozenset(_BITS)
# Cheaper than a regular expression over words, which was half the time of indexing a step.
_BLANKS = str.maketrans("’", "'", "") | str.maketrans(dict.fromkeys('.,;:!?()[]"“”*-–—…\n\t', " "))
_DIGIT = re.compile(r"\d")
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_PLACE = re.compile(r" (?:in|at|to|from|near|around|visit(?:ed|ing)?) (?:the )?(?!I\b)[A-Z]")


def form_of(said: str) -> int:
    """The form of the first 2,048 characters of *said*, which has no head of who and when."""
    said = said[:MAX_FORMED_CHARACTERS]
    form = 0
    for word in _WORDS.intersection(said.lower().translate(_BLANKS).split()):
        form |= _BITS[word]
    if _DIGIT.search(said):
        form |= NUMBER | (DATE if _YEAR.search(said) else 0)
    if _PLACE.search(said):
        form |= PLACE
    return form
