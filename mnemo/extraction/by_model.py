"""Extraction by a chat model: its annotator, its extractors, and the wording of merged intents."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from typing import ClassVar, TypeAlias

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
from mnemo.values.graph import Semantic
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


@dataclass(frozen=True, slots=True)
class ByModel:
    """
    The annotator and the extractors that ask a model.

    Every call raises ``ModelError``: ``InvalidReply`` after one correction. *Cancellation*: safe.

    Attributes:
        nearby: Where the facts come from that a new one may replace or end; ``None``: none.
    """

    batch_size: ClassVar[int | None] = None

    asker: Asker
    config: Config
    profile: Profile | None = None
    nearby: NearbyFacts | None = None

    async def annotate(
        self, request: AnnotationRequest
    ) -> tuple[Sequence[Annotated], float | None]:
        """Annotate every step of ``request.fresh``, and give the last reward if closing."""
        return await self.asker.ask(annotate_question(request, self.profile))

    async def extract_instructions(self, trajectory: Trajectory) -> Sequence[Instruction]:
        """Give the instructions; if there are any, a second call scores their returns."""
        most = self.config.extraction.max_instructions
        instructions = await self.asker.ask(
            procedural_question(trajectory, self.profile, max_instructions=most)
        )
        if not instructions:
            return []
        returns = await self.asker.ask(returns_question(trajectory, instructions, self.profile))
        return [replace(i, return_score=r) for i, r in zip(instructions, returns, strict=True)]

    async def extract_facts(self, trajectory: Trajectory) -> Sequence[Fact]:
        """Give the facts as the model words them, not yet cleaned."""
        stored = await self._stored(trajectory)
        most = most_facts(self.config.extraction.max_facts, len(trajectory.steps))
        question = semantic_question(trajectory, stored, self.profile, max_facts=most)
        return await self.asker.ask(question)

    async def _stored(self, trajectory: Trajectory) -> Sequence[StoredFact]:
        if self.nearby is None:
            return ()
        # Each by itself: what is near to one of several matters is near to none of their sum.
        found = [
            await self.nearby(shortened(step.text, COMPARED_CHARACTERS), SHOWN_FACTS)
            for step in trajectory.steps[-COMPARED_STEPS:]
        ]
        best_first = chain.from_iterable(zip_longest(*found))
        shown = {fact.id: fact for fact in best_first if fact is not None}
        return list(shown.values())[:SHOWN_FACTS]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFacts:
    """A ``NearbyFacts`` over one repository; facts that no longer hold are not shown."""

    graph: StoredGraph
    index: RepositoryIndex
    embedder: Embedder

    async def __call__(self, text: str, limit: int) -> Sequence[StoredFact]:
        """
        At most *limit*, best first.
        *Raises* ``ModelError`` of the embedder, ``StoreError``. *Cancellation*: safe.
        """
        reply = await self.embedder.embed([text])
        rows = unit_rows(reply, rows=1, dimensions=self.embedder.space.dimensions)
        await self.index.catch_up()
        # Twice as many as are shown: some of them may have been superseded.
        (found,) = await self.index.nearest(rows, type="semantic", threshold=0.0, limit=2 * limit)
        nodes = await self.graph.nodes([id for id, _ in found], intact=True)
        facts = [node for node in nodes if isinstance(node, Semantic) and node.valid_to is None]
        return [StoredFact(fact.id, fact.proposition) for fact in facts[:limit]]


def build_intent_merger(
    chat_model: ChatModel | None,
    config: Config,
    meter: UsageMeter | None = None,
    spans: Spans = NO_SPANS,
) -> Callable[[str, str], Awaitable[str]] | None:
    """
    Give ``merge(stored, new)``, which words one intent for two and may raise ``ModelError``.

    ``None`` without a model: the stored wording is used. *Raises* ``ConfigError``: no such profile.
    """
    profile = resolve_profile(config.extraction.profile)
    if chat_model is None:
        return None
    timeout_s = config.extraction.timeout_s
    asker = Asker(chat_model, meter=meter or UsageMeter(), timeout_s=timeout_s, spans=spans)

    async def merge(stored: str, new: str) -> str:
        return await asker.ask(merge_intent_question(stored, new, profile))

    return merge
