"""What a reader gives: records to store, and what was skipped or is broken, with its place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from mnemo import Message
from mnemo.runtime.text import is_blank


@dataclass(frozen=True, slots=True)
class Record:
    """A message, with an id of its own that stays, and for a person its *place* in the file."""

    thread_id: str
    message: Message
    place: str


@dataclass(frozen=True, slots=True)
class KeyedRecord:
    """One keyed item, found by its *texts* (field → text)."""

    namespace: tuple[str, ...]
    key: str
    value: Mapping[str, Any]
    texts: Mapping[str, str]
    place: str


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """A text of another memory; *metadata* have its id there, which stays, under *id_name*."""

    text: str
    at: datetime | None
    metadata: Mapping[str, Any]
    place: str
    id_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One step to be."""

    key: str
    observation: str
    action: str
    actor: str | None
    at: datetime | None

    @property
    def size(self) -> int:
        """Characters of its texts."""
        return len(self.observation) + len(self.action)


@dataclass(frozen=True, slots=True)
class Talk:
    """
    A session to be, or a part of one that *continues* an earlier one of its *name*.

    The name is the same for the same beginning of the same talk, also when more follows.
    """

    name: str
    goal: str
    turns: tuple[Turn, ...]
    continues: bool = False


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that is left out on purpose."""

    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class Broken:
    """Something that should have been a record and cannot be read; the rest goes on."""

    place: str
    what: str


Stored = Record | KeyedRecord | MemoryRecord | Talk
Item = Stored | Skipped | Broken


class LeftOut(Exception):
    """A reader leaves something out on purpose; the text says why."""


def read_at(
    place: str, read: Callable[..., Iterator[Item]], raw: Any, *given: Any
) -> Iterator[Item]:
    """What *read* gives of *raw*, a JSON object; or that it was ``LeftOut`` or cannot be read."""
    try:
        yield from read(mapping_of(raw), place, *given)
    except LeftOut as reason:
        yield Skipped(place, str(reason))
    except ValueError as error:
        yield Broken(place, str(error))


_MILLISECONDS_FROM = 100_000_000_000
"""A number of seconds from here on (the year 5138) is one of milliseconds."""
_YEAR = re.compile(r"\d{4}")


def time_of(value: Any) -> datetime | None:
    """
    Read ISO 8601, or seconds or milliseconds since 1970; no zone is UTC.

    *Raises* ``ValueError``: it is none, such as a date without a year.
    """
    if value is None or value == "":
        return None
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            seconds = value / 1_000 if abs(value) >= _MILLISECONDS_FROM else value
            return datetime.fromtimestamp(seconds, UTC)
        if isinstance(value, str) and _YEAR.match(value):
            at = datetime.fromisoformat(value.removesuffix(" UTC"))
            return at if at.tzinfo else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError, OSError):
        pass
    raise ValueError(f"has a time that is no date with a year: {value!r:.40}")


def iso_time(value: Any) -> datetime | None:
    """Read ISO 8601, naive as it is. *Raises* ``ValueError``: it is something else."""
    if value is None:
        return None
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise ValueError(f'has an "at" that is no ISO 8601 time: {value!r:.40}') from None


def mapping_of(value: Any, what: str = "is") -> Mapping[str, Any]:
    """*value*, a JSON object. *Raises* ``ValueError``: it is something else."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} no JSON object")
    return value


def list_of(raw: Mapping[str, Any], name: str) -> list[Any]:
    """The list called *name*; absent is empty. *Raises* ``ValueError``: it is something else."""
    found = raw.get(name)
    if found is not None and not isinstance(found, list):
        raise ValueError(f'has a "{name}" that is no list')
    return found or []


def optional_text(raw: Mapping[str, Any], *names: str) -> str | None:
    """The first of *names* that is text and not blank."""
    found = (raw.get(name) for name in names)
    return next((one for one in found if isinstance(one, str) and not is_blank(one)), None)


def optional_name(raw: Mapping[str, Any], name: str) -> str | None:
    """The id called *name*: text that is not blank, or a whole number. *Raises* ``ValueError``."""
    value = raw.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int) or is_blank(str(value)):
        raise ValueError(f'has a "{name}" that is neither text nor a number')
    return str(value)


def named(raw: Mapping[str, Any], *names: str) -> str:
    """The id under the first of *names*. *Raises* ``ValueError``: there is none."""
    for name in names:
        value = raw.get(name)
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if is_number or (isinstance(value, str) and not is_blank(value)):
            return str(value)
    raise ValueError(f'has no "{names[0]}"')
