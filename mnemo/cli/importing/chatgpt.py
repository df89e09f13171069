"""Read ChatGPT's ``conversations.json``: a tree of messages per conversation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mnemo import Message, ToolCall
from mnemo.cli.importing.records import (
    Broken,
    Item,
    Record,
    Skipped,
    list_of,
    mapping_of,
    named,
    optional_text,
    time_of,
)
from mnemo.runtime.text import is_blank

_HIDDEN = frozenset({"thoughts", "reasoning_recap", "model_editable_context", "system_error"})
"""Contents that nobody said: the model's reasoning and its own settings."""


def is_chatgpt(raw: Any) -> bool:
    """Whether *raw* looks like one conversation of the export."""
    return isinstance(raw, Mapping) and isinstance(raw.get("mapping"), Mapping)


def chatgpt(raw: Any, place: str) -> Iterator[Item]:
    """
    Read one conversation: the branch that ends at ``current_node``.

    An edited prompt and a regenerated answer are branches of their own; those that were left
    are skipped, and counted.
    """
    conversation = mapping_of(raw)
    nodes = mapping_of(conversation.get("mapping"), 'has a "mapping" that is')
    branch = _branch(nodes, conversation.get("current_node"))
    thread = f"chatgpt/{named(conversation, 'conversation_id', 'id')}"
    walk = _Walk(thread, optional_text(conversation, "title"), _begun(conversation))
    for id in branch:
        yield from walk.node(nodes[id], f"{place}, message {id}")
    left = sum(1 for id, node in nodes.items() if id not in branch and _has_text(node))
    if left:
        yield Skipped(place, f"{left} messages on branches that were left (edits, regenerations)")


def _begun(conversation: Mapping[str, Any]) -> datetime | None:
    return time_of(conversation.get("create_time"))


def _branch(nodes: Mapping[str, Any], leaf: Any) -> dict[str, None]:
    """The ids from the root to *leaf*; without one, to the last node that has no children."""
    if not isinstance(leaf, str) or leaf not in nodes:
        ends = [id for id, node in nodes.items() if not list_of(mapping_of(node), "children")]
        if not ends:
            raise ValueError('has no "current_node", and no last message either')
        leaf = ends[-1]
    found: dict[str, None] = {}
    while isinstance(leaf, str) and leaf in nodes:
        if leaf in found:
            raise ValueError(f"has messages that are each other's parents: {leaf!r:.60}")
        found[leaf] = None
        leaf = mapping_of(nodes[leaf], "has a message that is").get("parent")
    return dict.fromkeys(reversed(found))


@dataclass(slots=True)
class _Walk:
    """A branch as it is read: a message without a time is as old as the one before it."""

    thread: str
    title: str | None
    at: datetime | None
    calls: list[str] = field(default_factory=list)

    def node(self, node: Mapping[str, Any], place: str) -> Iterator[Item]:
        raw = node.get("message")
        if raw is None:
            return
        try:
            found = self._message(mapping_of(raw, "has a message that is"))
        except ValueError as error:
            yield Broken(place, str(error))
            return
        if isinstance(found, str):
            yield Skipped(place, found)
        else:
            yield Record(self.thread, found, place)

    def _message(self, raw: Mapping[str, Any]) -> Message | str:
        """The message, or why it is skipped."""
        author = mapping_of(raw.get("author") or {}, "has an author that is")
        content = mapping_of(raw.get("content") or {}, "has a content that is")
        metadata = mapping_of(raw.get("metadata") or {}, "has metadata that are")
        if str(content.get("content_type")) in _HIDDEN or raw.get("channel") == "commentary":
            return "reasoning"
        if metadata.get("is_visually_hidden_from_conversation"):
            return "hidden"
        text = _text(content)
        if is_blank(text):
            return "empty"
        self.at = time_of(raw.get("create_time")) or self.at
        return self._said(raw, str(author.get("role")), text, author.get("name"), metadata)

    def _said(
        self,
        raw: Mapping[str, Any],
        role: str,
        text: str,
        name: str | None,
        metadata: Mapping[str, Any],
    ) -> Message:
        id, recipient = named(raw, "id"), raw.get("recipient")
        kept = {"title": self.title, "model": metadata.get("model_slug")}
        common: dict[str, Any] = {
            "id": id,
            "at": self.at,
            "metadata": {name: value for name, value in kept.items() if value},
        }
        if role == "assistant" and isinstance(recipient, str) and recipient != "all":
            self.calls.append(id)
            call = ToolCall(id, recipient, {"text": text})
            return Message("assistant", None, tool_calls=[call], **common)
        if role == "tool":
            called = self.calls.pop(0) if self.calls else f"{id}-call"
            return Message("tool", text, tool_call_id=called, name=name or None, **common)
        if role not in ("user", "assistant", "system"):
            raise ValueError(f"has an author of the role {role!r:.40}")
        return Message(role, text, **common)  # type: ignore[arg-type]


def _has_text(node: Any) -> bool:
    raw = node.get("message") if isinstance(node, Mapping) else None
    content = raw.get("content") if isinstance(raw, Mapping) else None
    return isinstance(content, Mapping) and not is_blank(_text(content))


def _text(content: Mapping[str, Any]) -> str:
    """The words of a content of any type; an image or file stands as its name in brackets."""
    parts = content.get("parts")
    if isinstance(parts, list):
        return "\n".join(filter(None, map(_part, parts)))
    if content.get("content_type") == "user_editable_context":
        fields = (content.get("user_profile"), content.get("user_instructions"))
        return "\n".join(one for one in fields if isinstance(one, str))
    return optional_text(content, "text", "result") or ""


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        return ""
    said = optional_text(part, "text")
    if said:
        return said
    kind = str(part.get("content_type", "attachment")).removesuffix("_asset_pointer")
    return f"[{kind} {part.get('asset_pointer') or part.get('name') or ''}".rstrip() + "]"
