"""
Read files to import as sessions: dialogues in JSON, messages and steps in JSON Lines.

Three formats, told apart by what the file holds: dialogues (one, or a list), JSON
Lines of messages, and JSON Lines of ``{observation, action}``. A dialogue is given when it
was read whole, the sessions of lines piece by piece, so that memory is bounded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from mnemo.importing.json_stream import ImportFileError, OnRead, Value, sound_values
from mnemo.importing.records import Talk, Turn, iso_time, mapping_of, named, optional_name
from mnemo.runtime.text import is_blank

HELD = 16 << 20
"""Characters of lines that are held before the longest session of them is given (S)."""


@dataclass(slots=True)
class _Session:
    """Turns of one session that were read and not given yet; keys are unique in all of it."""

    name: str
    session: str
    talk: str = ""
    keys: set[str] = field(default_factory=set)
    turns: list[Turn] = field(default_factory=list)
    size: int = 0
    given: bool = False

    def add(self, turn: Turn) -> None:
        """*Raises* ``ValueError``: the key is known."""
        if turn.key in self.keys:
            raise ValueError(f"has the id {turn.key!r} of an earlier one")
        self.talk = self.talk or f"{self.name}/{self.session}-{_digest(turn)}"
        self.keys.add(turn.key)
        self.turns.append(turn)
        self.size += turn.size

    def talks(self) -> Iterator[Talk]:
        """What is held, if anything is."""
        if self.turns:
            goal = f"{self.name}, session {self.session}"
            yield Talk(self.talk, goal, tuple(self.turns), self.given)
        self.turns, self.size, self.given = [], 0, True


def _digest(turn: Turn) -> str:
    """Tells talks of one name apart by how they begin."""
    first = json.dumps([turn.observation, turn.action, turn.actor, str(turn.at)])
    return hashlib.sha256(first.encode()).hexdigest()[:8]


def stream_talks(file: Path, on_read: OnRead = lambda count: None) -> Iterator[Talk]:
    """Read up to the first mistake (``ImportFileError``); *on_read* as of ``stream_values``."""
    with closing(sound_values(file, on_read)) as values:
        for first in values:
            is_dialogue = isinstance(first.raw, Mapping) and "turns" in first.raw
            read = _dialogues if first.in_list or is_dialogue else _lines
            yield from read(chain([first], values), file)


# ── Dialogues ────────────────────────────────────────────────────────────────────────


def _dialogues(values: Iterator[Value], file: Path) -> Iterator[Talk]:
    names: set[str] = set()
    for number, value in enumerate(values, 1):
        raw, where = value.raw, f"dialogue {number}"
        if not isinstance(raw, Mapping) or not isinstance(raw.get("turns"), list):
            raise ImportFileError(f"{where} has no list of turns", file=file)
        try:
            sessions = _dialogue(raw, names)
        except ValueError as error:
            raise ImportFileError(f"{where}: {error}", file=file) from error
        for session in sessions:
            yield from session.talks()


def _dialogue(raw: Mapping[str, Any], names: set[str]) -> list[_Session]:
    """The sessions of a dialogue, all or none. *Raises* ``ValueError``."""
    name = named(raw, "id")
    if name in names:
        raise ValueError(f"the id {name!r} is that of an earlier dialogue")
    sessions: dict[str, _Session] = {}
    for number, given in enumerate(raw["turns"], 1):
        try:
            _add(sessions, name, mapping_of(given), None)
        except ValueError as error:
            raise ValueError(f"turn {number} {error}") from error
    names.add(name)
    return list(sessions.values())


def _add(sessions: dict[str, _Session], name: str, raw: Mapping[str, Any], key: str | None) -> int:
    """Add the turn *raw* to its session; give its size. *Raises* ``ValueError``."""
    session = optional_name(raw, "session") or "1"
    turn = _turn(raw, key)
    sessions.setdefault(session, _Session(name, session)).add(turn)
    return turn.size


# ── JSON Lines ───────────────────────────────────────────────────────────────────────


def _lines(values: Iterator[Value], file: Path) -> Iterator[Talk]:
    sessions: dict[str, _Session] = {}
    problem: ImportFileError | None = None
    held = 0
    try:
        for value in values:
            held += _add(sessions, file.stem, mapping_of(value.raw), str(value.number))
            if held > HELD:
                longest = max(sessions.values(), key=lambda session: session.size)
                held -= longest.size
                yield from longest.talks()
    except ImportFileError as error:
        problem = error
    except ValueError as error:
        problem = value.mistake(str(error), file)
    for session in sessions.values():
        yield from session.talks()
    if problem:
        raise problem


# ── Turns ────────────────────────────────────────────────────────────────────────────


def _turn(raw: Mapping[str, Any], default_key: str | None) -> Turn:
    """A step from a dialogue's turn, a message, or ``{observation, action}``."""
    is_step = "observation" in raw or "action" in raw
    observation = _text(raw, "observation") if is_step else required_text(raw, "text", "content")
    action = _text(raw, "action") or ""
    actor = _text(raw, "actor") if is_step else required_text(raw, "speaker", "role")
    if is_blank(observation or "") and is_blank(action):
        raise ValueError("is blank")
    if actor is not None and is_blank(actor):
        raise ValueError("has a blank speaker")
    key = optional_name(raw, "id") or default_key
    if key is None:
        raise ValueError('has no "id"')
    at = iso_time(raw.get("at"))
    return Turn(key=key, observation=observation or "", action=action, actor=actor, at=at)


def _text(raw: Mapping[str, Any], name: str) -> str | None:
    value = raw.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f'has a "{name}" that is no text')
    return value


def required_text(raw: Mapping[str, Any], *names: str) -> str:
    """The first of *names* that is there. *Raises* ``ValueError``: none is, or it is no text."""
    for name in names:
        value = _text(raw, name)
        if value is not None:
            return value
    raise ValueError("has no " + " or ".join(f'"{name}"' for name in names))
