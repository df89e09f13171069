"""Constructors of a repository's components; imported when the first one is opened."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Generic, TypeVar

from mnemo.commit.lane import CommitLane
from mnemo.config import Config
from mnemo.errors import MnemoError
from mnemo.index.follower import RepositoryIndex
from mnemo.items.items import Items
from mnemo.maintenance.erase import Forgetting
from mnemo.maintenance.runner import Maintenance
from mnemo.notes.notes import Notes
from mnemo.notes.update import NotesParts
from mnemo.prompts.profiles import resolve_profile
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import Transactions
from mnemo.recall.pipeline import AccessLog, Recall
from mnemo.repository.checkpoints import Checkpoints
from mnemo.repository.parts import RepositoryParts
from mnemo.runtime.tasks import Branch

log = logging.getLogger("mnemo")

R = TypeVar("R")
W = TypeVar("W")
T = TypeVar("T")


class Guarded(Generic[R, W]):
    """
    The transactions of *store*, refused where their repository cannot be used any more.

    Args:
        check_usable: Raises ``UsageError`` in another event loop, and once all has ended.
    """

    def __init__(self, store: Transactions[R, W], check_usable: Callable[[], None]) -> None:
        self._store = store
        self._check_usable = check_usable

    async def reading(self, work: Callable[[R], T]) -> T:
        """See ``Transactions``. *Raises* ``UsageError``."""
        self._check_usable()
        return await self._store.reading(work)

    async def writing(self, work: Callable[[W], T], **named: Any) -> T:
        """See ``Transactions``. *Raises* ``UsageError``."""
        self._check_usable()
        return await self._store.writing(work, **named)


def commit_lane(parts: RepositoryParts) -> CommitLane:
    """Make the lane in which changesets are reconciled one after the other."""
    return CommitLane(
        repo_id=parts.repo_id,
        graph=parts.graph,
        index=parts.index,
        embedder=parts.embedder,
        owner=parts.owner,
        clock=parts.clock,
        config=parts.config.commit,
        publish=parts.publish,
        written=parts.index.poke,
        spans=parts.spans,
    )


def recall(
    parts: RepositoryParts, access: AccessLog, notes: Notes, items: Items, usage: UsageMeter
) -> Recall:
    """Make the recall pipeline; *usage* counts its calls of models."""
    return Recall(
        repo_id=parts.repo_id,
        graph=parts.graph,
        feed=parts.feed,
        index=parts.index,
        embedder=parts.embedder,
        clock=parts.clock,
        config=_profiled(parts.config),
        notify=parts.publish,
        access=access,
        find_notes=notes.recall,
        find_items=items.search,
        chat_model=parts.chat_model,
        usage=usage,
        spans=parts.spans,
    )


def maintenance(
    parts: RepositoryParts,
    lane: CommitLane,
    *,
    settle: Callable[[], Awaitable[None]],
    check_usable: Callable[[], None],
) -> Maintenance:
    """Make what consolidates, decays and validates the graph."""
    return Maintenance(
        repo_id=parts.repo_id,
        lane=lane,
        graph=parts.graph,
        index=parts.index,
        embedder=parts.embedder,
        clock=parts.clock,
        config=_profiled(parts.config),
        root=parts.root,
        publish=parts.publish,
        written=parts.index.poke,
        settle=settle,
        check_usable=check_usable,
    )


def forgetting(
    parts: RepositoryParts,
    lane: CommitLane,
    *,
    end_sessions: Callable[[Collection[str]], Awaitable[None]],
    erased: Callable[[], Awaitable[None]],
) -> Forgetting:
    """Make what erases steps and all that was derived from them alone."""
    return Forgetting(
        repo_id=parts.repo_id,
        overhaul=parts.overhaul,
        lane=lane,
        end_sessions=end_sessions,
        erased=erased,
        spans=parts.spans,
    )


async def drop_erased(index: RepositoryIndex, items: Items, tasks: Branch) -> None:
    """Have nothing erased found from now on; a task then drops it from memory."""
    items._renew()
    await index.catch_up()
    if not tasks.ended:
        tasks.spawn(_renew, index)


async def _renew(index: RepositoryIndex) -> None:
    try:
        await index.renew()
    except MnemoError as error:
        # Nothing of what was erased can be found; it only takes up room.
        log.info("the index could not be read anew: %s", error)


def notes(
    parts: RepositoryParts, *, closing: Callable[[], bool], check_usable: Callable[[], None]
) -> Notes:
    """Make its notes."""

    def session_meter(session_id: str) -> UsageMeter | None:
        session = parts.open_sessions.get(session_id)
        return session._meter if session and session.repo_id == parts.repo_id else None

    return Notes(
        NotesParts(
            repo_id=parts.repo_id,
            store=Guarded(parts.notes, check_usable),
            embedder=parts.embedder,
            chat_model=parts.chat_model,
            clock=parts.clock,
            config=parts.config.notes,
            publish=parts.publish,
            spawn=parts.root.spawn,
            meter=UsageMeter(),
            scrub=parts.scrub,
            session_meter=session_meter,
            closing=closing,
            check_usable=check_usable,
            count=parts.config.conversation.count,
            spans=parts.spans,
        )
    )


def checkpoints(parts: RepositoryParts, check_usable: Callable[[], None]) -> Checkpoints:
    """Make its checkpoints."""
    return Checkpoints(Guarded(parts.checkpoints, check_usable), parts.scrub)


def items(parts: RepositoryParts, tasks: Branch, check_usable: Callable[[], None]) -> Items:
    """Make its keyed items."""
    return Items(
        parts.items,
        parts.embedder,
        clock=parts.clock,
        spawn=tasks.spawn,
        check_usable=check_usable,
    )


def overview_of(notes: Notes) -> Callable[[int], Awaitable[str]]:
    """Make the function that renders an overview of *notes*; ``""`` where there are none."""

    async def overview(budget_tokens: int) -> str:
        there = (await notes.statistics()).notes
        return await notes.overview(budget_tokens) if there else ""

    return overview


def _profiled(config: Config) -> Config:
    """Return *config* with its profile's scoring, which overrides ``config.scoring``."""
    profile = resolve_profile(config.extraction.profile)
    if profile is None:
        return config
    return config.model_copy(update={"scoring": profile.scoring(config.scoring)})
