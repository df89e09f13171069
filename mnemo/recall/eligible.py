"""Eligible documents: what a recall's filters let in, before anything is scored. NumPy only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mnemo.values.corpus import CorpusView, DocumentsView, StepsView, thread_chain
from mnemo.values.filters import Filters, Window
from mnemo.values.graph import NodeType

__all__ = ["HAND", "eligible_nodes", "eligible_steps"]

HAND = "hand"
"""The actor of what was written by hand."""

Mask = NDArray[np.bool_]


def eligible_steps(view: StepsView, filters: Filters) -> Mask:
    """The living documents of the evidence that matches."""
    ok = _in_time(view, filters.window)
    if filters.actor is not None:
        actor = view.actor_numbers.get(filters.actor, -1)
        ok = ok & ((view.actor == actor) | (view.told_by == actor))
    if filters.thread_id is not None:
        ok = ok & (view.thread == _number(view, thread_chain(filters.thread_id)))
    if filters.session_id is not None:
        ok = ok & _of_session(view, filters.session_id)
    return ok & _holding(view, filters) if filters.where.conditions else ok


def _number(view: StepsView, chain: str) -> int:
    """The number of a session or thread; -2, which no document has, for an unknown one."""
    return view.chains.get(chain, -2)


def _of_session(view: StepsView, id: str) -> Mask:
    """What a session or a thread of this id holds; of a fed session also as messages."""
    session, thread = _number(view, id), _number(view, thread_chain(id))
    found = (view.session == session) | (view.thread == thread)
    documents = view.joined[view.joined[:, 0] == session, 1]
    found[documents[documents < view.count]] = True
    return np.asarray(found)


def _holding(view: DocumentsView, filters: Filters) -> Mask:
    return view.facets.holding(filters.where)[view.metadata]


def eligible_nodes(corpus: CorpusView, kind: NodeType, filters: Filters, steps: Mask) -> Mask:
    """
    The living documents of one type of node that match.

    A fact or an instruction matches if one of its sources does, or by itself if it stands
    for itself. Of other types only time is looked at: they lead to what matches.

    Args:
        steps: What ``eligible_steps`` gave.
    """
    view = corpus.nodes[kind]
    ok = _in_time(view, filters.window)
    pairs = corpus.behind.get(kind)
    if filters.is_open or pairs is None:
        return ok
    matching = _by_itself(view, filters, pairs)
    matching[pairs[steps[pairs[:, 1]], 0]] = True
    return ok & matching


def _by_itself(view: DocumentsView, filters: Filters, pairs: NDArray[np.int32]) -> Mask:
    """What has no step behind it, or was worded by hand, and matches as such."""
    of_step = filters.session_id is not None or filters.thread_id is not None
    if of_step or filters.actor not in (None, HAND):
        return np.zeros(view.count, np.bool_)
    found = view.by_hand.copy()
    if filters.actor is None:
        bare = np.ones(view.count, np.bool_)
        bare[pairs[:, 0]] = False
        found |= bare
    return found & _holding(view, filters) if filters.where.conditions else found


def _in_time(view: DocumentsView, window: Window) -> Mask:
    """Documents that are alive, may have evidence inside *window*, and held at its end."""
    ok = view.alive
    if window.since is not None:
        ok = ok & (view.last >= window.since.timestamp())
    if window.until is None:
        return ok & np.isinf(view.valid_to)
    end = window.until.timestamp()
    return ok & (view.first <= end) & (view.valid_to > end)
