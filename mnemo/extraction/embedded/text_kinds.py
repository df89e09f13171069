"""
Classify a side of a step as speech or tool output, find its calls, redact its secrets.

Only an excerpt is ever analysed: the first ``HEAD`` and the last ``TAIL`` characters,
so that a huge observation costs no more than a long one.
"""

from __future__ import annotations

import json
import re
from enum import StrEnum
from typing import Any

from mnemo.extraction.embedded.outcomes import verdict
from mnemo.runtime.secrets import without_secrets

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
    """
    *text* with every value that looks like a secret replaced by ``HIDDEN``.

    Keys, tokens and passwords must never be learnt: no fact, instruction, tag, subgoal or
    state can hold one. The raw step keeps its words; it is the user's own.
    """
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
    """
    Whether *text*, an observation or an action's words, looks like tool output or speech.

    Args:
        said: Whether it is known that somebody says it, or nothing was called: then
            ``Decision: we ship`` is a note, not a key and its value.
    """
    first, _, rest = text.partition("\n")
    if parsed_json(text) is not None or text.startswith("$ ") or (rest and call_name(first)):
        return Kind.TOOL
    lines = [line for line in text.split("\n", 400)[:400] if line and not line.isspace()]
    alone = len(lines) == 1
    logs = sum(
        _is_log_line(line[:400]) and not (said and _is_note(line[:400], alone=alone))
        for line in lines
    )
    return Kind.TOOL if logs * 2 > len(lines) else Kind.SPEECH


def _is_note(line: str, *, alone: bool) -> bool:
    return (_PAIR if alone else _TITLED_PAIR).match(line) is not None and not verdict(line).bad


def _is_log_line(line: str) -> bool:
    return _LOG_LINE.match(line) is not None and not _SPOKEN_PAIR.match(line)


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
    return tuple(match.group(1) for line in _lines_of_calls(action) if (match := _call_in(line)))


def without_calls(action: str) -> str:
    """The words of *action* before its lines of calls."""
    calls = _lines_of_calls(action)
    return "\n".join(action.split("\n")[: -len(calls)]) if calls else action


def _lines_of_calls(action: str) -> list[str]:
    if not action.rstrip().endswith(")") or len(action) > HEAD:
        return []
    lines = action.rstrip().split("\n")
    first = next((at for at in range(len(lines), 0, -1) if not _call_in(lines[at - 1])), 0)
    return lines[first:]


def _call_in(line: str) -> re.Match[str] | None:
    return _CALL_LINE.match(line)


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
