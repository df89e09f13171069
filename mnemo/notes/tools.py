"""The four note tools, and the toolbox of one user; nothing is replaced that it has not shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mnemo.config import NotesConfig
from mnemo.errors import ConfigError, InvalidNote, NotFound
from mnemo.notes.material import MOST_EVIDENCE, Material, quoted
from mnemo.notes.shelf import Shelf
from mnemo.notes.writing import Changed, NoteSource, Write, checked_text, redact
from mnemo.prompts.tool_loop import uses_of
from mnemo.protocols import ChatReply
from mnemo.runtime.text import is_blank, one_line
from mnemo.values.messages import ToolCall
from mnemo.values.notes import NoteRow, checked_topic, plain_text

# ── The schemas ─────────────────────────────────────────────────────────────────────────

MOST_LISTED = 50
"""Notes that one call of ``list_notes`` may ask for."""


def _string(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


_TOPIC = (
    "Name of the note: lower-case ASCII words joined by single hyphens, 2-64 characters, starting "
    "with a letter."
)
_EVIDENCE = (
    "8 to 300 characters copied word for word from the new part of the conversation, best from "
    "what the user said."
)


def _tool(name: str, description: str, required: list[str], /, **properties: Any) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return {"name": name, "description": description, "parameters": parameters}


def specs(config: NotesConfig) -> list[dict[str, Any]]:
    """The tools as *config* bounds them, for ``ChatRequest.tools``; fresh copies."""
    longest, lines = config.body_max_chars, config.description_max_chars
    return [
        _tool(
            "list_notes",
            "List long-term notes, latest use first, or best for a query first.",
            [],
            query=_string("Words to rank by."),
            offset={"type": "integer", "minimum": 0, "description": "Notes to skip; default 0."},
            limit={
                "type": "integer",
                "minimum": 1,
                "maximum": MOST_LISTED,
                "description": f"Notes to list; default {config.list_page}.",
            },
        ),
        _tool("read_note", "Read one note whole.", ["topic"], topic=_string(_TOPIC)),
        _tool(
            "write_note",
            "Create a note, or replace one that you have read by a whole new text. One topic is "
            "one note. Set absorbs to merge other notes, which you have read, into it.",
            ["topic", "description", "body", "evidence"],
            topic=_string(_TOPIC),
            description=_string(
                f"One line of 1 to {lines} characters that says what the note holds."
            ),
            body=_string(
                f"The whole text: short factual Markdown of 1 to {longest} characters, without "
                "frontmatter."
            ),
            evidence=_string(_EVIDENCE),
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
            topic=_string(_TOPIC),
            reason=_string("Why, in one line."),
            evidence=_string(_EVIDENCE),
        ),
    ]


_PARAMETERS: dict[str, dict[str, Any]] = {
    spec["name"]: spec["parameters"] for spec in specs(NotesConfig())
}
NAMES = frozenset(_PARAMETERS)
"""What they are called."""
_TYPES: dict[str, type] = {"string": str, "integer": int, "array": list}


def with_note_tools(
    tools: tuple[Mapping[str, Any], ...], config: NotesConfig
) -> tuple[Mapping[str, Any], ...]:
    """Append the missing note tools. *Raises* ``ConfigError``: one of that name differs."""
    own = {spec["name"]: spec for spec in specs(config)}
    present = set()
    for tool in tools:
        name, schema = _named(tool)
        if name in own and schema != own[name]["parameters"]:
            raise ConfigError(f"the tool {name!r} is not the note tool of that name: rename it")
        present.add(name)
    return (*tools, *(spec for name, spec in own.items() if name not in present))


def _named(tool: Mapping[str, Any]) -> tuple[str, Any]:
    if not isinstance(tool, Mapping):
        raise ConfigError(f"a tool must be an object, not {type(tool).__name__}")
    inner = tool.get("function", tool)
    name = inner.get("name") if isinstance(inner, Mapping) else None
    if not isinstance(name, str):
        raise ConfigError("a tool needs a name")
    return name, inner.get("parameters") or inner.get("input_schema")


def _misfit(name: str, arguments: Mapping[str, Any] | None) -> str | None:
    """Validate the arguments of a note tool's call; ``None``: they are valid."""
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


