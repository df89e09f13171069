"""The four note tools as a model is told of them; the same bytes in every process."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from mnemo.errors import ConfigError

__all__ = ["MOST_LISTED", "NAMES", "misfit", "specs", "with_note_tools"]

MOST_LISTED = 50
"""Notes that one call of ``list_notes`` may ask for."""

_TOPIC = {
    "type": "string",
    "description": "Name of the note: lower-case ASCII words joined by single hyphens, 2-64 "
    "characters, starting with a letter.",
}
_EVIDENCE = {
    "type": "string",
    "description": "8 to 300 characters copied word for word from the new part of the "
    "conversation, best from what the user said.",
}


def _tool(name: str, description: str, required: list[str], /, **properties: Any) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return {"name": name, "description": description, "parameters": parameters}


_SPECS = (
    _tool(
        "list_notes",
        "List long-term notes, latest use first, or best for a query first.",
        [],
        query={"type": "string", "description": "Words to rank by."},
        offset={"type": "integer", "minimum": 0, "description": "Notes to skip; default 0."},
        limit={
            "type": "integer",
            "minimum": 1,
            "maximum": MOST_LISTED,
            "description": "Notes to list; default 20.",
        },
    ),
    _tool("read_note", "Read one note whole.", ["topic"], topic=_TOPIC),
    _tool(
        "write_note",
        "Create a note, or replace one that you have read by a whole new text. One topic is one "
        "note. Set absorbs to merge other notes, which you have read, into it.",
        ["topic", "description", "body", "evidence"],
        topic=_TOPIC,
        description={
            "type": "string",
            "description": "One line of 1 to 200 characters that says what the note holds.",
        },
        body={
            "type": "string",
            "description": "The whole text: short factual Markdown of 1 to 4000 characters, "
            "without frontmatter.",
        },
        evidence=_EVIDENCE,
        absorbs={
            "type": "array",
            "items": {"type": "string"},
            "description": "Topics of notes that this one takes in; they are retired with it.",
        },
    ),
    _tool(
        "delete_note",
        "Retire a note that is wrong or no longer true. You must have read it.",
        ["topic", "reason", "evidence"],
        topic=_TOPIC,
        reason={"type": "string", "description": "Why, in one line."},
        evidence=_EVIDENCE,
    ),
)
_PARAMETERS: dict[str, dict[str, Any]] = {spec["name"]: spec["parameters"] for spec in _SPECS}
NAMES = frozenset(_PARAMETERS)
"""What they are called."""
_TYPES: dict[str, type] = {"string": str, "integer": int, "array": list}


def specs() -> list[dict[str, Any]]:
    """The tools, for ``ChatRequest.tools``; fresh copies."""
    return deepcopy([*_SPECS])


def with_note_tools(tools: tuple[Mapping[str, Any], ...]) -> tuple[Mapping[str, Any], ...]:
    """
    *tools* as they are, with the note tools that they lack behind them.

    Raises:
        ConfigError: One of them has a note tool's name and another schema, or is no tool.
    """
    present = set()
    for tool in tools:
        name, schema = _named(tool)
        if name in NAMES and schema != _PARAMETERS[name]:
            raise ConfigError(f"the tool {name!r} is not the note tool of that name: rename it")
        present.add(name)
    return (*tools, *(spec for spec in specs() if spec["name"] not in present))


def _named(tool: Mapping[str, Any]) -> tuple[str, Any]:
    if not isinstance(tool, Mapping):
        raise ConfigError(f"a tool must be an object, not {type(tool).__name__}")
    inner = tool.get("function", tool)
    name = inner.get("name") if isinstance(inner, Mapping) else None
    if not isinstance(name, str):
        raise ConfigError("a tool needs a name")
    return name, inner.get("parameters") or inner.get("input_schema")


def misfit(name: str, arguments: Mapping[str, Any] | None) -> str | None:
    """What is wrong with the arguments of a note tool's call; ``None``: nothing is."""
    schema: dict[str, Any] = _PARAMETERS[name]
    if arguments is None:
        return "the arguments must be a JSON object"
    known: dict[str, dict[str, Any]] = schema["properties"]
    if unknown := sorted(set(arguments) - set(known)):
        return f"there is no {', '.join(unknown)}; {name} takes {', '.join(known)}"
    # What a change rests on has a code of its own where it is missing.
    needed = {*schema["required"]} - {"evidence"}
    if missing := sorted(needed - set(arguments)):
        return f"{', '.join(missing)} is missing"
    faults = (_fault(key, arguments[key], known[key]) for key in arguments)
    return next(filter(None, faults), None)


def _fault(key: str, value: Any, schema: Mapping[str, Any]) -> str | None:
    kind = schema["type"]
    fits = isinstance(value, _TYPES[kind])
    if not fits or isinstance(value, bool):
        return f"{key} must be of type {kind}"
    if kind == "array" and not all(isinstance(item, str) for item in value):
        return f"{key} must be a list of strings"
    if kind == "integer":
        least, most = schema["minimum"], schema.get("maximum")
        if value < least or (most is not None and value > most):
            return f"{key} must be from {least}" + (f" to {most}" if most else "")
    return None
