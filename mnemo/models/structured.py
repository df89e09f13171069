"""
Structured output: the forms in which servers take a schema, and which were accepted.

Servers differ in what they accept, and say so in different ways: some refuse an unknown
form with a client error, llama.cpp's answers ``json_schema`` with 500. What was learned
is kept per instance, so that later calls take one request.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from mnemo.models.failures import Failure

STRIKES = 2
"""Failures, each with a lesser form that went well, after which a form is given up."""
REFUSALS = frozenset((400, 404, 415, 422, 501))
"""Statuses with which a server says that it does not know a form."""

_TEMPERATURE = re.compile(
    r"(unsupported|not\s+support|deprecated|only\b.{0,20}\bdefault).{0,80}temperature"
    r"|temperature.{0,80}(unsupported|not\s+support|deprecated|only\b.{0,20}\bdefault)",
    re.IGNORECASE | re.DOTALL,
)


class Form(Enum):
    """How a schema is put to a server, most binding first."""

    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"
    TOOL = "tool"
    PLAIN = "plain"

    @property
    def in_prompt(self) -> bool:
        """Whether the schema must be in the prompt, too."""
        return self in (Form.JSON_OBJECT, Form.PLAIN)


class Learned:
    """Forms and parameters that one model accepted or refused; in memory only."""

    def __init__(self) -> None:
        self._proven: set[Form] = set()
        self._strikes: Counter[tuple[Form, str | None]] = Counter()
        self._refused: set[str] = set()

    def ladder(self, forms: Sequence[Form], purpose: str) -> list[Form]:
        """Those of *forms* to try for *purpose*, in their order; the last one in any case."""
        return [form for form in forms[:-1] if not self._given_up(form, purpose)] + [forms[-1]]

    def doubts(self, form: Form, failure: Failure) -> bool:
        """Whether *failure* may be the fault of *form*, so that a lesser one is worth a try."""
        if failure.status in REFUSALS:
            return True
        # A server that names a time to come back is in trouble itself.
        odd = failure.status is not None and failure.status >= 500
        return odd and form not in self._proven and failure.retry_after_s is None

    def succeeded(self, form: Form, refused: Sequence[Form], purpose: str) -> None:
        """*form* was answered after all of *refused* had failed in the same call."""
        self._proven.add(form)
        for failed in refused:
            self._strikes[failed, self._scope(failed, purpose)] += 1

    def _given_up(self, form: Form, purpose: str) -> bool:
        return self._strikes[form, self._scope(form, purpose)] >= STRIKES

    def _scope(self, form: Form, purpose: str) -> str | None:
        # A form that works elsewhere fails for what is special about one question's schema.
        return purpose if form in self._proven else None

    # ── Parameters ───────────────────────────────────────────────────────────────────

    def accepts(self, parameter: str) -> bool:
        """Whether *parameter* was not refused so far."""
        return parameter not in self._refused

    def refuses(self, body: Mapping[str, Any], failure: Failure) -> bool:
        """Whether *failure* tells that a parameter of *body* is not known; then it is kept."""
        if failure.status not in (400, 422):
            return False
        told = {
            "temperature": _TEMPERATURE.search(failure.text) is not None,
            "max_tokens": "max_completion_tokens" in failure.text,
        }
        found = {name for name, refused in told.items() if refused and name in body}
        self._refused |= found
        return bool(found)


class Lessons(defaultdict[str, Learned]):
    """``Learned`` by model name."""

    def __init__(self) -> None:
        super().__init__(Learned)


def with_schema(system: str, schema: Mapping[str, Any]) -> str:
    """Append *schema* to the standing instructions."""
    told = (
        "Answer with one JSON object and nothing around it. It must follow this JSON schema:\n"
        + json.dumps(schema, ensure_ascii=False)
    )
    return f"{system}\n\n{told}" if system else told
