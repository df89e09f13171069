"""Extraction by a chat model: its annotator, its extractors, and the wording of merged intents."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import chain, zip_longest
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from mnemo.config import Config
from mnemo.extraction.facts import most_facts
from mnemo.graph.graph import StoredGraph
from mnemo.index.follower import RepositoryIndex
from mnemo.prompts.annotate import annotate_question
from mnemo.prompts.calling import Asker
from mnemo.prompts.procedural import merge_intent_question, procedural_question, returns_question
from mnemo.prompts.profiles import Profile, resolve_profile
from mnemo.prompts.question import shortened
from mnemo.prompts.semantic import StoredFact, semantic_question
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import Annotated, AnnotationRequest, ChatModel, Embedder
from mnemo.runtime.spans import NO_SPANS, Spans
from mnemo.values.graph import Semantic, Vector
from mnemo.values.steps import Fact, Instruction, Trajectory
from mnemo.values.vectors import unit_rows

NearbyFacts: TypeAlias = Callable[[str, int], Awaitable[Sequence[StoredFact]]]
"""``nearby(text, limit)``: the stored facts nearest to a text, best first."""

SHOWN_FACTS = 12
"""Stored facts that a model is shown, at most."""
COMPARED_CHARACTERS = 4_000
"""Head and tail of a step's text that its nearest facts are looked up by (S)."""
COMPARED_STEPS = 12
"""Steps of a trajectory whose nearest facts are looked up, the last ones (S)."""


class ModelAnnotator:
    """One call per batch gives states, subgoals, and the rewards that have become known."""

    batch_size: int | None = None

    def __init__(self, asker: Asker, profile: Profile | None = None) -> None:
        self._asker = asker
        self._profile = profile

    async def annotate(
        self, request: AnnotationRequest
    ) -> tuple[Sequence[Annotated], float | None]:
        """
        Annotate every step of ``request.fresh``, and give the last reward if closing.

        Raises:
            ModelError: One of its kinds, ``InvalidReply`` after one correction.
                *Cancellation*: safe.
        """
        return await self._asker.ask(annotate_question(request, self._profile))


class ModelSemanticExtractor:
    """
    One call per trajectory gives its facts.

    Args:
        nearby: Where the facts come from that a new one may replace or end; ``None``: none.
    """

    def __init__(
        self,
        asker: Asker,
        config: Config,
        profile: Profile | None = None,
        *,
        nearby: NearbyFacts | None = None,
    ) -> None:
        self._asker = asker
        self._max_facts = config.extraction.max_facts
        self._profile = profile
        self._nearby = nearby

    async def extract_facts(self, trajectory: Trajectory) -> Sequence[Fact]:
        """
        Give the facts as the model words them, not yet cleaned.

        Raises:
            ModelError: One of its kinds, ``InvalidReply`` after one correction.
                *Cancellation*: safe.
        """
        stored = await self._stored(trajectory)
        most = most_facts(self._max_facts, len(trajectory.steps))
        question = semantic_question(trajectory, stored, self._profile, max_facts=most)
        return await self._asker.ask(question)

    async def _stored(self, trajectory: Trajectory) -> Sequence[StoredFact]:
        if self._nearby is None:
            return ()
        # Each by itself: what is near to one of several matters is near to none of their sum.
        found = [
            await self._nearby(shortened(step.text, COMPARED_CHARACTERS), SHOWN_FACTS)
            for step in trajectory.steps[-COMPARED_STEPS:]
        ]
        best_first = chain.from_iterable(zip_longest(*found))
        shown = {fact.id: fact for fact in best_first if fact is not None}
        return list(shown.values())[:SHOWN_FACTS]


