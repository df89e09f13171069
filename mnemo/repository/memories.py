"""Memories: the facts and instructions of a repository, listed, added and corrected by hand."""

from __future__ import annotations

import base64
import binascii
import json
from bisect import bisect
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import numpy as np

from mnemo.commit.lane import CommitLane
from mnemo.english.slots import only_ends
from mnemo.errors import Conflict, NotFound, UsageError
from mnemo.index.corpus import Part
from mnemo.recall.result import SourceRef
from mnemo.repository.names import NameIndex
from mnemo.repository.parts import RepositoryParts
from mnemo.runtime import validation as checked
from mnemo.runtime.clock import as_utc
from mnemo.runtime.tasks import Places, completed
from mnemo.runtime.text import html_table, is_blank, shown, words
from mnemo.values.changeset import Changeset, NodeChange
from mnemo.values.filters import Filters
from mnemo.values.graph import (
    MOST_CONFIDENT,
    Claim,
    Edge,
    EdgeKind,
    Edit,
    Episodic,
    Listing,
    Node,
    NodeType,
    Procedural,
    Semantic,
    Tag,
    known_types,
)

T = TypeVar("T")
Author: TypeAlias = Literal["extraction", "hand"]
Kind: TypeAlias = Literal["semantic", "procedural"]
Order: TypeAlias = Literal["newest", "oldest"]

MOST_EDITS = 1_000
"""Corrections of one memory, at most: its history is read and written with it."""
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Memory:
    """
    A fact (``semantic``) or an instruction (``procedural``) as it is stored.

    Attributes:
        text: What it says; of an instruction its condition, if it has one, and then what to do.
        valid_from: Since when it holds, aware; ``None``: not known, or an instruction.
        valid_to: When it ceased to hold; ``None`` while it does.
        superseded_by: Id of the memory that replaced it.
        confidence: In [0, 1]; ``None`` of an instruction.
        sources: What it comes from: the hand, if that wrote it (``actor`` is ``"hand"``), then
            its raw steps, the latest first.
        metadata: What was given by hand, over that of its steps.
        version: Of its wording, from 1.
    """

    id: str
    type: Kind
    text: str
    valid_from: datetime | None
    valid_to: datetime | None
    superseded_by: str | None
    confidence: float | None
    sources: tuple[SourceRef, ...]
    metadata: Mapping[str, Any]
    created_at: datetime | None
    version: int

    def __repr__(self) -> str:
        return f"<Memory {self.id!r} v{self.version}: {shown(self.text)!r}>"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MemoryVersion:
    """
    One wording of a memory.

    Attributes:
        memory_id: The memory that said it.
        version: Its number among the wordings of that memory, from 1.
        by: Who worded it; maintenance words nothing anew.
        at: Since when it was worded so, aware.
        until: When the next wording came, or the memory was superseded; ``None``: it holds.
        reason: Why it was worded so, if that was said.
        superseded_by: Of the last version: id of the memory that replaced it.
    """

    memory_id: str
    version: int
    text: str
    by: Author
    at: datetime | None
    until: datetime | None
    reason: str | None
    superseded_by: str | None

    def __repr__(self) -> str:
        said = shown(self.text)
        return f"<MemoryVersion {self.memory_id!r} v{self.version} by {self.by}: {said!r}>"


@dataclass(frozen=True, slots=True, repr=False)
class Page(Generic[T]):
    """
    A part of a listing; its length, iteration and indices are those of *items*.

    Attributes:
        next: Give it as ``after=`` to the same call for the next page; ``None``: this is the last.
    """

    items: tuple[T, ...]
    next: str | None

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> T:
        return self.items[index]

    def __repr__(self) -> str:
        return f"<Page of {len(self.items)}, {'more' if self.next else 'the last'}>"

    def _repr_html_(self) -> str:
        return html_table(repr(self), ("item",), ((repr(item),) for item in self.items))


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


