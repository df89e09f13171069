"""What a client sends as JSON, and what it makes of the answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import mnemo
from mnemo import Message, MnemoError, Unreachable, UsageError
from mnemo.exchange import adapter, restored
from mnemo.wire import Format, messages_of

LONGEST_WAIT_S = 300.0
"""Seconds that one call waits in the service, at most."""


def given(**arguments: Any) -> dict[str, Any]:
    """The arguments that say something; the service has the same defaults as the library."""
    return {name: value for name, value in arguments.items() if value is not None}


def messages_as_json(given: Sequence[Any], format: Format | None) -> list[Any]:
    """Messages of any format as JSON of mnemo's own fields; texts stay texts."""
    made = iter(messages_of([one for one in given if not isinstance(one, str)], format))
    return [one if isinstance(one, str) else _message(next(made)) for one in given]


def _message(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = adapter(Message).dump_python(
        Message(**{name: getattr(message, name) for name in Message.__dataclass_fields__}),
        mode="json",
        exclude_none=True,
    )
    return found


def plain(value: Any) -> Any:
    """What JSON has no form for. *Raises* ``ValueError``: it has none here either."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    raise ValueError(f"{type(value).__name__} cannot be sent as JSON: {value!r:.80}")


def read_as(kind: Any, content: bytes) -> Any:
    if kind is None:
        return None
    try:
        return restored(adapter(kind).validate_json(content))
    except ValueError as error:
        raise Unreachable(f"the answer is not that of a mnemo service: {error}") from error


def error_of(status: int, content: bytes) -> Exception:
    """The exception that a problem document tells of, with its facts."""
    try:
        told = json.loads(content)
        detail, name = str(told["detail"]), told["error"]
    except (ValueError, KeyError, TypeError):
        return Unreachable(f"the answer is not that of a mnemo service: {content[:200]!r}")
    if name in ("ValueError", "TimeoutError"):
        return {"ValueError": ValueError, "TimeoutError": TimeoutError}[name](detail)
    kind = getattr(mnemo, name, None) if isinstance(name, str) else None
    if not (isinstance(kind, type) and issubclass(kind, MnemoError)):
        return UsageError(f"{status}: {detail}")
    error = kind.__new__(kind)
    Exception.__init__(error, detail)
    for fact, value in {"reason": told["reason"], **told["facts"]}.items():
        setattr(error, fact, value)
    return error
