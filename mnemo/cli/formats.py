"""
Read files to import as sessions: dialogues in JSON, messages and steps in JSON Lines.

Three formats, told apart by what the file holds: dialogues (one, or a list), JSON
Lines of messages, and JSON Lines of ``{observation, action}``. What stands complete
before a mistake is read; the mistake is told beside it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from mnemo.errors import UsageError
from mnemo.runtime.text import is_blank

__all__ = ["ImportFileError", "Reading", "Talk", "Turn", "read_talks", "read_values"]

_BLANKS = " \t\r\n"


class ImportFileError(UsageError):
    """
    The file cannot be imported, or only up to a mistake in it.

    Attributes:
        file: Its path.
        line: 1-based, where it is known; *column* likewise, in characters, or in bytes
            where the file is not UTF-8.
        kept: Steps or messages before the mistake that are in the memory.
    """

    def __init__(
        self,
        what: str,
        *,
        file: Path,
        line: int | None = None,
        column: int | None = None,
        kept: int = 0,
    ) -> None:
        self.what, self.file, self.line, self.column, self.kept = what, file, line, column, kept
        place = f"line {line}: " if column is None else f"line {line}, column {column}: "
        super().__init__(f"{file}: {place if line else ''}{what}")

    def having_kept(self, steps: int, what: str = "steps") -> ImportFileError:
        """The same, telling how many *steps* before the mistake were kept."""
        kept = f"the {steps} {what} before it were kept" if steps else "nothing was kept"
        return ImportFileError(
            f"{self.what}; {kept}",
            file=self.file,
            line=self.line,
            column=self.column,
            kept=steps,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One step to be."""

    key: str
    observation: str
    action: str
    actor: str | None
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Talk:
    """
    One session to be.

    Attributes:
        name: The same for the same beginning of the same talk, also when more follows.
    """

    name: str
    goal: str
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """What could be read, in order, and the first mistake."""

    talks: tuple[Talk, ...]
    problem: ImportFileError | None = None

    @property
    def turns(self) -> int:
        """Of all talks."""
        return sum(len(talk.turns) for talk in self.talks)


class _MistakeError(Exception):
    def __init__(
        self,
        what: str,
        line: int | None = None,
        column: int | None = None,
        *,
        syntax: bool = False,
    ) -> None:
        super().__init__(what)
        self.what, self.line, self.column, self.syntax = what, line, column, syntax

    def within(self, where: str) -> _MistakeError:
        return _MistakeError(f"{where} {self.what}", self.line, self.column)

    def on(self, file: Path) -> ImportFileError:
        return ImportFileError(self.what, file=file, line=self.line, column=self.column)


@dataclass(slots=True)
class _Talks:
    """Talks as they are read: sessions in order of appearance, keys unique in each."""

    sessions: dict[tuple[str, str], dict[str, Turn]] = field(default_factory=dict)

    def add(self, name: str, session: str, turn: Turn) -> None:
        turns = self.sessions.setdefault((name, session), {})
        if turn.key in turns:
            raise _MistakeError(f"has the id {turn.key!r} of an earlier one")
        turns[turn.key] = turn

    def finished(self) -> tuple[Talk, ...]:
        return tuple(
            Talk(
                name=f"{name}/{session}-{_digest(next(iter(turns.values())))}",
                goal=f"{name}, session {session}",
                turns=tuple(turns.values()),
            )
            for (name, session), turns in self.sessions.items()
        )


def _digest(turn: Turn) -> str:
    """Tells talks of one name apart by how they begin."""
    first = json.dumps([turn.observation, turn.action, turn.actor, str(turn.at)])
    return hashlib.sha256(first.encode()).hexdigest()[:8]


# ── The file ─────────────────────────────────────────────────────────────────────────


def read_talks(file: Path) -> Reading:
    """
    Read *file* up to its first mistake.

    Raises:
        ImportFileError: There is nothing to read: no such file, a directory, no permission,
            an empty file.
    """
    talks = _Talks()
    problem = _read(
        file,
        lines=lambda text: _read_lines(text, file.stem, talks),
        values=lambda text: _read_dialogues(text, talks),
    )
    return Reading(talks.finished(), problem)


def read_values(file: Path, take: Callable[[Any, int], None]) -> ImportFileError | None:
    """
    Have *take* take each JSON value of *file*, with its number or line, from 1.

    Args:
        take: Raises ``ValueError`` for a value that is of no use.

    Returns:
        The first mistake; what stands before it was taken.

    Raises:
        ImportFileError: There is nothing to read.
    """
    return _read(
        file,
        lines=lambda text: _take_lines(text, take),
        values=lambda text: _take_values(text, take),
    )


