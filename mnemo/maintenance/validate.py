"""
Validation: whether facts and instructions are still grounded in the raw steps.

Their vectors are compared with those of the evidence that provenance leads to; where
that does not convince, their words with the evidence's words. Nothing is deleted:
the finding becomes a penalty, which is set, so a second run finds nothing to set.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np

from mnemo.config import MaintenanceConfig
from mnemo.errors import ModelError
from mnemo.index.columns import Floats, products
from mnemo.index.corpus import CorpusView, Part
from mnemo.maintenance.plan import Plan, Sources, living, pieces
from mnemo.runtime.clock import Breather
from mnemo.runtime.text import terms
from mnemo.values.changeset import Upkeep
from mnemo.values.graph import Claim, Edge, EdgeKind, Episodic, Node, NodeMetadata, NodeType, Vector
from mnemo.values.vectors import COSINE_ROUNDING, unit_rows

log: logging.Logger = logging.getLogger("mnemo")

Finding: TypeAlias = Literal["grounded", "weak", "orphan"]

JUDGED: tuple[NodeType, ...] = ("semantic", "procedural")
SHARED_WORDS = 0.5
"""Share of its content words in the evidence from which a node is grounded."""
MAX_READ_CHARACTERS = 32_768
"""Characters of one step that are read as evidence, or handed to the embedder."""
BATCH = 256
"""Texts per call of the embedder."""
_WORDS_AT_ONCE = 4_096


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found about a node, and the penalty that it had."""

    node: Node
    finding: Finding
    penalty: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation(Plan):
    """The verdicts, and what each finding costs."""

    verdicts: Sequence[Verdict]
    config: MaintenanceConfig

    async def upkeep(self, view: CorpusView) -> Upkeep:
        """Set the penalties that differ, of what still is what it was."""
        due = [(v.node, self._due(v)) for v in self.verdicts if self._due(v) != v.penalty]
        still = await self.unchanged(view, (node for node, _ in due))
        return Upkeep(penalties={node.id: one for node, one in due if node.id in still})

    def counts(self, upkeep: Upkeep) -> dict[str, int]:
        """How many there are of each finding; without those left for the next run."""
        found: Counter[Finding] = Counter()
        breather = Breather()
        for verdict in self.verdicts:
            breather.breathe()
            is_set = verdict.node.id in upkeep.penalties
            found[verdict.finding] += is_set or self._due(verdict) == verdict.penalty
        return {
            "checked": found.total(),
            "grounded": found["grounded"],
            "penalized": found["weak"],
            "orphaned": found["orphan"],
        }

    def _due(self, verdict: Verdict) -> float:
        if verdict.finding == "grounded":
            return 0.0
        weak = verdict.finding == "weak"
        return self.config.weak_grounding_penalty if weak else self.config.orphan_penalty


async def plan_validation(sources: Sources) -> Validation:
    """Hold every fact and instruction against its evidence. *Cancellation*: safe."""
    view = await sources.index.corpus()
    judge = _Judge(sources, view)
    verdicts: list[Verdict] = []
    async with aclosing(living(sources, view, JUDGED)) as some:
        async for type, ids in some:
            verdicts += await judge.judge(type, await sources.nodes(ids))
    return Validation(
        sources=sources,
        revision=view.revision,
        checked=len(verdicts),
        verdicts=verdicts,
        config=sources.config.maintenance,
    )


# ── One piece ────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Case:
    """
    A node, the steps behind it, and whether they say what it says.

    *vector*: Its own, where the index has it; *unknown*: the steps of which the index has none.
    """

    node: Node
    steps: list[str] = field(default_factory=list)
    grounded: bool = False
    vector: Vector | None = None
    unknown: list[str] = field(default_factory=list)


