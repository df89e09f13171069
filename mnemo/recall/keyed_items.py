"""Keyed items as candidates of a recall: filtered, scored by words and cosine, and cited."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import TypeAlias

from mnemo.config import Config, ScoringConfig
from mnemo.english.words import index_terms
from mnemo.recall.request import RecallRun
from mnemo.recall.result import Candidate, SourceRef
from mnemo.recall.score import explained, parameters_of, value_function
from mnemo.values.graph import KeyedItem
from mnemo.values.items import Item

LEAST_PAGE = 32
"""Items that are read at first, at least; twice as many each time after that (S)."""


FindItems: TypeAlias = Callable[..., Awaitable[Sequence[Item]]]
"""
Searches the items of all namespaces, as ``Items.search`` does, with the keywords ``query``,
``limit``, ``offset`` and ``refresh``: best first by cosine; those without a score last.
"""


async def items_found(run: RecallRun, config: Config, find: FindItems) -> list[Candidate]:
    """
    List the best *k* of the nearest items that match the filters, best first.

    An item's relevance is that of a node among few: the share of the question's words that
    its texts hold and its cosine, weighted as the embedding space says. It is absolute, so
    that the best item of a question that no item answers does not stand above a fact.

    The items' expiries stay as they are. *Raises* as ``Items.search``.
    """
    request = run.request
    terms = frozenset(index_terms(request.query))
    enough = page = max(LEAST_PAGE, 2 * request.k)
    offset, found = 0, list[Candidate]()
    while len(found) < enough:
        items = await find(query=request.query, limit=page, offset=offset, refresh=False)
        for item in items:
            # An item's value is its metadata, and nobody said it.
            passes = request.filters.holds(at=item.updated_at, metadata=item.value)
            if item.score is not None and passes:
                found += _candidate(item, terms, run, config.scoring)
        if len(items) < page or items[-1].score is None:
            break
        # Each search ranks all items anew: the pages grow, so that there are few of them.
        offset, page = offset + page, 2 * page
    return sorted(found, key=lambda candidate: -candidate.score)[: request.k]


def _candidate(
    item: Item, terms: frozenset[str], run: RecallRun, scoring: ScoringConfig
) -> list[Candidate]:
    """Make its candidate; none where it is below a threshold."""
    node = _node(item)
    parameters = parameters_of(scoring, node.type)
    cosine, shared = item.score or 0.0, terms.intersection(index_terms(node.text))
    whole = 1 + run.dense_weight
    signals = {
        "words": len(shared) / max(len(terms), 1) / whole,
        "cosine": run.dense_weight * max(cosine, 0.0) / whole,
    }
    relevance = min(sum(signals.values()), 1.0)
    near = bool(shared) or cosine >= parameters.threshold
    if not near or relevance < run.request.min_score:
        return []
    value = value_function(scoring)(relevance, node, None, parameters, run.now)
    if value <= 0:
        return []
    why = explained(scoring, node, None, run.now, signals=signals, cosine=cosine)
    return [
        Candidate(
            node=node,
            score=value,
            relevance=relevance,
            phase="initial",
            hop=0,
            sources=[replace(SourceRef.of_node(node, node.key), namespace=node.namespace)],
            why=why if run.request.explain else None,
        )
    ]


def _node(item: Item) -> KeyedItem:
    place = json.dumps([*item.namespace, item.key]).encode()
    return KeyedItem(
        id=f"item-{sha256(place).hexdigest()[:32]}",
        created_at=item.updated_at,
        namespace=item.namespace,
        key=item.key,
        value=item.value,
        texts=item.texts,
    )
