"""Read sides of steps without a model, by the first ``HEAD`` and last ``TAIL`` characters."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mnemo.config import Config
from mnemo.english.canonical import speaks_of_self
from mnemo.english.clauses import has_verb, is_imperative
from mnemo.english.sentences import sentences
from mnemo.runtime.secrets import without_secrets
from mnemo.runtime.tasks import Threads, shared_threads
from mnemo.runtime.text import fold, is_blank, lower_each
from mnemo.values.digest import clipped
from mnemo.values.steps import Step

HEAD = 12_000
"""Characters analysed from the start of a text."""
TAIL = 4_000
"""Characters analysed from the end of a longer text; results stand last."""
HIDDEN = "[hidden]"
"""What stands in the place of a secret, in everything that is derived from a step."""


class Kind(StrEnum):
    """How a text is to be read."""

    SPEECH = "speech"
    TOOL = "tool"


_LOG_LINE = re.compile(
    r"^\s*(?:"
    r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d"  # time stamps
    r"|\d\d:\d\d:\d\d\b"
    r"|\[?(?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL|CRITICAL|TRACE)\b\]?[: ]"
    r"|(?:PASSED|FAILED|PASS|FAIL|OK|ERROR|SKIPPED)\b"
    r"|Traceback \(|File \"|at [\w$.<>]+\(|\^+\s*$|E\s{2,}|>\s{2,}"
    r"|(?:[\w.]{0,60})?(?:Error|Exception|Warning)\b(?::|$)"
    r"|(?:error|fatal|warning|panic|npm ERR!|bash|sh|zsh)(?:\[\w+\])?: "
    r"|[=\-_*#~]{3,}.*[=\-_*#~]{3,}\s*$|[=\-_*#~+|]{3,}\s*$"
    r"|[$#>]\s\S|\+\+\+|---\s\S|@@|diff --git"
    r"|[\w./~-]*/[\w./-]+(?::\d+)?(?::|\s*$)"  # paths
    r"|[A-Za-z_][\w.-]{0,40}\s?[:=]\s?[^\s].{0,200}$"  # key-value pairs
    r"|\[\S+ [0-9a-f]{7,40}\]|\d+ files? changed"  # git
    r"|[-dlrwx]{10}\s|total \d+$"
    r"|(?:creat|writ|wrote|updat|modif|delet|remov|sav|generat|add|us|install"
    r"|fetch)\w{0,4}\s(?:[\w-]+\s)?\S*[/.\d]\S*\s*$"
    r"|(?:Successfully |Collecting |Downloading |Installing |Compiling |Building |Running )"
    r"|(?:collected |Ran |exit code|Exit code|HTTP/\d|\d+ (?:passed|failed|errors?|warnings?)\b)"
    r"|[}{\])(;,]+\s*$|(?:import|from|def|class|return|const|let|var|function|#include|public"
    r"|if)\b.*[:;{(=]\s*$"
    r"|\s{4,}\S.*[;{}()=:]\s*$"
    r")"
)
_SPOKEN_PAIR = re.compile(r"^\s*[A-Z][a-z]+(?: [a-z]+){0,3}:\s+\S+(?:\s+\S+){3,}")
_PAIR = re.compile(r"^\s*(?!(?:DEBUG|INFO|TRACE|WARN\w*)\b)[^\W\d][\w-]{0,40}:\s+\S", re.IGNORECASE)
_TITLED_PAIR = re.compile(r"^\s*[A-Z][a-z-]{2,40}:\s+\S")
_FENCE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_CALL = re.compile(
    r"^\s*([A-Za-z_][\w.]{0,80})\((?:[^()]|\([^()]*\)){0,4000}\)\s*;?\s*$", re.DOTALL
)
_CALL_LINE = re.compile(r"^([A-Za-z_][\w.]{0,80})\(.*\)$")
_SHELL = re.compile(
    r"^\s*(?:\$\s+)?(?:sudo\s+|time\s+|cd\s+\S+\s*(?:&&|;)\s*|[A-Z_][A-Z0-9_]*=\S+\s+)*"
    r"(?P<command>(?:git|pip3?|python3?|pytest|npm|npx|yarn|pnpm|node|cargo|go|make|docker|kubectl"
    r"|ls|cd|cat|grep|rg|sed|awk|find|curl|wget|ssh|scp|mkdir|rm|cp|mv|touch|echo|chmod|chown|tar"
    r"|apt|apt-get|brew|uv|poetry|ruff|mypy|tox|terraform|helm|psql|sqlite3|mysql|redis-cli|java"
    r"|javac|mvn|gradle|gcc|clang|cmake|bash|sh|zsh|systemctl|journalctl|ps|kill|head|tail|wc|sort"
    r"|diff|patch|rsync|ping|dig|openssl|export|source|which|env|aws|gcloud|az|gh)"
    r"(?=\s|$)(?:\s+[^\n]*)?)\s*$"
)
_PROSE_SHELL = re.compile(
    r"^\s*(?:make|go|find|sort|which|head|touch|kill|patch|source|diff|time|cat)\s+(?:a|an|the"
    r"|my|your|me|it|to|sure|is|of|for|and|with|home|back)\b",
    re.I,
)


def excerpt(text: str) -> str:
    """The part of *text* that is analysed, with secrets hidden."""
    if len(text) > HEAD + TAIL:
        text = f"{text[:HEAD]}\n{text[-TAIL:]}"
    return redact(text)


def redact(text: str) -> str:
    """*text* with each value that looks like a secret as ``HIDDEN``; raw steps keep it."""
    return without_secrets(text, lambda kind: HIDDEN)


def without_code(text: str) -> str:
    """*text* without its fenced code, unless code is all there is."""
    if "```" not in text and "~~~" not in text:
        return text
    prose = _FENCE.sub("\n\n", text)
    return prose if not prose.isspace() and prose else text


def parsed_json(text: str) -> Any:
    """The object or array that *text* is, or ``None``."""
    bare = text.strip()
    if not bare or bare[0] not in "{[" or bare[-1] not in "}]":
        return None
    try:
        return json.loads(bare)
    except (ValueError, RecursionError):
        return None


def kind_of(text: str, *, said: bool = False) -> Kind:
    """Whether *text* looks like tool output or speech; if *said*, ``Decision: ship`` is speech."""
    first, _, rest = text.partition("\n")
    if parsed_json(text) is not None or text.startswith("$ ") or (rest and call_name(first)):
        return Kind.TOOL
    lines = [line[:400] for line in text.split("\n", 400)[:400] if line and not line.isspace()]
    alone = len(lines) == 1
    logs = sum(
        _LOG_LINE.match(line) is not None
        and not _SPOKEN_PAIR.match(line)
        and not (said and _is_note(line, alone=alone))
        for line in lines
    )
    return Kind.TOOL if logs * 2 > len(lines) else Kind.SPEECH


def _is_note(line: str, *, alone: bool) -> bool:
    return (_PAIR if alone else _TITLED_PAIR).match(line) is not None and not verdict(line).bad


def call_name(action: str) -> str | None:
    """How the call *action* is named in a fact: the tool, or the command line; else ``None``."""
    if not action or len(action) > HEAD:
        return None
    if match := _CALL.match(action):
        return match.group(1)
    first = action.strip().split("\n", 1)[0]
    shell = _SHELL.match(first)
    if shell and not _PROSE_SHELL.match(first):
        return shell["command"].strip()[:80]
    return _json_tool(parsed_json(action))


def calls_in(action: str) -> tuple[str, ...]:
    """The calls of *action*: itself, or the lines behind its words that are calls."""
    named = call_name(action)
    return (named,) if named is not None else calls_behind(action)


def calls_behind(action: str) -> tuple[str, ...]:
    """The calls in the lines behind the words of *action*."""
    matches = map(_CALL_LINE.match, _lines_of_calls(action))
    return tuple(match.group(1) for match in matches if match)


def without_calls(action: str) -> str:
    """The words of *action* before its lines of calls."""
    calls = _lines_of_calls(action)
    return "\n".join(action.split("\n")[: -len(calls)]) if calls else action


def _lines_of_calls(action: str) -> list[str]:
    if not action.rstrip().endswith(")") or len(action) > HEAD:
        return []
    lines = action.rstrip().split("\n")
    first = next((at for at in range(len(lines), 0, -1) if not _CALL_LINE.match(lines[at - 1])), 0)
    return lines[first:]


def _json_tool(value: Any) -> str | None:
    if not isinstance(value, dict):
        return None
    for key in ("tool", "name", "tool_name", "function"):
        named = value.get(key)
        if isinstance(named, dict):
            named = named.get("name")
        if isinstance(named, str) and named:
            return named[:80]
    return None


# ── Outcomes ────────────────────────────────────────────────────────────────────────────


REWARD_GOOD, MIXED, REWARD_BAD = 0.9, 0.5, 0.1
"""Rewards for success alone, both, failure alone; the numbers of the specification."""


@dataclass(frozen=True, slots=True)
class OutcomeVerdict:
    """Signs of success and failure of the action before; *polite*: thanks were the only success."""

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
        if not verdict(line).bad:
            continue
        named = _ERROR_LINE.match(line)
        if named and named["plain"]:
            return _cut(named["plain"])
        if named and named["typed"]:
            last_typed = _cut(named["typed"])
        elif told is None:
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


def _cut(line: str) -> str:
    return clipped(line.strip(" =-*_#"), _LONGEST_LINE)


# ── Who takes part ───────────────────────────────────────────────────────────────────────

TOOLS = frozenset(("tool", "function", "environment", "env", "terminal", "shell", "console"))
"""Actors whose words are the output of a call; so are those named like a tool that was called."""

_ADDRESSES = re.compile(
    r"\b(?:i|i['’]\w+|my|me|we|our|you|your|please|thanks|thank|yes|no|ok|okay|sorry|actually)\b"
    r"|\?",
    re.IGNORECASE,
)


class Role(StrEnum):
    """What an actor is in an agent's loop; ``UNMARKED``: the step did not say who spoke."""

    PERSON = "person"
    AGENT = "agent"
    TOOL = "tool"
    UNMARKED = "unmarked"


