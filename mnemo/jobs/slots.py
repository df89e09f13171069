"""Places for jobs: how many a service works on at once, over all its repositories."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Protocol
from weakref import WeakSet

from mnemo.errors import UsageError
from mnemo.values.jobs import JobKind


class Watched(Protocol):
    """Something whose jobs somebody waits for."""

    def pulse(self) -> None:
        """Have those that wait look; a plain call."""


class JobSlots:
    """
    Places for jobs that a service runs at once; *most* ``None``: as each repository says.

    *running* are at work, *busy* of them per repository; *done* ended, *failed* tries did not.
    *embedding* of them embed, which holds no place, as it may take hours; so many places, so many.
    """

    def __init__(self, most: int | None = None) -> None:
        self.most = most
        self.kinds: Collection[JobKind] | None = None
        self.running: int = 0
        self.embedding: int = 0
        self.done = 0
        self.failed = 0
        self.busy: Counter[str] = Counter()
        self.look: Callable[[], None] = lambda: None
        """Has jobs of all repositories be looked for now; a plain call."""
        self.look_soon: Callable[[], None] = lambda: None
        """As *look*, for what comes as often as others write: not sooner after the last look."""
        self.watched: WeakSet[Watched] = WeakSet()
        """What is told when another process may have ended jobs."""
        self.works: bool = False
        """Whether this service is a worker, of repositories that are not open, too."""
        self._pokes: dict[str, tuple[Callable[[], None], float]] = {}
        self._paces: Counter[float] = Counter()
        self._waiting: dict[str, None] = {}

    def notice(self) -> None:
        """Another process may have written jobs, or their ends. A plain call."""
        self.look_soon()
        for one in tuple(self.watched):
            one.pulse()

    # ── Who looks ────────────────────────────────────────────────────────────────────

    @property
    def poll_s(self) -> float:
        """Seconds between two looks: the least that anybody open here asks for."""
        return min(self._paces, default=math.inf)

    def serves(self, repo_id: str) -> bool:
        """Whether jobs of the repository may be claimed here: it is open, or a worker opens it."""
        return self.works or repo_id in self._pokes

    def enter(self, repo_id: str, poke: Callable[[], None], poll_s: float) -> None:
        """Call *poke* when the repository may have a job to claim, and a place for it."""
        if repo_id in self._pokes:  # one that is closing, and was opened again
            self.leave(repo_id, self._pokes[repo_id][0])
        self._pokes[repo_id] = poke, poll_s
        self.pace(poll_s, 1)

    def leave(self, repo_id: str, poke: Callable[[], None]) -> None:
        """Do not call *poke* any more. Idempotent."""
        if repo_id in self._pokes and self._pokes[repo_id][0] == poke:
            self.pace(self._pokes.pop(repo_id)[1], -1)
            self._waiting.pop(repo_id, None)
            self.go_on()

    def pace(self, poll_s: float, by: int = 1) -> None:
        """Look each *poll_s* seconds, for one more who asks for that, or one less."""
        before = self.poll_s
        self._paces[poll_s] += by
        if not self._paces[poll_s]:
            del self._paces[poll_s]
        if self.poll_s < before:
            self.look()

    def wake(self, repo_ids: Iterable[str]) -> None:
        """Have those of *repo_ids* that are open here claim their jobs, as there are places."""
        self._waiting.update((id, None) for id in repo_ids if id in self._pokes)
        self.go_on()

    def go_on(self) -> None:
        """Have as many that wait for a place look as there are places. A plain call."""
        for id in tuple(islice(self._waiting, self._free(len(self._waiting)))):
            del self._waiting[id]
            self._pokes[id][0]()

    def _free(self, wanted: int) -> int:
        taken = self.running - self.embedding
        return wanted if self.most is None else max(0, min(wanted, self.most - taken))

    # ── Places ───────────────────────────────────────────────────────────────────────

    @contextmanager
    def working(self, kinds: Collection[JobKind] | None, poll_s: float) -> Iterator[None]:
        """
        Claim jobs of *kinds* alone while the block runs, and look each *poll_s* seconds.
        *Raises* ``UsageError``.
        """
        if self.most == 0:
            raise UsageError("this service was made with workers=0, which leaves jobs to others")
        if self.works:
            raise UsageError("this service works already")
        self.works, self.kinds = True, kinds
        self.pace(poll_s, 1)
        self.look()
        try:
            yield
        finally:
            self.works, self.kinds = False, None
            self.pace(poll_s, -1)

    def take(self, repo_id: str, wanted: int) -> int:
        """Take up to *wanted* places; how many it got. If none, it is woken when one is free."""
        got = self._free(wanted)
        self.running += got
        if not got and repo_id in self._pokes:
            self._waiting[repo_id] = None
        return got

    @property
    def may_embed(self) -> bool:
        """Whether one more job that embeds may be claimed."""
        return self.most is None or self.embedding < self.most

    def begin(self, repo_id: str, kind: JobKind) -> None:
        """A job of the repository, whose place is taken, is at work; one that embeds frees it."""
        self.busy[repo_id] += 1
        if kind == "embed":
            self.embedding += 1
            self.go_on()

    def end(self, repo_id: str, kind: JobKind = "extract") -> None:
        """A job of the repository has ended."""
        self.embedding -= kind == "embed"
        self.busy[repo_id] -= 1
        if not self.busy[repo_id]:
            del self.busy[repo_id]
        self.give_back(1)

    def give_back(self, places: int) -> None:
        """Free *places*; whoever waits for one looks for jobs again."""
        self.running -= places
        self.go_on()