class MemoryCalls:
    """What a repository says of its facts and instructions, and what of them has changed."""

    _parts: RepositoryParts
    _lane: CommitLane
    _correcting: Places
    _names: NameIndex
    _check_usable: Callable[..., None]

    async def memories(
        self,
        *,
        types: Sequence[str] = ("semantic", "procedural"),
        words: str | None = None,
        superseded: bool = False,
        order: Order = "newest",
        limit: int = 100,
        after: str | None = None,
        where: Mapping[str, Any] | None = None,
        session_id: str | None = None,
        thread_id: str | None = None,
        actor: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
    ) -> Page[Memory]:
        """
        List facts and instructions, a page at a time.

        What is added meanwhile moves no memory from one page to another. With filters a memory
        is listed if one of its sources matches: a raw step, or the hand that wrote it.

        Args:
            types: Of ``semantic`` and ``procedural``.
            words: That it has all of, or its tags, in whatever form; ``camp*`` is the beginning
                of a word. Function words are left out. Of more than 10,000 that have them the
                latest are listed.
            superseded: Those that another replaced, too.
            order: By when they were made: ``"newest"`` or ``"oldest"`` first, ties by id.
            limit: 1 to 1,000.
            after: ``Page.next`` of the page before, of the same listing.
            where: Conditions on metadata; *session_id*, *thread_id*, *actor* of the source.
            since: Inclusive, looks at the source; *until* likewise. A ``datetime`` or
                ISO 8601 text; no zone means UTC.

        Raises:
            ValueError: An argument out of range, an unknown operator, or *after* of another
                listing. *Cancellation*: safe.
        """
        self._check_usable()
        _check_page(limit, order)
        asked = Filters.checked(
            where=where, session_id=session_id, thread_id=thread_id, actor=actor,
            since=since, until=until,
        )  # fmt: skip
        listing = Listing(
            types=_claim_types(types),
            limit=limit + 1,
            newest_first=order == "newest",
            holding=not superseded,
            filters=asked,
        )
        asked_for = _named(sorted(listing.types), words, superseded, order, asked)
        if words is not None:
            said = checked.stored_text("words", words)
            listing = replace(listing, ids=tuple(await self._names.saying(listing.types, said)))
        if after is not None:
            listing = replace(listing, after=_place(after, asked_for))
        found: list[Memory] = []
        async for memory in self._read(listing):
            if len(found) == limit:
                return Page(tuple(found), _cursor(found[-1].created_at, found[-1].id, asked_for))
            found.append(memory)
        return Page(tuple(found), None)

    async def memory(self, id: str) -> Memory:
        """
        Give one fact or instruction, superseded or not.

        Raises:
            NotFound: There is none in this repository.
            ValueError: It is a raw step, a tag or another node. *Cancellation*: safe.
        """
        self._check_usable()
        return await self._one(id)

    async def add_memory(
        self,
        text: str,
        *,
        type: Literal["semantic", "procedural"] = "semantic",
        tags: Sequence[str] = (),
        at: datetime | str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Memory:
        """
        Add a fact or instruction by hand; its source is the hand.

        It is reconciled like what extraction finds: what it contradicts is superseded, and a
        fact that says the same already is what is given back.

        Args:
            tags: Concepts of a fact, found together with others of the same concept.
            at: Since when it holds; default: now. A ``datetime`` or ISO 8601 text; no zone means
                UTC.
            metadata: A JSON object, matched by ``where=``.

        Raises:
            ValueError: Blank text, or an argument of no use.
            CommitFailed: Nothing was written. *Cancellation*: completes.
        """
        self._check_usable()
        now = self._parts.clock.now()
        claim = _new_claim(
            _said("text", text),
            type,
            since=checked.stored_time("at", at) if at is not None else now,
            edits=(Edit(now),),
            metadata=_object(metadata),
        )
        labels = _labels(tags)
        if labels and type != "semantic":
            raise ValueError("tags are of facts: an instruction has none")
        concepts = [Tag(label) for label in labels]
        edges = tuple(Edge(tag.id, claim.id, EdgeKind.MEMBERSHIP) for tag in concepts)
        applied = await self._commit(Changeset((claim, *concepts), edges))
        # What says the same already stands for it.
        return await self._one(applied[0])

    async def update_memory(
        self, id: str, text: str, *, reason: str | None = None, expected_version: int | None = None
    ) -> Memory:
        """
        Correct what a fact or instruction says, from now on, with a new vector.

        ``history`` keeps the wording before. What is extracted later and restates that does
        not undo the correction; facts that contradict the new wording are superseded. The
        wording that it has already changes nothing.

        Args:
            text: The whole wording. Of an instruction, a first line equal to its condition
                stays that.
            reason: Kept in the history.
            expected_version: ``Memory.version`` that the correction is of, whatever it says.

        Raises:
            NotFound: There is no such memory in this repository.
            ValueError: Blank text, or *id* is of a raw step or another node.
            Conflict: It has another version, or was changed meanwhile; nothing was written.
            CommitFailed: Nothing was written. *Cancellation*: completes.
        """
        self._check_usable()
        said = _said("text", text)
        why = None if reason is None else _said("reason", reason)
        if expected_version is not None:
            checked.whole_number("expected_version", expected_version, 1)
        async with self._correcting:
            claim = await self._claim(id)
            if expected_version not in (None, claim.version):
                raise Conflict(
                    f"memory {id!r} has version {claim.version}, not {expected_version}: look at "
                    "it and try again"
                )
            if len(claim.edits) >= MOST_EDITS:
                raise UsageError(f"memory {id!r} has {MOST_EDITS:,} corrections: add a new one")
            if said != claim.text:
                edit = Edit(self._parts.clock.now(), before=claim.text, reason=why)
                await self._commit(Changeset(changes=(_correction(claim, said, edit),)))
        return await self._one(id)

    async def history(self, id: str) -> list[MemoryVersion]:
        """
        List the wordings of a memory, of those that it superseded and that superseded it.

        Returns:
            Oldest first, each with who worded it, when and why.

        Raises:
            NotFound: There is no such memory in this repository.
            ValueError: As of ``memory``. *Cancellation*: safe.
        """
        self._check_usable()
        chain = {id: await self._claim(id)}
        await self._follow(chain)
        versions = [version for claim in chain.values() for version in _versions(claim)]
        return sorted(versions, key=lambda v: (_instant(v.at), v.memory_id, v.version))

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
        _check_page(limit, order)
        bounds = _seconds("since", since), _seconds("until", until)
        about = _subject(subject)
        listing = _named(bounds, about, order)
        facts = (await self._parts.index.corpus()).parts("semantic")
        places = [place for part in facts for place in _places(part, *bounds)]
        sign = -1.0 if order == "newest" else 1.0
        places = sorted((sign * at, id) for at, id in places)
        if after is not None:
            at, id = _place(after, listing)
            places = places[bisect(places, (sign * at.timestamp(), id)) :]
        found: list[Change] = []
        for start in range(0, len(places), limit + 1):
            for change in await self._changes([id for _, id in places[start : start + limit + 1]]):
                if about and not _is_about(change, about):
                    continue
                if len(found) == limit:
                    return Page(tuple(found), _cursor(found[-1].when, found[-1].old.id, listing))
                found.append(change)
        return Page(tuple(found), None)

    # ── Reading and writing ──────────────────────────────────────────────────────────

    async def _read(self, listing: Listing) -> AsyncIterator[Memory]:
        """The memories of *listing*, read in batches of its limit, whose evidence matches."""
        filters = listing.filters
        while True:
            nodes = _claims(await self._parts.graph.nodes(listing=listing))
            for node, grounds in await self._grounded(nodes):
                if filters.is_open or any(_matches(filters, ground) for ground in grounds):
                    yield _memory(node, grounds)
            if len(nodes) < listing.limit or (created := nodes[-1].created_at) is None:
                return
            listing = replace(listing, after=(created, nodes[-1].id))

    async def _one(self, id: str) -> Memory:
        ((node, grounds),) = await self._grounded([await self._claim(id)])
        return _memory(node, grounds)

    async def _several(self, ids: Sequence[str]) -> dict[str, Memory]:
        """Those of the facts and instructions *ids* that there are, by id."""
        claims = _claims(await self._parts.graph.nodes(list(dict.fromkeys(ids))))
        return {c.id: _memory(c, grounds) for c, grounds in await self._grounded(claims)}

    async def _claim(self, id: str) -> Claim:
        for node in await self._parts.graph.nodes([checked.known_id("id", id)]):
            if isinstance(node, Claim):
                return node
            raise ValueError(
                f"{id!r} is no fact or instruction but {node.type}: what was said stays as it "
                "was; forget it, or add a memory"
            )
        raise NotFound("memory", id)

    async def _grounded(self, claims: Sequence[Claim]) -> list[tuple[Claim, list[_Ground]]]:
        """*claims* with what each rests on, the latest first."""
        graph, feed = self._parts.graph, self._parts.feed
        edges = await graph.edges([claim.id for claim in claims], kind=EdgeKind.PROVENANCE)
        ids = list(dict.fromkeys(edge.target for edge in edges))
        steps = await feed.steps(ids)
        # A step that was applied by hand is in no session.
        others = await graph.nodes([id for id in ids if id not in steps])
        known = {id: _Ground(SourceRef.of(step), step.metadata) for id, step in steps.items()}
        known |= {n.id: _Ground(_applied(n), {}) for n in others if isinstance(n, Episodic)}
        grounds: dict[str, list[_Ground]] = {claim.id: [] for claim in claims}
        for edge in edges:
            if edge.source in grounds and edge.target in known:
                grounds[edge.source].append(known[edge.target])
        return [(claim, _ordered(claim, grounds[claim.id])) for claim in claims]

    async def _follow(self, chain: dict[str, Claim]) -> None:
        """Add what the memories of *chain* replaced, and what replaced them."""
        fresh = list(chain.values())
        while fresh:
            after = [c.superseded_by for c in fresh if isinstance(c, Semantic) and c.superseded_by]
            before = Listing(
                types=("semantic",), limit=MOST_EDITS, superseded_by=tuple(c.id for c in fresh)
            )
            nodes = await self._parts.graph.nodes(after)
            nodes += await self._parts.graph.nodes(listing=before)
            fresh = [claim for claim in _claims(nodes) if claim.id not in chain]
            chain.update((node.id, node) for node in fresh)

    async def _commit(self, changeset: Changeset) -> tuple[str, ...]:
        changeset.check_storable()
        commit = partial(self._lane.commit, changeset)
        return (await completed(self._parts.root.own(commit))).node_ids

    async def _changes(self, ids: Sequence[str]) -> list[Change]:
        """The ends of the facts *ids*, in their order, but for facts that have gone meanwhile."""
        old = await self._several(ids)
        closers = [fact.superseded_by for fact in old.values() if fact.superseded_by]
        new = await self._several(closers)
        made = (_change(old[id], new.get(old[id].superseded_by or "")) for id in ids if id in old)
        return [change for change in made if change is not None]


def _instant(at: datetime | None) -> datetime:
    return as_utc(at) if at is not None else _LONG_AGO


def _claims(nodes: Iterable[Node]) -> list[Claim]:
    return [node for node in nodes if isinstance(node, Claim)]


@dataclass(frozen=True, slots=True)
class _Ground:
    """What a memory rests on: a step, or the hand; with its metadata."""

    source: SourceRef
    metadata: Mapping[str, Any]


def _applied(node: Episodic) -> SourceRef:
    return SourceRef(
        node.session_id, node.episode_id, node.step_index, node.at, node.actor, node.key, node.text
    )


def _ordered(claim: Claim, grounds: Iterable[_Ground]) -> list[_Ground]:
    latest = sorted(grounds, key=lambda one: _instant(one.source.at), reverse=True)
    own = claim.worded_at is not None or not latest
    return [*([_Ground(SourceRef.of_node(claim), claim.metadata or {})] if own else []), *latest]


def _matches(filters: Filters, ground: _Ground) -> bool:
    source = ground.source
    return filters.holds(
        at=source.at,
        actors=[source.actor] if source.actor else [],
        session_ids=[source.session_id] if source.session_id else [],
        thread_id=source.thread_id,
        metadata=ground.metadata,
    )


def _memory(claim: Claim, grounds: Sequence[_Ground]) -> Memory:
    fact = claim if isinstance(claim, Semantic) else None
    metadata: dict[str, Any] = {}
    for ground in reversed(grounds):
        metadata |= ground.metadata
    return Memory(
        id=claim.id,
        type="semantic" if fact else "procedural",
        text=claim.text,
        valid_from=fact.valid_from if fact else None,
        valid_to=fact.valid_to if fact else None,
        superseded_by=fact.superseded_by if fact else None,
        confidence=fact.confidence if fact else None,
        sources=tuple(ground.source for ground in grounds),
        metadata=metadata | dict(claim.metadata or {}),
        created_at=claim.created_at,
        version=claim.version,
    )


def _versions(claim: Claim) -> Iterator[MemoryVersion]:
    """The wordings of *claim*, oldest first."""
    author: Author = "extraction"
    at, reason, number = claim.created_at, None, 1
    for edit in claim.edits:
        if edit.before is not None:
            yield MemoryVersion(
                memory_id=claim.id,
                version=number,
                text=edit.before,
                by=author,
                at=at,
                until=edit.at,
                reason=reason,
                superseded_by=None,
            )
            number += 1
        author, at, reason = edit.by, edit.at, edit.reason
    fact = claim if isinstance(claim, Semantic) else None
    yield MemoryVersion(
        memory_id=claim.id,
        version=number,
        text=claim.text,
        by=author,
        at=at,
        until=fact.valid_to if fact else None,
        reason=reason,
        superseded_by=fact.superseded_by if fact else None,
    )


def _check_page(limit: int, order: Order) -> None:
    checked.whole_number("limit", limit, 1, checked.MOST_AT_ONCE)
    if order not in ("newest", "oldest"):
        raise ValueError(f"order must be 'newest' or 'oldest', not {order!r}")


# ── Arguments ────────────────────────────────────────────────────────────────────────────


def _claim_types(types: Sequence[str]) -> tuple[NodeType, ...]:
    known = known_types(types)
    if not known or not {*known} <= {"semantic", "procedural"}:
        raise ValueError(f"memories are 'semantic' or 'procedural', not {list(types)!r}")
    return tuple(known)


def _said(name: str, text: object) -> str:
    said = checked.stored_text(name, text)
    if is_blank(said):
        raise ValueError(f"{name} cannot be blank")
    return said


def _labels(tags: Sequence[str]) -> list[str]:
    return [_said("a tag", tag) for tag in checked.every("tags", tags)]


def _object(metadata: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if metadata is None else checked.stored_object("metadata", metadata) or None


def _new_claim(text: str, type: str, *, since: datetime, **rest: Any) -> Claim:
    if type == "semantic":
        return Semantic(text, confidence=MOST_CONFIDENT, valid_from=since, **rest)
    if type == "procedural":
        return Procedural(text, **rest)
    raise ValueError(f"type must be 'semantic' or 'procedural', not {type!r}")


def _correction(claim: Claim, text: str, edit: Edit) -> NodeChange:
    """What gives *claim* the wording *text*: from now on it says that, and holds."""
    edits = (*claim.edits, edit)
    if isinstance(claim, Semantic):
        holding = {"valid_from": edit.at, "valid_to": None, "superseded_by": None}
        sure = {"confidence": MOST_CONFIDENT}
        return NodeChange(claim.id, {"proposition": text, "edits": edits, **holding, **sure})
    assert isinstance(claim, Procedural)
    head = f"{claim.condition}\n"
    keeps = bool(claim.condition) and text.startswith(head) and text != head
    worded = {
        "condition": claim.condition if keeps else "",
        "instruction": text.removeprefix(head) if keeps else text,
        "expected_outcome": claim.expected_outcome if keeps else "",
    }
    return NodeChange(claim.id, {**worded, "edits": edits})


# ── Cursors ──────────────────────────────────────────────────────────────────────────────


def _named(*asked: object) -> str:
    """What tells one listing from another: a digest of what is *asked*."""
    return blake2b(repr(asked).encode("utf-8", "surrogatepass"), digest_size=9).hexdigest()


def _cursor(at: datetime | None, id: str, listing: str) -> str:
    """``Page.next`` of the *listing* whose page ends with *id*, of the time *at*."""
    time = at.isoformat() if at else ""
    return base64.urlsafe_b64encode(json.dumps([listing, time, id]).encode()).decode()


def _place(after: object, listing: str) -> tuple[datetime, str]:
    """Where the page before ended. *Raises* ``ValueError``: of another listing, or no cursor."""
    try:
        named, at, id = checked.read_json(base64.urlsafe_b64decode(str(after)))
        place = datetime.fromisoformat(at), str(id)
    except (ValueError, TypeError, binascii.Error):
        raise ValueError("after must be what Page.next of this listing says") from None
    if named != listing:
        raise ValueError(
            "after is of another listing: give the same arguments, or begin without after"
        )
    return place


# ── What held and holds no longer ─────────────────────────────────────────────────

_Place: TypeAlias = tuple[float, str]
"""Unix seconds of a change, and the id of the fact that ended."""


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
    if not (found := _words(checked.stored_text("subject", subject))):
        raise ValueError("subject cannot be blank")
    return found


def _seconds(name: str, at: datetime | str | None) -> float | None:
    return None if at is None else checked.stored_time(name, at).timestamp()


def _places(part: Part, since: float | None, until: float | None) -> list[_Place]:
    """When which facts of *part* ended, within the bounds, unordered."""
    view = part.view
    ends = view.valid_to[: view.count]
    chosen = view.alive[: view.count] & np.isfinite(ends)
    if since is not None:
        chosen &= ends >= since
    if until is not None:
        chosen &= ends <= until
    numbers = np.flatnonzero(chosen)
    return [*zip(ends[numbers].tolist(), part.named(numbers), strict=True)]
