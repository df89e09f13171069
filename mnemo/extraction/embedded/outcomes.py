"""Outcome of an observation: signs of success and failure, with negation, as a reward."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mnemo.runtime.text import lower_each

REWARD_GOOD, MIXED, REWARD_BAD = 0.9, 0.5, 0.1
"""Rewards for success alone, both, failure alone; the numbers of the specification."""


@dataclass(frozen=True, slots=True)
class OutcomeVerdict:
    """
    What an observation says of the action before it.

    Attributes:
        good: A sign of success.
        bad: A sign of failure.
        polite: Whether thanks were the only sign of success.
    """

    good: bool = False
    bad: bool = False
    polite: bool = False

    @property
    def reward(self) -> float | None:
        """In [0, 1]; ``None`` if there was no sign."""
        if self.good and self.bad:
            return MIXED
        if self.good:
            return REWARD_GOOD
        return REWARD_BAD if self.bad else None


# For text in lower case. Every sign but a tick begins where a word does: in front, that
# test spares the alternatives at all other places.
_AT_WORD = (
    r"(?<!\w)(?:"
    r"(?P<exit>(?:exit(?:ed)?(?: with)?(?:[ _](?:code|status))|exitcode|returncode|exit_code)"
    r"[\"']?\s{0,2}[:=]?\s{0,2}(?P<code>-?\d{1,5})\b)"
    r"|(?P<http>(?:http/\d(?:\.\d)?|status(?:[ _]?code)?)[\"']?\s{0,2}[:=]?\s{0,2}"
    r"(?P<status>[1-5]\d\d)\b)"
    r"|(?P<bad>(?:error|errors|exception|exceptions|traceback|failed|failure|failures"
    r"|fails"
    r"|failing|denied|not found|timeout|timed out|time out|wrong|crashed|crashes|fatal|panic"
    r"|no such file|refused|unable to|could not|couldn['’]t|cannot|broke|broken|npm err!"
    r"|(?:does|did|do|is|are)(?:n['’]t| not)(?: \w+)? work(?:ing)?|not working)(?![\w-])%s)"
    r"|(?P<polite>thanks\b|thank you\b|perfect(?:ly)?\b)"
    r"|(?P<good>(?:passed|passes|passing|done|fixed|created|succeeded|success(?:ful(?:ly)?)?"
    r"|completed|resolved|solved|worked|works\b(?!\s+(?:at|for|as|in|with|from|of)\b)"
    r"|working (?:now|again|fine))\b)"
    r")|[✓✅]"
)
_CUE = re.compile(_AT_WORD % "")
_NAMED_CUE = re.compile(_AT_WORD % r"|\w{1,60}(?:error|exception)\b")
_NAMES = ("error", "exception")
# Each sign holds one of these; a look for plain words is far cheaper than the pattern.
_HINTS = (
    *_NAMES, "exit", "returncode", "http/", "status", "traceback", "fail", "denied", "not found",
    "timeout", "timed out", "time out", "wrong", "crash", "fatal", "panic", "no such file",
    "refused", "unable to", "could not", "couldn", "cannot", "broke", "npm err!", "work", "thank",
    "perfect", "pass", "done", "fixed", "created", "succe", "completed", "solved", "✓", "✅",
)  # fmt: skip
_NO_BAD = re.compile(
    r"(?:\b(?:no|0|zero|without(?: any)?|not any|never|nothing|fixed|fixes|solved|resolved|free of"
    r"|isn['’]t|is not|not)(?:\s+[\w'’]+){0,2}[\s:=]*)$",
    re.IGNORECASE,
)
_GONE = re.compile(
    r"\s*(?:(?:is|are|was|were|has been|have been)\s+)?(?:now\s+)?(?:gone|fixed|resolved|solved)\b"
    r"|[\"']?\s{0,2}[:=]\s{0,2}(?:0\b|null\b|none\b|false\b|\[\]|\"\")",
    re.IGNORECASE,
)
_NO_GOOD = re.compile(
    r"(?:\b(?:not|never|isn['’]t|wasn['’]t|aren['’]t|weren['’]t|didn['’]t|doesn['’]t|don['’]t"
    r"|hasn['’]t|haven['’]t|won['’]t|cannot|can['’]t|couldn['’]t|no longer|nothing|none)"
    r"(?:\s+[\w'’]+){0,2}\s+)$",
    re.IGNORECASE,
)
_ZERO = re.compile(r"(?<!\d)0\s+$")
_LOOK_BACK = 32
_ENOUGH = 200  # cues looked at in one text: a log of a thousand errors says no more than that


def verdict(text: str) -> OutcomeVerdict:
    """Read the signs in *text*, an excerpt of an observation."""
    folded = _folded(text)
    if not may_have_signs(folded):
        return OutcomeVerdict()
    pattern = _NAMED_CUE if any(map(folded.__contains__, _NAMES)) else _CUE
    good = bad = polite = False
    for count, cue in enumerate(pattern.finditer(folded)):
        said_good, said_bad = _judge(cue, text)
        polite = polite or (said_good and cue["polite"] is not None)
        good = good or (said_good and cue["polite"] is None)
        bad = bad or said_bad
        if (good and bad) or count >= _ENOUGH:
            break
    return OutcomeVerdict(good or polite, bad, polite and not good)


def may_have_signs(text: str) -> bool:
    """Whether *text* holds a part of a sign; an apostrophe is part of none."""
    return any(map(_folded(text).__contains__, _HINTS))


def _folded(text: str) -> str:
    """*text* in lower case as a pattern that ignores case reads it; no character moves."""
    if text.isascii():
        return text.lower()
    return lower_each(text.replace("ſ", "s").replace("ı", "i").replace("İ", "i"))


def _judge(cue: re.Match[str], text: str) -> tuple[bool, bool]:
    if cue["exit"]:
        zero = int(cue["code"]) == 0
        return zero, not zero
    if cue["http"]:
        return cue["status"][0] == "2", cue["status"][0] in "45"
    before = text[max(0, cue.start() - _LOOK_BACK) : cue.start()]
    if cue["bad"]:
        denied = _NO_BAD.search(before) or _GONE.match(text, cue.end())
        return (True, False) if denied else (False, True)
    if _ZERO.search(before):
        return False, False
    if _NO_GOOD.search(before):
        return False, cue["polite"] is None
    return True, False


_ERROR_LINE = re.compile(
    r"^(?:E\s+)?(?P<typed>(?:[A-Za-z_][\w.]{0,100})?(?:Error|Exception|Exit|Interrupt|Fault)"
    r"(?:\[\w+\])?(?::\s.*|\s*$))"
    r"|^(?P<plain>(?:(?:error|fatal|panic|npm ERR!)(?:\[\w+\])?:?\s.*)|.*: command not found.*"
    r"|.*: No such file or directory.*|.*permission denied.*)$",
    re.IGNORECASE,
)
_DIGITS = re.compile(r"\d+")
_LONGEST_LINE = 200


def error_line(text: str) -> str | None:
    """The line of *text* that names the error (type and message), or the first about an error."""
    told: str | None = None
    last_typed: str | None = None
    for line in _lines(text):
        named = _ERROR_LINE.match(line)
        if named and named["plain"] and _really_bad(line):
            return _cut(named["plain"])
        if named and named["typed"] and _really_bad(line):
            last_typed = _cut(named["typed"])
        elif told is None and _really_bad(line):
            told = _cut(line)
    return last_typed or told


def success_line(text: str) -> str | None:
    """The last line of *text* that tells of success, or ``None``."""
    for line in reversed(_lines(text)):
        found = verdict(line)
        if found.good and not found.bad:
            return _cut(line)
    return None


def masked(text: str) -> str:
    """Mask every number of *text* by N, so that two runs of one error are equal."""
    return _DIGITS.sub("N", text)


def _lines(text: str) -> list[str]:
    # Cut, because some patterns take the square of a line's length.
    return [bare for line in text.split("\n") if (bare := line[: 2 * _LONGEST_LINE].strip())]


def _really_bad(line: str) -> bool:
    return verdict(line).bad


def _cut(line: str) -> str:
    line = line.strip(" =-*_#")
    return line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 1].rstrip() + "…"
