"""Steps, trajectories and their extraction, for the embedded stages."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from world import a_step, a_trajectory, seen_as

from mnemo.config import Config
from mnemo.extraction.instructions import EmbeddedProceduralExtractor
from mnemo.extraction.speech import EmbeddedSemanticExtractor
from mnemo.values.steps import Fact, Instruction, Step, Trajectory

FRIDAY = datetime(2024, 3, 1, 9, 30, tzinfo=UTC)
"""1 March 2024."""
BUILD = "fix the build"

StepMaker = Callable[..., Step]
FactsOf = Callable[..., Awaitable[Sequence[Fact]]]
InstructionsOf = Callable[..., Awaitable[Sequence[Instruction]]]


def _step(index: int, observation: str, action: str = "", **values: Any) -> Step:
    told = {"at": FRIDAY + timedelta(minutes=index), "actor": "User", **values}
    return a_step(index, observation, action, **told)


def _trajectory(steps: Sequence[Step], context: int = 0, subgoal: str = BUILD) -> Trajectory:
    known = [step if step.annotation else seen_as(step, subgoal, state="s") for step in steps]
    return a_trajectory(known[context:], context=tuple(known[:context]))


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

    async def extract(*steps: Step, subgoal: str = BUILD) -> Sequence[Instruction]:
        extractor = EmbeddedProceduralExtractor(Config())
        return await extractor.extract_instructions(_trajectory(steps, subgoal=subgoal))

    return extract
