"""Names: speakers, tags and what facts say of them, for a page that leads from one to another."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

import anyio.to_thread
from fastapi import APIRouter, Query, Request
from pydantic import Field

from mnemo import Edge, Episodic, Memory, Page, Repository, Semantic
from mnemo.operations import Time
from mnemo.runtime.clock import elapsed
from mnemo.runtime.validation import MOST_AT_ONCE, portions
from mnemo.web.access import Body, Readable
from mnemo.web.routes.graph import ALWAYS_NEW, KEPT_TIMES

router = APIRouter(prefix="/v1", tags=["names"])

FEWEST_FACTS = 2
"""Facts that a tag must be named in to be a name (S)."""
MOST_NAMES = 500
"""Names that are listed (S)."""
MOST_FACTS = 500
"""Facts of a name that are given, the latest (S)."""
MOST_KEPT = 8
"""Repositories whose names are kept in memory, each as of one revision (S)."""
MOST_PAGES = 20
"""Pages of 1,000 that one request looks through for words (S)."""
WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """
    A speaker, or a tag, and in how many facts it is named.

    Attributes:
        kind: Whether it speaks itself, or stands in a tag.
        facts: That hold.
        before: Facts that were replaced or ended.
    """

    name: str
    kind: Literal["speaker", "tag"]
    facts: int
    before: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """
    The names of a repository, speakers first, then those of most facts.

    Attributes:
        facts: Stored facts, those that hold no longer too.
        tags: Stored tags, those of one fact too.
        names: Speakers, and tags that two facts or more name.
    """

    revision: int
    facts: int
    tags: int
    names: list[Name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """
    A fact that has a name in it.

    Attributes:
        at: Since when it holds, or when it was stored.
        names: All that it has, also the one that was asked for.
    """

    id: str
    text: str
    at: datetime | None
    valid_to: datetime | None
    superseded_by: str | None
    names: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """
    What is said of a name.

    Attributes:
        total: Facts that have it.
        facts: The latest of them, the latest first.
        neighbours: Names of the same facts, and in how many of all of them.
    """

    name: str
    kind: Literal["speaker", "tag"]
    total: int
    facts: list[Fact]
    neighbours: list[tuple[str, int]]


class Index:
    """Which facts have which names, as of one revision: by their words, and by their tags."""

    def __init__(
        self,
        revision: int,
        facts: Sequence[Semantic],
        tags: Mapping[str, str],
        speakers: Mapping[str, str | None],
        edges: Sequence[Edge],
    ) -> None:
        self.revision, self.facts, self.tags = revision, facts, len(tags)
        self.speakers = {name for name in speakers.values() if name}
        places = {fact.id: number for number, fact in enumerate(facts)}
        lowered = [fact.text.casefold() for fact in facts]
        postings: dict[str, set[int]] = defaultdict(set)
        for number, text in enumerate(lowered):
            for word in WORD.findall(text):
                postings[word].add(number)
        self.of: dict[str, set[int]] = {}
        linked: dict[str, set[int]] = {name: set() for name in sorted(self.speakers)}
        for edge in edges:
            for fact, other in ((edge.source, edge.target), (edge.target, edge.source)):
                name = tags.get(other) or speakers.get(other)
                if name and fact in places:
                    linked.setdefault(name, set()).add(places[fact])
        spelt: dict[str, str] = {}
        for name in sorted(linked, key=lambda name: (name not in self.speakers, name)):
            first = spelt.setdefault(name.casefold(), name)
            found = linked[name] | _saying(name, lowered, postings)
            self.of[first] = self.of.get(first, set()) | found
        self.names_of: dict[int, list[str]] = defaultdict(list)
        for name, found in self.of.items():
            if name in self.speakers or len(found) >= FEWEST_FACTS:
                for number in found:
                    self.names_of[number].append(name)

    def names(self) -> Names:
        """All of them, in order."""
        listed = [
            self._name(name)
            for name, found in self.of.items()
            if name in self.speakers or len(found) >= FEWEST_FACTS
        ]
        listed.sort(key=lambda one: (one.kind, -one.facts - one.before, one.name.casefold()))
        return Names(
            revision=self.revision,
            facts=len(self.facts),
            tags=self.tags,
            names=listed[:MOST_NAMES],
        )

    def named(self, name: str) -> Named:
        """What is said of *name*, also of one that is in no tag."""
        found = self.of.get(name)
        if found is None:
            lowered = [fact.text.casefold() for fact in self.facts]
            found = _saying(name, lowered, None)
        order = sorted(found, key=lambda number: (_at(self.facts[number]), number), reverse=True)
        count = Counter(other for number in found for other in self.names_of.get(number, ()))
        count.pop(name, None)
        return Named(
            name=name,
            kind="speaker" if name in self.speakers else "tag",
            total=len(found),
            facts=[self._fact(number) for number in order[:MOST_FACTS]],
            neighbours=sorted(count.items(), key=lambda one: (-one[1], one[0].casefold())),
        )

    def _name(self, name: str) -> Name:
        ended = sum(_ended(self.facts[number]) for number in self.of[name])
        kind: Literal["speaker", "tag"] = "speaker" if name in self.speakers else "tag"
        return Name(name=name, kind=kind, facts=len(self.of[name]) - ended, before=ended)

    def _fact(self, number: int) -> Fact:
        fact = self.facts[number]
        return Fact(
            id=fact.id,
            text=fact.text,
            at=fact.valid_from or fact.created_at,
            valid_to=fact.valid_to,
            superseded_by=fact.superseded_by,
            names=self.names_of.get(number, []),
        )


def _at(fact: Semantic) -> float:
    at = fact.valid_from or fact.created_at
    return at.timestamp() if at else 0.0


def _ended(fact: Semantic) -> bool:
    return fact.valid_to is not None or fact.superseded_by is not None


def _saying(name: str, lowered: Sequence[str], postings: Mapping[str, set[int]] | None) -> set[int]:
    """The texts that have *name* in them as words."""
    words = WORD.findall(name.casefold())
    if not words:
        return set()
    if postings is None:
        rest = set(range(len(lowered)))
    else:
        rest = set.intersection(*(postings.get(word, set()) for word in words))
        if len(words) == 1:
            return rest
    whole = re.compile(r"\b" + r"\W+".join(map(re.escape, words)) + r"\b")
    return {number for number in rest if whole.search(lowered[number])}


class KeptNames:
    """The names that were asked for, read once a revision, one after the other."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Index, float, float]] = {}
        self._reading = anyio.Lock()

    async def of(self, repo: Repository) -> Index:
        """The names of *repo* as of now. *Cancellation*: safe."""
        async with self._reading:
            revision = (await repo.inspection.changes()).revision
            kept = self._kept.pop(repo.id, None)
            if kept is None or not _is_current(*kept, revision):
                begun = elapsed()
                index = await self._read(repo, revision)
                kept = index, elapsed(), elapsed() - begun
            self._kept[repo.id] = kept
            while len(self._kept) > MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            return kept[0]

    async def _read(self, repo: Repository, revision: int) -> Index:
        facts = [node for node in await repo.get_nodes(["semantic"]) if isinstance(node, Semantic)]
        tags = {node.id: node.text for node in await repo.get_nodes(["tag"])}
        steps = await repo.get_nodes(["episodic"])
        speakers = {node.id: node.actor for node in steps if isinstance(node, Episodic)}
        ids, edges = [fact.id for fact in facts], dict[Edge, None]()
        for some in portions(ids):
            edges |= dict.fromkeys(await repo.get_edges(some))
        return await anyio.to_thread.run_sync(Index, revision, facts, tags, speakers, list(edges))


