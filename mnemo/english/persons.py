"""
Rewrite first and second person as third person: the speaker is named, the verbs agree.

``I've moved and my dog loves it`` of Ana becomes ``Ana has moved and Ana's dog
loves it``. What stands in quotation marks is left as it was said.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

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

__all__ = ["Voice", "speaks_of_other", "speaks_of_self", "third_person"]


@dataclass(frozen=True, slots=True)
class Voice:
    """
    The referents of the pronouns of a text.

    Attributes:
        me: Who speaks.
        we: Who speaks and whoever belongs to it, e.g. ``Ana and Bo``.
        you: The other party; ``None`` if there is not exactly one.
    """

    me: str
    we: str
    you: str | None


_PERSON = re.compile(
    r"(?<![\w'’./@-])(?:(?P<i>I|i)(?P<i_tail>['’](?:m|ve|ll|d)|m(?=\s+(?:not|so|a|the|going)\b))?"
    r"|(?P<we>[Ww]e)(?P<we_tail>['’](?:re|ve|ll|d))?"
    r"|(?P<you>[Yy](?:ou|a|all|['’]all))(?P<you_tail>['’](?:re|ve|ll|d))?"
    r"|(?P<word>[Mm]e|[Mm]y|[Mm]ine|[Mm]yself|[Uu]s|[Oo]urs?|[Oo]urselves|[Yy]ours?"
    r"|[Yy]oursel(?:f|ves)))(?![\w'’]|[./-]\w)"
)
_SELF = re.compile(
    r"(?<![\w'’./@-])(?:I|i|I['’](?:m|ve|ll|d)|i['’](?:m|ve|ll|d)|[Mm]e|[Mm]y|[Mm]ine|[Mm]yself"
    r"|[Ww]e|[Ww]e['’](?:re|ve|ll|d)|[Uu]s|[Oo]urs?|[Oo]urselves)(?![\w'’]|[./-]\w)"
)
_OTHER = re.compile(r"(?<![\w'’./@-])(?:you|your|yours|yourself|ya|y['’]all)(?![\w]|[./-]\w)", re.I)
_QUOTED = re.compile(
    r"\"[^\"]*\"|“[^”]*”|«[^»]*»|‘[^’]*’(?!\w)|`[^`]*`|(?<![\w])'[^'\n]{2,80}'(?![\w])"
)
_WORD = re.compile(r"\s+([A-Za-z]+(?:['’][a-z]+)?)")
# What may stand before a verb like an adverb.
_IDIOM = re.compile(r"\s+(?:no longer|not only|kind of|sort of)(?=\s)", re.IGNORECASE)
_PREVIOUS = re.compile(r"([A-Za-z'’]+)(\s+)$")
_COMPOUND = re.compile(
    r"(?:^|[,;:]\s|\b(?:when|because|that|where|while|since|after|before|so|if)\s)"
    r"(?!(?:I|you|we|he|she|it|they)\b)(?:(?:my|the|our|his|her|their"
    r"|both)\s)?(?:[\w'’]+\s){1,2}and\s$",
    re.IGNORECASE,
)
_TAILS_ONE = {"m": "is", "ve": "has", "ll": "will"}
_TAILS_MANY = {"re": "are", "ve": "have", "ll": "will"}
_SINGULAR = {
    "am": "is", "are": "is", "were": "was", "have": "has", "haven't": "hasn't", "do": "does",
    "don't": "doesn't", "wanna": "wants to", "gotta": "has to", "ain't": "is not", "like": "likes",
    "haven’t": "hasn't", "don’t": "doesn't", "aren't": "isn't", "weren't": "wasn't",
}  # fmt: skip
_PLURAL = {"wanna": "want to", "gotta": "have to", "ain't": "are not"}


def speaks_of_self(text: str) -> bool:
    """Whether *text* has a word of the first person outside quotation marks."""
    return _SELF.search(_unquoted(text)) is not None


def speaks_of_other(text: str) -> bool:
    """Whether *text* has a word of the second person outside quotation marks."""
    return _OTHER.search(_unquoted(text)) is not None


def _unquoted(text: str) -> str:
    return _QUOTED.sub('""', text) if _has_quotes(text) else text


def _has_quotes(text: str) -> bool:
    return '"' in text or "“" in text or "`" in text or "'" in text or "«" in text or "‘" in text


def third_person(text: str, voice: Voice) -> str:
    """Replace pronouns of the first and second person in *text* as *voice* says."""
    if not _has_quotes(text):
        return _rewrite(text, voice)
    pieces: list[str] = []
    at = 0
    for quoted in _QUOTED.finditer(text):
        pieces.append(_rewrite(text[at : quoted.start()], voice))
        pieces.append(quoted.group())
        at = quoted.end()
    pieces.append(_rewrite(text[at:], voice))
    return "".join(pieces)


def _rewrite(text: str, voice: Voice) -> str:
    out: list[str] = []
    at = 0
    for match in _PERSON.finditer(text):
        if match.start() < at or (match["you"] and voice.you is None):
            continue
        out.append(text[at : match.start()])
        replaced, at = _replace(text, match, out, voice)
        out.append(replaced)
    out.append(text[at:])
    return "".join(out)


def _replace(text: str, match: re.Match[str], out: list[str], voice: Voice) -> tuple[str, int]:
    if match["i"]:
        if _COMPOUND.search(text[: match.start()]):
            return voice.me + _tail(match["i_tail"], _TAILS_MANY, text, match.end()), match.end()
        return _subject(text, match, match["i_tail"], voice.me, out, one=True)
    if match["we"]:
        return _subject(text, match, match["we_tail"], voice.we, out, one=False)
    if match["you"]:
        return _second(text, match, out, voice)
    return _object(match["word"].lower(), voice, match.group()), match.end()


def _second(text: str, match: re.Match[str], out: list[str], voice: Voice) -> tuple[str, int]:
    other = voice.you or ""
    before = _PREVIOUS.search(text[: match.start()])
    # "I told you", "for you": an object, nothing agrees with it.
    if match["you_tail"] is None and before and _governs(before.group(1).lower()):
        return other, match.end()
    return _subject(text, match, match["you_tail"], other, out, one=True)


def _governs(word: str) -> bool:
    if word in _CLAUSE_OPENERS:
        return False
    return word in PREPOSITIONS or word in BASE_VERBS or is_past(word) or word.endswith("ing")


def _object(word: str, voice: Voice, original: str) -> str:
    if word in ("me", "us", "myself", "ourselves"):
        name = voice.me if word[0] == "m" else voice.we
        return name if word in ("me", "us") else "themselves"
    if word in ("my", "mine"):
        return f"{voice.me}'s"
    if word in ("our", "ours"):
        return f"{voice.we}'" if voice.we.endswith("others") else f"{voice.we}'s"
    if voice.you is None:
        return original
    return f"{voice.you}'s" if word.startswith(("your",)) and "sel" not in word else "themselves"


def _subject(
    text: str, match: re.Match[str], tail: str | None, name: str, out: list[str], *, one: bool
) -> tuple[str, int]:
    end = match.end()
    if tail:
        return name + _tail(tail, _TAILS_ONE if one else _TAILS_MANY, text, end), end
    forms = _SINGULAR if one else _PLURAL
    inverted = _inverted(text, match, out, forms)
    if inverted:
        return name, end
    gap, verb, stop = _verb_after(text, end)
    if verb is None:
        return name, end
    return f"{name}{gap}{_agree(verb, forms, one=one)}", stop


def _tail(tail: str | None, forms: dict[str, str], text: str, end: int) -> str:
    if not tail:
        return ""
    kind = tail.lstrip("'’")
    if kind == "d":
        return " had" if _is_had(text, end) else " would"
    if kind == "m":
        return " is"
    return " " + forms.get(kind, {"re": "is"}.get(kind, "will"))


def _is_had(text: str, end: int) -> bool:
    at = end
    while (word := _WORD.match(text, at)) and word.group(1).lower() in ADVERBS:
        at = word.end()
    following = word.group(1).lower() if word else ""
    return following in PARTICIPLES or following == "better" or following.endswith("ed")


def _inverted(text: str, match: re.Match[str], out: list[str], forms: dict[str, str]) -> bool:
    """Whether the verb stands before its subject; it is then made to agree in *out*."""
    before = _PREVIOUS.search(text[: match.start()])
    if before is None or before.group(1).lower() not in AUXILIARIES:
        return False
    word = before.group(1)
    if word == "May" and before.start() > 0:  # the month
        return False
    agreed = forms.get(word.lower())
    if agreed and out and out[-1].endswith(before.group()):
        out[-1] = out[-1][: -len(before.group())] + agreed + before.group(2)
    return True


def _verb_after(text: str, end: int) -> tuple[str, str | None, int]:
    """The gap (adverbs included) up to the verb, the verb, and where it ends."""
    at = end
    for _ in range(4):
        word = _WORD.match(text, at)
        if word is None:
            return "", None, end
        if idiom := _IDIOM.match(text, at):
            at = idiom.end()
            continue
        if is_adverb(word.group(1).lower()):
            at = word.end()
            continue
        return text[end : word.start(1)], word.group(1), word.end()
    return "", None, end


def _agree(verb: str, forms: dict[str, str], *, one: bool) -> str:
    lower = verb.lower()
    if lower in forms:
        return forms[lower]
    if (
        not one
        or lower in MODALS
        or lower in PREPOSITIONS
        or is_past(lower)
        or lower in PARTICIPLES
    ):
        return verb
    if "'" in lower or "’" in lower or lower.endswith("ing") or len(lower) < 2:
        return verb
    if lower in _STILL:
        return verb
    return with_s(verb)


# Already third person, auxiliary or no verb at all.
_STILL = word_set(
    """
    is was has does did had been be gonna alone too not no myself do the a an my your his her
    their our its this these those or nor
    """
)
# Behind these "you" begins a clause of its own.
_CLAUSE_OPENERS = word_set(
    """
    that because when if and but so while where what how since than as who which before after until
    """
)
