"""Secret detection: finds keys, tokens, passwords and card numbers in text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Literal, TypeAlias

from mnemo.runtime.text import STOP_WORDS

Kind: TypeAlias = Literal["key", "token", "password", "private-key", "url-credentials", "card"]
"""What a secret seems to be."""

# Starts with the word itself, not with what may stand before it: that keeps the search linear.
_ASSIGNED = re.compile(
    r"(?P<name>(?:passw(?:or)?d|passwd|pwd|passphrase|passcode|secret(?!ar)|token(?!s\b|iz)"
    r"|api[ _-]?key|access[ _-]?key|private[ _-]?key|account[ _-]?key|encryption[ _-]?key"
    r"|signing[ _-]?key|credentials?|pin[ _-]?code)[\w-]{0,20})"
    r"(?P<link>[\"'`*_]{0,4}[ \t]{0,3}(?::=|=>|[:=])[*_]{0,3}[ \t]{0,3}[\"'`*_]{0,4}"
    r"(?:Bearer[ ]|Basic[ ])?)"
    r"(?P<value>[^\s\"'`,;{}\[\]()<>]{3,512})",
    re.IGNORECASE,
)
_SPOKEN = re.compile(
    r"(?P<name>\b(?:password|passphrase|passcode|pwd|api[ _-]?key|secret[ _-]?key|access[ _-]?key"
    r"|(?:access |auth |api |bearer )?token|pin(?: code| number)?|secret)\b"
    r"(?: (?:for|of|to|on) [\w'’.-]{1,40}(?: [\w'’.-]{1,40}){0,3}?)?"
    r"(?:(?:[,;:.!–—-]? {1,3}(?:and )?(?:it|that|this|which))?"
    r"(?: {1,3}(?:is now|is|was|are|will be|changed to|set to)(?: still| now)?|['’]s)):?"
    r" {1,3}(?:[\"'“`*_]{0,3}))(?P<value>[^\s\"'”`,]{2,512})"
    # Any other key: only a value with a digit, so that "the key is patience" stays.
    r"|(?P<key>\bkey (?:is now|is"
    r"|was) [\"'“`]{0,1})(?P<digits>(?=[^\s,]{0,60}\d)[^\s\"'”`,]{6,512})",
    re.IGNORECASE,
)
_KNOWN = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"sk-[A-Za-z0-9_…*.-]{3,}|(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9]{8,}"
    r"|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{12,}"
    r"|xox[abeoprs]-[A-Za-z0-9-]{8,}|A[KS]IA[0-9A-Z]{12,}|AIza[0-9A-Za-z_-]{20,}"
    r"|SG\.[A-Za-z0-9_-]{12,}[A-Za-z0-9_.-]*|hf_[A-Za-z0-9]{16,}|npm_[A-Za-z0-9]{20,}|pypi-[A-Za-z0-9_-]{16,}|ya29\.[A-Za-z0-9_-]{10,}"
    r"|eyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?"
    r")"
)
_BEARER = re.compile(r"\b(?P<name>(?:Bearer|Basic)[ ])(?P<value>[A-Za-z0-9._~+/=-]{8,})")
_QUOTED = re.compile(
    r"(?P<name>\b(?:password|passphrase|passcode|pwd|(?:api|secret|access)[ _-]?key|token|secret)\b"
    r" {0,3}(?:is now|is|was|[:=])[ :]{0,3}[\"“`])(?P<quoted>[^\"”`\n]{2,512})(?=[\"”`])",
    re.IGNORECASE,
)
_IN_URL = re.compile(r"(?P<name>://[^\s:/@]{1,100}:)(?P<value>[^\s/]{1,200})(?=@)")
_PRIVATE = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----[^-]{0,20000}(?:-----END[^-]*-----)?"
)
# 28 or more characters of mixed case with digits, no word structure: a key of an unknown kind.
_RANDOM = re.compile(
    r"(?<![\w/.+-])(?=[A-Za-z+/_-]*\d)(?=[^A-Z\s]*[A-Z])[A-Za-z0-9+/_-]{28,}={0,2}"
)
_LONG_WORD = re.compile(r"\S{28}")
_EVERYDAY = frozenset(
    """
    a an the my your our his her its their not no in on at by for of to from being too very
    required missing invalid expired wrong correct incorrect needed set empty unset none null true
    important easy hard fine good bad ok okay here there mine yours ours old new same different time
    false str string int bool bytes optional used stored saved safe secret hidden secure weak
    strong long short too unknown valid that out changed reset leaked lost forgotten updated shared
    """.split()  # noqa: SIM905
)


_MANY_DIGITS = re.compile(r"\d(?:[ -]?\d){12}")
_CARD = re.compile(r"(?<![\w.-])\d(?:[ -]?\d){12,18}(?![\w-])")
_PASSPHRASE = re.compile(
    r"(?P<name>\bpassphrase(?: (?:is now|is|was) | ?[:=] ?)[\"'“]?)"
    r"(?=[^\S\n]*[^\s.!?\"”])(?P<value>[^\n.!?\"”]{2,512})",
    re.IGNORECASE,
)
_PIN = re.compile(
    r"(?P<name>\bPIN\b(?: code| number)?)(?P<link> ?[:=] ?)(?P<value>\d{3,12}\b)", re.I
)

_NAMES = ("pass", "pwd", "secret", "token", "key", "credential", "pin")
_PREFIXES = (
    "sk-", "_live_", "_test_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-",
    "xox", "akia", "asia", "sg.", "aiza", "hf_", "npm_", "pypi-", "ya29.", "eyj",
)  # fmt: skip


def without_secrets(text: str, instead: Callable[[Kind], str]) -> str:
    """Replace every value in *text* that looks like a secret by ``instead(kind)``."""
    # Most texts hold no secret. Looks for words, long words and many digits are far
    # cheaper than the patterns that need one of them.
    folded = text.lower()
    if _holds_any(folded, _GATE):
        for hints, marks, pattern, kind in _RULES:
            if _holds_any(folded, hints) and _holds_any(text, marks):
                text = pattern.sub(partial(_hide, instead, kind), text)
    if _LONG_WORD.search(text):
        text = _RANDOM.sub(lambda found: instead("key"), text)
    if _MANY_DIGITS.search(text):
        text = _CARD.sub(partial(_hide_card, instead), text)
    return text


def _holds_any(text: str, hints: Iterable[str]) -> bool:
    return any(map(text.__contains__, hints))


# What a text has to hold, in any case, and of which marks one, for the pattern to match.
_ALWAYS = ("",)
_RULES: tuple[tuple[tuple[str, ...], Iterable[str], re.Pattern[str], Kind], ...] = (
    (("private key",), "-", _PRIVATE, "private-key"),
    (("://",), "@", _IN_URL, "url-credentials"),
    (_NAMES, '"“`', _QUOTED, "password"),
    (("passphrase",), _ALWAYS, _PASSPHRASE, "password"),
    (("pin",), ":=", _PIN, "password"),
    (_NAMES, ":=", _ASSIGNED, "password"),
    (_PREFIXES, _ALWAYS, _KNOWN, "key"),
    (("bearer ", "basic "), _ALWAYS, _BEARER, "token"),
    (_NAMES, _ALWAYS, _SPOKEN, "password"),
)
_GATE = (
    *_NAMES, "://", "_", "-", "bearer ", "basic ", "xox", "akia", "asia", "sg.", "aiza", "ya29.",
    "eyj",
)  # fmt: skip
"""Parts of the hints above: each of them holds one."""


def _hide(instead: Callable[[Kind], str], kind: Kind, match: re.Match[str]) -> str:
    groups = match.groupdict()
    if not groups:
        return instead(kind)
    if groups.get("digits"):
        return f"{match['key']}{instead('key')}{_closing(groups['digits'])}"
    if groups.get("quoted"):
        return f"{match['name']}{instead(_named(match['name'], kind))}"
    value = match["value"]
    speaks = kind == "password" and _is_everyday(value.lower().split())
    if value.startswith("[redacted") or speaks:
        return match.group()
    link = groups.get("link") or ""
    return f"{match['name']}{link}{instead(_named(match['name'], kind))}{_closing(value)}"


def _is_everyday(words: list[str]) -> bool:
    """Whether a sentence goes on there, instead of a secret: "the password is stored in …"."""
    return words[0].rstrip(".!?") in _EVERYDAY and (
        len(words) == 1 or not STOP_WORDS.isdisjoint(words)
    )


def _named(name: str, kind: Kind) -> Kind:
    """The kind that the words before a value speak of."""
    if kind != "password":
        return kind
    folded = name.lower()
    return "token" if "token" in folded else "key" if "key" in folded else kind


def _hide_card(instead: Callable[[Kind], str], match: re.Match[str]) -> str:
    digits = [int(character) for character in match.group() if character.isdigit()]
    return instead("card") if _is_card(digits) else match.group()


def _is_card(digits: list[int]) -> bool:
    """Whether the last digit checks the others (Luhn), as that of every payment card does."""
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[-2::-2])
    return len(set(digits)) > 1 and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _closing(value: str) -> str:
    """The marks that end the sentence, not the value."""
    return value[len(value.rstrip(".!?;:")) :]
