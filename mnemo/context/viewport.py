"""The viewport of one thread: the messages that fit a token budget."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from mnemo.context.eviction import Committed, tell_of
from mnemo.context.mneme import Mneme
from mnemo.context.passive import PassiveRecall
from mnemo.context.rendering import (
    Overview,
    RenderedViewport,
    ViewportContent,
    notes_text,
    render,
    scene_of,
    zones_of,
)
from mnemo.context.window import Frame, ThreadWindow, WindowReader, make_room
from mnemo.context.zones import Budget, CompressedViewport
from mnemo.conversation.scope import ConversationParts, OfThread, ThreadScope, ThreadSettings
from mnemo.errors import StoreError
from mnemo.events import EvictionFailed
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.recall.keyword import SearchHit
from mnemo.values.derived import EvictionOutcome
from mnemo.values.messages import Message

log: logging.Logger = logging.getLogger("mnemo")

T = TypeVar("T")
_Look: TypeAlias = Callable[[TranscriptReader, ThreadWindow], T]
"""Reads what is to be shown of a window."""


@dataclass(frozen=True, slots=True)
class _Seen(Generic[T]):
    """What was read from a window of *span* stored tokens; *is_stored*: with its budget."""

    found: T
    span: int
    is_stored: bool


class Viewport(OfThread):
    """
    The part of a thread that fits a token budget (``conversation.viewport``).

    From when it is made the thread is watched with its budget, the latest one wins. That is
    stored as a window of the thread is next read, or behind the next append, once there is one.

    Args:
        parts: The repository's conversations.
        settings: Of the handle that it belongs to.
        mneme: Makes room in the background.
        recall: What comes to mind; ``None``: nothing does.
        overview: Tells of the notes, which have a share then; ``None``: nobody does.
        budget_tokens: Of the whole rendering; ``None``: as the configuration says.

    Raises:
        ValueError: The budget is below 1.
        ConfigError: Notes have a share, and leave too little to the window.
    """

    def __init__(
        self,
        parts: ConversationParts,
        settings: ThreadSettings,
        *,
        mneme: Mneme,
        recall: PassiveRecall | None = None,
        overview: Overview | None = None,
        budget_tokens: int | None = None,
    ) -> None:
        config = parts.config
        tokens = config.viewport.budget_tokens if budget_tokens is None else budget_tokens
        super().__init__(parts, settings)
        self._mneme = mneme
        self._recall = recall
        self._overview = overview
        self._budget = Budget.of(tokens, config.viewport, notes=overview is not None)
        self._frame = Frame(
            self._budget, config.conversation.tool_deadline_s, config.conversation.count
        )
        mneme.watch(settings.thread_id, tokens, notes=overview is not None)

    def __repr__(self) -> str:
        return f"<Viewport of {self._thread_id!r}, {self.budget_tokens} tokens>"

    @property
    def budget_tokens(self) -> int:
        """Tokens of the whole rendering, at most."""
        return self._budget.total

    async def messages(self) -> list[Message]:
        """
        The window: every live message from the boundary on, whole, with complete tool groups.

        If it has grown out of its share, its oldest part is dealt with first, by rule and in
        the same transaction; no model is asked. Only the newest unit is shown however long.

        Raises:
            StoreError: The thread could not be read. *Cancellation*: completes.
        """
        return await self._seen(lambda tx, window: list(window.messages))

    async def render(self, *, recall: bool = True) -> RenderedViewport:
        """
        Memory, window and state as a request's messages, within the budget.

        Notes that are to be told of and cannot be read are left out this time.

        Args:
            recall: Whether memories may come to mind.

        Raises:
            StoreError: The thread could not be read. *Cancellation*: completes.
        """
        scene: ViewportContent = await self._seen(scene_of)
        hits = await self.recalled() if recall else []
        told = partial(self._recall.section, hits) if self._recall and hits else None
        notes = await self._noted()
        return render(scene, self._budget, self._frame.count, notes=notes, recalled=told)

    async def _noted(self) -> str:
        if self._overview is None:
            return ""
        try:
            return await notes_text(self._overview, self._budget.notes, self._frame.count)
        except StoreError as error:
            log.warning("a window is shown without its notes: %s", error)
            return ""

    async def compressed(self) -> CompressedViewport:
        """
        The whole window in three zones, as Mneme sees it; writes nothing.

        Raises:
            StoreError: The thread could not be read. *Cancellation*: safe.
        """

        def work(tx: TranscriptReader) -> CompressedViewport:
            window = self._reader(tx, self._scope(tx)).whole()
            return zones_of(window, self._frame, self._parts.config.viewport.max_input_tokens)

        return await self._parts.store.reading(work)

    async def recalled(self) -> list[SearchHit]:
        """Recall memories for the present turn; mostly none. *Cancellation*: safe."""
        if self._recall is None:
            return []
        return await self._recall.recalled(self._settings, self.budget_tokens)

    async def evict(self) -> EvictionOutcome | None:
        """
        Have Mneme make room now if it is due, or join the run that does.

        Returns:
            ``None``: it was not due, or the run brought no outcome.
                *Cancellation*: safe; only the wait ends.
        """
        return await self._mneme.evict(self._thread_id)

    async def _seen(self, look: _Look[T]) -> T:
        """Return what *look* reads from the window, after evicting if it is too long."""
        seen = await self._parts.store.reading(partial(self._at_once, look))
        if seen is None:
            seen = await self._after_making_room(look)
        if seen.is_stored:
            self._mneme.kept(self._thread_id, self.budget_tokens)
        if seen.span > self._budget.trigger:
            self._mneme.poke(self._thread_id)
        return seen.found

    async def _after_making_room(self, look: _Look[T]) -> _Seen[T]:
        try:
            while True:
                work = partial(self._making_room, look)
                left, seen = await self._parts.store.writing(work)
                for committed in left:
                    tell_of(self._parts, committed)
                if seen is not None:
                    return seen
        except StoreError as error:
            log.warning("no room could be made in thread %r: %s", self._thread_id, error)
            thread_id = self._thread_id
            self._parts.tell(EvictionFailed, thread_id=thread_id, error=str(error))
        return await self._parts.store.reading(partial(self._as_far_as_it_fits, look))

    def _at_once(self, look: _Look[T], tx: TranscriptReader) -> _Seen[T] | None:
        scope = self._scope(tx)
        window = None if self._is_unstored(scope) else self._reader(tx, scope).if_fits()
        if window is None:
            return None
        return _Seen(look(tx, window), window.span, is_stored=not scope.is_new)

    def _making_room(
        self, look: _Look[T], tx: TranscriptWriter
    ) -> tuple[list[Committed], _Seen[T] | None]:
        scope = self._scope(tx)
        if self._is_unstored(scope):
            tx.keep(replace(scope.thread, budget_tokens=self.budget_tokens))
        reader = self._reader(tx, scope)
        left, done = make_room(tx, reader, self._parts.config)
        if not done:
            return left, None
        window = reader.anew().whole()
        return left, _Seen(look(tx, window), window.span, is_stored=True)

    def _is_unstored(self, scope: ThreadScope) -> bool:
        """Whether the budget must be stored; only once, and not if a later viewport's is."""
        if scope.is_new or self._mneme.to_keep(self._thread_id) != self.budget_tokens:
            return False
        return scope.thread.budget_tokens != self.budget_tokens

    def _as_far_as_it_fits(self, look: _Look[T], tx: TranscriptReader) -> _Seen[T]:
        window = self._reader(tx, self._scope(tx)).newest()
        return _Seen(look(tx, window), window.span, is_stored=False)

    def _reader(self, tx: TranscriptReader, scope: ThreadScope) -> WindowReader:
        return WindowReader(tx, scope, self._frame)