class _Judge:
    """Judges nodes of one view; keeps the vectors that it had to ask for."""

    def __init__(self, sources: Sources, view: CorpusView) -> None:
        self._sources = sources
        self._view = view
        self._threshold = sources.config.maintenance.validation_threshold - COSINE_ROUNDING

    async def judge(self, type: NodeType, nodes: Sequence[Node]) -> list[Verdict]:
        sources, ids = self._sources, [node.id for node in nodes]
        metadata = await sources.graph.metadata(ids, intact=sources.passed)
        edges = await sources.graph.edges(ids, kind=EdgeKind.PROVENANCE, intact=sources.passed)
        cases = await sources.threads.run(_cases, nodes, edges)
        resting = [case for case in cases if case.steps]
        await sources.threads.run(self._by_vectors, type, resting)
        await self._by_words([case for case in resting if not case.grounded])
        return [_verdict(case, metadata) for case in cases]

    def _by_vectors(self, type: NodeType, cases: Sequence[_Case]) -> None:
        """Compare the vectors that the index has."""
        breather, view = Breather(), self._view
        behind = [id for case in cases for id in case.steps]
        steps = {id: id for id in behind} | view.aliases_of(behind)
        mine = _first_vectors(view.parts(type), [case.node.id for case in cases])
        theirs = _first_vectors(view.parts("episodic"), [*{*steps.values()}])
        for case in cases:
            breather.breathe()
            case.vector = next(iter(mine.get(case.node.id, ())), None)
            sides = [side for id in case.steps for side in theirs.get(steps[id], ())]
            case.unknown = [id for id in case.steps if steps[id] not in theirs]
            if case.vector is not None and sides:
                cosines = products(np.stack(sides), case.vector)
                case.grounded = float(cosines.max()) >= self._threshold

    async def _by_words(self, cases: Sequence[_Case]) -> None:
        """Read what the others rest on; where words do not tell, ask for missing vectors."""
        if not cases:
            return
        wanted = dict.fromkeys(id for case in cases for id in case.steps)
        read = self._sources.graph.nodes(list(wanted), intact=self._sources.passed)
        steps = {node.id: node for node in await read}
        await self._sources.threads.run(_share_words, cases, steps)
        asking = [case for case in cases if not case.grounded and case.vector is not None]
        unknown = {id: steps[id].text for c in asking for id in c.unknown if id in steps}
        for texts in pieces(list(unknown.items()), size=BATCH):
            vectors = await self._embedded(dict(texts))
            await self._sources.threads.run(self._compare, cases, vectors)

    async def _embedded(self, texts: Mapping[str, str]) -> dict[str, Vector]:
        """Vectors of steps that the index does not know, such as those applied by hand."""
        embedder = self._sources.embedder
        try:
            reply = await embedder.embed([text[:MAX_READ_CHARACTERS] for text in texts.values()])
            rows = unit_rows(reply, rows=len(texts), dimensions=embedder.space.dimensions)
        except ModelError as error:
            log.warning("judged by words alone: %s", error)
            return {}
        return dict(zip(texts, rows, strict=True))

    def _compare(self, cases: Sequence[_Case], vectors: Mapping[str, Vector]) -> None:
        breather = Breather()
        for case in cases:
            breather.breathe()
            theirs = [vectors[id] for id in case.steps if id in vectors]
            mine = case.vector
            if theirs and mine is not None and not case.grounded:
                case.grounded = max(float(mine @ other) for other in theirs) >= self._threshold


def _first_vectors(parts: Iterable[Part], ids: Sequence[str]) -> dict[str, list[Floats]]:
    """The first vectors of the documents of each of *ids* that has some."""
    found: dict[str, list[Floats]] = {}
    for part in parts:
        which, numbers = part.find(ids)
        known = part.embedded[numbers]
        rows = part.firsts(numbers[known])
        for one, row in zip(which[known].tolist(), rows, strict=True):
            found.setdefault(ids[one], []).append(row)
    return found


def _cases(nodes: Iterable[Node], edges: Iterable[Edge]) -> list[_Case]:
    cases = {node.id: _Case(node) for node in nodes}
    for edge in edges:
        if edge.source in cases:
            cases[edge.source].steps.append(edge.target)
    return list(cases.values())


def _share_words(cases: Iterable[_Case], steps: Mapping[str, Node]) -> None:
    breather = Breather()
    for case in cases:
        sought = set(terms(case.node.text[:MAX_READ_CHARACTERS]))
        known, enough = bool(sought), len(sought) * (1 - SHARED_WORDS)
        for text in (_evidence(steps[id]) for id in case.steps if id in steps):
            for start in range(0, len(text), _WORDS_AT_ONCE):
                sought.difference_update(terms(text[start : start + _WORDS_AT_ONCE]))
                breather.breathe()
        case.grounded = known and len(sought) <= enough


def _evidence(step: Node) -> str:
    actor = step.actor if isinstance(step, Episodic) and step.actor else ""
    return f"{actor}\n{step.text[:MAX_READ_CHARACTERS]}"


def _verdict(case: _Case, metadata: Mapping[str, NodeMetadata]) -> Verdict:
    # What the hand wrote needs no step that says so.
    grounded = case.grounded or (isinstance(case.node, Claim) and bool(case.node.edits))
    finding: Finding = "grounded" if grounded else "weak" if case.steps else "orphan"
    entry = metadata.get(case.node.id)
    return Verdict(case.node, finding, entry.penalty if entry else 0.0)
