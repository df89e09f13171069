"""Steps, trajectories and their extraction, for the embedded stages."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mnemo.config import Config
from mnemo.extraction.instructions import EmbeddedProceduralExtractor
from mnemo.extraction.speech import EmbeddedSemanticExtractor
from mnemo.values.steps import Annotation, Fact, Instruction, Step, Trajectory

FRIDAY = datetime(2024, 3, 1, 9, 30, tzinfo=UTC)
"""1 March 2024."""

StepMaker = Callable[..., Step]
FactsOf = Callable[..., Awaitable[Sequence[Fact]]]
InstructionsOf = Callable[..., Awaitable[Sequence[Instruction]]]


def _step(
    index: int,
    observation: str,
    action: str = "",
    *,
    at: datetime | None = None,
    actor: str = "User",
) -> Step:
    return Step(
        session_id="s",
        episode_id="e",
        index=index,
        observation=observation,
        action=action,
        at=at or FRIDAY + timedelta(minutes=index),
        actor=actor,
        node_id=f"episodic-{index}",
    )


def _trajectory(
    steps: Sequence[Step], context: int = 0, subgoal: str = "fix the build"
) -> Trajectory:
    annotated = tuple(
        step
        if step.annotation
        else step.annotated(
            Annotation(index=step.index, state="s", subgoal=subgoal, reward=None, trajectory_id="t")
        )
        for step in steps
    )
    return Trajectory(
        id="t",
        session_id="s",
        episode_id="e",
        goal="a goal",
        steps=annotated[context:],
        context=annotated[:context],
    )


@pytest.fixture
def step() -> StepMaker:
    """``step(index, observation, action="", *, at=None, actor="User")``."""
    return _step


@pytest.fixture
def facts_of() -> FactsOf:
    """Extract the facts of some steps; the first *context* of them are context only."""

    async def extract(*steps: Step, context: int = 0, **settings: Any) -> Sequence[Fact]:
        config = Config(extraction=settings) if settings else Config()
        return await EmbeddedSemanticExtractor(config).extract_facts(_trajectory(steps, context))

    return extract


@pytest.fixture
def instructions_of() -> InstructionsOf:
    """Extract the instructions of some steps under *subgoal*."""

    async def extract(*steps: Step, subgoal: str = "fix the build") -> Sequence[Instruction]:
        extractor = EmbeddedProceduralExtractor(Config())
        return await extractor.extract_instructions(_trajectory(steps, subgoal=subgoal))

    return extract
