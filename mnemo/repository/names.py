"""Names: who speaks and what facts name, and what facts say of one name, found by the index."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Literal, TypeAlias, TypeVar

import anyio
import numpy as np

from mnemo.english.words import index_terms_of
from mnemo.index.columns import Numbers
from mnemo.index.corpus import CorpusView, DocumentsView, Part, StepsView
from mnemo.index.segments import DamagedSegment, hashes
from mnemo.repository.parts import RepositoryParts
from mnemo.runtime.clock import as_utc, breathed, elapsed
from mnemo.runtime.tasks import Threads
from mnemo.runtime.text import fold, words
from mnemo.values.changeset import Revision
from mnemo.values.feed import step_of
from mnemo.values.graph import EdgeKind, NodeType, Semantic

T = TypeVar("T")
_BEGINNING = "*"
"""Behind what is the beginning of a word; no index term has it."""

NameKind: TypeAlias = Literal["speaker", "tag"]

FEWEST_FACTS = 2
"""Facts that a tag must be named in to be a name (S)."""
MOST_NAMES = 500
"""Names that are listed (S)."""
MOST_FACTS = 500
"""Facts of a name that are given, the latest (S)."""
MOST_SPEAKERS = 200
"""Speakers that are counted, the first ones (S)."""
MOST_FORMS = 200
"""Words of a part of the index that a beginning stands for (S)."""
MOST_SAYING = 10_000
"""Facts or instructions that words find, the latest (S)."""
MOST_LOOKUPS = 50_000
"""Tags that are counted, times the parts of the index: half the first ones, half the last (S)."""
SLOW_S = 0.2
"""Seconds of counting from which on a list stands ``KEPT_TIMES`` as long, whatever comes (S)."""
KEPT_TIMES = 10

_Terms: TypeAlias = tuple[str, ...]
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def terms_of(text: str) -> _Terms:
    """The index terms of *text*, each once; none: it has nothing but function words."""
    return tuple(dict.fromkeys(index_terms_of(words(text))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """
    A speaker, or a tag, and in how many facts it is named.

    Attributes:
        facts: That hold.
        before: Facts that were replaced or ended.
    """

    name: str
    kind: NameKind
    facts: int
    before: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """
    The names of a repository, speakers first, then those of most facts.

    Attributes:
        facts: Stored facts, those that hold no longer too.
        tags: Stored tags, those of one fact too.
        names: Speakers, and tags that two facts or more name; at most 500.
    """

    revision: Revision
    facts: int
    tags: int
    names: tuple[Name, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFact:
    """
    A fact that has a name in it.

    Attributes:
        at: Since when it holds, or when it was stored.
        newer: What the fact that replaced it says.
        names: Those of the listed names that it has, and the one that was asked for.
    """

    id: str
    text: str
    at: datetime | None
    valid_to: datetime | None
    superseded_by: str | None
    newer: str | None
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """
    What facts say of a name.

    Attributes:
        total: Facts that have it.
        facts: The latest of them, the latest first, at most 500.
        neighbours: Listed names of these facts, and in how many of them.
    """

    name: str
    kind: NameKind
    total: int
    facts: tuple[NamedFact, ...]
    neighbours: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Listed:
    """A list that was counted at *at* within *seconds*; *terms* are those of each name."""

    found: Names
    terms: dict[str, _Terms]
    at: float
    seconds: float

    def serves(self, revision: Revision) -> bool:
        is_young = self.seconds > SLOW_S and elapsed() - self.at < KEPT_TIMES * self.seconds
        return self.found.revision == revision or is_young


@dataclass(eq=False)
class NameIndex:
    """What facts and instructions say, by words; one repository's list of names is kept."""

    parts: RepositoryParts
    _kept: Listed | None = field(default=None, init=False)
    _counting: anyio.Lock = field(default_factory=anyio.Lock, init=False)
    _threads: Threads = field(default_factory=Threads, init=False)

    async def saying(self, kinds: Sequence[NodeType], text: str) -> list[str]:
        """The ids of those of *kinds* that have all words of *text*, the latest of them."""
        corpus, asked = await self.parts.index.corpus(), list[str]()
        for chunk in text.split():
            is_begun = chunk.endswith(_BEGINNING) and (found := words(chunk))
            asked += [*found[:-1], found[-1] + _BEGINNING] if is_begun else terms_of(chunk)
        _, ids = await self._run(_latest, corpus, kinds, tuple(asked), None, MOST_SAYING)
        return ids

    async def listed(self) -> Listed:
        """The names, as of now or of shortly before."""
        async with self._counting:
            corpus = await self.parts.index.corpus()
            if self._kept is None or not self._kept.serves(corpus.revision):
                begun = elapsed()
                speakers = await self._spelt(await self._run(_speakers, corpus))
                found, terms = await self._run(_counted, corpus, speakers)
                self._kept = Listed(found, terms, elapsed(), elapsed() - begun)
            return self._kept

    async def named(self, name: str) -> Named:
        """What is said of *name*, also of one that is not listed."""
        listed = await self.listed()
        speakers = {fold(one.name) for one in listed.found.names if one.kind == "speaker"}
        speaker = fold(name) if fold(name) in speakers else None
        corpus, asked = await self.parts.index.corpus(), terms_of(name)
        total, ids = await self._run(_latest, corpus, ["semantic"], asked, speaker, MOST_FACTS)
        graph = self.parts.graph
        facts = [node for node in await graph.nodes(ids) if isinstance(node, Semantic)]
        facts.sort(key=lambda fact: (_at(fact), fact.id), reverse=True)
        after = [fact.superseded_by for fact in facts if fact.superseded_by]
        heirs = {node.id: node.text for node in await graph.nodes(after)}
        said = await self._said(facts)
        has = _names_of(said, listed.terms, name)
        count = Counter(chain.from_iterable(has.values()))
        for same in [one for one in count if terms_of(one) == asked]:
            del count[same]
        shown = tuple(_shown(fact, heirs, has[fact.id]) for fact in facts)
        beside = sorted(count.items(), key=lambda one: (-one[1], fold(one[0])))
        kind: NameKind = "speaker" if speaker else "tag"
        return Named(name=name, kind=kind, total=total, facts=shown, neighbours=tuple(beside))

    async def _run(self, work: Callable[..., T], corpus: CorpusView, *given: Any) -> T:
        try:
            return await self._threads.run(work, corpus, *given)
        except DamagedSegment:
            return await self._threads.run(work, await self.parts.index.mended(), *given)

    async def _spelt(self, first: Mapping[str, str]) -> dict[str, str]:
        """Folded speaker → as written where it was *first*, by the document's id."""
        feed, default = self.parts.feed, self.parts.config.extraction.default_actor
        steps, messages = (
            await feed.steps([*first.values()]),
            await feed.messages([*first.values()]),
        )
        steps |= {id: step_of(id, one, default_actor=default) for id, (one, _) in messages.items()}
        return {name: steps[id].actor if id in steps else name for name, id in first.items()}

    async def _said(self, facts: Sequence[Semantic]) -> dict[str, set[str]]:
        """The terms of each fact, and of its tags."""
        said = {fact.id: {*terms_of(fact.text)} for fact in facts}
        edges = await self.parts.graph.edges([*said], kind=EdgeKind.MEMBERSHIP)
        tags = await self.parts.graph.nodes([edge.source for edge in edges])
        terms = {tag.id: terms_of(tag.text) for tag in tags}
        for edge in edges:
            if edge.target in said:
                said[edge.target].update(terms.get(edge.source, ()))
        return said


