"""What an annotator is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass

from mnemo.episode.step import Step

__all__ = ["Annotated", "AnnotationRequest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationRequest:
    """
    Steps to annotate.

    Attributes:
        goal: The episode's goal.
        before: Steps just before *fresh*, annotated as far as known, ascending.
        fresh: Steps to annotate, ascending, at most the annotator's batch size. May be
            empty when *closing*: then only the last reward is asked for.
        closing: Whether the episode ends after *fresh* (or *before*, if that is empty):
            then the last step's reward is asked for too.
    """

    goal: str
    before: tuple[Step, ...]
    fresh: tuple[Step, ...]
    closing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotated:
    """
    What an annotator found for one step; rewards come a step late.

    Attributes:
        previous_reward: How well the step *before* this one did, judged by what this
            one observes; ``None`` is unknown.
        breaks: Whether something besides the subgoal (a pause, "next task") says that
            a new trajectory begins here.
    """

    index: int
    state: str
    subgoal: str
    previous_reward: float | None = None
    breaks: bool = False
