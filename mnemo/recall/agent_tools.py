"""Tools that an agent calls, and of them search and drill-down."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from mnemo.errors import Conflict, NotFound
from mnemo.recall.keyword import SearchHit
from mnemo.recall.view import MessageView
from mnemo.runtime.text import is_blank, one_line
from mnemo.values.untrusted import without_marks

log = logging.getLogger("mnemo")

MOST_HITS = 20
"""Largest ``limit`` that a model may ask for."""
DEFAULT_HITS = 5
LONGEST_QUERY = 1_000
"""Characters of a query."""
SHOWN_QUERY = 200
"""Characters of a query in its answer."""
SHOWN_ID = 200
"""Characters of an id in its answer."""


class Refused(ValueError):
    """
    A model's call cannot be carried out; the message is for the model.

    Attributes:
        reason: The code, for programs.
    """

    def __init__(self, message: str, *, reason: str = "invalid_argument") -> None:
        self.reason = reason
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """
    What a tool says to a model.

    Attributes:
        text: Without marks of chat templates; of an error, ``Error: …``.
        reason: ``None``: carried out. Otherwise why not, e.g. ``"invalid_argument"``,
            ``"not_found"``, ``"conflict"``, ``"unavailable"``.
    """

    text: str
    reason: str | None = None


class MessageSearch(Protocol):
    """Finds what was said."""

    async def __call__(
        self, query: str, *, session_id: str | None, limit: int
    ) -> list[SearchHit]: ...


class MessageOpener(Protocol):
    """Opens what lies around a hit."""

    async def __call__(self, message_id: str, *, session_id: str | None) -> MessageView: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTool:
    """
    A tool for an agent.

    Attributes:
        parameters: JSON Schema of its arguments.
        run: Answers arguments; may raise for what the model sent.
        missing: What it says where the store fails.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    run: Callable[[Mapping[str, Any]], Awaitable[str]] = field(repr=False)
    missing: str

    def __repr__(self) -> str:
        return f"<AgentTool {self.name}>"

    @property
    def spec(self) -> dict[str, Any]:
        """The tool in the form of ``ChatRequest.tools``, which agent frameworks register, too."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
        }
        return {"type": "function", "function": function}

    async def call(self, arguments: Any) -> str:
        """
        Answer a call; what the model sent wrong is answered with ``Error: …``.

        A failure of the store is logged and answered so, too. *Cancellation*: safe.

        Args:
            arguments: A mapping, or its JSON as chat completions give it.
        """
        return (await self.answer(arguments)).text

    async def answer(self, arguments: Any) -> ToolAnswer:
        """``call``, with a code for programs where it was not carried out."""
        try:
            return ToolAnswer(await self.run(_mapping(arguments)))
        except Refused as error:
            return _refusal(error, error.reason)
        except NotFound as error:
            return _refusal(error, "not_found")
        except Conflict as error:
            return _refusal(error, "conflict")
        except ValueError as error:
            return _refusal(error, "invalid_argument")
        except Exception:
            log.exception("the tool %s failed", self.name)
            return ToolAnswer(f"Error: {self.missing}", "unavailable")


def _refusal(error: Exception, reason: str) -> ToolAnswer:
    return ToolAnswer(f"Error: {without_marks(str(error))}", reason)


def _mapping(arguments: Any) -> Mapping[str, Any]:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return {}
    return arguments if isinstance(arguments, Mapping) else {}


def search_tool(search: MessageSearch) -> AgentTool:
    """``search_messages``, which asks *search*."""

    async def run(arguments: Mapping[str, Any]) -> str:
        query = _query(arguments.get("query"))
        limit = checked_limit(arguments, DEFAULT_HITS, MOST_HITS)
        hits = await search(query, session_id=optional_text(arguments, "session_id"), limit=limit)
        return _found(query, hits)

    return AgentTool(
        name="search_messages",
        description=(
            "Search everything ever said or observed, except what is visible to you now, by "
            "words that must all occur. "
            'A "quoted phrase" is found as it stands; OR and NOT in upper case join words. '
            "Each result has an id that view_messages opens."
        ),
        parameters=object_schema(
            query={
                "type": "string",
                "minLength": 1,
                "maxLength": LONGEST_QUERY,
                "description": "Words that must all occur.",
            },
            session_id={
                "type": "string",
                "description": "Search this session or conversation only.",
            },
            limit={
                "type": "integer",
                "minimum": 1,
                "maximum": MOST_HITS,
                "default": DEFAULT_HITS,
                "description": "Results, at most.",
            },
        ),
        run=run,
        missing="search is unavailable",
    )


def view_tool(view: MessageOpener) -> AgentTool:
    """``view_messages``, which asks *view*."""

    async def run(arguments: Mapping[str, Any]) -> str:
        id = optional_text(arguments, "message_id")
        if id is None:
            raise Refused("message_id is required")
        try:
            return (await view(id, session_id=optional_text(arguments, "session_id"))).as_text()
        except NotFound:
            message = f"Message {one_line(id)[:SHOWN_ID]} not found"
            raise Refused(message, reason="not_found") from None

    return AgentTool(
        name="view_messages",
        description=(
            "Open the conversation around a message, by an id which a search returned: the "
            "messages before and after it, and what lies further away in short."
        ),
        parameters=object_schema(
            message_id={"type": "string", "description": "The id of a search result."},
            session_id={
                "type": "string",
                "description": "The session or conversation named with that result.",
            },
        ),
        run=run,
        missing="viewing messages is unavailable",
    )


def object_schema(required: int = 1, /, **properties: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema of an object of these properties, of which the first ones are *required*."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [*properties][:required],
        "additionalProperties": False,
    }


def _query(given: object) -> str:
    if given is None or (isinstance(given, str) and is_blank(given)):
        raise Refused("Query cannot be blank")
    if not isinstance(given, str) or len(given) > LONGEST_QUERY:
        raise Refused(f"query must be a text of at most {LONGEST_QUERY:,} characters")
    return given


def checked_limit(arguments: Mapping[str, Any], default: int, most: int) -> int:
    """The argument ``limit``, from 1 to *most*. *Raises* ``Refused``."""
    given = arguments.get("limit")
    if given is None:
        return default
    number = given
    if isinstance(given, str) and given.strip().isdecimal() and len(given) < SHOWN_ID:
        number = int(given)
    if isinstance(given, float) and given.is_integer():
        number = int(given)
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= most:
        raise Refused(f"limit must be an integer from 1 to {most}")
    return number


def optional_text(arguments: Mapping[str, Any], name: str) -> str | None:
    """The text called *name*; ``None``: absent or empty. *Raises* ``Refused``: it is no text."""
    given = arguments.get(name)
    if given is None or given == "":
        return None
    if not isinstance(given, str):
        raise Refused(f"{name} must be a text")
    return given


def _found(query: str, hits: list[SearchHit]) -> str:
    asked = without_marks(one_line(query)[:SHOWN_QUERY])
    if not hits:
        return f'No results found for "{asked}".'
    count = "1 result" if len(hits) == 1 else f"{len(hits)} results"
    return "\n\n".join([f'Found {count} for "{asked}":', *map(_told, hits)])


def _told(hit: SearchHit) -> str:
    stream, day = one_line(hit.session_id), hit.at.date().isoformat()
    head = f'[message {one_line(hit.message_id)}, session "{stream}", {hit.kind}, {day}]'
    return without_marks(f"{head}\n  {hit.snippet}")
