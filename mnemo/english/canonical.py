"""
Facts in their speaker's words: how they are written, and their clauses in the third person.

A fact is kept as it was said, behind the name of who said it: ``Nora: I quit the
hospital, I now teach biology``. Slots and comparisons read its clauses instead:
``Nora quit the hospital``, ``Nora now teaches biology``.
"""

from __future__ import annotations

import re
from functools import lru_cache

from mnemo.english.clauses import bare, has_verb, split_clauses, with_subject
from mnemo.english.sentences import sentences, with_apostrophes
from mnemo.english.verbs import finite_verb, tokens_of
from mnemo.english.words import (
    ADVERBS,
    AUXILIARIES,
    BASE_VERBS,
    MODALS,
    PARTICIPLES,
    PREPOSITIONS,
    is_adverb,
    is_past,
    with_s,
    word_set,
)

_SAID_BY = re.compile(
    r"(?P<who>[^\s:\"“][^:\n\"“]{0,59}?)(?: to [^\s:\"“][^:\n\"“]{0,59})?: (?P<words>\S.*)",
    re.DOTALL,
)
_LONGEST_NAME = 4  # words
_LABELLED = re.compile(r"(?P<label>[^\W\d_][\w-]*(?: [\w-]+){0,3}): (?P<value>\S.{0,79})")


def said_by(speaker: str, words: str, *, to: str | None = None) -> str:
    """The proposition that keeps *words* as *speaker* said them: ``Ana to Bo: I wrote to you``."""
    return f"{speaker} to {to}: {words}" if to else f"{speaker}: {words}"


def speaker_of(proposition: str) -> str | None:
    """Who says *proposition*; ``None`` if it is not kept in somebody's words."""
    found = _said(proposition)
    return found["who"] if found else None


def words_of(proposition: str) -> str:
    """*proposition* without the name of who says it."""
    found = _said(proposition)
    return found["words"] if found else proposition


def _said(proposition: str) -> re.Match[str] | None:
    found = _SAID_BY.fullmatch(proposition)
    return found if found and len(found["who"].split()) <= _LONGEST_NAME else None


@lru_cache(maxsize=512)
def canonical_clauses(proposition: str) -> tuple[str, ...]:
    """
    The clauses of *proposition* in order, each in the third person.

    "I", "we", "my" and "our" are the speaker's; what a clause leaves out is restored
    ("Quit the hospital" is of the speaker); ``Deadline: March 10`` is read as ``The
    deadline is March 10``. A proposition in nobody's words is its own only clause.
    """
    speaker = speaker_of(proposition)
    if speaker is None:
        return (proposition,)
    words = words_of(proposition)
    found = [third_person(clause, speaker) for clause in _clauses(words)]
    note = _LABELLED.fullmatch(words) or _LABELLED.fullmatch(proposition)
    return (*found, _valued(note, speaker)) if note and _is_value(note["value"]) else tuple(found)


def _is_value(words: str) -> bool:
    said = with_apostrophes(words)
    return not (_PERSON.search(said) or has_verb(f"it {said}"))


def _clauses(words: str) -> list[str]:
    return [
        with_subject(bare(clause))
        for sentence in sentences(with_apostrophes(words))
        for clause in split_clauses(sentence)
    ]


def _valued(note: re.Match[str], speaker: str) -> str:
    label = note["label"][0].lower() + note["label"][1:]
    owned = third_person(label, speaker)
    return f"{owned if owned != label else f'The {label}'} is {note['value']}"


# ── Who is spoken of ─────────────────────────────────────────────────────────────────

_OTHER = re.compile(
    r"(?<![\w'’./@-])(?:you|your|yours|yourself|yourselves|ya|y['’]all|u|ur)(?![\w]|[./-]\w)", re.I
)
_QUOTED = re.compile(r"\"[^\"]*\"|“[^”]*”|«[^»]*»|`[^`]*`")


def first_person(text: str) -> int | None:
    """Where *text* has its first word of the first person, quotations left out."""
    found = _PERSON.search(_QUOTED.sub(lambda quoted: " " * len(quoted.group()), text))
    return found.start() if found else None


def speaks_of_self(text: str) -> bool:
    """Whether *text* has a word of the first person outside quotation marks."""
    return first_person(text) is not None


def speaks_of_other(text: str) -> bool:
    """Whether *text* has a word of the second person outside quotation marks."""
    return _OTHER.search(_QUOTED.sub("", text)) is not None


