"""The handle of a session that a service holds, and what a client sends and reads as JSON."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import mnemo
from mnemo import (
    CommitReceipt,
    ExtractionFailed,
    Message,
    MnemoError,
    SessionClosed,
    SessionContext,
    SessionState,
    SessionStatistics,
    Step,
    Unreachable,
    UsageError,
)
from mnemo.exchange import StepShape, adapter, restored
from mnemo.wire import Format, Given, listed, messages_of

LONGEST_WAIT_S = 300.0
"""Seconds that one call waits in the service, at most."""


def given(**arguments: Any) -> dict[str, Any]:
    """The arguments that say something; the service has the same defaults as the library."""
    return {name: value for name, value in arguments.items() if value is not None}


def messages_as_json(given: Sequence[Any], format: Format | None) -> list[Any]:
    """Messages of any format as JSON of mnemo's own fields; texts stay texts."""
    made = iter(messages_of([one for one in given if not isinstance(one, str)], format))
    return [one if isinstance(one, str) else _message(next(made)) for one in given]


def _message(message: Message) -> dict[str, Any]:
    return adapter(Message).dump_python(
        Message(**{name: getattr(message, name) for name in Message.__dataclass_fields__}),
        mode="json",
        exclude_none=True,
    )


def plain(value: Any) -> Any:
    """What JSON has no form for. *Raises* ``ValueError``: it has none here either."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    raise ValueError(f"{type(value).__name__} cannot be sent as JSON: {value!r:.80}")


def read_as(kind: Any, content: bytes) -> Any:
    """The value of an answer. *Raises* ``Unreachable``: it is no *kind*."""
    if kind is None:
        return None
    try:
        return restored(adapter(kind).validate_json(content))
    except ValueError as error:
        raise Unreachable(f"the answer is not that of a mnemo service: {error}") from error


def error_of(status: int, content: bytes) -> Exception:
    """The exception that a problem document tells of, with its facts."""
    try:
        told = json.loads(content)
        detail, name = str(told["detail"]), told["error"]
    except (ValueError, KeyError, TypeError):
        return Unreachable(f"the answer is not that of a mnemo service: {content[:200]!r}")
    if name in ("ValueError", "TimeoutError"):
        return {"ValueError": ValueError, "TimeoutError": TimeoutError}[name](detail)
    kind = getattr(mnemo, name, None) if isinstance(name, str) else None
    if not (isinstance(kind, type) and issubclass(kind, MnemoError)):
        return UsageError(f"{status}: {detail}")
    error = kind.__new__(kind)
    Exception.__init__(error, detail)
    for fact, value in {"reason": told["reason"], **told["facts"]}.items():
        setattr(error, fact, value)
    return error


class RemoteSession:
    """
    A session of a service; its awaited calls are those of ``Session``, which says more.

    What it tells without ``await`` is as of the last answer; ``refresh`` asks anew. The service
    keeps it open, or resumes it for the next call; queued calls with callbacks it has none.
    """

    def __init__(self, call: Callable[..., Awaitable[Any]], told: Mapping[str, Any]) -> None:
        self._call_repo = call
        self._told = told
        self._ended = False

    def __repr__(self) -> str:
        return f"<RemoteSession {self.id!r} {self.state} of {self.repo_id!r}>"

    @property
    def id(self) -> str:
        """Unique in the service."""
        return str(self._told["id"])

    @property
    def repo_id(self) -> str:
        """The repository it writes."""
        return str(self._told["repo_id"])

    @property
    def goal(self) -> str:
        """The goal of the present, or else the last, episode."""
        return str(self._told["goal"])

    @property
    def state(self) -> SessionState:
        """Where it stood at the last answer."""
        return SessionState(self._told["state"])

    @property
    def busy(self) -> bool:
        """Whether an extraction or a commit was in flight at the last answer."""
        return bool(self._told["busy"])

    @property
    def episode_id(self) -> str | None:
        """The open episode's; ``None`` when idle."""
        return self._told["episode_id"]

    @property
    def error(self) -> Exception | None:
        """The last failure of extraction, with its message."""
        told = self._told["error"]
        return ExtractionFailed(told, episode_id=self.episode_id) if told else None

    def context(self) -> SessionContext | None:
        """The goal and the last five durable steps; ``None`` when idle."""
        return adapter(SessionContext | None).validate_python(self._told["context"])

    def statistics(self) -> SessionStatistics:
        """Levels and costs at the last answer."""
        return adapter(SessionStatistics).validate_python(self._told["statistics"])

    async def refresh(self) -> SessionState:
        """Ask where it stands now; its state."""
        return await self._operate("resume")

    async def start_episode(self, goal: str) -> None:
        """Collect for a new goal."""
        await self._operate("start_episode", {"goal": goal})

    async def append(
        self,
        observation: str,
        action: str,
        *,
        at: datetime | str | None = None,
        actor: str | None = None,
        key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Step:
        """Add a step; with *key* it can be sent again after a failure."""
        body = given(
            observation=observation, action=action, at=at, actor=actor, key=key, metadata=metadata
        )
        return await self._call(StepShape, "steps", body)

    async def append_messages(self, messages: Given | Iterable[Given]) -> list[Step]:
        """Add chat messages as steps, at most 1,000."""
        body = {"messages": messages_as_json(listed(messages), None)}
        return await self._call(list[StepShape], "messages", body)  # type: ignore[valid-type]

    async def close(self) -> None:
        """End the episode; extraction begins."""
        await self._operate("close")

    async def commit(self) -> CommitReceipt:
        """Write what was extracted; in ``failed``, start the retry."""
        found: CommitReceipt = await self._call(CommitReceipt, "commit")
        await self.refresh()
        return found

    async def discard(self) -> None:
        """End the episode without committing."""
        await self._operate("discard")

    async def close_and_commit(
        self, *, max_retries: int = 2, timeout_s: float = LONGEST_WAIT_S
    ) -> CommitReceipt:
        """Close, wait for extraction and commit; *timeout_s* is at most 300 seconds."""
        body = {"max_retries": max_retries, "timeout_s": timeout_s}
        try:
            found: CommitReceipt = await self._call(
                CommitReceipt, "close_and_commit", body, wait_s=timeout_s
            )
        finally:
            await self.refresh()
        return found

    async def wait_for(
        self, *states: SessionState | str, timeout_s: float = LONGEST_WAIT_S
    ) -> SessionState:
        """Wait until it is in one of *states*; *timeout_s* is at most 300 seconds."""
        wanted = [SessionState(state) for state in states]
        if not wanted:
            raise ValueError("wait_for needs at least one state")
        body = {"states": wanted, "timeout_s": timeout_s}
        found: SessionState = await self._call(SessionState, "wait", body, wait_s=timeout_s)
        await self.refresh()
        return found

    async def aclose(self) -> None:
        """End it in the service's process; what it holds stays resumable. Idempotent."""
        if not self._ended:
            self._ended = True
            await self._call_repo(None, "DELETE", "/session", session=self.id)

    async def _operate(self, operation: str, body: Any = None) -> SessionState:
        self._told = await self._call(dict[str, Any], operation, body)
        return self.state

    async def _call(
        self, kind: Any, operation: str, body: Any = None, *, wait_s: float = 0.0
    ) -> Any:
        if self._ended:
            raise SessionClosed("session_closed", state=self.state, operation=operation)
        return await self._call_repo(
            kind, "POST", f"/session/{operation}", body, wait_s=wait_s, session=self.id
        )
