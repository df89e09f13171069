"""Steps and what annotation adds to them."""

from dataclasses import replace
from datetime import UTC, datetime

from mnemo.values.steps import Annotation, Step


def test_an_annotated_step_is_the_same_step_with_its_annotation():
    """No other field changes, whichever a step has."""
    step = Step(
        session_id="s",
        episode_id="e",
        index=3,
        observation="It rains.",
        action="Take an umbrella",
        at=datetime(2024, 3, 1, tzinfo=UTC),
        actor="Ana",
        node_id="n",
        key="k",
        metadata={"a": 1},
        thread_id="t",
        message_id="m",
        ordinal=7,
    )
    found = Annotation(index=3, state=None, subgoal="go out", reward=None, trajectory_id="e/0")
    assert step.annotated(found) == replace(step, annotation=found)
    assert step.annotation is None
