"""
Reconcile a changeset with the stored graph: unite what is the same, add the rest.

``plan_intents`` asks the model and the embedder first; ``reconcile`` asks nobody. In order: late
rewards, tags, intents, facts said again or contradicted, instructions; against the store and within
the changeset. What is replaced disappears with its id; its edges and differences go to the
survivor.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np

from mnemo.commit.changes import Draft, Known, Neighbours, corrected
from mnemo.commit.timeline import Support, Timeline, reinforce, restates
from mnemo.config import CommitConfig
from mnemo.english.similarity import equal_text
from mnemo.errors import ModelError
from mnemo.protocols import GraphWrite
from mnemo.runtime.clock import Breather
from mnemo.runtime.text import is_blank, one_line
from mnemo.values.changeset import Changeset
from mnemo.values.graph import (
    Claim,
    EdgeKind,
    Intent,
    Procedural,
    Semantic,
    Tag,
    Vector,
    Wording,
    added_wording,
)
from mnemo.values.lookup import former_key, label_key, text_key
from mnemo.values.vectors import COSINE_ROUNDING


def reconcile(
    changeset: Changeset, known: Known, intents: IntentPlan, *, config: CommitConfig, now: datetime
) -> GraphWrite:
    """
    Decide what *changeset* (tidied and checked, with an id and all vectors) writes into the graph
    that *known* shows; for a worker thread. *now*: Creation time of nodes that have none.
    """
    draft = Draft(changeset, known, now=now)
    support = Support(changeset, known)
    near = Neighbours(changeset, known, threshold=config.duplicate_threshold)
    timeline, supersede = Timeline(draft, known, near, support), config.supersede
    _pay_late_rewards(draft, known, support)
    _unite_tags(draft, known)
    for id, survivor in intents.same.items():
        draft.replace(id, survivor)
    for id, (description, vector) in intents.reworded.items():
        draft.set(id, description=description, vector=vector)
    for id, wordings in intents.worded.items():
        draft.set(id, wordings=wordings)
    breather = Breather()
    for fact in draft.new(Semantic):
        breather.breathe()
        replaced = changeset.replaces.get(fact.id, ()) if supersede else ()
        timeline.place(fact, replaced, supersede=supersede)
    # What the hand corrects supersedes what its new wording contradicts.
    for node in corrected(changeset, known.nodes) if supersede else ():
        if isinstance(node, Semantic):
            timeline.supersede(node)
    _unite_instructions(draft, changeset, known, support)
    return draft.finished()


def _pay_late_rewards(draft: Draft, known: Known, support: Support) -> None:
    """Give the reward of a stored step, known only now, to what was stored on it."""
    for id, gained in support.late.items():
        if isinstance(known.nodes.get(id), Procedural):
            # An instruction's score has judged a trajectory already, whatever is known of it.
            judged = known.counts[id].reward_count if id in known.counts else 0
            count = min(gained.reward_count, support.trajectories(id) - judged)
            if count <= 0:
                continue
            # Which of them a score has judged is not known: as many at the mean of all.
            mean = gained.cumulative_reward / gained.reward_count
            gained = replace(gained, reward_count=count, cumulative_reward=mean * count)
        draft.add(id, gained)


def _unite_tags(draft: Draft, known: Known) -> None:
    breather = Breather()
    seen: dict[str, str] = {}
    for tag in draft.new(Tag):
        breather.breathe()
        key = label_key(tag.label)
        stored = known.keys.get(("tag", key), ())
        survivor = stored[0].id if stored else seen.setdefault(key, tag.id)
        if survivor != tag.id:
            draft.replace(tag.id, survivor)


# ── Instructions ─────────────────────────────────────────────────────────────────────


def _unite_instructions(draft: Draft, changeset: Changeset, known: Known, support: Support) -> None:
    intents = _intents_of(draft, changeset, known)
    breather = Breather()
    kept: dict[str, list[str]] = {}
    for new in draft.new(Procedural):
        breather.breathe()
        key = text_key(new.condition, new.instruction)
        equal = [node.id for node in known.keys.get(("procedural", key), ())] + kept.get(key, [])
        same = (id for id in equal if _is_same(new, draft.survivor(id, Procedural), intents))
        survivor = next(same, None) or _corrected(new, known)
        if survivor is None:
            kept.setdefault(key, []).append(new.id)
            draft.supported(new.id, support.credit(new.id).support_count)
        else:
            reinforce(draft, support, new.id, survivor)


def _corrected(new: Procedural, known: Known) -> str | None:
    """The stored instruction that said the same before it was corrected."""
    found = known.keys.get(("procedural", former_key(new.text)), ())
    restated = (node.id for node in found if isinstance(node, Claim) and restates(node, new))
    return next(restated, None)


def _intents_of(draft: Draft, changeset: Changeset, known: Known) -> dict[str, set[str]]:
    """Instruction → the surviving intents that it serves."""
    found: dict[str, set[str]] = {}
    for edge in (*known.edges, *changeset.edges):
        if edge.kind is EdgeKind.HIERARCHICAL:
            found.setdefault(edge.target, set()).add(draft.end(edge.source))
    return found


def _is_same(new: Procedural, other: Procedural | None, intents: dict[str, set[str]]) -> bool:
    if other is None or not (
        equal_text(other.condition, new.condition)
        and equal_text(other.instruction, new.instruction)
    ):
        return False
    mine, theirs = intents.get(new.id, set()), intents.get(other.id, set())
    return bool(mine & theirs) or not (mine or theirs)


# ── Intents ─────────────────────────────────────────────────────────────────────────────


log: logging.Logger = logging.getLogger("mnemo")

MergeIntent = Callable[[str, str], Awaitable[str]]
"""Words the common description of a stored and a new intent."""

VectorsOf = Callable[[Sequence[str]], Awaitable[Mapping[str, Vector]]]
"""Vectors of texts, as far as the embedder gave them."""


@dataclass(slots=True)
class IntentPlan:
    """
    What becomes of the intents of a changeset.

    *same*: Id of a new intent → the stored or earlier new one that stands for it. By the id of a
    surviving intent, *reworded*: its new description and vector; *worded*: its wordings, if new.
    """

    same: dict[str, str] = field(default_factory=dict)
    reworded: dict[str, tuple[str, Vector]] = field(default_factory=dict)
    worded: dict[str, tuple[Wording, ...]] = field(default_factory=dict)


async def plan_intents(
    changeset: Changeset,
    known: Known,
    *,
    config: CommitConfig,
    merge: MergeIntent | None,
    vectors_of: VectorsOf,
) -> IntentPlan:
    """
    Decide for each new intent, in order, whether a known one stands for it.

    A reworded intent keeps the vectors of its old names, so that what was near it stays near.
    *merge*: ``None``, without a model: the known one stays as it is.
    """
    planner = _Planner(known, config, merge, vectors_of, _sources(changeset))
    for intent in changeset.nodes:
        if isinstance(intent, Intent):
            await planner.place(intent)
    return planner.plan


def _sources(changeset: Changeset) -> dict[str, tuple[str, ...]]:
    """Intent → the steps behind its instructions."""
    steps: dict[str, list[str]] = {}
    found: dict[str, dict[str, None]] = {}
    for edge in changeset.edges:
        if edge.kind is EdgeKind.PROVENANCE:
            steps.setdefault(edge.source, []).append(edge.target)
    for edge in changeset.edges:
        if edge.kind is EdgeKind.HIERARCHICAL:
            behind = dict.fromkeys(steps.get(edge.target, ()))
            found.setdefault(edge.source, {}).update(behind)
    return {id: tuple(ids) for id, ids in found.items()}


@dataclass(eq=False, slots=True)
class _Planner:
    _known: Known
    _config: CommitConfig
    _merge: MergeIntent | None
    _vectors_of: VectorsOf
    _sources: Mapping[str, tuple[str, ...]]
    plan: IntentPlan = field(default_factory=IntentPlan)
    _kept: list[Intent] = field(default_factory=list)

    async def place(self, intent: Intent) -> None:
        found, cosine = self._nearest(intent)
        said = Wording(intent.description, self._sources.get(intent.id, ()))
        if found is None or cosine < self._config.intent_merge_threshold - COSINE_ROUNDING:
            self._kept.append(intent)
            self._word(intent, said)
            return
        self.plan.same[intent.id] = found.id
        if cosine < self._config.intent_identity_threshold - COSINE_ROUNDING:
            await self._reword(found, intent, said)
        elif any(one.text == said.text for one in self._wordings(found)):
            self._word(found, said)

    def _wordings(self, intent: Intent) -> tuple[Wording, ...]:
        return self.plan.worded.get(intent.id, intent.wordings)

    def _word(self, intent: Intent, said: Wording) -> None:
        self.plan.worded[intent.id] = added_wording(self._wordings(intent), said)

    def _nearest(self, intent: Intent) -> tuple[Intent | None, float]:
        if equal := self._equal(intent):
            return equal, 1.0
        own = [(kept, self._cosine(intent, self._vectors(kept))) for kept in self._kept]
        found = [*self._stored_cosines(intent), *own]
        return max(found, key=lambda pair: pair[1], default=(None, -1.0))

    def _equal(self, intent: Intent) -> Intent | None:
        stored = self._known.keys.get(("intent", text_key(intent.description)), ())
        candidates = [n for n in stored if isinstance(n, Intent)] + self._kept
        same = (c for c in candidates if equal_text(self._text(c), intent.description))
        return next(same, None)

    def _stored_cosines(self, intent: Intent) -> Iterable[tuple[Intent, float]]:
        for id, cosine in self._known.near.get(intent.id, ()):
            stored = self._known.nodes.get(id)
            if isinstance(stored, Intent):
                yield stored, max(cosine, self._cosine(intent, self._vectors(stored)))

    def _cosine(self, intent: Intent, vectors: Iterable[Vector]) -> float:
        if intent.vector is None:
            return -1.0
        return max((float(np.dot(intent.vector, vector)) for vector in vectors), default=-1.0)

    def _text(self, intent: Intent) -> str:
        return self.plan.reworded.get(intent.id, (intent.description, None))[0]

    def _vectors(self, intent: Intent) -> list[Vector]:
        """Its own vector and those of its wordings, as far as they are known here."""
        own = self.plan.reworded.get(intent.id, (None, intent.vector))[1]
        vectors = (own, *(one.vector for one in self._wordings(intent)))
        return [vector for vector in vectors if vector is not None]

    async def _reword(self, stored: Intent, intent: Intent, said: Wording) -> None:
        before = self._text(stored)
        text = await self._common(before, intent.description)
        if text is None or text == before:
            return
        wordings = self._wordings(stored)
        bare = [one.text for one in wordings if one.vector is None]
        vectors = await self._vectors_of([text, *bare])
        # Without its vector the new text could not be found: the old one stays.
        if text in vectors:
            self.plan.reworded[stored.id] = text, vectors[text]
            kept = [
                replace(one, vector=vectors[one.text]) if one.text in bare else one
                for one in wordings
                if one.text not in bare or one.text in vectors
            ]
            self.plan.worded[stored.id] = added_wording(kept, replace(said, vector=intent.vector))

    async def _common(self, stored: str, new: str) -> str | None:
        if self._merge is None:
            return None
        try:
            text = one_line(await self._merge(stored, new))
        except ModelError as error:
            log.warning("intents were not merged, the stored one is used: %s", error)
            return None
        return None if is_blank(text) else text
