"""Changes: what held and holds no longer, what took its place, and when."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

import numpy as np

from mnemo.english.slots import only_ends
from mnemo.recall.candidate import SourceRef
from mnemo.repository.memories import Memories, Memory, Order, Page, cursor, named, place
from mnemo.repository.parts import RepositoryParts
from mnemo.runtime.text import shown, words
from mnemo.runtime.validation import MOST_AT_ONCE, stored_text, stored_time, whole_number
from mnemo.values.corpus import DocumentsView

_Place: TypeAlias = tuple[float, str]
"""Unix seconds of a change, and the id of the fact that ended."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Change:
    """
    A fact that no longer holds.

    Attributes:
        old: The fact; it holds no longer, and is kept.
        new: What holds instead; ``None`` where it was only said to have ended.
        when: Since when it does not hold, aware.
        sources: Who said so: the sources of what ended it, the latest first; empty where its end
            was set without another fact.
    """

    old: Memory
    new: Memory | None
    when: datetime
    sources: tuple[SourceRef, ...]

    def __repr__(self) -> str:
        new = self.new.text if self.new else "no longer"
        return f"<Change {self.when:%Y-%m-%d}: {shown(self.old.text)!r} → {shown(new)!r}>"


class FactChanges:
    """The changes of one repository, from the ends that its facts have."""

    def __init__(self, parts: RepositoryParts, memories: Memories) -> None:
        self._parts = parts
        self._memories = memories

    async def page(
        self,
        *,
        since: datetime | str | None,
        until: datetime | str | None,
        subject: str | None,
        order: Order,
        limit: int,
        after: str | None,
    ) -> Page[Change]:
        """See ``Repository.changes``."""
        whole_number("limit", limit, 1, MOST_AT_ONCE)
        if order not in ("newest", "oldest"):
            raise ValueError(f"order must be 'newest' or 'oldest', not {order!r}")
        bounds = _seconds("since", since), _seconds("until", until)
        about = _subject(subject)
        listing = named(bounds, about, order)
        places = _places(await self._facts(), *bounds)
        sign = -1.0 if order == "newest" else 1.0
        places = sorted((sign * at, id) for at, id in places)
        if after is not None:
            at, id = place(after, listing)
            places = places[bisect(places, (sign * at.timestamp(), id)) :]
        found: list[Change] = []
        for start in range(0, len(places), limit + 1):
            for change in await self._read([id for _, id in places[start : start + limit + 1]]):
                if about and not _is_about(change, about):
                    continue
                if len(found) == limit:
                    return Page(tuple(found), cursor(found[-1].when, found[-1].old.id, listing))
                found.append(change)
        return Page(tuple(found), None)

    async def _facts(self) -> DocumentsView | None:
        corpus = await self._parts.index.corpus()
        return corpus.nodes.get("semantic")

    async def _read(self, ids: Sequence[str]) -> list[Change]:
        """The ends of the facts *ids*, in their order, but for facts that have gone meanwhile."""
        old = await self._memories.several(ids)
        closers = [fact.superseded_by for fact in old.values() if fact.superseded_by]
        new = await self._memories.several(closers)
        made = (_change(old[id], new.get(old[id].superseded_by or "")) for id in ids if id in old)
        return [change for change in made if change is not None]


def _change(old: Memory, closer: Memory | None) -> Change | None:
    if old.valid_to is None:  # it was corrected meanwhile, and holds
        return None
    ended = closer is None or only_ends(closer.text, old.text)
    return Change(
        old=old,
        new=None if ended else closer,
        when=old.valid_to,
        sources=closer.sources if closer else (),
    )


def _is_about(change: Change, subject: Sequence[str]) -> bool:
    """Whether one of its facts has the words of *subject*, one behind another."""
    texts = (change.old.text, change.new.text if change.new else "")
    return any(_holds(_words(text), subject) for text in texts)


def _holds(said: Sequence[str], subject: Sequence[str]) -> bool:
    n = len(subject)
    return any(said[at : at + n] == subject for at in range(len(said) - n + 1))


def _words(text: str) -> list[str]:
    return [word.removesuffix("'s").removesuffix("’s") for word in words(text)]


def _subject(subject: str | None) -> list[str]:
    """The words of a given subject; none: of any. *Raises* ``ValueError``: it has none."""
    if subject is None:
        return []
    if not (found := _words(stored_text("subject", subject))):
        raise ValueError("subject cannot be blank")
    return found


def _seconds(name: str, at: datetime | str | None) -> float | None:
    return None if at is None else stored_time(name, at).timestamp()


def _places(view: DocumentsView | None, since: float | None, until: float | None) -> list[_Place]:
    """When which facts ended, within the bounds, unordered."""
    if view is None:
        return []
    ends = view.valid_to[: view.count]
    chosen = view.alive[: view.count] & np.isfinite(ends)
    if since is not None:
        chosen &= ends >= since
    if until is not None:
        chosen &= ends <= until
    return [(float(ends[at]), view.ids[at]) for at in np.flatnonzero(chosen).tolist()]


class ChangeCalls:
    """What a repository says of its changes."""

    _parts: RepositoryParts
    _memories: Memories
    _check_usable: Callable[..., None]

    async def changes(
        self,
        *,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        subject: str | None = None,
        order: Order = "newest",
        limit: int = 100,
        after: str | None = None,
    ) -> Page[Change]:
        """
        List what held and holds no longer, with what took its place, a page at a time.

        What is added meanwhile moves no change from one page to another.

        Args:
            since: Of changes from then on, inclusive; *until* likewise. ISO 8601 text
                too; no zone means UTC.
            subject: Only changes of which the old or the new fact names it, a person or a
                thing; case aside, whole words.
            order: By when the old fact ceased to hold: ``"newest"`` or ``"oldest"`` first, ties
                by id.
            limit: 1 to 1,000.
            after: ``Page.next`` of the page before, of the same listing.

        Raises:
            ValueError: An argument out of range, a blank subject, or *after* of another
                listing. *Cancellation*: safe.
        """
        self._check_usable()
        return await FactChanges(self._parts, self._memories).page(
            since=since, until=until, subject=subject, order=order, limit=limit, after=after
        )
