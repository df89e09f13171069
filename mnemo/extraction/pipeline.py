"""The extraction pipeline of one session: a call gives its whole result or raises."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import anyio
import numpy as np
from numpy.typing import NDArray

from mnemo.config import Config
from mnemo.english.similarity import same_claim_guard
from mnemo.errors import ModelError
from mnemo.extraction.by_model import ByModel, NearbyFacts
from mnemo.extraction.facts import CleanFacts, KnownFact, clean_facts, distinct_facts, most_facts
from mnemo.prompts.calling import Asker
from mnemo.prompts.profiles import resolve_profile
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import (
    Annotated,
    AnnotationRequest,
    Annotator,
    ChatModel,
    Embedder,
    ProceduralExtractor,
    SemanticExtractor,
)
from mnemo.runtime.clock import Breather
from mnemo.runtime.spans import NO_SPANS, Spans
from mnemo.runtime.tasks import Threads
from mnemo.runtime.text import clean, is_blank, one_line, plain, terms
from mnemo.values.changeset import Changeset
from mnemo.values.graph import (
    Edge,
    EdgeKind,
    Intent,
    MetadataDelta,
    Node,
    Procedural,
    Semantic,
    Source,
    Subgoal,
    Tag,
    Vector,
)
from mnemo.values.lookup import label_key
from mnemo.values.steps import (
    Annotation,
    Fact,
    Instruction,
    Step,
    Trajectory,
    episodic_node,
    is_boundary,
    mean_reward,
)
from mnemo.values.vectors import VectorCache, unit_rows

CACHED_SUBGOALS = 64
"""Subgoals whose vectors are kept; a session repeats its last few (S)."""
ANNOTATION_CONTEXT_STEPS = 8
"""Known steps that an annotator is shown before the fresh ones (S)."""

log: logging.Logger = logging.getLogger("mnemo")
_A = TypeVar("_A")


@dataclass(eq=False, kw_only=True)
class ExtractionPipeline:
    """
    Annotates steps and extracts trajectories, with whatever stages it was given.

    Attributes:
        meter: Told how each embedded stage ran; those that ask a model tell it themselves.
        embedded: Whether the stages given are the embedded ones.
        fallback_annotator: Steps in where *annotator* fails; ``None``: the failure stands.
    """

    annotator: Annotator
    semantic: SemanticExtractor
    procedural: ProceduralExtractor
    embedder: Embedder
    config: Config
    meter: UsageMeter = field(default_factory=UsageMeter)
    embedded: bool = False
    fallback_annotator: Annotator | None = None
    _subgoals: VectorCache[str] = field(default_factory=lambda: VectorCache(CACHED_SUBGOALS))
    _threads: Threads = field(default_factory=Threads)

    @property
    def batch_size(self) -> int:
        """Steps per ``annotate``, at most."""
        return self.annotator.batch_size or self.config.annotation.batch_size

    async def annotate(
        self, *, goal: str, known: Sequence[Step], fresh: Sequence[Step], closing: bool
    ) -> list[Annotation]:
        """
        Annotate *fresh*, and give the step before it the reward that has become known.

        That step's annotation comes first, if at all; then one per fresh step. A reward that is
        known stays: where nothing is to be asked, no model is called.

        Args:
            known: The nearest earlier steps of the episode, ascending, annotated as far as known.
            fresh: The steps that follow, ascending, at most ``batch_size``.
            closing: Whether nothing follows; then the last step's reward is found too.

        Raises:
            ModelError: No usable reply; nothing is annotated. *Cancellation*: safe.
        """
        last = known[-1] if known else None
        lacks_reward = last and last.annotation is not None and last.reward is None
        if not fresh and not (closing and lacks_reward):
            return []
        request = AnnotationRequest(
            goal=goal,
            before=tuple(known[-ANNOTATION_CONTEXT_STEPS:]),
            fresh=tuple(fresh),
            closing=closing,
        )
        stood_in = False
        try:
            found, last_reward = await self.annotator.annotate(request)
        except ModelError as error:
            if self.fallback_annotator is None:
                raise
            log.warning("the embedded annotator steps in: %s", error)
            found, last_reward = await self.fallback_annotator.annotate(request)
            stood_in = True
        if stood_in or self.embedded:
            self.meter.ran("annotate", "embedded")
        return to_annotations(
            known,
            fresh,
            found,
            last_reward,
            await self._vectors_of(subgoals_compared(known, found)),
            threshold=self.config.annotation.boundary_threshold,
            embedded=stood_in,
        )

    async def extract(self, trajectory: Trajectory) -> Changeset:
        """
        Distil facts and instructions side by side and build the changeset. *Raises* ``ModelError``
        of the stage that failed; the other one ends. *Cancellation*: safe.
        """
        facts: list[Fact] = []
        instructions: list[Instruction] = []
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_into, facts, self.semantic.extract_facts, trajectory)
                group.start_soon(
                    _into, instructions, self.procedural.extract_instructions, trajectory
                )
        except BaseExceptionGroup as errors:
            error = _first(errors)
            raise error from error.__cause__
        for stage in ("semantic", "procedural") if self.embedded else ():
            self.meter.ran(stage, "embedded")
        clean = await self._threads.run(clean_facts, facts, trajectory.steps)
        if clean.dropped:
            log.info("%s: %d facts could not stand alone", trajectory.id, clean.dropped)
        vectors = await self._embed([fact.proposition for fact in clean.facts])
        made = await self._threads.run(self._assembled, trajectory, clean, vectors, instructions)
        self.meter.leave_out(made.left_out)
        return made

    async def _embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if not texts:
            return np.zeros((0, self.embedder.space.dimensions), dtype=np.float32)
        reply = await self.embedder.embed(texts)
        return unit_rows(reply, rows=len(texts), dimensions=self.embedder.space.dimensions)

    async def _vectors_of(self, subgoals: Sequence[str]) -> dict[str, Vector]:
        """The vector of each, the very same one for as long as it is kept."""
        found = self._subgoals.found(subgoals)
        missing = [text for text in dict.fromkeys(subgoals) if text not in found]
        found |= zip(missing, await self._embed(missing), strict=True)
        self._subgoals.keep(found)
        return found

    def _assembled(
        self,
        trajectory: Trajectory,
        clean: CleanFacts,
        vectors: NDArray[np.float32],
        instructions: Sequence[Instruction],
    ) -> Changeset:
        config = self.config.extraction
        limit = most_facts(config.max_facts, len(trajectory.steps))
        facts, left_out = distinct_facts(
            clean.facts, vectors, same_claim=same_claim_guard, limit=limit
        )
        whole = clean_instructions(instructions, limit=config.max_instructions)
        made = assemble(trajectory, facts, whole, sibling_window=config.sibling_window)
        return replace(made, left_out=left_out)


def build_extraction(
    *,
    chat_model: ChatModel | None,
    embedder: Embedder,
    config: Config,
    meter: UsageMeter | None = None,
    nearby: NearbyFacts | None = None,
    spans: Spans = NO_SPANS,
) -> ExtractionPipeline:
    """
    Put an extraction together: with *chat_model*, or embedded without one.

    *nearby* gives the stored facts nearest to a text, for the model to say which of them a new
    one replaces. *Raises* ``ConfigError``: ``config.extraction.profile`` is no profile.
    """
    profile = resolve_profile(config.extraction.profile)
    meter = meter or UsageMeter()
    fallback = None
    stages: tuple[Annotator, SemanticExtractor, ProceduralExtractor]
    if chat_model is None:
        from mnemo.extraction.instructions import EmbeddedProceduralExtractor
        from mnemo.extraction.speech import EmbeddedSemanticExtractor

        stages = (
            _embedded_annotator(embedder, config),
            EmbeddedSemanticExtractor(config),
            EmbeddedProceduralExtractor(config),
        )
    else:
        asker = Asker(chat_model, meter=meter, timeout_s=config.extraction.timeout_s, spans=spans)
        model = ByModel(asker, config, profile, nearby)
        stages = (model, model, model)
        if config.annotation.on_failure == "embedded":
            fallback = _embedded_annotator(embedder, config)
    annotator, semantic, procedural = stages
    return ExtractionPipeline(
        annotator=annotator,
        semantic=semantic,
        procedural=procedural,
        embedder=embedder,
        config=config,
        meter=meter,
        embedded=chat_model is None,
        fallback_annotator=fallback,
    )


def _embedded_annotator(embedder: Embedder, config: Config) -> Annotator:
    from mnemo.extraction.annotator import EmbeddedAnnotator

    return EmbeddedAnnotator(config, embedder=embedder)


async def _into(
    found: list[_A],
    extract: Callable[[Trajectory], Awaitable[Sequence[_A]]],
    trajectory: Trajectory,
) -> None:
    found.extend(await extract(trajectory))


def _first(errors: BaseExceptionGroup[Any]) -> BaseException:
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


# ── What an annotator found, as annotations ─────────────────────────────────────────────


def subgoals_compared(known: Sequence[Step], found: Sequence[Annotated]) -> list[str]:
    """The subgoals whose vectors ``to_annotations`` needs; blank ones are not compared."""
    before = _last_with_subgoal(known)
    fresh = [entry.subgoal for entry in found if entry.subgoal]
    if before and before.vector is None and fresh:
        return [before.subgoal, *fresh]
    return fresh


def to_annotations(
    known: Sequence[Step],
    fresh: Sequence[Step],
    found: Sequence[Annotated],
    last_reward: float | None,
    vectors: Mapping[str, Vector],
    *,
    threshold: float,
    embedded: bool,
) -> list[Annotation]:
    """
    Give each fresh step its annotation, and the step before them its reward.

    A reward that is known already stays. The step before *fresh* comes first, and
    only if its reward became known. A trajectory's id ends in its first step's index.

    Args:
        last_reward: Of the episode's last step, if it was asked for and is known.
        vectors: Of every text of ``subgoals_compared``, unit norm.
        threshold: Cosine in ``[-1, 1]`` below which a trajectory begins.
        embedded: Whether the embedded annotator stood in for a failing model.
    """
    rewards = [*(entry.previous_reward for entry in found), last_reward]
    annotations: list[Annotation] = []
    before = known[-1].annotation if known else None
    if before is not None and before.reward is None and rewards[0] is not None:
        annotations.append(replace(before, reward=rewards[0]))
    compared = _last_with_subgoal(known)
    trajectory_id = next((s.trajectory_id for s in reversed(known) if s.trajectory_id), None)
    for step, entry, reward in zip(fresh, found, rewards[1:], strict=True):
        boundary = trajectory_id is not None and _begins(entry, compared, vectors, threshold)
        if boundary or trajectory_id is None:
            # By its first step, not counted: unique whatever gaps failed batches left.
            trajectory_id = f"{step.episode_id}/{step.index}"
        continued = compared is not None and compared.subgoal == entry.subgoal
        annotation = Annotation(
            index=step.index,
            state=entry.state or None,
            subgoal=entry.subgoal,
            reward=reward,
            trajectory_id=trajectory_id,
            boundary=boundary,
            vector=None if continued else vectors.get(entry.subgoal),
            embedded=embedded,
        )
        compared = annotation if entry.subgoal else compared
        annotations.append(annotation)
    return annotations


def _last_with_subgoal(known: Sequence[Step]) -> Annotation | None:
    """What the next subgoal is compared with: steps without one are skipped."""
    annotations = (step.annotation for step in reversed(known))
    return next((a for a in annotations if a and a.subgoal), None)


def _begins(
    entry: Annotated, before: Annotation | None, vectors: Mapping[str, Vector], threshold: float
) -> bool:
    if entry.breaks:
        return True
    if before is None or not entry.subgoal or before.subgoal == entry.subgoal:
        return False
    previous = before.vector if before.vector is not None else vectors[before.subgoal]
    current = vectors[entry.subgoal]
    # The repository moved to another embedding space since: they cannot be compared.
    return previous.shape == current.shape and is_boundary(previous, current, threshold)


# ── The changeset of a trajectory ─────────────────────────────────────────────────────
#
# Ids of episodic, source and subgoal nodes follow from the steps, so that what is extracted
# in parts, or twice, meets itself at commit. All other ids are fresh.


LAST_STEPS = 3
"""Steps that an instruction rests on if it names none and repeats no action."""


def clean_instructions(given: Iterable[Instruction], *, limit: int) -> list[Instruction]:
    """The first *limit* instructions that lack neither intent, condition, text nor outcome."""
    whole = [i for i in map(_cleaned, given) if not any(map(is_blank, _texts(i)))]
    return whole[:limit]


def assemble(
    trajectory: Trajectory,
    facts: Sequence[KnownFact],
    instructions: Sequence[Instruction],
    *,
    sibling_window: int,
) -> Changeset:
    """Build the changeset of one trajectory; *facts* are clean, distinct and in order."""
    draft, breather = _Draft(), Breather()
    subgoal = Subgoal(
        id=f"subgoal-{trajectory.id}",  # of all its parts
        description=trajectory.subgoal,
        parent_goal=trajectory.goal,
        trajectory_id=trajectory.id,
    )
    draft.nodes.append(subgoal)
    for step in trajectory.steps:
        breather.breathe()
        source = _source(step)
        draft.nodes += (episodic_node(step), source)
        draft.edges.append(Edge(subgoal.id, step.node_id, EdgeKind.HIERARCHICAL))
        draft.edges.append(Edge(step.node_id, source.id, EdgeKind.PROVENANCE))
    steps = {step.index: step for step in trajectory.steps}
    ids: list[str] = []
    replaces: dict[str, tuple[str, ...]] = {}
    for fact, vector in ((known.fact, known.vector) for known in facts):
        breather.breathe()
        support = [steps[i] for i in fact.steps]
        node = Semantic(
            proposition=fact.proposition,
            confidence=fact.confidence,
            valid_from=min(step.at for step in support),
            vector=vector,
        )
        reward = mean_reward(step.reward for step in support)
        draft.add(node, support, reward)
        ids.append(node.id)
        if fact.replaces:
            replaces[node.id] = fact.replaces
        for label in fact.concepts:
            draft.join(node, EdgeKind.MEMBERSHIP, label_key(label), Tag(label=label), reward)
    for given in instructions:
        breather.breathe()
        procedure = Procedural(
            instruction=given.instruction,
            condition=given.condition,
            expected_outcome=given.expected_outcome,
            return_score=given.return_score,
        )
        named = [steps[i] for i in sorted(set(given.steps)) if i in steps]
        support = named or _repeated(given, trajectory.steps)
        draft.add(procedure, support or trajectory.steps[-LAST_STEPS:], given.return_score)
        intent = Intent(description=given.intent)
        key, score = plain(given.intent), given.return_score
        draft.join(procedure, EdgeKind.HIERARCHICAL, key, intent, score)
    for i, id in enumerate(ids):
        near = ids[i + 1 : i + 1 + sibling_window]
        draft.edges += (Edge(id, later, EdgeKind.SIBLING) for later in near)
    for group, rewards in draft.groups.values():
        draft.nodes.append(group)
        draft.metadata[group.id] = _delta(mean_reward(rewards))
    edges = tuple(dict.fromkeys(draft.edges))
    return Changeset(
        nodes=tuple(draft.nodes), edges=edges, metadata=draft.metadata, replaces=replaces
    )


@dataclass(slots=True)
class _Draft:
    """A changeset in the making; *groups*: tags and intents with their new members' rewards."""

    nodes: list[Node] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    metadata: dict[str, MetadataDelta] = field(default_factory=dict)
    groups: dict[tuple[EdgeKind, str], tuple[Node, list[float | None]]] = field(
        default_factory=dict
    )

    def add(self, node: Node, support: Iterable[Step], reward: float | None) -> None:
        """Add a node that rests on *support*."""
        self.nodes.append(node)
        self.metadata[node.id] = _delta(reward, support=1)
        self.edges += (Edge(node.id, step.node_id, EdgeKind.PROVENANCE) for step in support)

    def join(self, node: Node, kind: EdgeKind, key: str, fresh: Node, reward: float | None) -> None:
        """Make *node* a member of the group with this key, which is *fresh* if there is none."""
        group, rewards = self.groups.setdefault((kind, key), (fresh, []))
        rewards.append(reward)
        self.edges.append(Edge(group.id, node.id, kind))


