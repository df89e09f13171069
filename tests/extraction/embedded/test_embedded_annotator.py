"""State, subgoal and reward without a model."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from mnemo.config import Config
from mnemo.extraction.annotator import EmbeddedAnnotator
from mnemo.protocols import Annotated, AnnotationRequest, EmbeddingSpace
from mnemo.values.steps import Annotation, Step

TRIP = [
    "We plan a trip to Lisbon, hotel and flight included",
    "The hotel in Lisbon costs 90 euros a night",
    "Is the flight to Lisbon cheaper in April?",
    "The April flight leaves from Bremen airport",
    "From Bremen airport a train reaches the hotel",
    "The train ticket is part of the trip budget",
]
BUILD = [
    "The nightly build fails with a linker error on ARM",
    "The linker error names libcrypto as missing on ARM",
    "The ARM image lacks the libcrypto headers",
    "With headers in the image the linker goes further",
    "The linker now stops at duplicate symbols of the build",
    "Duplicate symbols come from a vendored copy in the build",
]


async def annotated(
    steps: list[Step], *, batch: int = 256, closing: bool = False
) -> list[Annotated]:
    """Annotate *steps*, at most *batch* at a time, feeding back what is known."""
    annotator = EmbeddedAnnotator(Config())
    known: list[Step] = []
    found: list[Annotated] = []
    for start in range(0, len(steps), batch):
        fresh = tuple(steps[start : start + batch])
        request = AnnotationRequest(
            goal="Help Ana", before=tuple(known[-3:]), fresh=fresh, closing=closing
        )
        results, last = await annotator.annotate(request)
        assert last is None
        found.extend(results)
        known.extend(with_subgoal(step, r) for step, r in zip(fresh, results, strict=True))
    return found


def with_subgoal(step: Step, result: Annotated) -> Step:
    return step.annotated(
        Annotation(
            index=step.index,
            state=result.state,
            subgoal=result.subgoal,
            reward=None,
            trajectory_id="t",
        )
    )


async def test_a_switch_of_topic_begins_one_new_subgoal(step):
    """Six steps of a trip and six of a failing build have one boundary, at the switch."""
    steps = [step(i, text) for i, text in enumerate(TRIP + BUILD)]

    subgoals = [a.subgoal for a in await annotated(steps)]

    assert len(set(subgoals[:6])) == 1
    assert len(set(subgoals[6:])) == 1
    assert subgoals[5] != subgoals[6]


@pytest.mark.parametrize("batch", [1, 2, 5])
async def test_annotations_do_not_depend_on_batches(step, batch):
    """One step at a time or all at once, the same is said of every step."""
    steps = [
        step(i, text, "Looked it up" if i % 3 else "Which month?")
        for i, text in enumerate(TRIP + BUILD)
    ]

    assert await annotated(steps, batch=batch) == await annotated(steps)


@pytest.mark.parametrize(
    ("observed", "reward"),
    [
        ("3 passed, 0 failed", 0.9),
        ("Error: no such file", 0.1),
        ("It is Tuesday", None),
        ("No errors found", 0.9),
        ("It is not fixed yet", 0.1),
        ("Great, thanks!", 0.9),
        ("2 passed, 1 failed", 0.5),
        ("Process exited with code 0", 0.9),
        ("exit code: 2", 0.1),
        ("HTTP/1.1 204", 0.9),
        ("status: 503", 0.1),
        ("That does not work", 0.1),
        ("She works at a bank", None),
        ('{"error": null, "result": 3}', 0.9),
    ],
)
async def test_the_next_observation_rewards_an_action(step, observed, reward):
    """Success, failure, both, or no sign in what is observed next."""
    steps = [step(0, "The tests are red", "Changed the parser"), step(1, observed, "")]

    second = (await annotated(steps))[1]

    assert second.previous_reward == reward


async def test_talk_without_actions_has_no_rewards(step):
    """A turn of a conversation is no action, so thanks for it reward nothing."""
    steps = [step(0, "I bought bread", actor="Ana"), step(1, "Thanks, perfect!", actor="Bo")]

    assert (await annotated(steps))[1].previous_reward is None


async def test_a_pause_of_half_an_hour_breaks(step):
    """After thirty minutes of silence a new subgoal begins, whatever the words."""
    first = step(0, "The hotel in Lisbon is booked")
    early = step(1, "The hotel in Lisbon has a pool", at=first.at + timedelta(minutes=29))
    late = step(2, "The hotel in Lisbon has a bar", at=early.at + timedelta(minutes=30))

    assert [a.breaks for a in await annotated([first, early, late])] == [False, False, True]


@pytest.mark.parametrize("words", ["By the way, the hotel has a bar", "Next task: book the hotel"])
async def test_a_turn_of_phrase_breaks(step, words):
    """Words that turn to something else begin a new subgoal."""
    steps = [step(0, "The hotel in Lisbon is booked"), step(1, words)]

    assert (await annotated(steps))[1].breaks


async def test_a_short_reply_continues(step):
    """A reply of under four content words continues, whatever is done about it."""
    steps = [
        step(0, "The hotel in Lisbon costs 90 euros", "Asked for the dates"),
        step(1, "March, two weeks", "Suggested an itinerary"),
    ]

    first, second = await annotated(steps)

    assert first.subgoal == second.subgoal


async def test_an_embedder_decides_where_no_word_is_shared(step):
    """Close vectors continue the subgoal, distant ones begin a new one."""

    class OneTopic:
        def __init__(self, close: bool) -> None:
            self._close = close

        @property
        def space(self) -> EmbeddingSpace:
            return EmbeddingSpace("test", 2)

        async def embed(
            self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
        ) -> NDArray[np.float32]:
            rows = [[1.0, 0.0] if self._close or "Lisbon" in t else [0.0, 1.0] for t in texts]
            return np.array(rows, dtype=np.float32)

    request = AnnotationRequest(
        goal="g",
        before=(),
        fresh=(step(0, "The hotel in Lisbon is booked"), step(1, "Museum tickets need a passport")),
    )

    for close in (True, False):
        (first, second), _ = await EmbeddedAnnotator(Config(), embedder=OneTopic(close)).annotate(
            request
        )
        assert (first.subgoal == second.subgoal) is close


async def test_a_secret_reaches_neither_state_nor_subgoal(step):
    """A key in an observation or an action is hidden from what annotation says."""
    secret = "sk-abcdefghijklmnop1234"
    steps = [
        step(0, f'{{"api_key": "{secret}"}}', f"curl -H 'Authorization: Bearer {secret}' api"),
        step(1, f"my api key is {secret}", "Stored it"),
    ]

    for found in await annotated(steps):
        assert secret not in found.state
        assert secret not in found.subgoal


async def test_closing_without_fresh_steps_gives_no_reward():
    """The last step's own observation is no evidence for its action."""
    request = AnnotationRequest(goal="g", before=(), fresh=(), closing=True)

    assert await EmbeddedAnnotator(Config()).annotate(request) == ((), None)


async def test_state_and_subgoal_keep_their_limits(step):
    """A state has at most 600 characters, a subgoal 200, also for a huge observation."""
    steps = [
        step(0, "zebra " * 200_000, "crossing " * 50_000),
        step(1, "x" * 1_000_000, "y" * 90_000),
    ]

    for found in await annotated(steps):
        assert 0 < len(found.state) <= 600
        assert 0 < len(found.subgoal) <= 200