class StoredFacts:
    """A ``NearbyFacts`` over one repository; facts that no longer hold are not shown."""

    def __init__(self, *, graph: StoredGraph, index: RepositoryIndex, embedder: Embedder) -> None:
        self._graph = graph
        self._index = index
        self._embedder = TextEmbedder(embedder, capacity=0)

    async def __call__(self, text: str, limit: int) -> Sequence[StoredFact]:
        """
        Give at most *limit* facts nearest to *text*, best first.

        Raises:
            ModelError: Of the embedder.
            StoreError: The graph cannot be read. *Cancellation*: safe.
        """
        rows = await self._embedder.embed([text])
        await self._index.catch_up()
        # Twice as many as are shown: some of them may have been superseded.
        (found,) = await self._index.nearest(rows, type="semantic", threshold=0.0, limit=2 * limit)
        nodes = await self._graph.nodes([id for id, _ in found], intact=True)
        facts = [node for node in nodes if isinstance(node, Semantic) and node.valid_to is None]
        return [StoredFact(fact.id, fact.proposition) for fact in facts[:limit]]


class ModelProceduralExtractor:
    """One call per trajectory gives its instructions; if there are any, a second scores them."""

    def __init__(self, asker: Asker, config: Config, profile: Profile | None = None) -> None:
        self._asker = asker
        self._max_instructions = config.extraction.max_instructions
        self._profile = profile

    async def extract_instructions(self, trajectory: Trajectory) -> Sequence[Instruction]:
        """
        Give the instructions with their returns.

        Raises:
            ModelError: Of either call, ``InvalidReply`` after one correction.
                *Cancellation*: safe.
        """
        instructions = await self._asker.ask(
            procedural_question(trajectory, self._profile, max_instructions=self._max_instructions)
        )
        if not instructions:
            return []
        returns = await self._asker.ask(returns_question(trajectory, instructions, self._profile))
        return [replace(i, return_score=r) for i, r in zip(instructions, returns, strict=True)]


def build_intent_merger(
    chat_model: ChatModel | None,
    config: Config,
    meter: UsageMeter | None = None,
    spans: Spans = NO_SPANS,
) -> Callable[[str, str], Awaitable[str]] | None:
    """
    Give ``merge(stored, new)``, which words one intent for two and may raise ``ModelError``.

    Returns:
        ``None`` without a model: then the stored wording is used as it is.

    Raises:
        ConfigError: ``config.extraction.profile`` is no profile.
    """
    profile = resolve_profile(config.extraction.profile)
    if chat_model is None:
        return None
    timeout_s = config.extraction.timeout_s
    asker = Asker(chat_model, meter=meter or UsageMeter(), timeout_s=timeout_s, spans=spans)

    async def merge(stored: str, new: str) -> str:
        return await asker.ask(merge_intent_question(stored, new, profile))

    return merge


# ── Vectors of texts ────────────────────────────────────────────────────────────────────


CACHED_TEXTS = 64
"""Texts whose vectors are kept; a session repeats its last few subgoals (S)."""


class TextEmbedder:
    """
    An ``Embedder`` of unit rows, with a small LRU cache.

    Not for threads: one event loop at a time.

    Args:
        capacity: Texts that ``remembered`` keeps, least recently used first out.
    """

    def __init__(self, embedder: Embedder, *, capacity: int = CACHED_TEXTS) -> None:
        self._embedder = embedder
        self._capacity = capacity
        self._kept: OrderedDict[str, Vector] = OrderedDict()

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """
        Embed *texts* as documents; shape ``(len(texts), d)``, unit rows.

        Raises:
            ModelError: Of the embedder, or a result of wrong shape. *Cancellation*: safe.
        """
        if not texts:
            return np.zeros((0, self._embedder.space.dimensions), dtype=np.float32)
        reply = await self._embedder.embed(texts)
        dimensions = self._embedder.space.dimensions
        return unit_rows(reply, rows=len(texts), dimensions=dimensions)

    async def remembered(self, texts: Sequence[str]) -> dict[str, Vector]:
        """
        Give each text its vector, the very same one for as long as it is kept.

        Raises:
            ModelError: As ``embed``. *Cancellation*: safe.
        """
        found = {text: self._kept[text] for text in texts if text in self._kept}
        missing = [text for text in dict.fromkeys(texts) if text not in found]
        found |= zip(missing, await self.embed(missing), strict=True)
        self._keep(found)
        return found

    def _keep(self, found: dict[str, Vector]) -> None:
        for text, vector in found.items():
            self._kept[text] = vector
            self._kept.move_to_end(text)
        while len(self._kept) > self._capacity:
            self._kept.popitem(last=False)
