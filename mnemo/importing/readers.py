"""Choose the reader of a file: an export of chats, of memories, or Markdown; read its records."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import yaml

from mnemo import Message, UsageError
from mnemo.importing import chats
from mnemo.importing.dialogues import stream_talks
from mnemo.importing.json_stream import ImportFileError, OnRead, Value, stream_values
from mnemo.importing.records import (
    Broken,
    Item,
    KeyedRecord,
    LeftOut,
    MemoryRecord,
    Record,
    Skipped,
    list_of,
    mapping_of,
    named,
    optional_text,
    read_at,
    time_of,
)
from mnemo.runtime.text import is_blank

_FRONT = re.compile(r"\A---[ \t]*\n(.*?)\n---[ \t]*(?:\n|\Z)", re.DOTALL)
_HEADING = re.compile(r"^#{1,2} +(.+?)[ #]*$")
_FENCE = re.compile(r"^(```|~~~)")
_DATES = ("date", "created", "created_at", "updated")


def is_markdown(file: Path) -> bool:
    """Whether *file* is named like Markdown, or is a folder that holds such files."""
    return file.suffix.casefold() in (".md", ".markdown") or any(file.rglob("*.md"))


def markdown(file: Path) -> Iterator[Item]:
    """
    Read *file*, or every Markdown file below it, in order of their names.

    A section begins at each heading of the first two levels. Its id is its file and heading,
    its time the ``date`` of the file's front matter.
    """
    if not file.is_dir():
        yield from _one(file, file.name)
        return
    for path in sorted(file.rglob("*.md")):
        yield from _one(path, path.relative_to(file).as_posix())


def size_of(file: Path) -> int:
    """Bytes of *file*, or of every Markdown file below it."""
    return sum(one.stat().st_size for one in (file.rglob("*.md") if file.is_dir() else [file]))


def _one(path: Path, name: str) -> Iterator[Item]:
    try:
        front, body = _parted(path.read_text(encoding="utf-8-sig"))
        at = next((_date(front[one]) for one in _DATES if front.get(one)), None)
    except FileNotFoundError:
        raise ImportFileError("there is no such file", file=path) from None
    except (OSError, UnicodeDecodeError) as error:
        yield Broken(name, f"cannot be read: {error}")
        return
    except ValueError as error:
        yield Broken(name, str(error))
        return
    seen: dict[str, int] = {}
    for heading, section in _sections(body):
        count = seen[heading] = seen.get(heading, 0) + 1
        id = f"{name}#{heading}" + (f"-{count}" if count > 1 else "")
        if is_blank(section.removeprefix(f"# {heading}")):
            yield Skipped(id, "empty")
            continue
        metadata = {"file": name, "title": heading}
        yield Record(
            f"markdown/{name}", Message("user", section, id=id, at=at, metadata=metadata), id
        )


def _date(value: Any) -> datetime | None:
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    return time_of(value.isoformat() if hasattr(value, "isoformat") else value)


def _parted(text: str) -> tuple[dict[str, Any], str]:
    """Front matter and body. *Raises* ``ValueError``: the front matter is no YAML."""
    found = _FRONT.match(text)
    if not found:
        return {}, text
    try:
        front = yaml.safe_load(found.group(1))
    except yaml.YAMLError as error:
        raise ValueError(f"has a front matter that is no YAML: {error}") from error
    return front if isinstance(front, dict) else {}, text[found.end() :]


def _sections(body: str) -> Iterator[tuple[str, str]]:
    """Heading and text of each section, its heading included; a heading in code is none."""
    sections, in_code = [("", list[str]())], False
    for line in body.splitlines():
        in_code ^= bool(_FENCE.match(line))
        if not in_code and (found := _HEADING.match(line)):
            sections.append((found.group(1), []))
        sections[-1][1].append(line)
    for heading, lines in sections:
        if heading or not is_blank("".join(lines)):
            yield heading, "\n".join(lines).strip()


_TEXTS = ("memory", "content", "text", "data", "new_memory")
_OWNERS = ("user_id", "agent_id", "run_id", "app_id")


def mem0(memory: Mapping[str, Any], place: str) -> Iterator[Item]:
    """Read one memory, with its owner as the subject; a deleted one is skipped."""
    if _is_deleted(memory):
        raise LeftOut("deleted")
    text = optional_text(memory, *_TEXTS)
    if text is None:
        raise ValueError('has no text in "memory"')
    owners = {name: memory[name] for name in _OWNERS if optional_text(memory, name)}
    given = mapping_of(memory.get("metadata") or {}, "has metadata that are")
    names = ("categories", "created_at", "updated_at")
    beside = {name: memory[name] for name in names if memory.get(name)}
    text = _about(owners.get("user_id") or owners.get("agent_id"), text)
    at = time_of(beside.get("updated_at", beside.get("created_at")))
    metadata = {**given, **owners, **beside, "mem0_id": named(memory, "id", "memory_id")}
    yield MemoryRecord(text, at, metadata, place, "mem0_id")


def _about(subject: str | None, text: str) -> str:
    """The text with its subject in front, unless it names that: two users may like tea."""
    if subject is None or re.search(rf"(?<!\w){re.escape(subject)}(?!\w)", text, re.IGNORECASE):
        return text
    return f"{subject}: {text}"


def _is_deleted(memory: Mapping[str, Any]) -> bool:
    flags = (memory.get(name) for name in ("is_deleted", "deleted", "deleted_at"))
    states = (str(memory.get(name, "")).casefold() for name in ("event", "state", "status"))
    return any(flags) or any(state in ("delete", "deleted") for state in states)


def zep(thread: Mapping[str, Any], place: str, stem: str) -> Iterator[Item]:
    """Read one thread; *stem* of the file names one without an id."""
    name = optional_text(thread, "thread_id", "thread_uuid", "session_id", "uuid") or stem
    for number, one in enumerate(list_of(thread, "messages"), 1):
        yield from read_at(f"{place}, message {number}", _zep_message, one, f"zep/{name}")


def _zep_message(raw: Mapping[str, Any], place: str, thread: str) -> Iterator[Record]:
    text = optional_text(raw, "content")
    if text is None:
        raise LeftOut("empty")
    role = _ZEP_ROLES.get(str(raw.get("role_type") or raw.get("role")), "user")
    at = time_of(raw.get("reference_time") or raw.get("created_at"))
    who = optional_text(raw, "name") if role == "user" else None
    yield Record(thread, Message(role, text, id=named(raw, "uuid"), at=at, actor=who), place)


_ZEP_ROLES: dict[str, Any] = {"assistant": "assistant", "system": "system"}


def zep_fact(edge: Mapping[str, Any], place: str) -> Iterator[Item]:
    """Read one edge of a graph of Zep or Graphiti; one that has ended is skipped."""
    if edge.get("invalid_at") or edge.get("expired_at"):
        raise LeftOut("no longer true")
    text = optional_text(edge, "fact")
    if text is None:
        raise ValueError('has no text in "fact"')
    times = {name: edge[name] for name in ("valid_at", "created_at") if edge.get(name)}
    at = time_of(times.get("valid_at", times.get("created_at")))
    metadata = {"relation": edge.get("name"), **times, "zep_id": named(edge, "uuid")}
    yield MemoryRecord(text, at, metadata, place, "zep_id")


def letta(given: Mapping[str, Any], place: str, stem: str) -> Iterator[Item]:
    """Read a block or a passage of an agent, or of a message what user and assistant said."""
    kind = given.get("message_type")
    if kind is None:
        text = optional_text(given, "text", "value")
        if text is None:
            raise LeftOut("empty")
        label = optional_text(given, "label")
        at = time_of(given.get("created_at"))
        metadata = {"letta_id": named(given, "id"), **({"label": label} if label else {})}
        yield MemoryRecord(f"{label}: {text}" if label else text, at, metadata, place, "letta_id")
        return
    role = {"user_message": "user", "assistant_message": "assistant"}.get(str(kind))
    text = _letta_text(given.get("content"))
    if role is None or text is None:
        raise LeftOut(str(kind) if role is None else "empty")
    thread = f"letta/{optional_text(given, 'conversation_id', 'agent_id') or stem}"
    said: Any = role
    at = time_of(given.get("date") or given.get("created_at"))
    yield Record(thread, Message(said, text, id=named(given, "id"), at=at), place)


def _letta_text(content: Any) -> str | None:
    """What is said; a user's words are wrapped in JSON by older servers."""
    if isinstance(content, list):
        parts = (one.get("text") for one in content if isinstance(one, Mapping))
        content = "\n".join(one for one in parts if isinstance(one, str))
    if not isinstance(content, str) or is_blank(content):
        return None
    try:
        wrapped = json.loads(content)
    except ValueError:
        return content
    if not isinstance(wrapped, Mapping) or "type" not in wrapped:
        return content
    return optional_text(wrapped, "message") if wrapped["type"] == "user_message" else None


