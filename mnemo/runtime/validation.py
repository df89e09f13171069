"""
Validation of values from outside: what no store can keep is cleaned or refused.

Texts lose the characters that stores do not keep reliably. Ids of repositories, sessions and
threads are compared exactly, so they are refused instead of changed. Every public call takes its
arguments through these functions, so whatever they are is a ``ValueError`` at most.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from mnemo.runtime.clock import as_utc
from mnemo.runtime.text import clean, is_blank

MOST_AT_ONCE = 1_000
"""Members of a list that a call takes, and of a page that it gives, at most (S)."""
MOST_NAMED = 100_000
"""Ids or names that a listing is bound to, at most (S)."""
MOST_ID_BYTES = 512
"""UTF-8 bytes of an id or key: what an index of any store can hold."""
MAX_REPO_ID = 200
"""Characters of a repository's id, at most."""
MOST_TEXT_BYTES = 64 * 2**20
"""UTF-8 bytes of one text, 64 MiB."""
MOST_NUMBER = 2**63 - 1
"""Largest integer of a store."""
SMALL_BATCH = 16
"""Values that are checked on the event loop; more go to a worker thread (S)."""
SMALL_TEXT = 65_536
"""Characters of a batch that are checked on the event loop, likewise (S)."""
ITEM = 64
"""Characters that take as long as one value within a batch (S)."""
MOST_NAME_BYTES = 255
"""UTF-8 bytes of one part of a path: what file systems take."""
MOST_PATH_BYTES = 4_000
"""UTF-8 bytes of a path, likewise."""
_SHOWN = 80
T = TypeVar("T")
_NUMBERS = frozenset({int, float, bool})
_FIRST = datetime.min.replace(tzinfo=UTC)
# The last second is left out: as Unix seconds, its end is the year 10000.
_BEHIND_LAST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


def stored_text(name: str, value: object) -> str:
    """Return *value* as ``clean`` does. *Raises* ``ValueError``: no text, or too long."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text, not {type(value).__name__}")
    if not _fits(value, MOST_TEXT_BYTES):
        raise ValueError(f"{name} has more than {MOST_TEXT_BYTES:,} bytes; store it in parts")
    return clean(value)


def stored_id(name: str, value: object) -> str:
    """Return *value* as stored. *Raises* ``ValueError``: blank, no text, over 512 bytes."""
    if not isinstance(value, str) or is_blank(value):
        raise ValueError(f"{name} must be text that is not blank")
    if not _fits(value, MOST_ID_BYTES):
        raise ValueError(f"{name} has more than {MOST_ID_BYTES} bytes")
    return clean(value)


def exact_text(name: str, value: object) -> str:
    """Return *value*. *Raises* ``ValueError``: as ``stored_text``, or it would be changed."""
    return _unchanged(name, value, stored_text(name, value))


def exact_id(name: str, value: object) -> str:
    """Return *value*. *Raises* ``ValueError``: as ``stored_id``, or it would be changed."""
    return _unchanged(name, value, stored_id(name, value))


def exact_key(name: str, value: object) -> str:
    """Return *value*, blank or not. *Raises* ``ValueError``: as ``exact_text``, over 512 bytes."""
    if isinstance(value, str) and not _fits(value, MOST_ID_BYTES):
        raise ValueError(f"{name} has more than {MOST_ID_BYTES} bytes")
    return exact_text(name, value)


def _unchanged(name: str, value: object, stored: str) -> str:
    if stored != value:
        raise ValueError(f"{name} cannot hold U+0000 or half a surrogate pair")
    return str(stored)


def checked_repo_id(repo_id: object) -> str:
    """*repo_id*. *Raises* ``ValueError``: it is blank, too long or cannot be stored."""
    if not isinstance(repo_id, str) or is_blank(repo_id) or len(repo_id) > MAX_REPO_ID:
        raise ValueError(f"repo_id must be text of 1 to {MAX_REPO_ID} characters, not blank")
    return exact_id("repo_id", repo_id)


def page_of_ids(limit: object, after: object) -> dict[str, Any]:
    """
    The *limit* of a page and the id *after* which it begins: ``None`` and ``""`` where none is.

    *Raises* ``ValueError``: *limit* is not 1 to ``MOST_AT_ONCE``, or *after* can be no id.
    """
    if limit is not None:
        whole_number("limit", limit, 1, MOST_AT_ONCE)
    return {"limit": limit, "after": "" if after is None else exact_id("after", after)}


def known_id(name: str, value: object) -> str:
    """An id to look up, as it would be stored. *Raises* ``ValueError``: it is no text."""
    if not isinstance(value, str):
        raise ValueError(f"{name} must be text, not {type(value).__name__}")
    return clean(value)


def known_ids(ids: Iterable[str], most: int = MOST_AT_ONCE) -> list[str]:
    """Return *ids* to look up. *Raises* ``ValueError``: as ``every``, or one of them is no text."""
    return [known_id("an id", id) for id in every("ids", ids, most)]


def every(name: str, values: Iterable[T], most: int = MOST_AT_ONCE) -> list[T]:
    """*values* as a list. *Raises* ``ValueError``: a text, not iterable, or more than *most*."""
    if isinstance(values, str | bytes):
        kind = "text" if isinstance(values, str) else "bytes"
        raise ValueError(
            f"{name} must be a list of {name}, not one {kind}: give [{quoted(values)}]"
        )
    if isinstance(values, type) or not isinstance(values, Iterable):
        raise ValueError(f"{name} must be a list of {name}, not {type(values).__name__}")
    taken = list(islice(values, most + 1))
    if len(taken) > most:
        raise ValueError(f"{name}: at most {most:,} at once; give them in several calls")
    return taken


def portions(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cut *values* into runs that a call takes; of none there is one, which is empty."""
    return (values[at : at + MOST_AT_ONCE] for at in range(0, len(values) or 1, MOST_AT_ONCE))


