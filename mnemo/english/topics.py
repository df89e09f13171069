"""Topics of a text: its topical stems and key phrases, and goals without names and numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from mnemo.english.words import ADVERBS, BASE_VERBS, LIGHT, NUMBER_WORDS, PREPOSITIONS, is_past
from mnemo.runtime.text import STOP_WORDS, fold, stem, terms

_TOKEN = re.compile(r"[^\W_](?:[\w'’./@-]*[^\W_])?|[^\w\s]")
_DETERMINERS = frozenset(("the", "a", "an", "my", "our", "your", "his", "her", "their", "its"))
_LIGHT_STEMS = frozenset(stem(word) for word in LIGHT)


def topics(text: str) -> frozenset[str]:
    """The stems of *text* that carry a topic: no stop words, no praise, no fillers."""
    return topical(terms(text))


def topical(found: Iterable[str]) -> frozenset[str]:
    """Those of the index terms *found* that carry a topic."""
    return frozenset([t for t in {*found} - _LIGHT_STEMS if len(t) > 1])


def content_count(text: str) -> int:
    """How many words of *text* are no stop words."""
    return sum(1 for _ in terms(text))


def phrases(text: str) -> list[str]:
    """
    The noun-like phrases of *text*, in order: runs of at most three words.

    A run ends at a stop word, verb, adverb, filler or mark. Found by word lists
    alone, so a verb that no list knows may slip in.
    """
    found: list[str] = []
    run: list[str] = []
    previous = ""
    for token in _TOKEN.findall(text):
        # Behind "the" even a word that is mostly a verb is a noun: "the launch".
        named = (
            previous in _DETERMINERS and token.lower() in BASE_VERBS and token.lower() not in LIGHT
        )
        previous = token.lower()
        if named or _is_nounish(token):
            run.append(token.removesuffix("'s").removesuffix("’s"))
            if not token.endswith(("'s", "’s")) and len(run) < 3:
                continue
        _close(run, found)
    _close(run, found)
    return found


def has_noun(text: str) -> bool:
    """Whether *text* has a noun-like word, by the same lists as ``phrases``."""
    return any(map(_is_nounish, _TOKEN.findall(text)))


def _close(run: list[str], found: list[str]) -> None:
    if run:
        found.append(" ".join(run))
        run.clear()


@lru_cache(maxsize=1_024)
def _is_nounish(token: str) -> bool:
    folded = fold(token)
    if not folded or not folded[0].isalnum() or folded in STOP_WORDS or folded in LIGHT:
        return False
    if len(folded) < 3 and not token.isupper():
        return False
    if folded in BASE_VERBS or folded in ADVERBS or folded in PREPOSITIONS:
        return False
    if folded.isdigit() or folded in NUMBER_WORDS or "'" in folded.removesuffix("'s"):
        return False
    return not (is_past(folded) or (folded.endswith("ly") and len(folded) > 4))


def core(phrase: str) -> str:
    """Strip gerunds from the ends of *phrase*: what is done about a thing is not the thing."""
    parts = phrase.split()
    while len(parts) > 1 and parts[-1].endswith("ing"):
        parts.pop()
    while len(parts) > 1 and parts[0].endswith("ing"):
        parts.pop(0)
    return " ".join(parts)


def phrase_key(phrase: str) -> str:
    """What the forms of one phrase share: the stems of its words."""
    return " ".join(stem(word) for word in fold(phrase).split())


def key_phrases(texts: Iterable[str], limit: int) -> list[str]:
    """The *limit* most frequent noun-like phrases of *texts*, the earlier first among equals."""
    counts: Counter[str] = Counter()
    spelling: dict[str, str] = {}
    for text in texts:
        for phrase in map(core, phrases(text)):
            key = phrase_key(phrase)
            counts[key] += 1
            spelling.setdefault(key, phrase)
    order = {key: at for at, key in enumerate(counts)}
    # A phrase of several words says more than one word that is as frequent.
    best = sorted(counts, key=lambda k: (-counts[k], -min(2, len(k.split())), order[k]))
    return [spelling[key] for key in best[:limit]]


_NAMED_OR_NUMBERED = re.compile(
    r"`[^`]*`|\"[^\"]*\"|\S*\d\S*|(?<=\S )(?:[A-Z][\w'’]*)|\S*[/\\]\S+|\b\w+\.\w{1,4}\b"
)
_LONGEST_GOAL = 300  # characters; the pattern takes the square of a word's length
_BLANKS = re.compile(r"\s+")


def generalised(text: str) -> str:
    """Generalise *text*: strip names and numbers; a general goal if nothing else is left."""
    bare = _BLANKS.sub(" ", _NAMED_OR_NUMBERED.sub(" ", text[:_LONGEST_GOAL])).strip(" ,;:.-")
    return bare if content_count(bare) else "get the work done"
