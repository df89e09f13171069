"""What operators read: a line of JSON for each request, and for each erasure and refused right."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from mnemo.runtime.clock import elapsed, new_id

ACCESS = logging.getLogger("mnemo.access")
"""A line for each answer: INFO, or WARNING where it was slow."""
ACCESS.addHandler(logging.NullHandler())  # an application without logs gets no warnings as they are
AUDIT = logging.getLogger("mnemo.audit")
"""A line for each erasure, correction, export, import and refused right: INFO."""
SLOW_S = 1.0
"""Seconds from which on a request is told with its phases (S)."""
WAITING = (
    *("/v1/events", "/mcp", "/v1/settle", "/v1/session/wait", "/v1/session/close_and_commit"),
    *("/v1/repository/export", "/v1/repository/import", "/v1/backup", "/v1/jobs/{id}/events"),
)
"""Routes that wait for something, and are not slow."""

AUDITED = frozenset(
    {
        *("forget", "update_memory", "conversation.clear"),
        *("memory.delete_repo", "memory.reembed", "consolidate", "decay", "validate"),
        "memory.backup",
        *("notes.write", "notes.delete", "notes.restore", "write_note"),
        *("conversation.purge", "conversation.withdraw", "notes.purge", "notes.undo"),
        *("items.put", "items.delete"),
    }
)
"""Operations, and tools of MCP, that erase, correct or tend."""
IDS = (
    *("id", "memory_id", "memory_ids", "message_ids", "steps", "session_id", "thread_id"),
    *("before", "sources", "topic", "version", "expected_version"),
)
"""Of their arguments, those that are no text of anybody's."""


@dataclass(slots=True)
class Request:
    """What is known of the request at hand; *phases* in seconds."""

    id: str = field(default_factory=lambda: new_id("req"))
    token: Any = None
    use: Any = None
    status: int = 0
    bytes: int = 0
    phases: dict[str, float] = field(default_factory=dict)
    _began: float = field(default_factory=elapsed)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure the time spent inside as *name*."""
        began = elapsed()
        try:
            yield
        finally:
            self.phases[name] = elapsed() - began

    def told(self, scope: Mapping[str, Any]) -> None:
        """Log that it was answered; a plain call."""
        seconds = elapsed() - self._began
        route = str(getattr(scope.get("route"), "path", "other"))
        is_slow = seconds >= SLOW_S and route not in WAITING
        level = logging.WARNING if is_slow else logging.INFO
        if not ACCESS.isEnabledFor(level):
            return
        line: dict[str, Any] = {
            "request": self.id,
            "token": self.token.name if self.token else None,
            "method": scope["method"],
            "route": route,
            "status": self.status,
            "ms": round(1_000 * seconds, 1),
            "bytes": self.bytes,
        }
        if is_slow:
            line["phases_ms"] = {name: round(1_000 * s, 1) for name, s in self.phases.items()}
        ACCESS.log(level, line)


REQUEST: ContextVar[Request | None] = ContextVar("mnemo.web.request", default=None)


def audit(what: str, repo_id: str, given: Mapping[str, Any] | None = None) -> None:
    """Log *what* was done, or refused, to a repository, with the ids of *given*; a plain call."""
    if not AUDIT.isEnabledFor(logging.INFO):
        return
    request = REQUEST.get()
    ids = {name: given[name] for name in IDS if given.get(name)} if given else {}
    token = request.token.name if request and request.token else None
    who = {"request": request.id if request else None, "token": token}
    AUDIT.info({"what": what, "repo": repo_id, **who, **ids})


def audit_call(name: str, repo_id: str, given: Mapping[str, Any]) -> None:
    """Log the call *name*, if it erases or corrects; a plain call."""
    if name in AUDITED and not given.get("dry_run"):
        audit(name, repo_id, given)


def audit_tool(repo_id: str, content: bytes) -> None:
    """Log the calls of tools that erase or correct in a message of MCP; a plain call."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return  # which is answered as what it is
    for message in found if isinstance(found, list) else [found]:
        match message:
            case {"method": "tools/call", "params": {"name": str(name), "arguments": dict(given)}}:
                audit_call(name, repo_id, given)
