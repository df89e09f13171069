"""What a repository is made of, put together; loaded when the first one is opened."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from mnemo.commit.announced import AnnouncedWrites
from mnemo.commit.lane import CommitLane
from mnemo.config import Config
from mnemo.episode.erasure import ErasureReport, Selection
from mnemo.maintenance.erase import Forgetting
from mnemo.maintenance.runner import Maintenance
from mnemo.notes.notes import Notes
from mnemo.notes.parts import NotesParts
from mnemo.prompts.profiles import resolve_profile
from mnemo.prompts.usage import UsageMeter
from mnemo.recall.access import AccessLog
from mnemo.recall.pipeline import Recall
from mnemo.repository.guarded import Guarded
from mnemo.repository.parts import RepositoryParts

__all__ = [
    "announced_writes",
    "commit_lane",
    "erasing",
    "maintenance",
    "notes",
    "overview_of",
    "recalling",
]

T = TypeVar("T")


def commit_lane(parts: RepositoryParts) -> CommitLane:
    """Where changesets are reconciled one after the other."""
    return CommitLane(
        graph=parts.graph,
        index=parts.index,
        embedder=parts.embedder,
        owner=parts.owner,
        clock=parts.clock,
        config=parts.config.commit,
    )


def announced_writes(parts: RepositoryParts, lane: CommitLane) -> AnnouncedWrites:
    """The lane, with whoever listens told of what it did."""
    return AnnouncedWrites(
        repo_id=parts.repo_id,
        lane=lane,
        graph=parts.graph,
        clock=parts.clock,
        publish=parts.publish,
        written=parts.index.poke,
        spans=parts.spans,
    )


def recalling(parts: RepositoryParts, access: AccessLog, notes: Notes, usage: UsageMeter) -> Recall:
    """How questions are answered; *usage* counts what models are asked."""
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
    """Its hygiene."""
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


def erasing(
    parts: RepositoryParts,
    lane: CommitLane,
    *,
    end_sessions: Callable[[Collection[str]], Awaitable[None]],
    erased: Callable[[], Awaitable[None]],
) -> Callable[[Selection], Awaitable[ErasureReport]]:
    """How it forgets for good."""
    forgetting = Forgetting(
        repo_id=parts.repo_id,
        overhaul=parts.overhaul,
        turn=lane.turn,
        end_sessions=end_sessions,
        erased=erased,
        clock=parts.clock,
        publish=parts.publish,
    )
    return forgetting.forget


def notes(
    parts: RepositoryParts, *, closing: Callable[[], bool], check_usable: Callable[[], None]
) -> Notes:
    """Its notes."""

    def session_meter(session_id: str) -> UsageMeter | None:
        session = parts.open_sessions.get(session_id)
        return session.meter if session and session.repo_id == parts.repo_id else None

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


def overview_of(notes: Notes) -> Callable[[int], Awaitable[str]]:
    """Tells of *notes* in a window; ``""`` where there are none."""

    async def overview(budget_tokens: int) -> str:
        there = (await notes.statistics()).notes
        return await notes.overview(budget_tokens) if there else ""

    return overview


def _profiled(config: Config) -> Config:
    """*config* with its profile's scoring in force: a profile beats ``config.scoring``."""
    profile = resolve_profile(config.extraction.profile)
    if profile is None:
        return config
    return config.model_copy(update={"scoring": profile.scoring(config.scoring)})
