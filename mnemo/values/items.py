"""Keyed items: JSON values under a namespace and a key, operations on them, and their rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import eq, ge, gt, le, lt, ne
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mnemo.runtime.text import is_blank
from mnemo.runtime.validation import check_depth, exact_key, seconds, stored_text, whole_number

Namespace: TypeAlias = tuple[str, ...]
REFRESH_SHARE = 0.1
"""Share of its TTL that an item must have lost before a read writes a new expiry (S)."""
MOST_DEPTH = 100
"""Levels of a filter, at most (S)."""
MOST_NAMESPACE_BYTES = 2_048
"""UTF-8 bytes of a namespace, all parts together: what an index of any store can hold."""
OPERATORS = {"$eq": eq, "$ne": ne, "$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}
"""What a mapping in a filter may hold instead of an object's keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """
    A JSON object under a namespace and a key.

    Attributes:
        namespace: Where it is; parts are any text, compared exactly.
        created_at: When its key was first put; *updated_at*: when it was put last. UTC.
        texts: Field and text of what it is found by; each text has a vector of its own.
        ttl_s: Seconds from the last put or refresh until it expires; ``None``: never.
        expires_at: When it expires, UTC; hidden from then on.
        score: Cosine to the query, in [-1, 1], of its nearest text; ``None`` without query or
            texts. Not stored.
    """

    namespace: tuple[str, ...]
    key: str
    texts: tuple[tuple[str, str], ...] = ()
    created_at: datetime
    updated_at: datetime
    ttl_s: float | None = None
    expires_at: datetime | None = None
    value: Mapping[str, Any]
    score: float | None = None

    def needs_refresh(self, now: datetime) -> bool:
        """Whether a read at *now* should move its expiry."""
        if self.ttl_s is None or self.expires_at is None:
            return False
        left = (self.expires_at - now).total_seconds()
        return left < self.ttl_s * (1 - REFRESH_SHARE)


# ── Operations ───────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class PutItem:
    """
    Store *value* under *namespace* and *key*, in the place of what is there.

    Attributes:
        texts: Field name → text that the item is found by; blank texts are left out.
        ttl_s: Seconds until it expires, more than 0; ``None``: never.
    """

    namespace: Sequence[str]
    key: str
    value: Mapping[str, Any]
    texts: Mapping[str, str] | None = None
    ttl_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetItem:
    """Read one item; *refresh*: move its expiry."""

    namespace: Sequence[str]
    key: str
    refresh: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteItem:
    """Delete one item."""

    namespace: Sequence[str]
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchItems:
    """
    List items whose namespace begins with *prefix*.

    Attributes:
        query: Text that the items' texts are compared with, best first, items without texts
            last; ``None``: what was put last comes first.
        filter: Key of the value → what it must be; see ``filter_matches``.
        limit: Items, at least 0; *offset*: how many to pass over.
        refresh: Whether the expiry of what is found moves.
    """

    prefix: Sequence[str] = ()
    query: str | None = None
    filter: Mapping[str, Any] | None = None
    limit: int = 10
    offset: int = 0
    refresh: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ListNamespaces:
    """
    List the namespaces that hold items, sorted.

    Attributes:
        prefix: How they must begin; ``None`` in it stands for any one part.
        suffix: How they must end, likewise.
        max_depth: Parts that are kept of each; what is then equal is listed once.
    """

    prefix: Sequence[str | None] = ()
    suffix: Sequence[str | None] = ()
    max_depth: int | None = None
    limit: int = 100
    offset: int = 0


ItemOperation: TypeAlias = PutItem | GetItem | DeleteItem | SearchItems | ListNamespaces


def checked_operation(operation: ItemOperation) -> ItemOperation:
    """*operation*, but for the value of a put. *Raises* ``ValueError``: no store can do it."""
    match operation:
        case PutItem() | GetItem() | DeleteItem():
            exact_key("key", operation.key)
            check_namespace("namespace", operation.namespace)
        case SearchItems():
            check_namespace("prefix", operation.prefix)
            _check_page(operation.limit, operation.offset)
            _check_query(operation.query)
            check_depth("filter", operation.filter, MOST_DEPTH)
            _check_filter(operation.filter)
        case ListNamespaces():
            for name in ("prefix", "suffix"):
                parts = _parts(name, getattr(operation, name))
                check_namespace(name, [part for part in parts if part is not None])
            _check_page(operation.limit, operation.offset)
            if operation.max_depth is not None:
                whole_number("max_depth", operation.max_depth, 0)
        case _:
            raise ValueError(f"{type(operation).__name__} is no operation on items")
    if isinstance(operation, PutItem):
        _check_put(operation)
    return operation


def _check_put(put: PutItem) -> None:
    if not isinstance(put.value, Mapping):
        raise ValueError(f"value must be a JSON object, not {type(put.value).__name__}")
    if put.ttl_s is not None:
        seconds("ttl_s", put.ttl_s, above=True)
    if put.texts is not None and not isinstance(put.texts, Mapping):
        raise ValueError(f"texts must map fields to texts, not {type(put.texts).__name__}")
    for field, text in (put.texts or {}).items():
        exact_key("a field of texts", field)
        stored_text(f"texts[{field!r}]", text)


def _parts(name: str, value: object) -> Sequence[Any]:
    if isinstance(value, str) or not isinstance(value, tuple | Sequence):
        raise ValueError(f"{name} must be a sequence of texts, not {type(value).__name__}")
    return value


def check_namespace(name: str, value: object) -> None:
    size = 0
    for part in _parts(name, value):
        exact_key(f"a part of {name}", part)
        size += 4 + (len(part) if part.isascii() else len(part.encode()))
    if size > MOST_NAMESPACE_BYTES:
        raise ValueError(f"{name} has more than {MOST_NAMESPACE_BYTES:,} bytes")


def _check_page(limit: int, offset: int) -> None:
    whole_number("limit", limit, 0)
    whole_number("offset", offset, 0)


def _check_query(query: object) -> None:
    if query is not None and (not isinstance(query, str) or is_blank(query)):
        raise ValueError("query must be text that is not blank, or None")


# ── Filters ──────────────────────────────────────────────────────────────────────────


def _check_filter(filter: object) -> None:
    if filter is None:
        return
    if not isinstance(filter, Mapping):
        raise ValueError(f"filter must map keys to conditions, not {type(filter).__name__}")
    for wanted in filter.values():
        _check_condition(wanted)


def _check_condition(wanted: object) -> None:
    if isinstance(wanted, Mapping):
        if not _has_operators(wanted):
            _check_filter(wanted)
        elif unknown := [name for name in wanted if name not in OPERATORS]:
            known = ", ".join(OPERATORS)
            raise ValueError(f"the filter has the unknown operator {unknown[0]!r}; known: {known}")
    elif isinstance(wanted, list | tuple):
        for one in wanted:
            _check_condition(one)


def _has_operators(wanted: Mapping[Any, Any]) -> bool:
    return any(isinstance(name, str) and name.startswith("$") for name in wanted)


def filter_matches(value: Mapping[str, Any], filter: Mapping[str, Any] | None) -> bool:
    """
    Whether *value* is as a checked *filter* wants it.

    A condition is a value to be equal to, an object whose keys must match, a list whose
    members must match one by one, or operators: ``$eq $ne $gt $gte $lt $lte``. The last four
    compare numbers, and texts that are numbers; what cannot be compared does not match. An
    absent key is as ``None``.
    """
    return all(_holds(value.get(key), wanted) for key, wanted in (filter or {}).items())


def _holds(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        if _has_operators(wanted):
            return all(_compares(found, name, operand) for name, operand in wanted.items())
        return isinstance(found, Mapping) and filter_matches(found, wanted)
    if isinstance(wanted, list | tuple):
        return (
            isinstance(found, list | tuple)
            and len(found) == len(wanted)
            and all(map(_holds, found, wanted))
        )
    return bool(found == wanted)


def _compares(found: Any, operator: str, operand: Any) -> bool:
    compare = OPERATORS[operator]
    if compare in (eq, ne):
        return bool(compare(found, operand))
    try:
        return bool(compare(float(found), float(operand)))
    except (TypeError, ValueError, OverflowError):
        return False


def namespace_matches(
    namespace: Namespace, prefix: Sequence[str | None], suffix: Sequence[str | None]
) -> bool:
    """Whether *namespace* begins and ends as asked; ``None`` stands for any one part."""
    if len(namespace) < max(len(prefix), len(suffix)):
        return False
    ends = zip(reversed(namespace), reversed(suffix), strict=False)
    pairs = (*zip(namespace, prefix, strict=False), *ends)
    return all(wanted is None or part == wanted for part, wanted in pairs)


def expiry(at: datetime, ttl_s: float | None) -> datetime | None:
    """When what is put or refreshed *at* expires; ``None``: never, or past the year 9999."""
    if ttl_s is None:
        return None
    try:
        return at + timedelta(seconds=ttl_s)
    except OverflowError:
        return None


# ── Rows ─────────────────────────────────────────────────────────────────────────────

ItemVectorRows: TypeAlias = tuple[list[int], NDArray[np.float32]]
"""Numbers of vectors, ascending, and the vectors as rows."""