def _read(
    file: Path, *, lines: Callable[[str], None], values: Callable[[str], None]
) -> ImportFileError | None:
    """Read the text of *file* as what it holds, up to the first mistake."""
    text, undecodable = _decoded(_content(file))
    problem = undecodable
    try:
        if not text.strip(_BLANKS) and undecodable is None:
            raise ImportFileError("the file is empty", file=file)
        if _holds_lines(text, file):
            lines(_whole_lines(text) if undecodable else text)
        else:
            values(text)
    except _MistakeError as mistake:
        if undecodable is None or not mistake.syntax or _is_before(mistake, undecodable):
            problem = mistake
    return problem.on(file) if problem else None


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        raise ImportFileError("there is no such file", file=file) from None
    except IsADirectoryError:
        raise ImportFileError("is a directory, not a file", file=file) from None
    except OSError as error:
        raise ImportFileError(f"cannot be read: {error.strerror or error}", file=file) from error


def _decoded(content: bytes) -> tuple[str, _MistakeError | None]:
    try:
        return content.decode("utf-8-sig"), None
    except UnicodeDecodeError as error:
        # The codec counts from behind a byte order mark, and so does its own copy.
        before, wrong = error.object[: error.start], error.object[error.start]
        line = before.count(b"\n") + 1
        column = error.start - (before.rfind(b"\n") + 1) + 1
        mistake = _MistakeError(f"not UTF-8 (byte 0x{wrong:02x})", line, column, syntax=True)
        return before.decode("utf-8"), mistake


def _is_before(mistake: _MistakeError, other: _MistakeError) -> bool:
    return mistake.line is not None and other.line is not None and mistake.line < other.line


def _whole_lines(text: str) -> str:
    return text[: text.rfind("\n") + 1]


def _holds_lines(text: str, file: Path) -> bool:
    """Whether each line is a value of its own, and no dialogue."""
    start = text.lstrip(_BLANKS)
    first = start.split("\n", 1)[0].rstrip()
    if start.startswith("["):
        return False
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        return file.suffix != ".json" and first != "{"
    return not (isinstance(value, dict) and "turns" in value)


# ── JSON Lines ───────────────────────────────────────────────────────────────────────


def _read_lines(text: str, name: str, talks: _Talks) -> None:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip(_BLANKS):
            continue
        try:
            raw = _value(line)
            turn = _turn(raw, str(number))
            talks.add(name, _name(raw, "session") or "1", turn)
        except _MistakeError as mistake:
            raise _MistakeError(
                mistake.what, number, mistake.column, syntax=mistake.syntax
            ) from mistake


def _take_lines(text: str, take: Callable[[Any, int], None]) -> None:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip(_BLANKS):
            continue
        try:
            value = _value(line)
        except _MistakeError as mistake:
            raise _MistakeError(mistake.what, number, mistake.column, syntax=True) from mistake
        try:
            take(value, number)
        except ValueError as error:
            raise _MistakeError(str(error), number) from error


def _take_values(text: str, take: Callable[[Any, int], None]) -> None:
    for number, value in enumerate(_values(text), 1):
        try:
            take(value, number)
        except ValueError as error:
            raise _MistakeError(f"value {number}: {error}") from error


def _wrong(error: json.JSONDecodeError) -> str:
    if error.msg.startswith("Unterminated string"):
        return "the text ends inside the string that begins here"
    return f"{error.msg[:1].lower()}{error.msg[1:]}"


