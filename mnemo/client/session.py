"""The handle of a session that a service holds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from mnemo import (
    CommitReceipt,
    ExtractionFailed,
    SessionClosed,
    SessionContext,
    SessionState,
    SessionStatistics,
    Step,
)
from mnemo.client.encoding import LONGEST_WAIT_S, given, messages_as_json
from mnemo.exchange import StepShape, adapter
from mnemo.wire import Given, listed

_STEPS: Any = list[StepShape]  # type: ignore[valid-type]


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
        id: str | None = self._told["episode_id"]
        return id

    @property
    def error(self) -> Exception | None:
        """The last failure of extraction, with its message."""
        told = self._told["error"]
        return ExtractionFailed(told, episode_id=self.episode_id) if told else None

    def context(self) -> SessionContext | None:
        """The goal and the last five durable steps; ``None`` when idle."""
        found: SessionContext | None = adapter(SessionContext | None).validate_python(
            self._told["context"]
        )
        return found

    def statistics(self) -> SessionStatistics:
        """Levels and costs at the last answer."""
        found: SessionStatistics = adapter(SessionStatistics).validate_python(
            self._told["statistics"]
        )
        return found

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
        found: Step = await self._call(StepShape, "steps", body)
        return found

    async def append_messages(self, messages: Given | Iterable[Given]) -> list[Step]:
        """Add chat messages as steps, at most 1,000."""
        body = {"messages": messages_as_json(listed(messages), None)}
        found: list[Step] = await self._call(_STEPS, "messages", body)
        return found

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