def instance_of(name: str, value: Any, kind: type[T]) -> T:
    """Return *value*. *Raises* ``ValueError``: it is no *kind*."""
    if not isinstance(value, kind):
        raise ValueError(f"{name} must be {kind.__name__}, not {type(value).__name__}")
    return value


def flag(name: str, value: object) -> bool:
    """Return *value*. *Raises* ``ValueError``: it is neither True nor False, such as "no"."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, not {quoted(value)}")
    return value


def one_of(name: str, value: Any, choices: Collection[Any]) -> Any:
    """Return *value*. *Raises* ``ValueError``: it is none of *choices*."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, not {quoted(value)}")
    return value


def checked_path(name: str, value: object) -> Path:
    """Return *value* as a path. *Raises* ``ValueError``: no file can have it."""
    text = str(value) if isinstance(value, str | PathLike) else ""
    if is_blank(text) or clean(text) != text:
        raise ValueError(f"{name} must be a path, not {quoted(value)}")
    path = Path(text)
    if not _fits(text, MOST_PATH_BYTES) or not all(_fits(p, MOST_NAME_BYTES) for p in path.parts):
        raise ValueError(f"{name} is too long for a path")
    return path


def read_json(text: str | bytes) -> Any:
    """Read JSON from outside. *Raises* ``ValueError``: it is none, or too deep to be read."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error


def check_depth(name: str, value: object, most: int) -> None:
    """Refuse objects and lists nested in each other. *Raises* ``ValueError``: above *most*."""
    inner = _within(value)
    if inner and not most:
        raise ValueError(f"{name} is nested too deeply, or holds itself")
    for one in inner:
        check_depth(name, one, most - 1)


def quoted(value: object) -> str:
    """The beginning of its repr, for an error; its type where it has none that can be made."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deeply; thousands of digits
        return f"such a value of {type(value).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def stored_json(name: str, value: object) -> Any:
    """
    A copy of *value* that shares nothing with it, its texts as ``stored_text`` gives them.

    It is copied value by value: writing and reading a large one as JSON are two calls that
    each hold the interpreter to their end. Tuples become lists, keys become text.
    *Raises* ``ValueError``: no JSON, or texts of more than ``MOST_TEXT_BYTES`` together.
    """
    sizes: list[int] = []
    try:
        copy = _copied(value, sizes)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{name} must be JSON: {error}") from error
    if sum(sizes) > MOST_TEXT_BYTES:
        raise ValueError(f"{name} has more than {MOST_TEXT_BYTES:,} bytes; store it in parts")
    return copy


