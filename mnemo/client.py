"""A client of the HTTP service: the everyday calls of a repository, with the same types."""

from __future__ import annotations

import builtins
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any, Literal, Self
from urllib.parse import parse_qs, urlsplit

import anyio

import mnemo
from mnemo import exchange
from mnemo.exchange import RemoteEvent, StepShape, adapter, given, messages_as_json
from mnemo.runtime.validation import checked_repo_id
from mnemo.wire import Format, Given

__all__ = [
    "RemoteConversation",
    "RemoteEvent",
    "RemoteMnemo",
    "RemoteNotes",
    "RemoteRepository",
    "RemoteSession",
]

LONGEST_WAIT_S = 300.0
"""Seconds that one call waits in the service, at most."""
TRIES = 4
"""Times that a request is sent which the service answers with 429 (S)."""
MOST_PAUSE_S = 5.0
"""Seconds between two of them, at most (S)."""
PAGE = 1_000
"""Messages that are read at once."""


class RemoteMnemo:
    """
    A service that runs elsewhere (``mnemo serve``), called like ``Mnemo``.

    Args:
        url: Its address; one with ``#token=…``, as ``mnemo serve`` prints it, needs no *token*.
        timeout_s: Seconds without any answer after which a call is given up.
        transport: An ``httpx`` transport, such as of an application in this process.

    Raises:
        ValueError: *url* is no address of a service, or there is no token.
    """

    def __init__(
        self, url: str, token: str | None = None, *, timeout_s: float = 60.0, transport: Any = None
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError(f"url must be like http://127.0.0.1:8642, not {url!r}")
        token = token or next(iter(parse_qs(parts.fragment).get("token", ())), None)
        if not token:
            raise ValueError("a token is needed: mnemo serve prints one in its address")
        self._base = parts._replace(fragment="", query="").geturl().rstrip("/")
        self._token = token
        self._timeout_s = timeout_s
        self._transport = transport
        self._http: Any = None

    def __repr__(self) -> str:
        return f"<RemoteMnemo {self._base}>"

    async def open(self) -> None:
        """
        Ask the service who the token is of.

        Raises:
            ValueError: The host or port of the address cannot be one.
            UsageError: The token is not known there.
            Unreachable: Nobody answers, or something else does. *Cancellation*: safe.
        """
        import httpx

        try:
            self._http = httpx.AsyncClient(
                base_url=self._base,
                headers={"authorization": f"Bearer {self._token}"},
                timeout=self._timeout_s,
                transport=self._transport,
            )
        except httpx.InvalidURL as error:
            raise ValueError(f"url is no address: {error}") from error
        try:
            await self.call("GET", "/v1/caller")
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self.aclose()
            raise

    async def aclose(self) -> None:
        """Close the connections; idempotent."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def open_repo(
        self, repo_id: str = "default", *, exist_ok: bool = True
    ) -> RemoteRepository:
        """Give a repository, as ``repo``; the service opens it when it is asked for."""
        return self.repo(repo_id)

    def repo(self, repo_id: str) -> RemoteRepository:
        """Give a repository; a plain call. *Raises* ``ValueError``: as ``Mnemo.open_repo``."""
        checked_repo_id(repo_id)
        return RemoteRepository(self, repo_id)

    async def repos(self) -> list[mnemo.RepositoryRecord]:
        """List the stored repositories that the token may use. *Cancellation*: safe."""
        return exchange.read_as(
            list[mnemo.RepositoryRecord], await self.call("GET", "/v1/repositories")
        )

    def _opened(self) -> Any:
        if self._http is None:
            raise mnemo.UsageError("this client is not open; use `async with RemoteMnemo(…)`")
        return self._http

    async def call(
        self, method: str, path: str, params: Any = None, body: Any = None, *, wait_s: float = 0
    ) -> bytes:
        """
        Send a request to the service and give the body of its answer.

        Args:
            wait_s: Seconds that the service may wait on purpose, before ``timeout_s`` begins.

        Raises:
            ValueError: *body* is not JSON.
            MnemoError: What the call raises in the service.
            Unreachable: The connection failed; whether the call was carried out is not known.
                *Cancellation*: the service may carry it out.
        """
        import httpx

        http = self._opened()
        sent = None if body is None else json.dumps(body, default=exchange.plain, allow_nan=False)
        asked = given(**(params or {}))
        kind = {} if sent is None else {"content-type": "application/json"}
        for left in reversed(range(TRIES)):
            try:
                answer = await http.request(
                    method,
                    path,
                    params=asked,
                    content=sent,
                    headers=kind,
                    timeout=self._timeout_s + wait_s,
                )
            except httpx.HTTPError as error:
                what = str(error) or type(error).__name__
                raise mnemo.Unreachable(f"{self._base} did not answer: {what}") from error
            if answer.status_code != 429 or not left:
                break
            await anyio.sleep(min(MOST_PAUSE_S, float(answer.headers.get("retry-after", "1"))))
        if answer.is_success:
            return answer.content
        raise exchange.error_of(answer.status_code, answer.content)

    @asynccontextmanager
    async def events(
        self, repo_id: str | None = None, *, after: str | None = None
    ) -> AsyncIterator[AsyncIterator[RemoteEvent]]:
        """
        A stream of what happens: ``async with memory.events("r") as events: async for …``.

        Args:
            repo_id: Whose durable changes are told, too; ``None``: events of all repositories.
            after: ``RemoteEvent.cursor`` of the last change that was read: it goes on there.

        Raises:
            NotFound: There is no such repository.
            ValueError: *after* is no cursor.
            Unreachable: The connection failed, or broke off; go on with *after*.
        """
        import httpx

        http = self._opened()
        params, headers = given(repo=repo_id), given(**{"last-event-id": after})
        timeout = httpx.Timeout(self._timeout_s, read=None)
        try:
            async with http.stream(
                "GET", "/v1/events", params=params, headers=headers, timeout=timeout
            ) as answer:
                if not answer.is_success:
                    raise exchange.error_of(answer.status_code, await answer.aread())
                yield exchange.read_events(answer.aiter_lines())
        except httpx.HTTPError as error:
            raise mnemo.Unreachable(f"{self._base} broke off: {error}") from error


class RemoteRepository:
    """One repository of a service; its calls are those of ``Repository``, which says more."""

    def __init__(self, memory: RemoteMnemo, repo_id: str) -> None:
        self._memory = memory
        self.id = repo_id

    def __repr__(self) -> str:
        return f"<RemoteRepository {self.id!r} of {self._memory!r}>"

    async def _call(
        self, kind: Any, method: str, path: str, body: Any = None, *, wait_s: float = 0, **keys: Any
    ) -> Any:
        params = {"repo": self.id, **keys}
        content = await self._memory.call(method, f"/v1{path}", params, body, wait_s=wait_s)
        return exchange.read_as(kind, content)

    # ── Sessions ─────────────────────────────────────────────────────────────────────────

    async def start_session(
        self, goal: str, *, session_id: str | None = None, auto_commit: bool | None = None
    ) -> RemoteSession:
        """
        Start a session that collects for *goal*; durable when it returns.

        Args:
            auto_commit: In place of the service's ``config.session.auto_commit``.
        """
        body = given(goal=goal, session_id=session_id, auto_commit=auto_commit)
        content = await self._call(dict[str, Any], "POST", "/sessions", body)
        return RemoteSession(self._call, content)

    async def resume_session(self, session_id: str) -> RemoteSession:
        """Open a session as its last durable act left it."""
        content = await self._call(dict[str, Any], "POST", "/session/resume", session=session_id)
        return RemoteSession(self._call, content)

    async def unfinished_sessions(self) -> list[mnemo.SessionRecord]:
        """List its sessions that are not idle, newest act first; at most 1,000."""
        return await self._call(
            list[mnemo.SessionRecord], "GET", "/sessions", unfinished=True, limit=PAGE
        )

    # ── Remembering and finding ──────────────────────────────────────────────────────────

    async def remember(
        self,
        content: str | Given | Sequence[str | Given],
        *,
        thread_id: str = "default",
        role: Literal["user", "assistant", "system", "tool"] = "user",
        actor: str | None = None,
        at: datetime | str | None = None,
        key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        wait: bool = False,
        timeout_s: float | None = None,
        format: Format | None = None,
    ) -> mnemo.Remembered:
        """Remember a text or messages; with *key* it can be sent again after a failure."""
        sent: Any = content if isinstance(content, str) else messages_as_json(content, format)
        body = given(
            content=sent, thread_id=thread_id, role=role, actor=actor, at=at, key=key,
            metadata=metadata, wait=wait, timeout_s=timeout_s,
        )  # fmt: skip
        waits = wait and timeout_s is None
        wait_s = LONGEST_WAIT_S if waits else timeout_s or 0.0
        return await self._call(mnemo.Remembered, "POST", "/remember", body, wait_s=wait_s)

    async def settle(self, timeout_s: float | None = None) -> None:
        """Wait until nothing is on its way; at most 300 seconds, then ``TimeoutError``."""
        wait_s = LONGEST_WAIT_S if timeout_s is None else timeout_s
        await self._call(None, "POST", "/settle", {"timeout_s": wait_s}, wait_s=wait_s)

    async def recall(self, query: str, **arguments: Any) -> mnemo.RecallResult:
        """Find what the memory knows about *query*; arguments as of ``Repository.recall``."""
        body = given(query=query, **arguments)
        return await self._call(exchange.RecallShape, "POST", "/recall", body)

    async def recall_in_context(
        self, session: RemoteSession | str, query: str, **arguments: Any
    ) -> mnemo.RecallResult:
        """``recall`` with the goal and the last steps of *session*, which are not returned."""
        id = session if isinstance(session, str) else session.id
        body = given(session=id, query=query, **arguments)
        return await self._call(exchange.RecallShape, "POST", "/recall_in_context", body)

    async def search(self, query: str, **arguments: Any) -> list[mnemo.SearchHit]:
        """Find words in what was said; arguments as of ``Repository.search``."""
        body = given(query=query, **arguments)
        return await self._call(list[mnemo.SearchHit], "POST", "/search", body)

    async def view(
        self,
        message_id: str,
        *,
        session_id: str | None = None,
        before: int = 10,
        after: int = 10,
        budget_tokens: int | None = None,
    ) -> mnemo.MessageView:
        """Open what lies around a hit of ``search``."""
        return await self._call(
            exchange.ViewShape, "GET", "/view", id=message_id, session_id=session_id, before=before,
            after=after, budget_tokens=budget_tokens
        )  # fmt: skip

    # ── Memories ─────────────────────────────────────────────────────────────────────────

    async def memories(self, **arguments: Any) -> mnemo.Page[mnemo.Memory]:
        """List facts and instructions; arguments as of ``Repository.memories``."""
        body = given(**arguments)
        return await self._call(mnemo.Page[mnemo.Memory], "POST", "/memories/list", body)

    async def memory(self, id: str) -> mnemo.Memory:
        """Give one fact or instruction."""
        return await self._call(mnemo.Memory, "GET", "/memory", id=id)

    async def add_memory(self, text: str, **arguments: Any) -> mnemo.Memory:
        """Add a fact or instruction by hand; arguments as of ``Repository.add_memory``."""
        return await self._call(mnemo.Memory, "POST", "/memories", given(text=text, **arguments))

    async def update_memory(self, id: str, text: str, **arguments: Any) -> mnemo.Memory:
        """Correct what one says; arguments as of ``Repository.update_memory``."""
        body = given(text=text, **arguments)
        return await self._call(mnemo.Memory, "PATCH", "/memory", body, id=id)

    async def changes(self, **arguments: Any) -> mnemo.Page[mnemo.Change]:
        """List what held and holds no longer; arguments as of ``Repository.changes``."""
        body = given(**arguments)
        return await self._call(mnemo.Page[mnemo.Change], "POST", "/memories/changes", body)

    async def history(self, id: str) -> list[mnemo.MemoryVersion]:
        """List the wordings of one."""
        return await self._call(list[mnemo.MemoryVersion], "GET", "/memory/history", id=id)

    async def forget(
        self, *, steps: Sequence[mnemo.Step | str] = (), dry_run: bool = False, **arguments: Any
    ) -> mnemo.ErasureReport:
        """Erase for good; arguments as of ``Repository.forget``."""
        named: Any = steps
        if not isinstance(steps, str):
            named = [step.node_id if isinstance(step, mnemo.Step) else step for step in steps]
        body = given(steps=named, dry_run=dry_run, **arguments)
        return await self._call(mnemo.ErasureReport, "POST", "/forget", body)

    # ── What is stored ───────────────────────────────────────────────────────────────────

    async def statistics(self) -> mnemo.RepositoryStatistics:
        """Count what it holds."""
        return await self._call(exchange.StatisticsShape, "GET", "/statistics")

    async def threads(self) -> list[mnemo.ThreadRecord]:
        """List its conversations by id."""
        return await self._call(list[mnemo.ThreadRecord], "GET", "/conversations")

    async def sessions(self, *, limit: int = 1_000) -> list[mnemo.SessionRecord]:
        """List its sessions, newest act first."""
        return await self._call(list[mnemo.SessionRecord], "GET", "/sessions", limit=limit)

    async def retry_jobs(self, thread_ids: Sequence[str] | None = None) -> tuple[str, ...]:
        """Have background extraction be tried now."""
        return await self._call(tuple[str, ...], "POST", "/jobs/retry", {"thread_ids": thread_ids})

    async def cancel_jobs(self, thread_ids: Sequence[str]) -> tuple[str, ...]:
        """Give up the background extraction of threads."""
        return await self._call(tuple[str, ...], "POST", "/jobs/cancel", {"thread_ids": thread_ids})

    def conversation(self, thread_id: str, *, remember: bool = False) -> RemoteConversation:
        """Make a handle of one thread, see ``Repository.conversation``; a plain call."""
        return RemoteConversation(self, thread_id, remember)

    @property
    def notes(self) -> RemoteNotes:
        """Its notes."""
        return RemoteNotes(self)


class RemoteSession:
    """
    A session of a service; its awaited calls are those of ``Session``, which says more.

    What it tells without ``await`` is as of the last answer; ``refresh`` asks anew. The service
    keeps it open, or resumes it for the next call; queued calls with callbacks it has none.
    """

    id: str
    """Unique in the service."""
    repo_id: str
    """The repository it writes."""
    goal: str
    """The goal of the present, or else the last, episode."""
    state: mnemo.SessionState
    """Where it stood at the last answer."""
    busy: bool
    """Whether an extraction or a commit was in flight at the last answer."""
    episode_id: str | None
    """The open episode's; ``None`` when idle."""

    def __init__(self, call: Callable[..., Awaitable[Any]], told: Mapping[str, Any]) -> None:
        self._call_repo = call
        self._ended = False
        self._learn(told)

    def __repr__(self) -> str:
        return f"<RemoteSession {self.id!r} {self.state} of {self.repo_id!r}>"

    def _learn(self, told: Mapping[str, Any]) -> None:
        self._told = told
        self.id, self.repo_id, self.goal = told["id"], told["repo_id"], told["goal"]
        self.state = mnemo.SessionState(told["state"])
        self.busy, self.episode_id = told["busy"], told["episode_id"]

    @property
    def error(self) -> Exception | None:
        """The last failure of extraction, with its message."""
        told = self._told["error"]
        return mnemo.ExtractionFailed(told, episode_id=self.episode_id) if told else None

    def context(self) -> mnemo.SessionContext | None:
        """The goal and the last five durable steps; ``None`` when idle."""
        return adapter(mnemo.SessionContext | None).validate_python(self._told["context"])

    def statistics(self) -> mnemo.SessionStatistics:
        """Levels and costs at the last answer."""
        return adapter(mnemo.SessionStatistics).validate_python(self._told["statistics"])

    async def refresh(self) -> mnemo.SessionState:
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
    ) -> mnemo.Step:
        """Add a step; with *key* it can be sent again after a failure."""
        body = given(
            observation=observation, action=action, at=at, actor=actor, key=key, metadata=metadata
        )
        return await self._call(StepShape, "steps", body)

    async def append_messages(self, messages: Given | Iterable[Given]) -> list[mnemo.Step]:
        """Add chat messages as steps, at most 1,000."""
        body = {"messages": messages_as_json(messages, None)}
        return await self._call(list[StepShape], "messages", body)  # type: ignore[valid-type]

    async def close(self) -> None:
        """End the episode; extraction begins."""
        await self._operate("close")

    async def commit(self) -> mnemo.CommitReceipt:
        """Write what was extracted; in ``failed``, start the retry."""
        found: mnemo.CommitReceipt = await self._call(mnemo.CommitReceipt, "commit")
        await self.refresh()
        return found

    async def discard(self) -> None:
        """End the episode without committing."""
        await self._operate("discard")

    async def close_and_commit(
        self, *, max_retries: int = 2, timeout_s: float = LONGEST_WAIT_S
    ) -> mnemo.CommitReceipt:
        """Close, wait for extraction and commit; *timeout_s* is at most 300 seconds."""
        body = {"max_retries": max_retries, "timeout_s": timeout_s}
        try:
            found: mnemo.CommitReceipt = await self._call(
                mnemo.CommitReceipt, "close_and_commit", body, wait_s=timeout_s
            )
        finally:
            await self.refresh()
        return found

    async def wait_for(
        self, *states: mnemo.SessionState | str, timeout_s: float = LONGEST_WAIT_S
    ) -> mnemo.SessionState:
        """Wait until it is in one of *states*; *timeout_s* is at most 300 seconds."""
        wanted = [mnemo.SessionState(state) for state in states]
        if not wanted:
            raise ValueError("wait_for needs at least one state")
        body = {"states": wanted, "timeout_s": timeout_s}
        found: mnemo.SessionState = await self._call(
            mnemo.SessionState, "wait", body, wait_s=timeout_s
        )
        await self.refresh()
        return found

    async def aclose(self) -> None:
        """End it in the service's process; what it holds stays resumable. Idempotent."""
        if not self._ended:
            self._ended = True
            await self._call_repo(None, "DELETE", "/session", session=self.id)

    async def _operate(self, operation: str, body: Any = None) -> mnemo.SessionState:
        self._learn(await self._call(dict[str, Any], operation, body))
        return self.state

    async def _call(
        self, kind: Any, operation: str, body: Any = None, *, wait_s: float = 0.0
    ) -> Any:
        if self._ended:
            raise mnemo.SessionClosed("session_closed", state=self.state, operation=operation)
        return await self._call_repo(
            kind, "POST", f"/session/{operation}", body, wait_s=wait_s, session=self.id
        )