_ROLES = {"user": Role.PERSON, "assistant": Role.AGENT, "system": Role.AGENT, "tool": Role.TOOL}
_SAID = ("user", "assistant", "system")
"""Roles of messages that are no output of a call, whatever they look like."""


@dataclass(frozen=True, slots=True)
class Parties:
    """
    The names that a configuration gives to roles.

    Attributes:
        agents: Folded actors of the agent's side.
        unnamed: The actor of an observation whose step names none.
    """

    agent: str
    agents: frozenset[str]
    unnamed: str

    @classmethod
    def of(cls, config: Config) -> Parties:
        """The parties of *config*."""
        agent = config.extraction.agent_name
        agents = frozenset(map(fold, (*config.recall.agent_actors, agent)))
        return cls(agent, agents - TOOLS, config.extraction.default_actor)

    def role(self, step: Step, called: frozenset[str]) -> Role:
        """What the actor of *step* is: as its message says, else by name, or *called* tools."""
        if step.role in _ROLES:
            return _ROLES[step.role]
        folded = fold(step.actor)
        if folded in TOOLS or folded in called:
            return Role.TOOL
        if folded in self.agents:
            return Role.AGENT
        return Role.UNMARKED if step.actor == self.unnamed else Role.PERSON


@dataclass(frozen=True, slots=True)
class Scene:
    """
    The parties of a run of steps.

    Attributes:
        people: Distinct people whose words are observations, in order of appearance.
        with_agent: Whether the agent takes part.
        names: The folded words of all parties' names.
        called: Folded names of the tools that were called.
        marked: Whether some step says who spoke: then an unnamed actor is a person.
    """

    steps: tuple[Step, ...]
    parties: Parties
    people: tuple[str, ...]
    agent: str
    with_agent: bool
    names: frozenset[str]
    called: frozenset[str]
    marked: bool

    @property
    def is_talk(self) -> bool:
        """Whether people talk with each other, each turn a step of its own."""
        return len(self.people) > 1 and not self.with_agent

    def role(self, at: int) -> Role:
        """What the actor of step *at* is."""
        role = self.parties.role(self.steps[at], self.called)
        return Role.PERSON if role is Role.UNMARKED and self.marked else role

    def speaks(self, at: int) -> bool:
        """Whether the actor of step *at* is neither the agent nor a tool."""
        return self.role(at) in (Role.PERSON, Role.UNMARKED)

    def call_before(self, at: int) -> str | None:
        """How the call is named whose output step *at* observes; ``""``: one of several."""
        if self.steps[at].role in _SAID:
            return None
        if fold(self.steps[at].actor) in self.called:
            return self.steps[at].actor
        back = at - 1
        while back > 0 and is_blank(self.steps[back].action) and self.role(back) is Role.TOOL:
            back -= 1
        calls = calls_in(excerpt(self.steps[back].action)) if back >= 0 else ()
        return calls[0] if len(set(calls)) == 1 else ("" if calls else None)

    def is_output(self, at: int, text: str) -> bool:
        """Whether *text*, the observation of step *at*, is a tool's output."""
        return is_output(text, self.role(at), after_call=self.call_before(at) is not None)

    def other(self, speaker: str) -> str | None:
        """The other party; ``None`` if there is not exactly one."""
        others = [name for name in self.people if name != speaker]
        if speaker != self.agent and (self.with_agent or not others):
            others.append(self.agent)
        return others[0] if len(others) == 1 else None

    def is_name(self, word: str) -> bool:
        """Whether *word* (folded) is a party's name, or short for one ("Mel" for "Melanie")."""
        return any(
            word == name
            or (len(word) >= 3 and name.startswith(word[:3]) and len(word) <= len(name))
            for name in self.names
        )


