"""
Reconcile a changeset with the stored graph: unite what is the same, add the rest.

Pure: all that is asked of models and the store has been answered before. In order:
tags, intents, facts said again or contradicted, instructions; against the store and
within the changeset. What is replaced disappears with its id; its edges and
differences go to the survivor.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from functools import partial

from mnemo.commit.changes import Known, Neighbours
from mnemo.commit.draft import Draft
from mnemo.commit.intents import IntentPlan
from mnemo.commit.timeline import Support, place_facts, restates
from mnemo.config import CommitConfig
from mnemo.english.similarity import equal_text
from mnemo.protocols import GraphWrite
from mnemo.runtime.clock import Breather, as_utc
from mnemo.values.changeset import Changeset
from mnemo.values.graph import (
    Claim,
    EdgeKind,
    MetadataDelta,
    Procedural,
    Semantic,
    Tag,
    united_confidence,
)
from mnemo.values.lookup import former_key, label_key, text_key


def reconcile(
    changeset: Changeset,
    known: Known,
    intents: IntentPlan,
    *,
    config: CommitConfig,
    now: datetime,
) -> GraphWrite:
    """
    Decide what *changeset* writes into the graph that *known* shows.

    For a worker thread; it pauses often enough not to be felt on the event loop.

    Args:
        changeset: Tidied and checked, with an id and with all vectors that there are.
        now: Creation time of nodes that have none.
    """
    draft = Draft(changeset, known, now=now)
    support = Support(changeset, known)
    near = Neighbours(changeset, known, threshold=config.duplicate_threshold)
    _pay_late_rewards(draft, changeset, known)
    _unite_tags(draft, known)
    _unite_intents(draft, intents)
    place_facts(
        draft,
        changeset,
        known,
        near,
        support,
        reinforce=partial(_reinforce_fact, draft, support),
        supersede=config.supersede,
    )
    _unite_instructions(draft, changeset, known, support)
    return draft.write()


def _pay_late_rewards(draft: Draft, changeset: Changeset, known: Known) -> None:
    """Give the reward of a stored step, known only now, to what was stored on it."""
    late = {
        change.id: float(change.fields["reward"])
        for change in changeset.changes
        if change.fields.get("reward") is not None
        and getattr(known.nodes.get(change.id), "reward", 0.0) is None
    }
    for edge in known.edges:
        if edge.kind is EdgeKind.PROVENANCE and edge.target in late:
            draft.add(
                edge.source, MetadataDelta(cumulative_reward=late[edge.target], reward_count=1)
            )


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


def _unite_intents(draft: Draft, plan: IntentPlan) -> None:
    for id, survivor in plan.same.items():
        draft.replace(id, survivor)
    for id, (description, vector) in plan.reworded.items():
        draft.set(id, description=description, vector=vector)
    for id, wordings in plan.worded.items():
        draft.set(id, wordings=wordings)


# ── Facts ────────────────────────────────────────────────────────────────────────────


def _reinforce_fact(draft: Draft, support: Support, fact: Semantic, same: Semantic) -> None:
    """Let *same* stand for *fact* too: their confidence, start and steps are united."""
    starts = [as_utc(at) for at in (same.valid_from, fact.valid_from) if at is not None]
    # Since when what the hand worded holds, the hand has said.
    start = same.valid_from if same.edits else min(starts, default=None)
    confidence = united_confidence(same.confidence, fact.confidence)
    metadata = {**(same.metadata or {}), **(fact.metadata or {})} or None
    draft.set(same.id, confidence=confidence, valid_from=start, metadata=metadata)
    _reinforce(fact.id, same.id, draft, support)


def _reinforce(id: str, survivor: str, draft: Draft, support: Support) -> None:
    """Let *survivor* stand for *id*; an episode that states it again does not count twice."""
    count = 0 if support.is_restated(id, by=survivor) else 1
    support.unite(id, survivor)
    draft.replace(id, survivor, adjust=lambda delta: replace(delta, support_count=count))


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
            draft.supported(new.id)
        else:
            _reinforce(new.id, survivor, draft, support)


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
