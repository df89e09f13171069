"""What a tool for an agent is: its name, its schema, and how its calls are answered."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mnemo.errors import Conflict, NotFound
from mnemo.values.untrusted import without_marks

log: logging.Logger = logging.getLogger("mnemo")


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
        except (NotFound, Conflict, ValueError) as error:
            code = "not_found" if isinstance(error, NotFound) else "conflict"
            if isinstance(error, ValueError):
                code = error.reason if isinstance(error, Refused) else "invalid_argument"
            return ToolAnswer(f"Error: {without_marks(str(error))}", code)
        except Exception:
            log.exception("the tool %s failed", self.name)
            return ToolAnswer(f"Error: {self.missing}", "unavailable")


def _mapping(arguments: Any) -> Mapping[str, Any]:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return {}
    return arguments if isinstance(arguments, Mapping) else {}


def object_schema(required: int = 1, /, **properties: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema of an object of these properties, of which the first ones are *required*."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [*properties][:required],
        "additionalProperties": False,
    }


def limit_schema(default: int, most: int) -> dict[str, Any]:
    """The JSON Schema of the argument ``limit``."""
    return {
        "type": "integer",
        "minimum": 1,
        "maximum": most,
        "default": default,
        "description": "Results, at most.",
    }


def checked_limit(arguments: Mapping[str, Any], default: int, most: int) -> int:
    """The argument ``limit``, from 1 to *most*. *Raises* ``Refused``."""
    given = arguments.get("limit")
    if given is None:
        return default
    number = given
    if isinstance(given, str) and given.strip().isdecimal() and len(given) < 20:
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