class RemoteConversation:
    """One thread; its calls are those of ``Conversation``, which says more."""

    def __init__(self, repo: RemoteRepository, thread_id: str, remember: bool = False) -> None:
        self._call = partial(repo._call, thread=thread_id)
        self._remember = remember
        self.thread_id = thread_id

    async def append(
        self,
        messages: Given | Iterable[Given],
        *,
        expected_seq: int | None = None,
        format: Format | None = None,
    ) -> list[mnemo.StoredMessage]:
        """Store one message, or several in one transaction, at most 1,000."""
        body = given(
            messages=messages_as_json(messages, format),
            expected_seq=expected_seq,
            remember=self._remember or None,
        )
        return await self._call(list[mnemo.StoredMessage], "POST", "/conversation/messages", body)

    async def history(
        self, *, from_seq: int = 0, to_seq: int | None = None
    ) -> list[mnemo.StoredMessage]:
        """The originals of a range, both ends inclusive."""
        found: list[mnemo.StoredMessage] = []
        start: int | None = from_seq
        while start is not None and (to_seq is None or start <= to_seq):
            limit = PAGE if to_seq is None else min(PAGE, to_seq - start + 1)
            part = await self._call(
                dict[str, Any], "GET", "/conversation/messages", from_seq=start, limit=limit
            )
            found += adapter(list[mnemo.StoredMessage]).validate_python(part["items"])
            start = part["next"]
        return found

    async def load(
        self, *, query: str | None = None, budget_tokens: int = 32_000
    ) -> list[mnemo.Message]:
        """What the agent is to read."""
        body = {"query": query, "budget_tokens": budget_tokens}
        return await self._call(list[mnemo.Message], "POST", "/conversation/load", body)

    async def clear(self) -> None:
        """Begin the thread anew."""
        await self._call(None, "POST", "/conversation/clear")

    async def look(self, budget_tokens: int | None = None) -> mnemo.WindowLook:
        """Describe the window in numbers and zones."""
        return await self._call(
            mnemo.WindowLook, "GET", "/conversation/window", budget_tokens=budget_tokens
        )