# ── The toolbox ─────────────────────────────────────────────────────────────────────────

BAD_ARGUMENTS = "bad_arguments"
"""Code of a call that does not fit its tool's schema."""

Answer = dict[str, Any]


class NoteToolbox:
    """
    The note tools, for an update or for the host's own agent.

    Args:
        source: Who writes, without the evidence of the single change.
        material: What evidence is looked for in; ``None``: it is kept unchecked.
        touching: Whether a note that is read here counts as read.
        limited: Whether ``max_writes`` and ``max_deletes`` hold.
    """

    def __init__(
        self,
        shelf: Shelf,
        *,
        source: NoteSource,
        material: Material | None,
        touching: bool,
        limited: bool = True,
    ) -> None:
        self._shelf = shelf
        self._config = shelf.config
        self._source = source
        self._material = material
        self._touching = touching
        self._limited = limited
        self._began = shelf.moment()
        self._shown: dict[str, int] = {}
        self._there: frozenset[str] | None = None  # topics, at the last look at all of them
        self._writes = self._deletes = 0

    def __repr__(self) -> str:
        return f"<NoteToolbox, {len(self.specs)} tools>"

    @property
    def specs(self) -> list[dict[str, Any]]:
        """The tools, for ``ChatRequest.tools``; the same in every process."""
        return specs(self._config)

    async def run(self, call: Mapping[str, Any] | ToolCall) -> dict[str, Any]:
        """
        Carry out one call, ``{"id", "name", "arguments"}``, and give its answer.

        The answer is ``{"ok": True, …}``, or ``{"ok": False, "code": …, "message": …}``.

        Raises:
            StoreError: The store failed; nothing was written. *Cancellation*: completes a
                write that has begun.
        """
        given: Any = call
        if isinstance(call, ToolCall):
            given = {"id": call.id, "name": call.name, "arguments": call.arguments}
        (use,) = uses_of(ChatReply(tool_calls=[given]))
        return await self.carry_out(use.name, use.arguments)

    async def carry_out(self, name: str, arguments: Mapping[str, Any] | None) -> Answer:
        """``run``, of a call whose parts are known."""
        if name not in NAMES:
            known = ", ".join(sorted(NAMES))
            return _refusal("denied", f"only the note tools work here: {known}")
        if fault := _misfit(name, arguments):
            return _refusal(BAD_ARGUMENTS, fault)
        assert arguments is not None
        try:
            return await getattr(self, f"_{name}")(**arguments)  # type: ignore[no-any-return]
        except InvalidNote as refused:
            return _refusal(refused.reason, str(refused))
        except NotFound:
            message = "there is no such note; list_notes shows those that there are"
            return _refusal("not_found", message)
        except Changed as changed:
            return self._met(changed)

    def _met(self, changed: Changed) -> Answer:
        """Answer a conflict with the present note, which counts as read then."""
        row = changed.row
        if row is None:
            self._shown[changed.topic] = 0
            return _refusal("conflict", f"the note {changed.topic!r} is not there any more")
        code, what = self._why_unknown(row)
        self._shown[changed.topic] = row.version
        message = f"the note {changed.topic!r} {what}; this is it: join old and new, and try again"
        return {**_refusal(code, message), **_shown(row)}

    def _why_unknown(self, row: NoteRow) -> tuple[str, str]:
        if row.topic in self._shown:
            return "conflict", "has changed since you read it"
        is_new = self._there is not None and row.topic not in self._there
        if is_new or self._shelf.is_newer(row, self._began):
            return "conflict", "was created by another meanwhile"
        return "not_read", "was not read before"

    # ── The tools ────────────────────────────────────────────────────────────────────

    async def _list_notes(
        self, query: str | None = None, offset: int = 0, limit: int | None = None
    ) -> Answer:
        rows = await self._shelf.ranked(query)
        self._there = frozenset(row.topic for row in rows)
        end = offset + (limit or self._config.list_page)
        shown = [
            {
                "topic": row.topic,
                "description": row.description,
                "updated_at": row.updated_at.isoformat(),
            }
            for row in rows[offset:end]
        ]
        rest = end if end < len(rows) else None
        found = {"total": len(rows), "offset": offset, "notes": shown, "next_offset": rest}
        return {"ok": True, **found}

    async def _read_note(self, topic: str) -> Answer:
        checked_topic(topic)
        try:
            row = await self._shelf.read(topic, touching=self._touching)
        except NotFound:
            self._shown[topic] = 0
            raise
        self._shown[topic] = row.version
        return {"ok": True, **_shown(row)}

    async def _write_note(
        self,
        topic: str,
        description: str,
        body: str,
        evidence: str | None = None,
        absorbs: list[str] | None = None,
    ) -> Answer:
        text = checked_text(self._config, topic, description, body)
        absorbed = [checked_topic(one) for one in dict.fromkeys(absorbs or ()) if one != topic]
        change = Write(
            text=text,
            source=self._sourced(evidence),
            expected=self._shown.get(topic, 0),
            absorbs={one: self._shown.get(one, 0) for one in absorbed},
            known=frozenset(topic for topic, version in self._shown.items() if version),
            revives=self._material is not None and bool(self._material.asked),
        )
        self._check_limits(writes=1, deletes=len(absorbed))
        if self._there is None and topic not in self._shown:
            self._there = frozenset(await self._shelf.store.reading(lambda tx: tx.topics()))
        if unread := [one for one in absorbed if not self._shown.get(one)]:
            raise Changed(unread[0], await self._shelf.read(unread[0], touching=False))
        written = await self._shelf.write(change)
        self._shown[topic] = written.row.version
        if written.changed:
            self._writes += 1
            self._deletes += len(absorbed)
            self._shown |= dict.fromkeys(absorbed, 0)
        version = written.row.version
        return {"ok": True, "topic": topic, "version": version, "changed": written.changed}

    async def _delete_note(self, topic: str, reason: str, evidence: str | None = None) -> Answer:
        checked_topic(topic)
        said = redact(one_line(plain_text(reason)))
        if is_blank(said) or len(said) > self._config.description_max_chars:
            longest = self._config.description_max_chars
            return _refusal(BAD_ARGUMENTS, f"reason must be one line of 1 to {longest} characters")
        source = replace(self._sourced(evidence), reason=said)
        self._check_limits(deletes=1)
        if topic not in self._shown:
            raise Changed(topic, await self._shelf.read(topic, touching=False))
        row = await self._shelf.delete(topic, source, expected=self._shown[topic])
        self._deletes += 1
        self._shown[topic] = 0
        return {"ok": True, "topic": topic, "version": row.version}

    # ── What every change must pass ──────────────────────────────────────────────────

    def _check_limits(self, *, writes: int = 0, deletes: int = 0) -> None:
        config = self._config
        if not self._limited:
            return
        if writes and self._writes + writes > config.max_writes:
            message = f"{config.max_writes} notes may be written, and no more"
            raise InvalidNote("write_limit", message)
        if deletes and self._deletes + deletes > config.max_deletes:
            message = f"{config.max_deletes} notes may be deleted or absorbed, and no more"
            raise InvalidNote("delete_limit", message)

    def _sourced(self, phrase: str | None) -> NoteSource:
        found = replace(self._source, trust="unquoted")
        if is_blank(phrase) and not self._config.require_evidence:
            return found
        quoted(phrase)
        assert phrase is not None
        if self._material is None:
            found = replace(found, evidence=one_line(plain_text(phrase))[:MOST_EVIDENCE])
        else:
            found = self._material.quoting(phrase, found)
        return replace(found, evidence=redact(found.evidence)) if self._config.redact else found


def _refusal(code: str, message: str) -> Answer:
    return {"ok": False, "code": code, "message": message}


def _shown(row: NoteRow) -> Answer:
    return {
        "topic": row.topic,
        "description": row.description,
        "version": row.version,
        "updated_at": row.updated_at.isoformat(),
        "body": row.body,
    }
