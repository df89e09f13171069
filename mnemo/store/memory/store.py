"""The memory store: opening, closing, and what it hands out."""

from __future__ import annotations

from anyio.lowlevel import cancel_shielded_checkpoint

from mnemo.episode.journal import Owner
from mnemo.errors import StoreError
from mnemo.protocols import Clock, StoreReport
from mnemo.store.memory.archive import MemoryArchive
from mnemo.store.memory.feed import MemoryFeed
from mnemo.store.memory.graph import MemoryGraph
from mnemo.store.memory.notes import MemoryNotes
from mnemo.store.memory.overhaul import MemoryOverhaul
from mnemo.store.memory.records import MemoryRecords
from mnemo.store.memory.sessions import MemorySessions
from mnemo.store.memory.state import Kept
from mnemo.store.memory.transcript import MemoryTranscript
from mnemo.store.processes import new_owner

__all__ = ["MemoryStore"]


class MemoryStore:
    """
    Everything in plain objects, gone with the store object; the same contract as on disk.

    It may be opened again after ``aclose`` and holds what it held.

    Args:
        lease_s: Seconds that an owner's lease runs from ``open`` or ``renew``.
    """

    def __init__(self, *, clock: Clock, lease_s: float) -> None:
        self._clock = clock
        self._lease_s = lease_s
        self._everything = Kept()
        self._open = False
        self._sessions = MemorySessions(self._kept, clock)

    @property
    def sessions(self) -> MemorySessions:
        """The journal of all sessions."""
        return self._sessions

    @property
    def queued_writes(self) -> int:
        """Always 0: a write is done when it is asked for."""
        return 0

    def graph(self, repo_id: str) -> MemoryGraph:
        """The graph of one repository."""
        return MemoryGraph(repo_id, self._kept, self._clock)

    def feed(self, repo_id: str) -> MemoryFeed:
        """What one repository's indexes follow."""
        return MemoryFeed(repo_id, self._kept)

    def records(self, repo_id: str) -> MemoryRecords:
        """Every single thing said or observed in one repository."""
        return MemoryRecords(repo_id, self._kept, self._clock)

    def overhaul(self, repo_id: str) -> MemoryOverhaul:
        """What is rarely done to one repository as a whole."""
        return MemoryOverhaul(repo_id, self._kept, self._clock)

    def archive(self, repo_id: str) -> MemoryArchive:
        """One repository as records, out and in."""
        return MemoryArchive(repo_id, self._kept)

    def transcript(self, repo_id: str) -> MemoryTranscript:
        """The conversations of one repository."""
        return MemoryTranscript(repo_id, self._kept, self._clock)

    def notes(self, repo_id: str) -> MemoryNotes:
        """The notes of one repository."""
        return MemoryNotes(repo_id, self._kept, self._clock)

    async def open(self) -> Owner:
        """Register a new owner."""
        self._open = True
        owner = new_owner()
        await self.renew(owner, self._lease_s)
        return owner

    async def aclose(self) -> None:
        """Refuse further calls. Idempotent."""
        await cancel_shielded_checkpoint()
        self._open = False

    async def renew(self, owner: Owner, lease_s: float) -> None:
        """Prolong the lease of *owner* on all its sessions."""
        until = self._clock.now().timestamp() + lease_s
        self._kept().leases[owner.token] = (owner, until)
        await cancel_shielded_checkpoint()

    async def scrub(self) -> bool:
        """Nothing is left of what was erased."""
        await cancel_shielded_checkpoint()
        return True

    async def check(self) -> StoreReport:
        """Check that edges and vectors have their nodes."""
        await cancel_shielded_checkpoint()
        problems = []
        counts = {"sessions": len(self._everything.sessions), "steps": self._everything.ordinal}
        for repo in self._everything.repos.values():
            problems += [
                f"an edge's end is gone: {edge}"
                for edge in repo.edges
                if not {edge.source, edge.target} <= repo.nodes.keys()
            ]
            counts["nodes"] = counts.get("nodes", 0) + len(repo.nodes)
            counts["edges"] = counts.get("edges", 0) + len(repo.edges)
            counts["threads"] = counts.get("threads", 0) + len(repo.threads)
            messages = sum(len(thread.messages) for thread in repo.threads.values())
            counts["messages"] = counts.get("messages", 0) + messages
        return StoreReport(
            problems=tuple(problems), counts=counts, schema_version=0, synchronous="none"
        )

    def _kept(self) -> Kept:
        if not self._open:
            raise StoreError("the store is not open")
        return self._everything