def _at(fact: Semantic) -> datetime:
    at = fact.valid_from or fact.created_at
    return as_utc(at) if at else _LONG_AGO


def _shown(fact: Semantic, heirs: Mapping[str, str], names: tuple[str, ...]) -> NamedFact:
    return NamedFact(
        id=fact.id,
        text=fact.text,
        at=fact.valid_from or fact.created_at,
        valid_to=fact.valid_to,
        superseded_by=fact.superseded_by,
        newer=heirs.get(fact.superseded_by or ""),
        names=names,
    )


def _names_of(
    said: Mapping[str, set[str]], known: Mapping[str, _Terms], asked: str
) -> dict[str, tuple[str, ...]]:
    """Which of the *known* names the terms of each fact have, and the one that was *asked* for."""
    begun = defaultdict[str, list[str]](list)
    for name, terms in known.items():
        begun[terms[0]].append(name)
    return {
        id: tuple(
            dict.fromkeys(
                [asked, *(n for t in terms for n in begun.get(t, ()) if terms.issuperset(known[n]))]
            )
        )
        for id, terms in said.items()
    }


# ── In worker threads ────────────────────────────────────────────────────────────────────


def _speakers(corpus: CorpusView) -> dict[str, str]:
    """Who spoke, folded → the first document of theirs in a part."""
    found: dict[str, str] = {}
    for part in corpus.parts("episodic"):
        view = part.view
        assert isinstance(view, StepsView)
        living = np.flatnonzero(view.alive)
        numbers, at = np.unique(view.told_by[living], return_index=True)
        for number, id in zip(numbers.tolist(), part.named(living[at]), strict=True):
            if view.actors[number] and len(found) < MOST_SPEAKERS:
                found.setdefault(view.actors[number], id)
    return found


