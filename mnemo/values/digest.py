"""What stands for messages where no model wrote: first sentences; pure, the same bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

from mnemo.runtime.clock import in_utc
from mnemo.runtime.text import is_blank, one_line
from mnemo.values.messages import THINKING_TOOL, StoredMessage

SENTENCE_CHARACTERS = 160
"""Of one sentence that is told, at most, its mark included."""
READ_CHARACTERS = 2_000
"""Of a message, from its first word on, that are read for its first sentence."""

_ENDS = re.compile(r"""[.!?…]+["'”’)\]]*(?=\s)|[。！？]+[」』”’）]*""")
# A point behind these, or behind a single letter, does not end a sentence.
_ABBREVIATIONS = frozenset(
    ("mr", "mrs", "ms", "dr", "prof", "st", "vs", "e.g", "i.e", "cf", "etc", "approx")
)


def digest(messages: Sequence[StoredMessage], *, max_chars: int) -> str:
    """
    What was said in *messages*, as far as first sentences tell it.

    A line with their range and dates, then for each user message its first sentence, for
    each turn that of the last thing the assistant said, and how many tools were called.
    Where that is too long its middle lines go, with their number. *messages* are ascending.
    """
    if not messages:
        return ""
    first, *_, last = (messages[0], *messages)
    span = dates([message.said_at for message in messages])
    head = f"Messages {first.seq}..{last.seq}, {span}; first sentences only."
    told = list(_sentences(messages))
    calls = sum(call.name != THINKING_TOOL for m in messages for call in m.tool_calls)
    tail = [f"[{calls} tool{'s' if calls != 1 else ''} called]"] if calls else []
    return _fitted(head, told, tail, max_chars)


def dates(times: Iterable[datetime]) -> str:
    """The day of *times*, or the first and the last day, in UTC: ``2026-03-05..2026-03-06``."""
    days = sorted(in_utc(time).date().isoformat() for time in times)
    return days[0] if days[0] == days[-1] else f"{days[0]}..{days[-1]}"


def first_sentence(text: str) -> str:
    """The first sentence of *text*, on one line, of at most 160 characters; a line ends one."""
    begun = text.lstrip()[:READ_CHARACTERS]
    line = one_line(begun.splitlines()[0]) if begun else ""
    for end in _ENDS.finditer(line):
        words = line[: end.start()].rsplit(None, 1)
        last = words[-1].lower().strip("(\"'") if words else ""
        initial = len(last) == 1 and last.isalpha()
        if end.group() != "." or not (initial or last in _ABBREVIATIONS):
            return clipped(line[: end.end()], SENTENCE_CHARACTERS)
    return clipped(line, SENTENCE_CHARACTERS)


def clipped(text: str, most: int) -> str:
    """*text*, or its beginning with ``…`` as the last of *most* characters."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def _sentences(messages: Iterable[StoredMessage]) -> Iterable[str]:
    """A line for each user message, and one for the end of each assistant's turn."""
    answer: StoredMessage | None = None
    for message in messages:
        if is_blank(message.text):
            continue
        if message.kind == "assistant":
            answer = message
        elif message.kind == "user":
            if answer is not None:
                yield f"Assistant: {first_sentence(answer.text)}"
            answer = None
            yield f"User: {first_sentence(message.text)}"
    if answer is not None:
        yield f"Assistant: {first_sentence(answer.text)}"


def _fitted(head: str, told: Sequence[str], tail: Sequence[str], max_chars: int) -> str:
    lines = [head, *told, *tail]
    if not told or sum(map(len, lines)) + len(lines) - 1 <= max_chars:
        return clipped("\n".join(lines), max_chars)
    note = "({} lines left out)"
    framing = [head, note.format(len(told)), *tail]
    room = max_chars - sum(map(len, framing)) - len(framing) + 1
    before, after = _ends_of(told, room)
    left_out = note.format(len(told) - before - after)
    kept = [head, *told[:before], left_out, *told[len(told) - after :], *tail]
    return clipped("\n".join(kept), max_chars)


def _ends_of(lines: Sequence[str], room: int) -> tuple[int, int]:
    """How many lines from the beginning and from the end fit into *room*, taken in turn."""
    taken = [0, 0]
    for number in range(len(lines)):
        side = number % 2
        line = lines[taken[0]] if side == 0 else lines[-1 - taken[1]]
        room -= len(line) + 1
        if room < 0:
            break
        taken[side] += 1
    return taken[0], taken[1]