# Before or behind these the part of a word is not sure: another clause, a list, a person.
_UNCERTAIN = word_set(
    """
    and or but because so if that which who whom whose when while since until though although
    unless whether than what how why where he she they it this his her hers their them its
    him these those there we us our ours mine myself ourselves
    """
)
_LONGEST_CERTAIN = 16  # words and marks


def is_certain(clause: str) -> bool:
    """
    Whether ``third_person`` of *clause* keeps every word's part.

    So it is with one clause of "I" or "my", its verb of a known form right behind the
    subject, no other person, no list and no second clause.
    """
    words = tokens_of(clause)
    folded = [word.lower() for word in words]
    if len(words) > _LONGEST_CERTAIN or not _UNCERTAIN.isdisjoint(folded):
        return False
    if any(not word[0].isalnum() for word in words[:-1]) or speaks_of_other(clause):
        return False
    subjects = [found.start() for found in _PERSON.finditer(clause)]
    verb = finite_verb(words)
    if subjects != [0] or verb is None:
        return False
    known = folded[0] == "my" or folded[0].startswith("i'") or _is_verb(folded[verb])
    return known or verb == len(words) - 1


def _is_verb(word: str) -> bool:
    return word in AUXILIARIES or word in BASE_VERBS or is_past(word) or word.endswith("n't")


# ── The third person ─────────────────────────────────────────────────────────────────

_PERSON = re.compile(
    r"(?<![\w'’./@-])(?:(?P<subject>[Ii]|[Ww]e)(?P<tail>['’](?:m|re|ve|ll|d))?"
    r"|(?P<object>[Mm]e|[Uu]s|[Mm]yself|[Oo]urselves)"
    r"|(?P<owner>[Mm]y|[Mm]ine|[Oo]urs?))(?![\w'’]|[./-]\w)"
)
_WORD = re.compile(r"\s+(?P<verb>[A-Za-z]+(?:['’][a-z]+)?)")
_IDIOM = re.compile(r"\s+(?:no longer|kind of|sort of)(?=\s)", re.IGNORECASE)
_TAILS = {"m": "is", "re": "is", "ve": "has", "ll": "will"}
_SINGULAR = {
    "am": "is", "are": "is", "were": "was", "have": "has", "haven't": "hasn't", "do": "does",
    "don't": "doesn't", "aren't": "isn't", "weren't": "wasn't", "gotta": "has to",
    "wanna": "wants to", "like": "likes",
}  # fmt: skip
# Third person already, or no verb at all.
_STILL = word_set(
    """
    is was has does did had been be gonna alone too not no do the a an my our his her their its
    this that these those and or nor but
    """
)


def third_person(text: str, speaker: str) -> str:
    """*text* with the pronouns of the first person replaced by *speaker*, verbs agreeing."""
    out: list[str] = []
    at = 0
    for found in _PERSON.finditer(text):
        out += (text[at : found.start()], speaker)
        at = found.end()
        if found["owner"]:
            out.append("'s")
        elif found["tail"]:
            out.append(f" {_auxiliary(found['tail'][1:], text[at:])}")
        elif found["subject"] and (verb := _verb_behind(text, at)):
            out += (text[at : verb.start("verb")], _agreed(verb["verb"]))
            at = verb.end("verb")
    return "".join((*out, text[at:]))


def _auxiliary(tail: str, rest: str) -> str:
    if tail != "d":
        return _TAILS[tail]
    following = next((w for w in rest.lower().split() if w not in ADVERBS), "")
    had = following in PARTICIPLES or following == "better" or following.endswith("ed")
    return "had" if had else "would"


def _verb_behind(text: str, at: int) -> re.Match[str] | None:
    """The word behind a subject, adverbs aside."""
    while found := _WORD.match(text, at):
        idiom = _IDIOM.match(text, at)
        if not (idiom or is_adverb(found["verb"].lower())):
            return found
        at = (idiom or found).end()
    return None


def _agreed(verb: str) -> str:
    lower = verb.lower().replace("’", "'")
    if lower in _SINGULAR:
        return _SINGULAR[lower]
    if lower in MODALS or lower in PREPOSITIONS or lower in PARTICIPLES or is_past(lower):
        return verb
    if "'" in lower or lower.endswith("ing") or len(lower) < 2 or lower in _STILL:
        return verb
    return with_s(verb)