def _is_current(index: Index, at: float, seconds: float, revision: int) -> bool:
    """Whether it is of this revision, or is large, and young for what it cost."""
    is_young = len(index.facts) > ALWAYS_NEW and elapsed() - at < KEPT_TIMES * seconds
    return index.revision == revision or is_young


class Words(Body):
    """Conditions, as of ``Repository.memories``, and words that the text must have."""

    words: str = Field(
        min_length=1, max_length=1_000, description="All of them, in whatever case, also in words."
    )
    types: list[str] = Field(
        default=["semantic", "procedural"], max_length=2, description="Which kinds."
    )
    superseded: bool = Field(default=False, description="Those that another replaced, too.")
    session_id: str | None = Field(default=None, description="Of a source, like the following.")
    thread_id: str | None = Field(default=None, description="Its thread.")
    actor: str | None = Field(default=None, description="Who said it.")
    since: Time | None = Field(default=None, description="Said then or later.")
    until: Time | None = Field(default=None, description="Said then or before.")
    limit: int = Field(default=100, ge=1, le=MOST_AT_ONCE, description="About so many a page.")
    after: str | None = Field(default=None, description="`next` of the page before.")


@router.post("/memories/words", response_model=Page[Memory])
async def with_words(repo: Readable, body: Words) -> Any:
    """List facts and instructions that have all words, the newest first, about a page at a time."""
    arguments = body.model_dump() | {"limit": MOST_AT_ONCE}
    words, found = arguments.pop("words").casefold().split(), list[Memory]()
    for _ in range(MOST_PAGES):
        page = await repo.memories(**arguments)
        found += [one for one in page.items if all(word in one.text.casefold() for word in words)]
        arguments["after"] = page.next
        if page.next is None or len(found) >= body.limit:
            break
    return Page(items=tuple(found), next=arguments["after"])


@router.get("/names", response_model=Names)
async def names(request: Request, repo: Readable) -> Any:
    """List who speaks, and what at least two facts name, with the number of facts."""
    found = await request.app.state.names.of(repo)
    return await anyio.to_thread.run_sync(found.names)


@router.get("/name", response_model=Named)
async def named(
    request: Request, repo: Readable, name: Annotated[str, Query(min_length=1, max_length=512)]
) -> Any:
    """Give the facts that have a name in them, the latest first, and the names beside it."""
    found = await request.app.state.names.of(repo)
    return await anyio.to_thread.run_sync(found.named, name)
