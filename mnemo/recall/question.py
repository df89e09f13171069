"""The query as hop 0 scores it: weighted terms, vectors, and the words it names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mnemo.english.scaffolding import without_scaffolding
from mnemo.english.words import index_terms
from mnemo.recall.request import MAX_QUERY_CHARACTERS, RecallContext
from mnemo.runtime.text import clean, fold, words

TAG_WEIGHT = 0.9
"""What a tag's cosine counts beside the query's."""
CONTEXT_VECTOR_WEIGHT = 0.5
CONTEXT_TERM_WEIGHT = 0.3

_OF_THE_AGENT = re.compile(
    r"\b(?:did|have|had|were|was) you\b|\byour (?:advice|answers?|suggestions?|recommendations?)\b"
    r"|\byou (?:said|told|mentioned|suggested|recommended|advised|explained|proposed|wrote)\b"
)
_OF_THE_ASKER = re.compile(r"\b(?:i|i'm|i've|my|mine|me|we|our|us)\b")


@dataclass(frozen=True, slots=True)
class RecallQuestion:
    """
    The query as it is scored.

    Attributes:
        query: As far as it is read.
        terms: Index term → weight in BM25; 1 for the query's own.
        named: Folded words of the query; an actor among them is named by it.
        about: Whose words are asked for: ``"agent"`` (what did *you* suggest),
            ``"asker"`` (*I*, *my*), or ``None`` if the query says neither.
        texts: What is to be embedded: the query's topic, the tags that say more than it does, and
            last the context.
        vectors: Unit rows of the query and these tags; ``None`` without an embedder.
    """

    query: str
    terms: dict[str, float]
    named: frozenset[str]
    texts: tuple[str, ...]
    about: Literal["agent", "asker"] | None = None
    has_context: bool = False
    vectors: NDArray[np.float32] | None = field(default=None, compare=False, repr=False)

    def embedded(self, rows: NDArray[np.float32]) -> RecallQuestion:
        """This question with the vectors of its ``texts``."""
        if self.has_context:
            leading = rows[0] + np.float32(CONTEXT_VECTOR_WEIGHT) * rows[-1]
            rows = np.vstack((leading / max(float(np.linalg.norm(leading)), 1e-9), rows[1:-1]))
        return replace(self, vectors=rows.astype(np.float32, copy=False))

    @property
    def weights(self) -> NDArray[np.float32]:
        """The weight of each row's cosine: 1 for the query, 0.9 for a tag."""
        rows = 0 if self.vectors is None else len(self.vectors)
        weights = np.full(rows, TAG_WEIGHT, np.float32)
        weights[:1] = 1.0
        return weights


def ask(
    query: str, tags: Sequence[str] = (), context: RecallContext | None = None
) -> RecallQuestion:
    """Read *query*; every sign in it is text, whatever a search engine would make of it."""
    query = clean(query[:MAX_QUERY_CHARACTERS])
    topic = without_scaffolding(query)
    own = dict.fromkeys(index_terms(topic), 1.0)
    weighted = dict.fromkeys(index_terms(context.text), CONTEXT_TERM_WEIGHT) if context else {}
    telling = (tag for tag in tags if not own.keys() >= {*index_terms(tag)})
    return RecallQuestion(
        terms=weighted | own,
        named=frozenset(word.removesuffix("'s") for word in words(query)),
        query=query,
        texts=(topic, *telling, *([context.text] if context else [])),
        about=_about(query),
        has_context=context is not None,
    )


def _about(query: str) -> Literal["agent", "asker"] | None:
    folded = fold(query)
    if _OF_THE_AGENT.search(folded):
        return "agent"
    return "asker" if _OF_THE_ASKER.search(folded) else None
