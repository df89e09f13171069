"""
Handing over: closed episodes are extracted by a worker, and taken back when it is done.

The session is claimed by whoever works on it, so that nobody else writes to it; its own process
waits, and goes on from the journal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from mnemo.config import Config
from mnemo.errors import ExtractionFailed, SessionBusy, SessionClosed
from mnemo.log.job_rules import demand_session, finish_job
from mnemo.prompts.profiles import PROFILES, resolve_profile
from mnemo.repository.parts import RepositoryParts
from mnemo.session.session import Session
from mnemo.values.jobs import Job, JobState
from mnemo.values.journal import Journal, SessionState

_CARRIED = {"extraction", "annotation", "commit"}
"""Sections of the config that a job carries."""

OpenSession = Callable[[str, Config, str | None], Awaitable[Session]]
"""Opens a session by its id, with a config, as left by the service of a token."""


def needs_of(config: Config, space: object) -> dict[str, Any]:
    """What a worker must have to do a job as this service would; see ``Job.needs``."""
    sections = config.model_dump(mode="json", include=_CARRIED, exclude_unset=True)
    sections.get("extraction", {}).pop("profile", None)
    profile = resolve_profile(config.extraction.profile)
    named = {"profile": profile.name} if profile else {}
    return {"space": str(space), "config": sections, **named}


def satisfies(needs: Mapping[str, Any], config: Config, space: object) -> bool:
    """Whether a service with *config*, whose vectors are of *space*, has what *needs* names."""
    own = resolve_profile(config.extraction.profile)
    profiles = {None, *PROFILES, own.name if own else None}
    return needs.get("space", str(space)) == str(space) and needs.get("profile") in profiles


def config_of(needs: Mapping[str, Any], own: Config) -> Config:
    """
    The config to do a job with, over that of the worker.

    Raises:
        ConfigError: It was written by another version, and says what this one cannot do.
    """
    config, profile = dict(needs.get("config", {})), needs.get("profile")
    if "config" in needs and (profile is None or profile in PROFILES):
        config["extraction"] = {**config.get("extraction", {}), "profile": profile}
    return own.overlaid(Config(**config))


class HandingOver:
    """
    The ``session`` jobs of one repository, from both ends.

    Args:
        watch: As of ``Jobs``.
        open_session: Gives a worker the session that a job is about.
    """

    def __init__(
        self,
        parts: RepositoryParts,
        watch: Callable[[], Callable[[], Awaitable[None]]],
        open_session: OpenSession,
    ) -> None:
        self._parts = parts
        self._watch = watch
        self._open_session = open_session

    # ── The session's own process ────────────────────────────────────────────────────

    async def extracted(self, session_id: str, config: Config) -> Journal:
        """
        Have the closed episode of a session be extracted; what its journal says then.

        Raises:
            ExtractionFailed: The job was given up.
            SessionClosed: Another process has gone on with the session.
            StoreError: The job could not be stored. *Cancellation*: safe; the job remains.
        """
        needs = needs_of(config, self._parts.embedder.space)
        needs["home"] = self._parts.owner.token
        demand = partial(demand_session, session_id=session_id, needs=needs)
        await self._parts.transcript.writing(demand)
        while True:
            changed = self._watch()
            job = await self._parts.transcript.reading(lambda tx: tx.job("session", session_id))
            if job is None or job.state in (JobState.DONE, JobState.DEAD):
                return await self._taken_back(session_id, job)
            await changed()

    async def _taken_back(self, session_id: str, job: Job | None) -> Journal:
        await self._claimed(session_id)
        journal = await self._parts.sessions.load(session_id)
        if journal is None or journal.record.state is SessionState.EXTRACTING:
            why = (job.error if job else None) or "its job was cancelled"
            raise ExtractionFailed(f"no worker could extract the episode: {why}")
        return journal

    async def _claimed(self, session_id: str) -> None:
        """Claim the session, which a worker may hold until its lease is over."""
        parts = self._parts
        until = parts.clock.monotonic() + parts.config.session.lease_s
        while True:
            changed = self._watch()
            try:
                return await parts.sessions.claim(session_id, parts.owner)
            except SessionBusy as error:
                if parts.clock.monotonic() >= until:
                    raise SessionClosed(
                        "another process has gone on with the session", operation="close"
                    ) from error
            await changed()

    # ── The worker's ─────────────────────────────────────────────────────────────────

    async def work(self, job: Job) -> datetime | None:
        """Extract the closed episode of the session that *job* is about; see ``Work``."""
        journal = await self._parts.sessions.load(job.subject)
        if journal is not None and journal.record.state is SessionState.EXTRACTING:
            config = config_of(job.needs, self._parts.config)
            session = await self._open_session(job.subject, config, job.needs.get("home"))
            try:
                await session.wait_for(SessionState.READY, SessionState.FAILED)
            except SessionClosed:
                return job.due_at  # this repository closes, or the session was forgotten
            finally:
                await session.aclose()
        await self._parts.transcript.writing(partial(finish_job, job=job))
        return None