def chroma(found: Mapping[str, Any], place: str) -> Iterator[Item]:
    """Read what ``collection.get()`` gives; its metadata stay, its vectors are made anew."""
    ids, texts, metadata = (list_of(found, name) for name in ("ids", "documents", "metadatas"))
    for number, (id, text, beside) in enumerate(zip_longest(ids, texts, metadata[: len(ids)]), 1):
        spot = f"{place}, document {number}"
        if not isinstance(id, str) or not (text is None or isinstance(text, str)):
            yield Broken(spot, 'has no id or text: give what get() returns, with "documents"')
            continue
        if text is None or is_blank(text):
            yield Skipped(spot, "empty")
            continue
        kept = beside if isinstance(beside, Mapping) else {}
        yield MemoryRecord(text, None, {**kept, "chroma_id": id}, spot, "chroma_id")


def store_item(item: Mapping[str, Any], place: str) -> Iterator[Item]:
    """Read one item; without a text in its value it is found by the value's JSON."""
    value = mapping_of(item.get("value"), 'has a "value" that is')
    names = item.get("namespace", item.get("prefix"))
    names = names.split(".") if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError('has a "namespace" that is no list of texts')
    texts = {name: value[name] for name in _TEXTS if optional_text(value, name)}
    written = texts or {"$": json.dumps(value, ensure_ascii=False, sort_keys=True)}
    yield KeyedRecord(tuple(names), named(item, "key"), value, written, place)