def _delta(reward: float | None, *, support: int = 0) -> MetadataDelta:
    if reward is None:
        return MetadataDelta(support_count=support)
    return MetadataDelta(cumulative_reward=reward, reward_count=1, support_count=support)


def _texts(given: Instruction) -> tuple[str, str, str, str]:
    return given.intent, given.condition, given.instruction, given.expected_outcome


def _cleaned(given: Instruction) -> Instruction:
    intent, condition, text, outcome = (clean(part).strip() for part in _texts(given))
    score = given.return_score
    return Instruction(
        intent=one_line(intent),
        condition=condition,
        instruction=text,
        expected_outcome=outcome,
        return_score=None if score is None else min(1.0, max(0.0, score)),
        steps=given.steps,
    )


def _repeated(instruction: Instruction, steps: Iterable[Step]) -> list[Step]:
    """The steps whose every content word of the action is in the instruction."""
    said = frozenset(terms(instruction.instruction))
    return [
        step
        for step in steps
        if all(term in said for term in terms(step.action))
        and next(terms(step.action), None) is not None
    ]


def _source(step: Step) -> Source:
    return Source(
        id="source" + step.node_id.removeprefix("episodic"),
        plain_text=step.text,
        session_id=step.session_id,
        episode_id=step.episode_id,
        step_index=step.index,
        at=step.at,
        actor=step.actor,
        key=step.key,
    )
