"""Make annotations of what an annotator found: rewards, boundaries and trajectory ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mnemo.protocols import Annotated
from mnemo.values.graph import Vector
from mnemo.values.steps import Annotation, Step, is_boundary


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
    found = zip(fresh, findings.annotated, _rewards_of_fresh(findings), strict=True)
    annotations = [cut.next(step, entry, reward) for step, entry, reward in found]
    late = _late_reward(known, findings)
    return [late, *annotations] if late else annotations


def _rewards_of_fresh(findings: Findings) -> list[float | None]:
    later = [entry.previous_reward for entry in findings.annotated[1:]]
    return [*later, findings.last_reward][: len(findings.annotated)]


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
