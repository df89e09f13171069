"""Keyed items as candidates of a recall: filtered, scored by words and cosine, and cited."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Protocol

from mnemo.config import Config
from mnemo.english.words import index_terms
from mnemo.recall.request import RecallRun
from mnemo.recall.result import Candidate, SourceRef
from mnemo.recall.score import explained, parameters_of, value_function
from mnemo.values.graph import KeyedItem
from mnemo.values.items import Item

LEAST_PAGE = 32
"""Items that are read at first, at least; twice as many each time after that (S)."""


class FindItems(Protocol):
    """Searches the items of all namespaces; ``Items.search`` does."""

    async def __call__(
        self, *, query: str, limit: int, offset: int, refresh: bool
    ) -> Sequence[Item]:
        """Best first by cosine; those without a score last."""
        ...


@dataclass(frozen=True, slots=True)
class ItemRecall:
    """
    Finds the keyed items that answer one recall.

    An item's relevance is that of a node among few: the share of the question's words that
    its texts hold and its cosine, weighted as the embedding space says. It is absolute, so
    that the best item of a question that no item answers does not stand above a fact.

    """

    run: RecallRun
    config: Config

    async def candidates(self, find: FindItems) -> list[Candidate]:
        """
        List the best *k* of the nearest items that match the filters, best first.

        The items' expiries stay as they are. *Raises* as ``Items.search``.
        """
        request, filters = self.run.request, self.run.request.filters
        query, k = request.query, request.k
        terms = frozenset(index_terms(query))
        enough = page = max(LEAST_PAGE, 2 * k)
        offset, found = 0, list[Candidate]()
        while len(found) < enough:
            items = await find(query=query, limit=page, offset=offset, refresh=False)
            for item in items:
                # An item's value is its metadata, and nobody said it.
                passes = filters.holds(at=item.updated_at, metadata=item.value)
                if item.score is not None and passes:
                    found += self._candidate(item, terms)
            if len(items) < page or items[-1].score is None:
                break
            # Each search ranks all items anew: the pages grow, so that there are few of them.
            offset, page = offset + page, 2 * page
        return sorted(found, key=lambda candidate: -candidate.score)[:k]

    def _candidate(self, item: Item, terms: frozenset[str]) -> list[Candidate]:
        """Make its candidate; none where it is below a threshold."""
        node = _node(item)
        parameters = parameters_of(self.config.scoring, node.type)
        cosine, shared = item.score or 0.0, terms.intersection(index_terms(node.text))
        whole = 1 + self.run.dense_weight
        signals = {
            "words": len(shared) / max(len(terms), 1) / whole,
            "cosine": self.run.dense_weight * max(cosine, 0.0) / whole,
        }
        relevance = min(sum(signals.values()), 1.0)
        near = bool(shared) or cosine >= parameters.threshold
        if not near or relevance < self.run.request.min_score:
            return []
        value = value_function(self.config.scoring)(relevance, node, None, parameters, self.run.now)
        if value <= 0:
            return []
        why = explained(
            self.config.scoring, node, None, self.run.now, signals=signals, cosine=cosine
        )
        return [
            Candidate(
                node=node,
                score=value,
                relevance=relevance,
                phase="initial",
                hop=0,
                sources=[replace(SourceRef.of_node(node, node.key), namespace=node.namespace)],
                why=why if self.run.request.explain else None,
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