def _value(line: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        what = f"not JSON: {_wrong(error)}"
        raise _MistakeError(what, 1, error.colno, syntax=True) from error
    except (ValueError, RecursionError) as error:
        raise _MistakeError(f"not usable JSON: {error}", 1, 1, syntax=True) from error


# ── Dialogues ────────────────────────────────────────────────────────────────────────


def _read_dialogues(text: str, talks: _Talks) -> None:
    for number, raw in enumerate(_values(text), 1):
        where = f"dialogue {number}"
        if not isinstance(raw, Mapping) or not isinstance(raw.get("turns"), list):
            raise _MistakeError(f"{where} has no list of turns")
        try:
            name = _required_name(raw, "id")
            read = [_dialogue_turn(turn, number) for number, turn in enumerate(raw["turns"], 1)]
            _check_new(talks, name, read)
        except _MistakeError as mistake:
            raise mistake.within(f"{where}:") from mistake
        for session, turn in read:
            talks.add(name, session, turn)


def _dialogue_turn(raw: Any, number: int) -> tuple[str, Turn]:
    try:
        return (_name(raw, "session") or "1"), _turn(raw, None)
    except _MistakeError as mistake:
        raise mistake.within(f"turn {number}") from mistake


def _check_new(talks: _Talks, name: str, read: list[tuple[str, Turn]]) -> None:
    """A dialogue is kept whole or not at all, so its ids are looked at before."""
    if any(known == name for known, _ in talks.sessions):
        raise _MistakeError(f"the id {name!r} is that of an earlier dialogue")
    seen: set[tuple[str, str]] = set()
    for number, (session, turn) in enumerate(read, 1):
        if (session, turn.key) in seen:
            raise _MistakeError(f"turn {number} has the id {turn.key!r} of an earlier one")
        seen.add((session, turn.key))


def _values(text: str) -> Iterator[Any]:
    """The elements of a list, or one value after the other, each as soon as it is complete."""
    at = _skip(text, 0)
    in_list = text.startswith("[", at)
    at = _skip(text, at + in_list)
    while not _ends(text, at, in_list):
        value, at = _decode(text, at)
        yield value
        at = _skip(text, at)
        if in_list and not text.startswith("]", at):
            if not text.startswith(",", at):
                raise _misplaced(text, at, "expected , or ]")
            at = _skip(text, at + 1)


def _ends(text: str, at: int, in_list: bool) -> bool:
    if not in_list:
        return at == len(text)
    if not text.startswith("]", at):
        return False
    if _skip(text, at + 1) != len(text):
        raise _misplaced(text, _skip(text, at + 1), "more follows after the list")
    return True


def _decode(text: str, at: int) -> tuple[Any, int]:
    try:
        return json.JSONDecoder().raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise _misplaced(text, error.pos, _wrong(error)) from error
    except (ValueError, RecursionError) as error:
        raise _misplaced(text, at, str(error)) from error


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANKS:
        at += 1
    return at


def _misplaced(text: str, at: int, what: str) -> _MistakeError:
    line = text.count("\n", 0, at) + 1
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    ends = " (the file ends there)" if at >= len(text.rstrip(_BLANKS)) else ""
    return _MistakeError(f"not JSON: {what}{ends}", line, column, syntax=True)


# ── Turns ────────────────────────────────────────────────────────────────────────────


def _turn(raw: Any, default_key: str | None) -> Turn:
    """A step from a dialogue's turn, a message, or ``{observation, action}``."""
    if not isinstance(raw, Mapping):
        raise _MistakeError("is no JSON object")
    is_step = "observation" in raw or "action" in raw
    observation = _text(raw, "observation") if is_step else _required_text(raw, "text", "content")
    action = _text(raw, "action") or ""
    actor = _text(raw, "actor") if is_step else _required_text(raw, "speaker", "role")
    if is_blank(observation or "") and is_blank(action):
        raise _MistakeError("is blank")
    if actor is not None and is_blank(actor):
        raise _MistakeError("has a blank speaker")
    key = _required_name(raw, "id") if default_key is None else _name(raw, "id") or default_key
    return Turn(
        key=key, observation=observation or "", action=action, actor=actor, at=_time(raw.get("at"))
    )


def _text(raw: Mapping[str, Any], name: str) -> str | None:
    value = raw.get(name)
    if value is not None and not isinstance(value, str):
        raise _MistakeError(f'has a "{name}" that is no text')
    return value


def _required_text(raw: Mapping[str, Any], *names: str) -> str:
    for name in names:
        value = _text(raw, name)
        if value is not None:
            return value
    raise _MistakeError("has no " + " or ".join(f'"{name}"' for name in names))


def _name(raw: Any, name: str) -> str | None:
    """An id: text that is not blank, or a whole number."""
    value = raw.get(name) if isinstance(raw, Mapping) else None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int) or is_blank(str(value)):
        raise _MistakeError(f'has a "{name}" that is neither text nor a number')
    return str(value)


def _required_name(raw: Mapping[str, Any], name: str) -> str:
    value = _name(raw, name)
    if value is None:
        raise _MistakeError(f'has no "{name}"')
    return value


def _time(value: Any) -> datetime | None:
    if value is None:
        return None
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise _MistakeError(f'has an "at" that is no ISO 8601 time: {value!r:.40}') from None
