"""Where a memory that was expected stands, and what left it out of an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mnemo.recall import score
from mnemo.recall.candidates import KEPT, is_far_below
from mnemo.recall.result import Candidate, Expected, LeftOut
from mnemo.recall.search import Found, Search
from mnemo.values.filters import Filters
from mnemo.values.graph import Claim, EdgeKind, Node, NodeType, Semantic
from mnemo.values.steps import Step

_FILTERS = ("where", "session_id", "thread_id", "actor", "since", "until")


async def look_for(search: Search, id: str, answer: Sequence[Candidate]) -> Expected:
    """
    Say where *id*, a node, step or message, stands in *answer*, and what left it out.

    What a large repository did not gather is gathered for it now. *Raises* ``StoreError``.
    """
    run, config = search.run, search.config
    named = [id, *await search.feed.documents_of(id)]
    own = next((one for one in named if _kind(search, one)), named[-1])
    own = search.corpus.steps.aliases.get(own, own)
    expected = Expected(id=id)
    led = (one for place in search.ranked for one in (place, *place.others))
    if (found := next((one for one in led if own in (one.id, one.node.id)), None)) is not None:
        return _of_found(search, replace(expected, type=found.type), found, answer)
    if run.trace.abstained:
        return _out(expected, "abstained", "the question is no language")
    node, evidence = await _evidence(search, own)
    kind = _kind(search, own) or (node.type if node else "episodic" if evidence else None)
    if kind is None:
        return _out(expected, "unknown", "nothing that is found has this id")
    expected = replace(expected, type=kind)
    if kind not in run.weights:
        what = f"mode {run.trace.mode}" if run.request.types is None else "types"
        return _out(expected, "type", f"{what} has no {kind}")
    if isinstance(node, Semantic) and node.valid_to is not None:
        until = run.request.filters.until
        if until is None or until >= node.valid_to:
            expected = replace(expected, outdated_by=node.superseded_by)
            return _out(expected, "superseded", f"it held until {node.valid_to:%Y-%m-%d}")
    if lacking := _lacking(run.request.filters, [*evidence.values()]):
        return _out(expected, "filter", ", ".join(lacking))
    steps = run.request.context.steps if run.request.context else ()
    if own in {search.corpus.steps.aliases.get(one.node_id, one.node_id) for one in steps}:
        return _out(expected, "context", "it is a step of the session that asks")
    if not (was_scored := _is_scored(search, kind, own)):
        await search.bring([own, *evidence])
        if not _is_scored(search, kind, own):
            return _out(expected, "unknown", "it is not found any more, or not yet")
    expected = _scored(search, expected, kind, own)
    if not was_scored:
        return _out(expected, "not_gathered", "by words or vector others are nearer")
    most = max(score.parameters_of(config.scoring, kind).top_k, run.request.k)
    if expected.place is not None and expected.place > most:
        return _out(expected, "top_k", f"{most} of type {kind} go on")
    return _out(expected, "max_candidates", f"{config.recall.max_candidates} candidates go on")


def _out(expected: Expected, by: LeftOut, detail: str) -> Expected:
    return replace(expected, left_out_by=by, detail=detail)


# ── Among the candidates ─────────────────────────────────────────────────────────────


def _of_found(
    search: Search, expected: Expected, own: Found, answer: Sequence[Candidate]
) -> Expected:
    # Among others it stands twice: by itself and in the place that it shares.
    places = [one for one in search.ranked if one is own or own in one.others]
    place = max(places, key=lambda one: own in one.others)
    newer = place.newer.node.id if place.newer else None
    expected = _scored(search, expected, own.type, own.id)
    expected = replace(expected, score=own.value, relevance=own.relevance, outdated_by=newer)
    ids = [one.node.id for one in answer]
    if place.node.id in ids:
        return replace(expected, rank=ids.index(place.node.id) + 1)
    request, best = search.run.request, max(search.ranked, key=lambda one: one.value)
    if place.relevance < request.min_score:
        return _out(expected, "min_score", f"{request.min_score} of relevance is asked for")
    # Of the first few nothing is cut.
    if is_far_below(search, place, best) and (request.k > KEPT or len(answer) < request.k):
        share = f"{search.config.recall.cut} of the best one's score"
        return _out(expected, "cut", f"config.recall.cut wants {share}, of turns its square")
    return _out(expected, "k", f"{request.k} candidates are asked for")


# ── By its score ─────────────────────────────────────────────────────────────────────


def _kind(search: Search, id: str) -> NodeType | None:
    """The type of what is here by this id."""
    nodes = search.corpus.nodes.items()
    kind = next((kind for kind, view in nodes if view.of(id)), None)
    return kind or ("episodic" if search.corpus.steps.of(id) else None)


def _is_scored(search: Search, kind: NodeType, id: str) -> bool:
    return kind in search.hits and search.hits[kind].has(id)


def _scored(search: Search, expected: Expected, kind: NodeType, id: str) -> Expected:
    """Its relevance by the question alone, and its place by that among those of its type."""
    hits = search.hits[kind]
    own = hits.best(hits.scores, id)
    better = {hits.view.ids[d] for d in np.flatnonzero(hits.scores > own).tolist()}
    return replace(expected, relevance=score.relevance_of(own), place=len(better) + 1)


# ── Its evidence ─────────────────────────────────────────────────────────────────────


async def _evidence(search: Search, id: str) -> tuple[Node | None, dict[str, dict[str, Any]]]:
    """The node, if it is no step, and what filters look at of what it rests on, by id."""
    await search.read_steps([id])
    if (step := search.steps.get(id)) is not None:
        return None, {id: _of_step(search, step)}
    node = next(iter(await search.graph.nodes([id], intact=True)), None)
    if node is None:
        return None, {}
    edges = await search.graph.edges([id], kind=EdgeKind.PROVENANCE, intact=True)
    steps = await search.feed.steps([edge.target for edge in edges if edge.source == id])
    evidence = {id: _of_step(search, step) for id, step in steps.items()}
    by_hand = node.worded_at if isinstance(node, Claim) else None
    if by_hand or not evidence:
        metadata = node.metadata if isinstance(node, Claim) else None
        actors = (score.HAND,) if by_hand else ()
        evidence[id] = {"at": by_hand or node.created_at, "actors": actors}
        evidence[id]["metadata"] = metadata or {}
    return node, evidence


def _of_step(search: Search, step: Step) -> dict[str, Any]:
    actors = [step.actor] if step.observation else []
    actors += [search.config.extraction.agent_name] if step.action else []
    return {
        "at": step.at,
        "actors": actors,
        "metadata": step.metadata,
        "session_ids": [step.session_id],
        "thread_id": step.thread_id,
    }


def _lacking(filters: Filters, evidence: Sequence[Mapping[str, Any]]) -> list[str]:
    """The filters that none of *evidence* passes; all of them, if none passes all at once."""
    open_to_all = Filters()
    given = [n for n in _FILTERS if getattr(filters, n) != getattr(open_to_all, n)]
    each = {name: replace(open_to_all, **{name: getattr(filters, name)}) for name in given}
    lacking = [name for name in given if not any(each[name].holds(**one) for one in evidence)]
    return lacking or ([] if any(filters.holds(**one) for one in evidence) else given)