def scene_of(steps: Sequence[Step], parties: Parties) -> Scene:
    """Who takes part in *steps*."""
    called = frozenset(fold(name) for s in steps if "(" in s.action for name in calls_in(s.action))
    heard = {s.actor: parties.role(s, called) for s in steps if not is_blank(s.observation)}
    acts = any(not is_blank(s.action) for s in steps)
    agents = [a for a, role in heard.items() if role is Role.AGENT and fold(a) != "system"]
    agent = parties.agent if acts or not agents else agents[0]
    people = tuple(a for a, role in heard.items() if role in (Role.PERSON, Role.UNMARKED))
    return Scene(
        steps=tuple(steps),
        parties=parties,
        people=people,
        agent=agent,
        with_agent=acts or bool(agents),
        names=frozenset(word for name in (*people, agent) for word in fold(name).split()),
        called=called,
        marked=Role.TOOL in heard.values() or any(s.role is not None for s in steps),
    )


def is_output(text: str, role: Role, *, after_call: bool) -> bool:
    """Whether *text*, of an actor with *role*, is a tool's output: by its role or form."""
    said = role is Role.PERSON or (role is not Role.TOOL and not after_call)
    if said and speaks_of_self(text.split("\n", 1)[0]):
        return False
    if role is Role.TOOL or kind_of(text, said=said) is Kind.TOOL:
        return True
    return not said and not _is_said(text)


def _is_said(text: str) -> bool:
    """Whether *text* addresses somebody or has a sentence; a result or an error is none."""
    head = text[:2_000]
    if _ADDRESSES.search(head):
        return True
    found = verdict(head)
    return not (found.good or found.bad) and any(
        has_verb(sentence) or is_imperative(sentence) for sentence in sentences(head)
    )


# ── The worker thread ────────────────────────────────────────────────────────────────────


def workers() -> Threads:
    """
    The one thread of this event loop that analyses texts.

    A second one would only make the loop wait for the interpreter twice as long.
    """
    return shared_threads("mnemo.extraction.embedded")
