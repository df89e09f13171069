"""Read exports of memories: mem0, and items of a LangGraph store."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from mnemo.cli.importing.records import (
    Item,
    KeyedRecord,
    MemoryRecord,
    Skipped,
    mapping_of,
    named,
    optional_text,
    time_of,
)

_TEXTS = ("memory", "content", "text", "data", "new_memory")
_OWNERS = ("user_id", "agent_id", "run_id", "app_id")


def is_mem0(raw: Any) -> bool:
    """Whether *raw* looks like one memory, or an entry of a history."""
    if not isinstance(raw, Mapping) or "role" in raw:
        return False
    return "memory" in raw or "new_memory" in raw or {"id", "content", "state"} <= raw.keys()


def mem0(raw: Any, place: str) -> Iterator[Item]:
    """Read one memory, with its owner as the subject; a deleted one is skipped."""
    memory = mapping_of(raw)
    if _is_deleted(memory):
        yield Skipped(place, "deleted")
        return
    text = optional_text(memory, *_TEXTS)
    if text is None:
        raise ValueError('has no text in "memory"')
    owners = {name: memory[name] for name in _OWNERS if optional_text(memory, name)}
    given = mapping_of(memory.get("metadata") or {}, "has metadata that are")
    categories = {"categories": memory["categories"]} if memory.get("categories") else {}
    times = {name: memory[name] for name in ("created_at", "updated_at") if memory.get(name)}
    yield MemoryRecord(
        _about(owners.get("user_id") or owners.get("agent_id"), text),
        time_of(times.get("updated_at", times.get("created_at"))),
        {**given, **owners, **categories, **times, "mem0_id": named(memory, "id", "memory_id")},
        place,
    )


def _about(subject: str | None, text: str) -> str:
    """The text with its subject in front, unless it names that: two users may like tea."""
    if subject is None or re.search(rf"(?<!\w){re.escape(subject)}(?!\w)", text, re.IGNORECASE):
        return text
    return f"{subject}: {text}"


def _is_deleted(memory: Mapping[str, Any]) -> bool:
    flags = (memory.get(name) for name in ("is_deleted", "deleted", "deleted_at"))
    states = (str(memory.get(name, "")).casefold() for name in ("event", "state", "status"))
    return any(flags) or any(state in ("delete", "deleted") for state in states)


def is_store_item(raw: Any) -> bool:
    """Whether *raw* looks like one item: namespace (or prefix), key and value."""
    has_name = isinstance(raw, Mapping) and ("namespace" in raw or "prefix" in raw)
    return has_name and {"key", "value"} <= raw.keys()


def store_item(raw: Any, place: str) -> Iterator[Item]:
    """Read one item; without a text in its value it is found by the value's JSON."""
    item = mapping_of(raw)
    value = mapping_of(item.get("value"), 'has a "value" that is')
    names = item.get("namespace", item.get("prefix"))
    names = names.split(".") if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError('has a "namespace" that is no list of texts')
    texts = {name: value[name] for name in _TEXTS if optional_text(value, name)}
    written = texts or {"$": json.dumps(value, ensure_ascii=False, sort_keys=True)}
    yield KeyedRecord(tuple(names), named(item, "key"), value, written, place)