def _openai(raw: Mapping[str, Any], place: str, stem: str) -> Iterator[Item]:
    """Read ``{"messages": […]}``; *stem* of the file names a conversation without an id."""
    if not _is_openai(raw):
        raise ValueError('has no list of "messages"')
    given = (raw.get(name) for name in ("id", "custom_id", "thread_id"))
    name = next((str(one) for one in given if one), f"{stem}#{place.split()[-1]}")
    for number, message in enumerate(chats.messages_of({**_request(raw), "id": name}, name), 1):
        yield Record(f"openai/{name}", message, f"{place}, message {number}")


def _request(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """*raw*, or the request that a line of a batch file holds."""
    body = raw.get("body")
    return body if isinstance(body, Mapping) else raw


def _is_openai(raw: Mapping[str, Any]) -> bool:
    return isinstance(_request(raw).get("messages"), list)


def _is_zep(raw: Mapping[str, Any]) -> bool:
    messages = raw.get("messages")
    return isinstance(messages, list) and any(
        isinstance(one, Mapping) and "uuid" in one for one in messages
    )


def _is_letta(raw: Mapping[str, Any]) -> bool:
    is_passage = str(raw.get("id")).startswith("passage-")
    return is_passage or _has("message_type", "label value")(raw)


def _is_mem0(raw: Mapping[str, Any]) -> bool:
    return "role" not in raw and _has("memory", "new_memory", "id content state")(raw)


def _has(*names: str) -> Callable[[Mapping[str, Any]], bool]:
    """Whether an object has one of several sets of *names*, each separated by blanks."""
    return lambda raw: any(raw.keys() >= {*several.split()} for several in names)


_LOOKED_AT = 20
"""Values of a file by which its format is recognised."""


@dataclass(frozen=True, slots=True)
class _Reader:
    """One format, for objects that it *matches*; *unit* is what one value is, for places."""

    unit: str
    matches: Callable[[Mapping[str, Any]], bool]
    read: Callable[..., Iterator[Item]]


_READERS = {
    "chatgpt": _Reader(
        "conversation", lambda raw: isinstance(raw.get("mapping"), dict), chats.chatgpt
    ),
    "claude": _Reader(
        "conversation", lambda raw: isinstance(raw.get("chat_messages"), list), chats.claude
    ),
    "claude-code": _Reader("line", _has("type sessionId", "type leafUuid"), chats.claude_code),
    "zep": _Reader("thread", _is_zep, zep),
    "zep-facts": _Reader("fact", _has("uuid fact"), zep_fact),
    "letta": _Reader("record", _is_letta, letta),
    "chroma": _Reader(
        "collection", lambda raw: isinstance(raw.get("ids"), list) and "documents" in raw, chroma
    ),
    "openai": _Reader("conversation", _is_openai, _openai),
    "langgraph-store": _Reader("item", _has("namespace key value", "prefix key value"), store_item),
    "mem0": _Reader("memory", _is_mem0, mem0),
}
SOURCES = (*_READERS, "markdown")
"""Services whose exports are read."""


def source_of(file: Path, wanted: str = "auto") -> str | None:
    """
    Recognise which of ``SOURCES`` wrote *file*; ``None``: none of them.

    *Raises* ``UsageError``: it is not *wanted*'s; ``ImportFileError``: nothing can be read.
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
            raw = value.raw if isinstance(value, Value) else None
            for name, reader in _READERS.items():
                if isinstance(raw, Mapping) and reader.matches(raw):
                    return name
    except ImportFileError as error:
        if error.line is None:
            raise
    return None


def items_of(
    file: Path,
    source: str | None,
    on_read: OnRead = lambda count: None,
    *,
    thread: str | None = None,
) -> Iterator[Item]:
    """
    Read *file*, in memory bounded by its largest conversation.

    Args:
        source: Whose export it is; ``None``: dialogues, or messages of a *thread*.
        on_read: As of ``stream_values``; of Markdown it is called at the end.

    Raises:
        ImportFileError: As of ``stream_values``; of dialogues and messages at each mistake.
    """
    if thread is not None:
        for message in chats.stream_messages(file, on_read):
            yield Record(thread, message, f"message {message.id}")
    elif source is None:
        yield from stream_talks(file, on_read)
    elif source == "markdown":
        yield from markdown(file)
        on_read(size_of(file))
    else:
        yield from _export(file, source, on_read)


def _export(file: Path, source: str, on_read: OnRead) -> Iterator[Item]:
    reader = _READERS[source]
    stem = [file.stem] if source in ("letta", "openai", "zep") else []
    for value in stream_values(file, on_read=on_read):
        if isinstance(value, ImportFileError):
            yield Broken(f"line {value.line}", f"column {value.column}: {value.what}")
            continue
        unit = reader.unit if value.in_list else "line"
        yield from read_at(f"{unit} {value.number}", reader.read, value.raw, *stem)
