"""
The extraction pipeline of one session: steps to annotations, trajectories to changesets.

Durability, retries and the state of the session are the session's affair; here a
call gives its whole result or raises.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any, TypeVar

import anyio
import numpy as np
from numpy.typing import NDArray

from mnemo.config import Config
from mnemo.english.entities import plain
from mnemo.english.similarity import same_claim_guard
from mnemo.errors import ModelError
from mnemo.extraction.by_model import (
    ModelAnnotator,
    ModelProceduralExtractor,
    ModelSemanticExtractor,
    NearbyFacts,
    TextEmbedder,
)
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
from mnemo.runtime.text import clean, is_blank, one_line, terms
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
)

ANNOTATION_CONTEXT_STEPS = 8
"""Known steps that an annotator is shown before the fresh ones (S)."""

log = logging.getLogger("mnemo")
_A = TypeVar("_A")
_B = TypeVar("_B")


class ExtractionPipeline:
    """
    Annotates steps and extracts trajectories, with whatever stages it was given.

    Args:
        meter: Told how each embedded stage ran; those that ask a model tell it themselves.
        embedded: Whether the stages given are the embedded ones.
        fallback_annotator: Steps in where *annotator* fails; ``None``: the failure stands.
    """

    def __init__(
        self,
        *,
        annotator: Annotator,
        semantic: SemanticExtractor,
        procedural: ProceduralExtractor,
        embedder: Embedder,
        config: Config,
        meter: UsageMeter | None = None,
        embedded: bool = False,
        fallback_annotator: Annotator | None = None,
    ) -> None:
        self.batch_size = annotator.batch_size or config.annotation.batch_size
        self._annotator = annotator
        self._semantic = semantic
        self._procedural = procedural
        self._embedder = TextEmbedder(embedder)
        self._config = config
        self._meter = meter or UsageMeter()
        self.embedded = embedded
        self._fallback = fallback_annotator
        self._threads = Threads()

    async def annotate(
        self, *, goal: str, known: Sequence[Step], fresh: Sequence[Step], closing: bool
    ) -> list[Annotation]:
        """
        Annotate *fresh*, and give the step before it the reward that has become known.

        That step's annotation comes first, if it is there at all; then one per fresh
        step. A reward that is known stays and is not asked for again: where nothing
        is to be asked, no model is called.

        Args:
            known: The earlier steps of the episode, or the nearest of them, ascending,
                annotated as far as known.
            fresh: The steps that follow, ascending, at most ``batch_size``.
            closing: Whether nothing follows; then the last step's reward is found too.

        Raises:
            ModelError: The model or embedder gave no usable reply; nothing is annotated.
                *Cancellation*: safe.
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
        findings = await self._find(request)
        vectors = await self._embedder.remembered(subgoals_compared(known, findings))
        threshold = self._config.annotation.boundary_threshold
        return to_annotations(known, fresh, findings, vectors, threshold=threshold)

    async def extract(self, trajectory: Trajectory) -> Changeset:
        """
        Distil facts and instructions side by side and build the changeset.

        Raises:
            ModelError: Of the first stage that failed; the other one is cancelled.
                *Cancellation*: safe.
        """
        facts, instructions = await _side_by_side(
            lambda: self._semantic.extract_facts(trajectory),
            lambda: self._procedural.extract_instructions(trajectory),
        )
        self._note_embedded("semantic", "procedural")
        clean = await self._threads.run(clean_facts, facts, trajectory.steps)
        if clean.dropped:
            log.info("%s: %d facts could not stand alone", trajectory.id, clean.dropped)
        vectors = await self._embedder.embed([fact.proposition for fact in clean.facts])
        made = await self._threads.run(self._assembled, trajectory, clean, vectors, instructions)
        self._meter.leave_out(made.left_out)
        return made

    async def _find(self, request: AnnotationRequest) -> Findings:
        try:
            annotated, last_reward = await self._annotator.annotate(request)
        except ModelError as error:
            if self._fallback is None:
                raise
            log.warning("the embedded annotator steps in: %s", error)
            annotated, last_reward = await self._fallback.annotate(request)
            self._meter.ran("annotate", "embedded")
            return Findings(annotated=tuple(annotated), last_reward=last_reward, embedded=True)
        self._note_embedded("annotate")
        return Findings(annotated=tuple(annotated), last_reward=last_reward)

    def _note_embedded(self, *stages: str) -> None:
        for stage in stages if self.embedded else ():
            self._meter.ran(stage, "embedded")

    def _assembled(
        self,
        trajectory: Trajectory,
        clean: CleanFacts,
        vectors: NDArray[np.float32],
        instructions: Sequence[Instruction],
    ) -> Changeset:
        config = self._config.extraction
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

    Args:
        meter: Counts the model's calls.
        nearby: Gives the stored facts nearest to a text, for the model to say which of
            them a new one replaces; ``None``: it is shown none.

    Raises:
        ConfigError: ``config.extraction.profile`` is no profile.
    """
    profile = resolve_profile(config.extraction.profile)
    meter = meter or UsageMeter()
    if chat_model is None:
        from mnemo.extraction.instructions import EmbeddedProceduralExtractor
        from mnemo.extraction.speech import EmbeddedSemanticExtractor

        return ExtractionPipeline(
            annotator=_embedded_annotator(embedder, config),
            semantic=EmbeddedSemanticExtractor(config),
            procedural=EmbeddedProceduralExtractor(config),
            embedder=embedder,
            config=config,
            meter=meter,
            embedded=True,
        )
    asker = Asker(chat_model, meter=meter, timeout_s=config.extraction.timeout_s, spans=spans)
    falls_back = config.annotation.on_failure == "embedded"
    return ExtractionPipeline(
        annotator=ModelAnnotator(asker, profile),
        semantic=ModelSemanticExtractor(asker, config, profile, nearby=nearby),
        procedural=ModelProceduralExtractor(asker, config, profile),
        embedder=embedder,
        config=config,
        meter=meter,
        fallback_annotator=_embedded_annotator(embedder, config) if falls_back else None,
    )


def _embedded_annotator(embedder: Embedder, config: Config) -> Annotator:
    from mnemo.extraction.annotator import EmbeddedAnnotator

    return EmbeddedAnnotator(config, embedder=embedder)


async def _side_by_side(
    first: Callable[[], Awaitable[Sequence[Fact]]],
    second: Callable[[], Awaitable[Sequence[Instruction]]],
) -> tuple[Sequence[Fact], Sequence[Instruction]]:
    """Run both; the error of the one that fails first is raised bare, and the other cancelled."""
    facts: list[Fact] = []
    instructions: list[Instruction] = []

    async def run_first() -> None:
        facts.extend(await first())

    async def run_second() -> None:
        instructions.extend(await second())

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(run_first)
            group.start_soon(run_second)
    except BaseExceptionGroup as errors:
        error = _first(errors)
        raise error from error.__cause__
    return facts, instructions


def _first(errors: BaseExceptionGroup[Any]) -> BaseException:
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


# ── What an annotator found, as annotations ─────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """
    What one call of an annotator found.

    Attributes:
        annotated: One entry per fresh step, in order.
        last_reward: Of the episode's last step, if it was asked for and is known.
        embedded: Whether the embedded annotator stood in for a failing model.
    """

    annotated: tuple[Annotated, ...] = ()
    last_reward: float | None = None
    embedded: bool = False


def subgoals_compared(known: Sequence[Step], findings: Findings) -> list[str]:
    """The subgoals whose vectors ``to_annotations`` needs; blank ones are not compared."""
    before = _last_with_subgoal(known)
    fresh = [entry.subgoal for entry in findings.annotated if entry.subgoal]
    if before and before.vector is None and fresh:
        return [before.subgoal, *fresh]
    return fresh


def to_annotations(
    known: Sequence[Step],
    fresh: Sequence[Step],
    findings: Findings,
    vectors: Mapping[str, Vector],
    *,
    threshold: float,
) -> list[Annotation]:
    """
    Give each fresh step its annotation, and the step before them its reward.

    A reward that is known already stays. The step before *fresh* comes first, and
    only if its reward became known. A trajectory's id ends in its first step's index.

    Args:
        known: Earlier steps of the episode, ascending, annotated as far as known.
        vectors: Of every text of ``subgoals_compared``, unit norm.
        threshold: Cosine in ``[-1, 1]`` below which a trajectory begins.
    """
    cut = _Cut(known, vectors, threshold, embedded=findings.embedded)
    later = [entry.previous_reward for entry in findings.annotated[1:]]
    rewards = [*later, findings.last_reward][: len(findings.annotated)]
    found = zip(fresh, findings.annotated, rewards, strict=True)
    annotations = [cut.next(step, entry, reward) for step, entry, reward in found]
    late = _late_reward(known, findings)
    return [late, *annotations] if late else annotations


def _late_reward(known: Sequence[Step], findings: Findings) -> Annotation | None:
    annotation = known[-1].annotation if known else None
    entries = findings.annotated
    reward = entries[0].previous_reward if entries else findings.last_reward
    if annotation is None or annotation.reward is not None or reward is None:
        return None
    return replace(annotation, reward=reward)


def _last_with_subgoal(known: Sequence[Step]) -> Annotation | None:
    """What the next subgoal is compared with: steps without one are skipped."""
    annotations = (step.annotation for step in reversed(known))
    return next((a for a in annotations if a and a.subgoal), None)


class _Cut:
    """Walks over fresh steps and tells which trajectory each belongs to."""

    def __init__(
        self,
        known: Sequence[Step],
        vectors: Mapping[str, Vector],
        threshold: float,
        *,
        embedded: bool,
    ) -> None:
        self._vectors = vectors
        self._threshold = threshold
        self._embedded = embedded
        self._compared = _last_with_subgoal(known)
        ids = (step.trajectory_id for step in reversed(known))
        self._trajectory_id = next((id for id in ids if id), None)

    def next(self, step: Step, entry: Annotated, reward: float | None) -> Annotation:
        boundary = self._trajectory_id is not None and self._begins(entry)
        if boundary or self._trajectory_id is None:
            # By its first step, not counted: unique whatever gaps failed batches left.
            self._trajectory_id = f"{step.episode_id}/{step.index}"
        continued = self._compared is not None and self._compared.subgoal == entry.subgoal
        annotation = Annotation(
            index=step.index,
            state=entry.state or None,
            subgoal=entry.subgoal,
            reward=reward,
            trajectory_id=self._trajectory_id,
            boundary=boundary,
            vector=None if continued else self._vectors.get(entry.subgoal),
            embedded=self._embedded,
        )
        self._compared = annotation if entry.subgoal else self._compared
        return annotation

    def _begins(self, entry: Annotated) -> bool:
        before = self._compared
        if entry.breaks:
            return True
        if before is None or not entry.subgoal or before.subgoal == entry.subgoal:
            return False
        previous = before.vector if before.vector is not None else self._vectors[before.subgoal]
        current = self._vectors[entry.subgoal]
        # The repository moved to another embedding space since: they cannot be compared.
        if previous.shape != current.shape:
            return False
        return is_boundary(previous, current, self._threshold)


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
    """
    Build the changeset of one trajectory.

    Args:
        facts: Clean and distinct, in the order in which they were said.
        instructions: Clean.
        sibling_window: Following facts that each fact is linked to.
    """
    draft = _Draft(trajectory)
    draft.add_steps()
    for known in facts:
        draft.add_fact(known)
    for instruction in instructions:
        draft.add_instruction(instruction)
    draft.add_siblings(sibling_window)
    return draft.changeset()


@dataclass(slots=True)
class _Group:
    """A tag or intent with the first rewards of its new members."""

    node: Node
    rewards: list[float | None] = field(default_factory=list)


class _Draft:
    """A changeset in the making."""

    def __init__(self, trajectory: Trajectory) -> None:
        self._trajectory = trajectory
        self._steps = {step.index: step for step in trajectory.steps}
        self._breather = Breather()
        self._nodes: list[Node] = []
        self._edges: list[Edge] = []
        self._metadata: dict[str, MetadataDelta] = {}
        self._replaces: dict[str, tuple[str, ...]] = {}
        self._facts: list[str] = []
        self._tags: dict[str, _Group] = {}
        self._intents: dict[str, _Group] = {}

    def add_steps(self) -> None:
        trajectory = self._trajectory
        subgoal = Subgoal(
            id=f"subgoal-{trajectory.id}",  # of all its parts
            description=trajectory.subgoal,
            parent_goal=trajectory.goal,
            trajectory_id=trajectory.id,
        )
        self._nodes.append(subgoal)
        for step in trajectory.steps:
            self._breather.breathe()
            source = _source(step)
            self._nodes += (episodic_node(step), source)
            self._link(subgoal.id, step.node_id, EdgeKind.HIERARCHICAL)
            self._link(step.node_id, source.id, EdgeKind.PROVENANCE)

    def add_fact(self, known: KnownFact) -> None:
        self._breather.breathe()
        fact = known.fact
        support = [self._steps[i] for i in fact.steps]
        node = Semantic(
            proposition=fact.proposition,
            confidence=fact.confidence,
            valid_from=min(step.at for step in support),
            vector=known.vector,
        )
        reward = _mean(step.reward for step in support)
        self._add_supported(node, support, reward)
        self._facts.append(node.id)
        if fact.replaces:
            self._replaces[node.id] = fact.replaces
        for label in fact.concepts:
            tag = self._tags.setdefault(label_key(label), _Group(Tag(label=label)))
            tag.rewards.append(reward)
            self._link(tag.node.id, node.id, EdgeKind.MEMBERSHIP)

    def add_instruction(self, given: Instruction) -> None:
        self._breather.breathe()
        node = Procedural(
            instruction=given.instruction,
            condition=given.condition,
            expected_outcome=given.expected_outcome,
            return_score=given.return_score,
        )
        self._add_supported(node, self._steps_of(given), given.return_score)
        fresh = _Group(Intent(description=given.intent))
        intent = self._intents.setdefault(plain(given.intent), fresh)
        intent.rewards.append(given.return_score)
        self._link(intent.node.id, node.id, EdgeKind.HIERARCHICAL)

    def add_siblings(self, window: int) -> None:
        for i, fact in enumerate(self._facts):
            for later in self._facts[i + 1 : i + 1 + window]:
                self._link(fact, later, EdgeKind.SIBLING)

    def changeset(self) -> Changeset:
        groups = [*self._tags.values(), *self._intents.values()]
        means = {group.node.id: _delta(_mean(group.rewards)) for group in groups}
        return Changeset(
            nodes=(*self._nodes, *(group.node for group in groups)),
            edges=tuple(dict.fromkeys(self._edges)),
            metadata={**self._metadata, **means},
            replaces=self._replaces,
        )

    def _add_supported(self, node: Node, support: Iterable[Step], reward: float | None) -> None:
        self._nodes.append(node)
        self._metadata[node.id] = _delta(reward, support=1)
        for step in support:
            self._link(node.id, step.node_id, EdgeKind.PROVENANCE)

    def _steps_of(self, instruction: Instruction) -> list[Step]:
        named = [self._steps[i] for i in sorted(set(instruction.steps)) if i in self._steps]
        steps = self._trajectory.steps
        return named or _repeated(instruction, steps) or list(steps[-LAST_STEPS:])

    def _link(self, source: str, target: str, kind: EdgeKind) -> None:
        self._edges.append(Edge(source, target, kind))


def _mean(rewards: Iterable[float | None]) -> float | None:
    known = [reward for reward in rewards if reward is not None]
    return fmean(known) if known else None


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
    return [step for step in steps if step.action and _is_said(step.action, said)]


def _is_said(action: str, said: frozenset[str]) -> bool:
    empty = True
    for term in terms(action):
        if term not in said:
            return False
        empty = False
    return not empty


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