class RemoteNotes:
    """The notes of a repository; the calls are those of ``Notes``, which says more."""

    def __init__(self, repo: RemoteRepository) -> None:
        self._call = repo._call

    async def list(
        self, *, query: str | None = None, limit: int = 1_000
    ) -> builtins.list[mnemo.NoteInfo]:
        """Latest use first, or best for *query* first."""
        return await self._call(
            builtins.list[mnemo.NoteInfo], "GET", "/notes", query=query, limit=limit
        )

    async def read(self, topic: str) -> mnemo.Note:
        """The note."""
        return await self._call(mnemo.Note, "GET", "/note", topic=topic)

    async def write(
        self, topic: str, body: str, description: str, *, expected_version: int | None = None
    ) -> mnemo.Note:
        """Create or replace a note."""
        sent = {"body": body, "description": description, "expected_version": expected_version}
        return await self._call(mnemo.Note, "PUT", "/note", sent, topic=topic)

    async def delete(self, topic: str, *, expected_version: int | None = None) -> None:
        """Retire a note."""
        await self._call(None, "DELETE", "/note", topic=topic, expected_version=expected_version)

    async def history(self, topic: str) -> builtins.list[mnemo.NoteVersion]:
        """Every kept version, oldest first."""
        return await self._call(
            builtins.list[mnemo.NoteVersion], "GET", "/note/history", topic=topic
        )

    async def restore(self, topic: str, version: int) -> mnemo.Note:
        """Write an old version as a new one."""
        return await self._call(
            mnemo.Note, "POST", "/note/restore", {"version": version}, topic=topic
        )