def _counted(corpus: CorpusView, speakers: Mapping[str, str]) -> tuple[Names, dict[str, _Terms]]:
    """The list of names, and the terms of each."""
    parts = corpus.parts("semantic")
    tags = _tags(corpus)
    most = MOST_LOOKUPS // max(1, len(parts))
    few = tags if len(tags) <= most else tags[: most // 2] + tags[-(most // 2) :]
    asked: dict[_Terms, tuple[str, str | None]] = {}
    for folded, name in speakers.items():
        asked.setdefault(terms_of(name), (name, folded))
    for name in sorted(few, key=len):  # of "painting" and "paintings" the first
        asked.setdefault(terms_of(name), (name, None))
    asked.pop((), None)
    every = [*{term: None for terms in asked for term in terms}]
    hashed = hashes(every)
    for part in parts:
        part.view.postings.look_for(every, hashed)
    names, terms_by = list[Name](), dict[str, _Terms]()
    for terms, (name, speaker) in breathed(asked.items()):
        found = [(part.view, _saying(corpus, part, terms, speaker)) for part in parts]
        total = sum(len(numbers) for _, numbers in found)
        if total >= (1 if speaker else FEWEST_FACTS):
            ended = sum(int(np.isfinite(view.valid_to[some]).sum()) for view, some in found)
            kind: NameKind = "speaker" if speaker else "tag"
            names.append(Name(name=name, kind=kind, facts=total - ended, before=ended))
            terms_by[name] = terms
    names.sort(key=lambda one: (one.kind, -one.facts - one.before, fold(one.name)))
    facts = sum(int(np.count_nonzero(part.view.alive)) for part in parts)
    listed = tuple(names[:MOST_NAMES])
    whole = Names(revision=corpus.revision, facts=facts, tags=len(tags), names=listed)
    return whole, {one.name: terms_by[one.name] for one in listed}


def _tags(corpus: CorpusView) -> list[str]:
    view = corpus.nodes.get("tag")
    if view is None:
        return []
    nodes = (view.nodes[number] for number in np.flatnonzero(view.alive).tolist())
    return [node.text for node in nodes if node is not None]


def _latest(
    corpus: CorpusView, kinds: Sequence[NodeType], terms: _Terms, speaker: str | None, most: int
) -> tuple[int, list[str]]:
    """How many of *kinds* have *terms* or are of *speaker*, and the ids of the latest."""
    parts = [part for kind in kinds for part in corpus.parts(kind)]
    found = [_saying(corpus, part, terms, speaker) for part in parts]
    at = [part.view.first[numbers] for part, numbers in zip(parts, found, strict=True)]
    total = sum(map(len, found))
    if total > most:
        least = np.partition(np.concatenate(at), total - most)[total - most]
        found = [some[one >= least] for some, one in zip(found, at, strict=True)]
    ids = [id for part, some in zip(parts, found, strict=True) for id in part.named(some)]
    return total, ids[-most:]


def _saying(corpus: CorpusView, part: Part, terms: _Terms, speaker: str | None) -> Numbers:
    """The living documents with all of *terms*, and, of those in memory, what *speaker* said."""
    view, found = part.view, np.zeros(0, np.int64)
    for place, term in enumerate(terms):
        read = _holding(view, term)
        found = found[np.isin(found, read, assume_unique=True)] if place else read
    pairs = corpus.behind.get("semantic")
    if speaker and pairs is not None and isinstance(part, DocumentsView):
        number = corpus.steps.actor_numbers.get(speaker, -1)
        told = pairs[corpus.steps.told_by[pairs[:, 1]] == number, 0]
        found = np.union1d(found, told[told < view.count])
    return found[view.alive[found]]


def _holding(view: DocumentsView, term: str) -> Numbers:
    """The documents that hold *term*, ascending; or a word that begins so."""
    terms: Sequence[str] = [term]
    if term.endswith(_BEGINNING):
        start = term.removesuffix(_BEGINNING)
        begun = view.postings.beginning(start)[:MOST_FORMS]
        terms = [*dict.fromkeys((*index_terms_of((start,)), *begun))]
    found = [view.postings.read(one, view.count) for one in terms]
    held = [read[0] for read in found if read is not None]
    return held[0] if len(held) == 1 else np.unique(np.concatenate([np.zeros(0, np.int64), *held]))
