"""Choose the reader of a file, and read its records one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from mnemo import UsageError
from mnemo.cli.importing.chatgpt import chatgpt, is_chatgpt
from mnemo.cli.importing.chats import messages_of
from mnemo.cli.importing.claude import claude, claude_code, is_claude, is_claude_code
from mnemo.cli.importing.json_stream import BadLine, ImportFileError, OnRead, Value, stream_values
from mnemo.cli.importing.markdown import is_markdown, markdown, size_of
from mnemo.cli.importing.memories import is_mem0, is_store_item, mem0, store_item
from mnemo.cli.importing.records import Broken, Item, Record

_LOOKED_AT = 20
"""Values of a file by which its format is recognised."""


@dataclass(frozen=True, slots=True)
class _Reader:
    """
    One format.

    Attributes:
        unit: What one value is, for places.
    """

    unit: str
    matches: Callable[[Any], bool]
    read: Callable[[Any, str], Iterator[Item]]


def _is_openai(raw: Any) -> bool:
    return isinstance(raw, dict) and isinstance(_request(raw).get("messages"), list)


def _request(raw: dict[str, Any]) -> dict[str, Any]:
    """*raw*, or the request that a line of a batch file holds."""
    body = raw.get("body")
    return body if isinstance(body, dict) else raw


def _openai(raw: Any, place: str, stem: str = "") -> Iterator[Item]:
    """
    Read ``{"messages": […]}``.

    Args:
        stem: The file's name, of which a conversation without an id has its thread's name.
    """
    if not _is_openai(raw):
        raise ValueError('has no list of "messages"')
    given = (raw.get(name) for name in ("id", "custom_id", "thread_id"))
    name = next((str(one) for one in given if one), f"{stem}#{place.split()[-1]}")
    for number, message in enumerate(messages_of(_request(raw) | {"id": name}, name), 1):
        yield Record(f"openai/{name}", message, f"{place}, message {number}")


_READERS = {
    "chatgpt": _Reader("conversation", is_chatgpt, chatgpt),
    "claude": _Reader("conversation", is_claude, claude),
    "claude-code": _Reader("line", is_claude_code, claude_code),
    "openai": _Reader("conversation", _is_openai, _openai),
    "langgraph-store": _Reader("item", is_store_item, store_item),
    "mem0": _Reader("memory", is_mem0, mem0),
}
SOURCES = (*_READERS, "markdown")
"""Services whose exports are read."""


def source_of(file: Path, wanted: str = "auto") -> str | None:
    """
    Recognise which of ``SOURCES`` wrote *file*; ``None``: none of them.

    Raises:
        UsageError: *wanted* is no source, or the file is of another one.
        ImportFileError: Nothing can be read of it.
    """
    if wanted not in ("auto", *SOURCES):
        known = ", ".join(("auto", "archive", *SOURCES))
        raise UsageError(f"--from takes {known}, not {wanted!r}")
    found = "markdown" if is_markdown(file) else _recognised(file)
    if wanted not in ("auto", found):
        seems = f"; it looks like one of {found}" if found else ""
        raise UsageError(f"{file}: this is no export of {wanted}{seems}")
    return found


def _recognised(file: Path) -> str | None:
    try:
        for value in islice(stream_values(file), _LOOKED_AT):
            for name, reader in _READERS.items():
                if isinstance(value, Value) and reader.matches(value.raw):
                    return name
    except ImportFileError as error:
        if error.line is None:
            raise
    return None


def items_of(file: Path, source: str, on_read: OnRead = lambda count: None) -> Iterator[Item]:
    """
    Read *file* as an export of *source*, in memory bounded by its largest conversation.

    *on_read*: as of ``stream_values``; of Markdown it is called at the end.

    Raises:
        ImportFileError: The file is broken at a place behind which nothing can be read.
    """
    if source == "markdown":
        yield from markdown(file)
        on_read(size_of(file))
        return
    reader = _READERS[source]
    read = partial(_openai, stem=file.stem) if source == "openai" else reader.read
    for value in stream_values(file, on_read=on_read):
        if isinstance(value, BadLine):
            column = f"column {value.column}: " if value.column else ""
            yield Broken(f"line {value.number}", column + value.what)
            continue
        unit = reader.unit if value.in_list else "line"
        place = f"{unit} {value.number}"
        try:
            yield from read(value.raw, place)
        except ValueError as error:
            yield Broken(place, str(error))
