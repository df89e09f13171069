"""A client of the HTTP service: the everyday calls of a repository, with the same types."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar
from urllib.parse import parse_qs, urlsplit

import anyio

import mnemo
from mnemo import exchange, remote
from mnemo.exchange import RemoteEvent, adapter, given, messages_as_json
from mnemo.operations import OPERATIONS, Operation
from mnemo.runtime.validation import checked_repo_id

__all__ = [
    "RemoteConversation",
    "RemoteEvent",
    "RemoteGoals",
    "RemoteInspection",
    "RemoteItems",
    "RemoteMnemo",
    "RemoteNotes",
    "RemotePins",
    "RemoteRepository",
    "RemoteSession",
    "RemoteSnapshots",
]

LONGEST_WAIT_S = 300.0
"""Seconds that one call waits in the service, at most."""
TRIES = 4
"""Times that a request is sent which the service answers with 429 (S)."""
MOST_PAUSE_S = 5.0
"""Seconds between two of them, at most (S)."""
PAGE = 1_000
"""Members of a list that are read at once."""
T = TypeVar("T")


class RemoteMnemo(remote.MnemoCalls):
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
        parts = urlsplit(str(url))
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError(f"url must be like http://127.0.0.1:8642, not {url!r}")
        self._token = token or next(iter(parse_qs(parts.fragment).get("token", ())), None)
        if not self._token:
            raise ValueError("a token is needed: mnemo serve prints one in its address")
        self._base = parts._replace(fragment="", query="").geturl().rstrip("/")
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
            UsageError: The token is not known there, or this client is open.
            Unreachable: Nobody answers, or something else does. *Cancellation*: safe.
        """
        import httpx

        if self._http is not None:
            raise mnemo.UsageError("this client is open already")
        try:
            self._http = httpx.AsyncClient(
                base_url=self._base,
                headers={"authorization": f"Bearer {self._token}"},
                timeout=self._timeout_s,
                transport=self._transport,
            )
            await self.call("GET", "/v1/caller")
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await self.aclose()
            if isinstance(error, httpx.InvalidURL):
                raise ValueError(f"url is no address: {error}") from error
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

    async def repos(
        self, *, limit: int | None = None, after: str | None = None
    ) -> list[mnemo.RepositoryRecord]:
        """
        List the stored repositories that the token may use, as ``Mnemo.repos``; all are read a
        page at a time. *Cancellation*: safe.
        """

        async def page(limit: int, after: str | None) -> list[mnemo.RepositoryRecord]:
            asked = {"limit": limit, "after": after}
            content = await self.call("GET", "/v1/repositories", asked)
            return exchange.read_as(list[mnemo.RepositoryRecord], content)

        return await (_every(page, "id", after) if limit is None else page(limit, after))

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
            MnemoError: What the call raises in the service; of one that goes on as a job, too.
            Unreachable: The connection failed; whether the call was carried out is not known.
                *Cancellation*: the service may carry it out; a job is cancelled.
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
        if not answer.is_success:
            raise exchange.error_of(answer.status_code, answer.content)
        if answer.status_code == 202:
            return await self._outcome(answer.headers["location"])
        return bytes(answer.content)

    async def _outcome(self, path: str) -> bytes:
        """What the job at *path* returned. *Cancellation*: cancels the job."""
        pause_s = 0.05
        try:
            while (job := json.loads(await self.call("GET", path)))["state"] == "running":
                await anyio.sleep(pause_s)
                pause_s = min(MOST_PAUSE_S, 1.5 * pause_s)
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(self._timeout_s, shield=True):
                await self.call("POST", f"{path}/cancel")
            raise
        if job["state"] == "done":
            return json.dumps(job["result"]).encode()
        if job["state"] == "cancelled":
            raise mnemo.UsageError("the job was cancelled; it can be begun again")
        problem = job["problem"]
        raise exchange.error_of(problem["status"], json.dumps(problem).encode())

    async def _send(self, operation: Operation, given: dict[str, Any], **where: str) -> Any:
        """Send a call; *where* is what else its address names."""
        wait_s = _bounded(given)
        sent = _as_json(given)
        body = None
        if operation.method not in ("GET", "DELETE"):
            kept = {one.name for one in operation.parameters if not one.address}
            body = {name: sent.pop(name) for name in [*sent] if name in kept} if kept else None
        named = {one.name: one.address or one.name for one in operation.parameters}
        params = where | {named[name]: sent[name] for name in sent}
        is_told = operation.result is mnemo.Session or (not operation.result and "session" in where)
        kind = dict[str, Any] if is_told else operation.result
        path = f"/v1{operation.path}"
        content = await self.call(operation.method, path, params, body, wait_s=wait_s)
        return exchange.read_as(kind, content)

    async def _carry_out(self, operation: Operation, given: dict[str, Any]) -> Any:
        return await self._send(operation, given)

    @asynccontextmanager
    async def export_repo(self, repo_id: str) -> AsyncIterator[AsyncIterator[str]]:
        """
        Everything of a repository as lines, see ``Mnemo.export_repo``.

        Raises:
            NotFound: There is nothing in it.
            UsageError: The token has no right to it.
            Unreachable: The connection failed, or broke off: what came is not all of it.
        """
        params = given(repo=checked_repo_id(repo_id))
        async with self._streamed("GET", "/v1/repository/export", params) as answer:
            yield (line + "\n" async for line in answer.aiter_lines())

    async def import_repo(
        self,
        repo_id: str,
        lines: AsyncIterable[str] | Iterable[str],
        *,
        exist_ok: bool = True,
    ) -> mnemo.ArchiveHead:
        """
        Make *repo_id* what *lines* say, see ``Mnemo.import_repo``; one that broke off can be sent
        again.

        Raises:
            UsageError: As there, or the token has no right to it.
            Unreachable: The connection failed; nothing or all was imported.
                *Cancellation*: safe; all or nothing, unless the last line was sent.
        """
        params = {"repo": checked_repo_id(repo_id), "exist_ok": exist_ok}
        async with self._streamed("POST", "/v1/repository/import", params, lines) as answer:
            return exchange.read_as(mnemo.ArchiveHead, await answer.aread())

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
        params, headers = given(repo=repo_id), given(**{"last-event-id": after})
        async with self._streamed("GET", "/v1/events", params, headers=headers) as answer:
            yield exchange.read_events(answer.aiter_lines())

    @asynccontextmanager
    async def _streamed(
        self,
        method: str,
        path: str,
        params: dict[str, Any],
        lines: AsyncIterable[str] | Iterable[str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Any]:
        """A successful answer that is still to be read; *lines* are sent. *Raises* as ``call``."""
        import httpx

        http, timeout = self._opened(), httpx.Timeout(self._timeout_s, read=None)
        content = None if lines is None else exchange.encoded(lines)
        try:
            async with http.stream(
                method, path, params=params, headers=headers, content=content, timeout=timeout
            ) as answer:
                if not answer.is_success:
                    raise exchange.error_of(answer.status_code, await answer.aread())
                yield answer
        except httpx.HTTPError as error:
            raise mnemo.Unreachable(f"{self._base} broke off: {error}") from error


class RemoteRepository(remote.RepositoryCalls):
    """One repository of a service; its calls are those of ``Repository``, which says more."""

    def __init__(self, memory: RemoteMnemo, repo_id: str) -> None:
        self._memory = memory
        self.id = repo_id

    def __repr__(self) -> str:
        return f"<RemoteRepository {self.id!r} of {self._memory!r}>"

    async def unfinished_sessions(self) -> list[mnemo.SessionRecord]:
        """List its sessions that are not idle, newest act first; at most 1,000."""
        return await self.sessions(unfinished=True)

    def conversation(self, thread_id: str, *, remember: bool = False) -> RemoteConversation:
        """Make a handle of one thread, see ``Repository.conversation``; a plain call."""
        return RemoteConversation(self, thread_id, remember)

    @property
    def notes(self) -> RemoteNotes:
        """Its notes."""
        return RemoteNotes(self)

    @property
    def items(self) -> RemoteItems:
        """Its keyed items."""
        return RemoteItems(self)

    @property
    def inspection(self) -> RemoteInspection:
        """A look into it."""
        return RemoteInspection(self)

    async def _carry_out(self, operation: Operation, given: dict[str, Any]) -> Any:
        if operation.name == "threads" and given["limit"] is None:

            async def page(limit: int, after: str | None) -> Any:
                return await self._send(operation, {"limit": limit, "after": after})

            return await _every(page, "thread_id", given["after"])
        found = await self._send(operation, given)
        return RemoteSession(self, found) if operation.result is mnemo.Session else found

    async def _send(self, operation: Operation, given: dict[str, Any], **where: str) -> Any:
        """Send a call; *where* is what else its address names."""
        return await self._memory._send(operation, given, repo=self.id, **where)


async def _every(
    page: Callable[[int, str | None], Awaitable[list[T]]], id: str, after: str | None
) -> list[T]:
    """One *page* behind the other, each after the *id* of the last one's last member."""
    found: list[T] = []
    while len(part := await page(PAGE, after)) == PAGE:
        found += part
        after = getattr(part[-1], id)
    return found + part


def _bounded(given: dict[str, Any]) -> float:
    """Have *given* wait and list no more than the service does; the seconds that it may wait."""
    if "limit" in given and given["limit"] is None:
        given["limit"] = PAGE
    if not given.get("wait", "timeout_s" in given):
        return 0.0
    if given["timeout_s"] is None:
        given["timeout_s"] = LONGEST_WAIT_S
    return float(given["timeout_s"])


def _as_json(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that say something, as JSON has them."""
    for name in ("content", "history", "messages"):
        if name in arguments and not isinstance(arguments[name], str):
            format = arguments.pop("format", None)
            arguments[name] = messages_as_json(arguments[name], format)
    sessions = (mnemo.Session, RemoteSession)
    return {
        name: value.id if isinstance(value, sessions) else value
        for name, value in given(**arguments).items()
    }


class RemoteSession(remote.SessionCalls):
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

    def __init__(self, repo: RemoteRepository, told: Mapping[str, Any]) -> None:
        self._repo = repo
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
        self._check_open("refresh")
        resume = OPERATIONS["resume_session"]
        self._learn(await self._repo._send(resume, {"session_id": self.id}))
        return self.state

    async def aclose(self) -> None:
        """End it in the service's process; what it holds stays resumable. Idempotent."""
        if not self._ended:
            self._ended = True
            params = {"repo": self.repo_id, "session": self.id}
            await self._repo._memory.call("DELETE", "/v1/session", params)

    def _check_open(self, operation: str) -> None:
        if self._ended:
            raise mnemo.SessionClosed("session_closed", state=self.state, operation=operation)

    async def _carry_out(self, operation: Operation, given: dict[str, Any]) -> Any:
        self._check_open(operation.function.__name__)
        try:
            found = await self._repo._send(operation, given, session=self.id)
        finally:
            if operation.result in (mnemo.CommitReceipt, mnemo.SessionState):
                await self.refresh()
        return found if operation.result else self._learn(found)


class _Part:
    """What a repository hands out; *where* is what else its address names."""

    def __init__(self, repo: RemoteRepository, **where: str) -> None:
        self._repo = repo
        self._where = where

    async def _carry_out(self, operation: Operation, given: dict[str, Any]) -> Any:
        return await self._repo._send(operation, given, **self._where)


class RemoteConversation(_Part, remote.ConversationCalls):
    """One thread; its calls are those of ``Conversation``, which says more."""

    def __init__(self, repo: RemoteRepository, thread_id: str, remember: bool = False) -> None:
        super().__init__(repo, thread=thread_id)
        self._remember = remember
        self.thread_id = thread_id

    @property
    def goals(self) -> RemoteGoals:
        """What its agent is to reach."""
        return RemoteGoals(self._repo, **self._where)

    @property
    def pins(self) -> RemotePins:
        """Messages that its goals hold on to."""
        return RemotePins(self._repo, **self._where)

    @property
    def snapshots(self) -> RemoteSnapshots:
        """Summaries of what has left its window."""
        return RemoteSnapshots(self._repo, **self._where)

    async def history(
        self, *, from_seq: int = 0, to_seq: int | None = None
    ) -> list[mnemo.StoredMessage]:
        """The originals of a range, both ends inclusive."""
        found: list[mnemo.StoredMessage] = []
        params = {"repo": self._repo.id, "thread": self.thread_id}
        start: int | None = from_seq
        while start is not None and (to_seq is None or start <= to_seq):
            limit = PAGE if to_seq is None else min(PAGE, to_seq - start + 1)
            asked = params | {"from_seq": start, "limit": limit}
            content = await self._repo._memory.call("GET", "/v1/conversation/messages", asked)
            part = exchange.read_as(dict[str, Any], content)
            found += adapter(list[mnemo.StoredMessage]).validate_python(part["items"])
            start = part["next"]
        return found

    async def _carry_out(self, operation: Operation, given: dict[str, Any]) -> Any:
        if "remember" in given:
            given["remember"] = given["remember"] or self._remember
        return await super()._carry_out(operation, given)


class RemoteNotes(_Part, remote.NotesCalls):
    """The notes of a repository; the calls are those of ``Notes``, which says more."""


class RemoteInspection(_Part, remote.InspectionCalls):
    """A look into a repository; the calls are those of ``Inspection``, which says more."""


class RemoteItems(_Part, remote.ItemsCalls):
    """Keyed items; the calls are those of ``Items``, which says more."""


class RemoteGoals(_Part, remote.GoalsCalls):
    """The goals of a thread; the calls are those of ``Goals``, which says more."""


class RemotePins(_Part, remote.PinsCalls):
    """The pins of a thread; the calls are those of ``Pins``, which says more."""


class RemoteSnapshots(_Part, remote.SnapshotsCalls):
    """The snapshots of a thread; the calls are those of ``Snapshots``, which says more."""
