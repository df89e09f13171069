"""``MnemoSession``: a session of the OpenAI Agents SDK over a conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from os import PathLike
from typing import Any, Self, cast

import anyio.to_thread

from mnemo import ConfigError, Repository, StoredMessage
from mnemo import sync as blocking
from mnemo.adapters.handles import Adapter, AnyRepository, LazyService
from mnemo.runtime.extras import refuse
from mnemo.runtime.validation import portions
from mnemo.wire import to_responses

try:
    from agents import SessionSettings, TResponseInputItem
except ImportError as error:
    refuse(__name__, "agents", error)

__all__ = ["MnemoSession"]


class MnemoSession(Adapter):
    """
    The SDK's ``Session`` over one thread of a repository.

    Items are messages of the thread: searched and recalled, and with *remember* facts are
    extracted from them. They come back as they were given, without summaries, of the thread's
    present epoch. Their ids are not message ids: an item that was popped may be added again.

    Args:
        thread_id: The thread; the SDK's ``session_id``.
        repo: An open repository; of ``mnemo.sync`` in a program without an event loop of its
            own (``Runner.run_sync``).
        session_settings: The SDK's, or a mapping of its fields.
        remember: Have facts extracted from the items in the background; see
            ``Repository.conversation``.

    Raises:
        ConfigError: *repo* is no open repository, or a field of the settings is unknown.
    """

    def __init__(
        self,
        thread_id: str,
        repo: AnyRepository | LazyService,
        *,
        session_settings: SessionSettings | Mapping[str, Any] | None = None,
        remember: bool = False,
    ) -> None:
        self.session_id = thread_id
        self.session_settings: SessionSettings | None = _settings(session_settings)
        self._remember = remember
        self._attach(repo, Repository, blocking.Repository)
        self._conversation: Any = None

    @classmethod
    def from_path(
        cls,
        thread_id: str,
        path: str | PathLike[str],
        *,
        repo_id: str = "default",
        session_settings: SessionSettings | Mapping[str, Any] | None = None,
        remember: bool = False,
    ) -> Self:
        """
        A session over a file of its own, opened at the first call; close it, or use ``async with``.

        Usable from any event loop, one after the other. For many threads of a file open one
        ``Mnemo`` and share its repository: each service loads its own embedder.
        """
        service = LazyService(path, repo_id)
        return cls(thread_id, service, session_settings=session_settings, remember=remember)

    def __repr__(self) -> str:
        return f"<MnemoSession {self.session_id!r}>"

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """
        The newest items, ascending.

        Args:
            limit: ``None``: ``session_settings.limit``, and if that is ``None``, all; 0: none;
                negative: all.

        Raises:
            StoreError: They could not be read. *Cancellation*: safe.
        """
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        if limit == 0:
            return []
        count = None if limit is None or limit < 0 else limit
        stored = await self._handle.run(lambda repo: self._chat(repo).recent(count))
        return await _items(stored)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """
        Store *items*, all or none of up to 1,000; durable and searchable when it returns.

        More are stored a thousand at a time, between which others may add theirs.

        Raises:
            ValueError: An item is no JSON object of the Responses API, is nested more than 200
                levels deep, or has more than 64 MiB. The thousands before its own are stored,
                nothing else.
            StoreError: Likewise. *Cancellation*: each thousand is stored whole or not at all,
                and none after it.
        """
        for some in portions(items):
            await self._handle.run(partial(self._append, some))

    async def pop_item(self) -> TResponseInputItem | None:
        """
        Take back the newest item; ``None``: there is none.

        It is erased with what was derived from it alone, see ``Conversation.withdraw``; two
        callers, of two processes too, never get the same one. A message that another format
        stored is taken back whole: its last item is returned.

        Raises:
            StoreError: Nothing was taken back. *Cancellation*: completes.
        """
        while stored := await self._handle.run(lambda repo: self._chat(repo).withdraw()):
            if items := await _items(stored):
                return items[-1]
        return None

    async def clear_session(self) -> None:
        """
        Erase the thread with all that was derived from it alone; its bytes go with a later scrub.

        Raises:
            StoreError: Nothing was erased. *Cancellation*: completes.
        """
        await self._handle.run(lambda repo: self._chat(repo).purge(scrub=False))

    def _append(self, items: Sequence[TResponseInputItem], repo: Any) -> Any:
        return self._chat(repo).append(items, format="responses")

    def _chat(self, repo: Any) -> Any:
        if self._conversation is None:
            self._conversation = repo.conversation(self.session_id, remember=self._remember)
        return self._conversation


def _settings(given: SessionSettings | Mapping[str, Any] | None) -> SessionSettings:
    if not isinstance(given, Mapping):
        return given or SessionSettings()
    unknown = set(given) - {one.name for one in fields(SessionSettings)}
    if unknown:
        raise ConfigError(f"session_settings have no {', '.join(sorted(unknown))}")
    return SessionSettings(**given)


async def _items(stored: list[StoredMessage]) -> list[TResponseInputItem]:
    """The items of *stored*, converted off the event loop: they may be many, or long."""
    items = await anyio.to_thread.run_sync(to_responses, stored)
    return cast("list[TResponseInputItem]", items)