def stored_object(name: str, value: object) -> dict[str, Any]:
    """A copy of *value* as of ``stored_json``. *Raises* ``ValueError``: it is no JSON object."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be a JSON object, not {type(value).__name__}")
    copy: dict[str, Any] = stored_json(name, dict(value))
    return copy


def _copied(value: Any, sizes: list[int]) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if type(value) is str and value.isascii() and "\0" not in value:
        sizes.append(len(value))
        return value
    if isinstance(value, str):
        # Of an enumeration's member the text itself, as JSON has it.
        text = clean(value if type(value) is str else str.__str__(value))
        sizes.append(len(text) if text.isascii() else len(text.encode()))
        return text
    if isinstance(value, int):
        # Python refuses to write an integer of thousands of digits: here, not in the store.
        return int(value) if value.bit_length() <= 64 else json.loads(json.dumps(value))
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is no JSON number")
        return float(value)
    if isinstance(value, list | tuple):
        return [_copied(item, sizes) for item in value]
    if isinstance(value, dict):
        return {_key(key, sizes): _copied(item, sizes) for key, item in value.items()}
    raise TypeError(f"{type(value).__name__} is no type of JSON")


def _key(key: object, sizes: list[int]) -> str:
    if isinstance(key, str):
        copied: str = _copied(key, sizes)
        return copied
    if key is None or isinstance(key, int | float):
        return json.dumps(key, allow_nan=False)
    raise TypeError(f"a key is {type(key).__name__}, not text")


def whole_number(name: str, value: object, least: int, most: float = MOST_NUMBER) -> int:
    """Return *value*. *Raises* ``ValueError``: no ``int`` (``bool`` is none), or out of range."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        is_told = most < MOST_NUMBER or (isinstance(value, int) and value > most)
        upper = f" and at most {most:,}" if is_told else ""
        wanted = f"a whole number, at least {least}{upper}"
        raise ValueError(f"{name} must be {wanted}, not {quoted(value)}")
    return value


def finite_number(name: str, value: object) -> float:
    """Return *value*. *Raises* ``ValueError``: it is no number that a finite ``float`` can be."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
        raise ValueError(f"{name} must be a finite number, not {quoted(value)}")
    return value


def known_time(name: str, value: object) -> datetime:
    """What a ``datetime`` or ISO 8601 text says, aware; UTC without a zone; else ``ValueError``."""
    at = value
    if isinstance(value, str):
        with suppress(ValueError):
            at = datetime.fromisoformat(value)
    if not isinstance(at, datetime):
        kinds = "a datetime or an ISO 8601 time such as '2026-03-01'"
        raise ValueError(f"{name} must be {kinds}, not {quoted(value)}")
    return as_utc(at)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer
        return False


def seconds(name: str, value: object, *, above: bool = False) -> float:
    """Return *value*. *Raises* ``ValueError``: no finite number, or below 0 (*above*: or 0)."""
    number = float(finite_number(name, value))
    if number < 0 or (above and number == 0):
        raise ValueError(
            f"{name} must {'be more than 0' if above else 'not be negative'}: {number}"
        )
    return number


def stored_time(name: str, value: object) -> datetime:
    """
    Return *value* as ``known_time`` does.

    *Raises* ``ValueError``: it is no time, or lies outside the years 1 to 9999 in UTC, or in their
    last second: it could not be converted to UTC, and to Unix seconds and back.
    """
    aware = known_time(name, value)
    if not _FIRST <= aware < _BEHIND_LAST:
        raise ValueError(f"{name} must lie in the years 1 to 9999 of UTC, not {value}")
    return aware


def _fits(text: str, most: int) -> bool:
    """Whether *text* has at most *most* bytes in UTF-8; encodes it only if that is in doubt."""
    if 4 * len(text) <= most:
        return True
    if len(text) > most or text.isascii():
        return len(text) <= most
    return len(text.encode("utf-8", "surrogatepass")) <= most


def is_small(values: Sequence[object]) -> bool:
    """Whether checking and copying *values*, with all that they hold, takes a moment only."""
    if len(values) > SMALL_BATCH:
        return False
    room, found = SMALL_TEXT, list(values)
    while found and room >= 0:
        value = found.pop()
        if isinstance(value, str):
            room -= len(value)
        elif value is not None and type(value) not in _NUMBERS:
            inner = _within(value)
            room -= ITEM * len(inner)
            found += inner if room >= 0 else ()
    return room >= 0


def _within(value: object) -> Collection[object]:
    if isinstance(value, dict | Mapping):
        return value.values()
    if is_dataclass(value):
        return [getattr(value, f.name) for f in fields(value)]
    return value if isinstance(value, list | tuple) else ()
