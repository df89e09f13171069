"""Live streams: durable changes by feed number, and events, to many listeners."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import anyio
from sse_starlette import ServerSentEvent
from starlette.exceptions import HTTPException

from mnemo import Changes, Mnemo, MnemoError, Repository
from mnemo.events import Event
from mnemo.exchange import adapter
from mnemo.web.access import RETRY_S

POLL_S = 0.04
"""Seconds between two looks at the feed of a repository that somebody listens to (S)."""
MOST_QUEUED = 512
"""Entries that a listener may lag behind; beyond it changes are read from the store again (S)."""
MOST_LISTENERS = 1_000
"""Listeners at once; a further one is refused (S)."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Entry:
    """A message of a stream, encoded once for all; *start* is the cursor before its *changes*."""

    encoded: bytes
    changes: Changes | None = None
    start: str = ""

    @classmethod
    def of(cls, event: str, data: str, cursor: str | None = None) -> Entry:
        """The entry of a server-sent event."""
        return cls(ServerSentEvent(data, event=event, id=cursor).encode())

    @classmethod
    def of_changes(cls, changes: Changes, start: str) -> Entry:
        """The entry of durable changes behind *start*."""
        data = adapter(Changes).dump_json(changes).decode()
        return cls(cls.of("changes", data, changes.cursor).encoded, changes, start)


class Listener:
    """One open stream: what is queued for it, and whether some of that had to be dropped."""

    def __init__(self, wants: Callable[[str], bool], repo_id: str | None) -> None:
        self.wants = wants
        self.repo_id = repo_id
        self.queue: deque[Entry] = deque()
        self.is_behind: bool = True
        self.has_ended = False
        self._arrived = anyio.Event()

    def put(self, entry: Entry) -> None:
        """Queue an entry; a plain call."""
        if len(self.queue) >= MOST_QUEUED:
            self.queue.clear()
            self.is_behind = True
        self.queue.append(entry)
        self.wake()

    def wake(self) -> None:
        """Let the stream look again; a plain call."""
        self._arrived.set()

    async def wait(self) -> None:
        """Wait until something was queued since the last look."""
        await self._arrived.wait()
        self._arrived = anyio.Event()


