"""Facts from tool output, found without a model: results, errors, changed files, values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from mnemo.english.words import word_set
from mnemo.extraction.scene import HIDDEN, call_name, error_line, masked, parsed_json, verdict
from mnemo.runtime.text import one_line

CONFIDENCE = 0.9
_MOST = 10  # facts of one output
_MOST_ERRORS = 3
_MOST_LEAVES, _DEPTH, _LONGEST_VALUE = 8, 2, 120

_RESULT = re.compile(
    r"\b\d+ (?:tests? )?(?:passed|failed|errors?|failures?|skipped|warnings?|xfailed|succeeded"
    r"|files? changed|insertions?"
    r"|deletions?|rows? affected|vulnerabilities|problems?|tests?)\b"
    r"|\b(?:build|compilation|deployment|deploy|test run|migration)s? (?:succeeded|failed"
    r"|successful|completed|passed)\b"
    r"|^(?:success|ok|done|all (?:tests|checks) passed)\b|^Found \d+ (?:errors?|warnings?"
    r"|issues?|problems?)\b"
    r"|^FAILED \S+|\bexit(?:ed)?(?: with)? (?:code|status)\s?[:=]?\s?\d+",
    re.IGNORECASE,
)
_CHANGED = re.compile(
    r"^\s*(?P<what>creat(?:e|ed|ing)|wrote|writing|modified|updated|deleted|removed|renamed"
    r"|saved(?: to)?|added"
    r"|new file|generated|moved|file (?:created|written|saved))\b:?(?:\s+(?:file|directory"
    r"|mode \d+|to|at))*:?\s+"
    r"(?P<path>[`'\"]?[\w~.@-]*(?:[/\\][\w.@-]+)+[`'\"]?"
    r"|[`'\"]?[\w-]+\.[a-z][a-z0-9]{0,5}[`'\"]?)(?=[\s,.:;)]|$)",
    re.IGNORECASE,
)
_PAST = {
    "create": "created", "creating": "created", "writing": "wrote", "new file": "created",
    "file created": "created", "file written": "wrote", "file saved": "saved", "saved to": "saved",
}  # fmt: skip
_VERSION = re.compile(
    r"^\s*(?:(?:Successfully installed|Installed|Using"
    r"|Collecting)\s+)?(?P<name>[A-Za-z][\w.+-]{0,40}?)"
    r"(?:\s+version)?(?:[ =@-]{1,2}|[ ]\(?)v?(?P<version>\d+\.\d+(?:\.\d+)*(?:[-+.]?(?:a|b|rc"
    r"|alpha|beta|dev|post)\.?\d*)?)\)?\s*$"
)
_PAIR = re.compile(
    r"^\s*[\"']?(?P<key>[A-Za-z_][\w .-]{0,38}?)[\"']?\s?[:=]\s?"
    r"(?P<value>[^\s{\[(][^\n]{0,119}?)[\"',;]*\s*$"
)
_NO_KEYS = word_set(
    """
    error warning info debug fatal traceback note file line import from return e at http https
    trace
    """
)
# What somebody says or wants is no value that a call returned.
_REPORTS_SPEECH = re.compile(
    r"\b(?:says?|said|asks?|asked|wants?|wanted|told|tells|please|always|never)\b", re.IGNORECASE
)
_MARK = re.compile(r"^[\s=\-_*#>$|+✓✔✗×•]+|[\s=\-_*#|+]+$")
_TIMESTAMP = re.compile(
    r"^\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?\]?\s*"
)
_LEVEL = re.compile(r"^\[?(?:DEBUG|INFO|NOTICE|TRACE)\]?\b:?\s*", re.IGNORECASE)
_HEADING = re.compile(r"^(?:Traceback\b|[A-Z ]+$)")
_CODE = re.compile(
    r"[({;=]\s*$|^(?:import|from|def|class|return|const|let|var|if|for|while)\b|^(?:@|//|#)"
)


def facts_of_output(text: str, call: str | None, breathe: Callable[[], None]) -> list[str]:
    """Distinct facts of *text*, naming *call* or its first line; *breathe*: once per line."""
    call = call or call_name(text.split("\n", 1)[0])
    source = f"`{call}`" if call else "The tool"
    value = parsed_json(text)
    if value is None:
        found = _of_lines(text, source, breathe)
    else:
        leaves = islice(_leaves(value, "", 0), _MOST_LEAVES)
        found = (f"{source} returned {path} = {leaf}." for path, leaf in leaves)
    facts = dict.fromkeys(one_line(fact) for fact in found)
    return [fact for fact in facts if HIDDEN not in fact][:_MOST]


def _of_lines(text: str, source: str, breathe: Callable[[], None]) -> Iterator[str]:
    marked = (_MARK.sub("", line[:400]) for line in text.split("\n"))
    lines = list(filter(None, (_LEVEL.sub("", _TIMESTAMP.sub("", line)) for line in marked)))
    if len(lines) == 1 and not verdict(lines[0]).bad and len(lines[0]) <= _LONGEST_VALUE:
        if _REPORTS_SPEECH.search(lines[0]) or not any(map(str.isalnum, lines[0])):
            return
        yield _of_line(lines[0], source) or f"{source} returned {lines[0].rstrip('.')}."
        return
    yield from _errors(lines, source, breathe)
    pairs = 0
    for line in dict.fromkeys(lines):
        breathe()
        fact = _of_line(line, source)
        if fact is None and pairs < _MOST_LEAVES and (pair := _pair(line)):
            pairs += 1
            fact = f"{source} returned {pair}."
        if fact:
            yield fact


def _errors(lines: list[str], source: str, breathe: Callable[[], None]) -> Iterator[str]:
    counts: Counter[str] = Counter()
    spelling: dict[str, str] = {}
    for line in lines:
        breathe()
        if _RESULT.search(line) or not verdict(line).bad:
            continue
        named = error_line(line)
        if named is None or _HEADING.match(named) or _CODE.search(named):
            continue
        counts[masked(named)] += 1
        spelling.setdefault(masked(named), named)
    for key in _telling(spelling)[:_MOST_ERRORS]:
        times = f" ({counts[key]} times)" if counts[key] > 1 else ""
        yield f"{source} gave {spelling[key].rstrip('.')}{times}."


def _telling(spelling: dict[str, str]) -> list[str]:
    """Lines that name a type and message before those that merely tell of a failure."""
    typed = [
        k for k in spelling if re.match(r"[\w.]*(?:Error|Exception)\b|error|fatal|npm ERR", k, re.I)
    ]
    return typed or list(spelling)


def _of_line(line: str, source: str) -> str | None:
    if _RESULT.search(line) and len(line) <= 200:
        return f"{source} reported {line.rstrip('.')}."
    if changed := _CHANGED.match(line):
        what = changed["what"].lower()
        path = changed["path"].strip("`'\"")
        return f"{source} {_PAST.get(what, what)} {path}."
    if version := _VERSION.match(line):
        return f"{source} reported {version['name']} version {version['version']}."
    return None


def _pair(line: str) -> str | None:
    pair = _PAIR.match(line)
    if pair is None or verdict(line).bad or _CODE.search(line):
        return None
    key, value = pair["key"].strip(), pair["value"].strip(" \"'")
    if "  " in key or (
        key.split()[0].lower() in _NO_KEYS
        or len(key.split()) > 4
        or not any(c.isalnum() for c in value)
    ):
        return None
    return f"{key} = {value}"


def _leaves(value: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and depth < _DEPTH:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key), depth + 1)
    elif isinstance(value, list) and depth < _DEPTH and path:
        if value and all(isinstance(item, str | int | float) for item in value):
            yield from _leaf(path, ", ".join(str(item) for item in value[:_MOST_LEAVES]))
    elif isinstance(value, list) and depth < _DEPTH:
        for at, inner in enumerate(value[:_MOST_LEAVES]):
            yield from _leaves(inner, f"[{at}]", depth + 1)
    elif not isinstance(value, dict | list):
        yield from _leaf(path, value)


def _leaf(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if value is None or value == "" or not path:
        return
    text = one_line(
        {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
    )
    if len(text) <= _LONGEST_VALUE and len(path) <= _LONGEST_VALUE:
        yield path, text