class Live:
    """Follows listened-to repositories, one reader for all; ``run`` is of the app's lifespan."""

    def __init__(self, memory: Mnemo) -> None:
        self._memory = memory
        self._listeners: set[Listener] = set()
        self._heads: dict[str, str] = {}
        self._joined = anyio.Event()
        self._ended = False

    def check_room(self) -> None:
        """*Raises* ``HTTPException``: 503, a further listener is refused."""
        if len(self._listeners) >= MOST_LISTENERS:
            raise HTTPException(503, "too many streams are open", {"Retry-After": RETRY_S})

    @property
    def has_ended(self) -> bool:
        """Whether all streams end."""
        return self._ended

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count a stream of something else inside."""
        listener = Listener(lambda repo_id: False, None)
        self._listeners.add(listener)
        try:
            yield
        finally:
            self._listeners.discard(listener)

    def end(self) -> None:
        """End all streams, and those to come; a plain call."""
        self._ended = True
        self._end(self._listeners)

    def end_of(self, repo_id: str) -> None:
        """End the streams of one repository; a plain call."""
        self._end(one for one in self._listeners if one.repo_id == repo_id)

    @staticmethod
    def _end(listeners: Iterable[Listener]) -> None:
        for listener in listeners:
            listener.has_ended = True
            listener.wake()

    async def run(self) -> None:
        """Pass on changes and events until cancelled; idle while nobody listens."""
        while True:
            await self._joined.wait()
            subscription = self._memory.subscribe(self._happened)
            try:
                while self._listeners:
                    for repo_id in list(self._heads):
                        await self._follow(repo_id)
                    await anyio.sleep(POLL_S)
            finally:
                subscription.cancel()
            self._joined = anyio.Event()

    async def _follow(self, repo_id: str) -> None:
        start = self._heads.get(repo_id)
        if start is None:
            return  # its last listener left while another repository was looked at
        try:
            changes = await self._memory.repo(repo_id).inspection.changes(start)
        except MnemoError:
            return  # closed, or the store cannot be read now; the next look may
        if changes.cursor == start or self._heads.get(repo_id) != start:
            return
        entry = Entry.of_changes(changes, start=start)
        self._heads[repo_id] = changes.cursor
        for listener in self._listeners:
            if listener.repo_id == repo_id:
                listener.put(entry)

    def _happened(self, event: Event) -> None:
        interested = [one for one in self._listeners if one.wants(event.repo_id)]
        if interested:
            data = adapter(type(event)).dump_json(event).decode()
            entry = Entry.of(type(event).__name__, data)
            for listener in interested:
                listener.put(entry)

    async def events(self, wants: Callable[[str], bool]) -> AsyncIterator[bytes]:
        """The events of all repositories that *wants* takes, best effort."""
        listener = Listener(wants, None)
        async for entry in self._listened(listener, self._queued(listener)):
            yield entry.encoded

    async def changes(self, repo: Repository, after: str) -> AsyncIterator[bytes]:
        """
        The durable changes of *repo* behind the cursor *after*, and its events.

        The first message, ``ready``, has that cursor. Followed by the ids of its messages no
        change is left out, and no message, step or removal comes twice.
        """
        self._heads.setdefault(repo.id, (await repo.inspection.changes()).cursor)
        listener = Listener(lambda repo_id: repo_id == repo.id, repo.id)
        async for entry in self._listened(listener, self._followed(listener, repo, after)):
            yield entry.encoded

    async def _listened(
        self, listener: Listener, entries: AsyncIterator[Entry]
    ) -> AsyncIterator[Entry]:
        self._listeners.add(listener)
        self._joined.set()
        try:
            async for entry in entries:
                yield entry
        finally:
            self._listeners.discard(listener)
            heard = {one.repo_id for one in self._listeners}
            if listener.repo_id is not None and listener.repo_id not in heard:
                self._heads.pop(listener.repo_id, None)

    async def _queued(self, listener: Listener) -> AsyncIterator[Entry]:
        while not (self._ended or listener.has_ended):
            while listener.queue:
                yield listener.queue.popleft()
            await listener.wait()

    async def _followed(
        self, listener: Listener, repo: Repository, cursor: str
    ) -> AsyncIterator[Entry]:
        yield Entry.of("ready", "{}", cursor)
        while not (self._ended or listener.has_ended):
            while listener.is_behind:
                listener.is_behind = False
                page = await repo.inspection.changes(cursor)
                while page.cursor != cursor:
                    yield Entry.of_changes(page, start=cursor)
                    cursor = page.cursor
                    page = await repo.inspection.changes(cursor)
            while listener.queue and not listener.is_behind:
                entry = listener.queue.popleft()
                if entry.changes is None:
                    yield entry
                while entry.changes is not None and not _reaches(cursor, entry.changes.cursor):
                    changes = entry.changes
                    if entry.start != cursor:
                        page = await repo.inspection.changes(cursor)
                        if page.cursor == cursor:
                            break  # what it tells of was erased meanwhile
                        changes = _rest(changes, entry.start, cursor, page)
                    yield entry if changes is entry.changes else Entry.of_changes(changes, cursor)
                    cursor = changes.cursor
            if not listener.is_behind:
                await listener.wait()


def _rest(shared: Changes, start: str, cursor: str, page: Changes) -> Changes:
    """What of *shared* is behind *cursor*; if they do not nest, *page*, which begins there."""
    ends = [start, cursor, shared.cursor, page.cursor]
    if not all(map(_reaches, ends[1:], ends)):
        return page
    return replace(
        shared,
        messages=_both(shared.messages, page.messages),
        steps=_both(shared.steps, page.steps),
        nodes=_both(shared.nodes, page.nodes),
        removed=_both(shared.removed, page.removed),
        missed=page.missed,
    )


def _both(shared: Sequence[T], page: Sequence[T]) -> tuple[T, ...]:
    known = frozenset(page)
    return tuple(one for one in shared if one in known)


def _reaches(cursor: str, other: str) -> bool:
    """Whether all that is behind *other* is behind *cursor* too."""
    return all(a >= b for a, b in zip(_numbers(cursor), _numbers(other), strict=True))


def _numbers(cursor: str) -> Any:
    return map(int, cursor.split("."))
