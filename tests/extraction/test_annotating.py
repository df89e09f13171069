"""Rewards that come a step late, boundaries, and failing annotators."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from mnemo.config import AnnotationConfig, Config
from mnemo.errors import InvalidReply, ModelUnavailable
from mnemo.extraction.pipeline import ExtractionPipeline
from mnemo.protocols import Annotated, AnnotationRequest, ChatRequest
from mnemo.testing import ScriptedChatModel
from mnemo.values.steps import Annotation, Step


class WrittenAnnotator:
    """Gives each step the subgoal that is written for its index."""

    batch_size = None

    def __init__(self, subgoals: Sequence[str], *, breaks: Sequence[int] = ()) -> None:
        self.subgoals = subgoals
        self.breaks = breaks

    async def annotate(
        self, request: AnnotationRequest
    ) -> tuple[Sequence[Annotated], float | None]:
        entries = [
            Annotated(
                index=step.index,
                state=f"state {step.index}",
                subgoal=self.subgoals[step.index],
                previous_reward=0.5,
                breaks=step.index in self.breaks,
            )
            for step in request.fresh
        ]
        return entries, 1.0 if request.closing else None


class FailingAnnotator:
    """Never gives anything."""

    batch_size = 3

    async def annotate(
        self, request: AnnotationRequest
    ) -> tuple[Sequence[Annotated], float | None]:
        raise ModelUnavailable("out of order", purpose="annotate")


class NoExtractor:
    """Gives nothing; for extractions that only annotate."""

    async def extract_facts(self, trajectory: Any) -> Sequence[Any]:
        return ()

    async def extract_instructions(self, trajectory: Any) -> Sequence[Any]:
        return ()


@pytest.fixture
def written(embedder: Any) -> Callable[..., ExtractionPipeline]:
    """Makes an extraction around a given annotator."""

    def make(
        annotator: Any, config: Config | None = None, fallback: Any = None
    ) -> ExtractionPipeline:
        return ExtractionPipeline(
            annotator=annotator,
            semantic=NoExtractor(),
            procedural=NoExtractor(),
            embedder=embedder,
            config=config or Config(),
            fallback_annotator=fallback,
        )

    return make


def entry(subgoal: str = "find out", **values: Any) -> dict[str, Any]:
    return {"state": "it is so", "subgoal": subgoal, **values}


async def annotate_all(
    extraction: ExtractionPipeline, steps: Sequence[Step], *, batch: int = 1
) -> list[Step]:
    """Annotate *steps* in batches and close, as a session does."""
    known: list[Step] = []
    for at in range(0, len(steps), batch):
        fresh = steps[at : at + batch]
        found = await extraction.annotate(goal="g", known=known, fresh=fresh, closing=False)
        known = _with(known + list(fresh), found)
    found = await extraction.annotate(goal="g", known=known, fresh=(), closing=True)
    return _with(known, found)


def _with(steps: Sequence[Step], found: Sequence[Annotation]) -> list[Step]:
    by_index = {annotation.index: annotation for annotation in found}
    return [s.annotated(by_index[s.index]) if s.index in by_index else s for s in steps]


async def test_each_step_takes_one_call_and_the_last_reward_another(make_step, make_extraction):
    """Four steps that come one by one take four calls, and the close takes one more."""
    model = ScriptedChatModel.answering()
    steps = await annotate_all(make_extraction(model), [make_step(i) for i in range(4)])
    assert len(model.calls("annotate")) == 5
    assert all(step.reward == 0.5 for step in steps)


async def test_a_step_gets_its_reward_with_the_next_observation(make_step, make_extraction):
    """The second and third call score steps 0 and 1, the close scores step 2."""
    model = ScriptedChatModel(
        {
            "annotate": [
                {"steps": [entry(previous_reward=0.9)]},
                {"steps": [entry(previous_reward=0.8)]},
                {"steps": [entry(previous_reward=0.3)]},
                {"steps": [], "last_reward": 0.6},
            ]
        }
    )
    steps = await annotate_all(make_extraction(model), [make_step(i) for i in range(3)])
    assert [step.reward for step in steps] == [0.8, 0.3, 0.6]


async def test_one_call_annotates_a_batch_with_the_rewards_inside_it(make_step, make_extraction):
    """Step 0 takes one call, the eight that piled up behind it one more."""
    model = ScriptedChatModel.answering()
    extraction = make_extraction(model)
    first, *others = [make_step(i) for i in range(9)]
    found = await extraction.annotate(goal="g", known=(), fresh=[first], closing=False)
    known = _with([first], found)
    found = await extraction.annotate(goal="g", known=known, fresh=others, closing=False)
    assert [annotation.index for annotation in found] == list(range(9))
    assert len(model.calls("annotate")) == 2


async def test_a_batch_at_close_carries_the_last_reward(make_step, make_extraction):
    """Nothing more is asked where the batch that is open at close told the last reward."""
    model = ScriptedChatModel.answering()
    extraction = make_extraction(model)
    fresh = [make_step(0), make_step(1)]
    found = await extraction.annotate(goal="g", known=(), fresh=fresh, closing=True)
    known = _with(fresh, found)
    assert [step.reward for step in known] == [0.5, 0.5]
    assert await extraction.annotate(goal="g", known=known, fresh=(), closing=True) == []
    assert len(model.calls("annotate")) == 1


async def test_a_last_reward_is_unknown_before_the_close(make_step, make_extraction):
    """A model that volunteers a last reward too early is not believed."""
    model = ScriptedChatModel.answering()
    found = await make_extraction(model).annotate(
        goal="g", known=(), fresh=[make_step(0)], closing=False
    )
    assert [annotation.reward for annotation in found] == [None]


async def test_a_reward_outside_its_range_is_clamped_and_null_is_unknown(
    make_step, make_extraction
):
    """1.7 becomes 1.0; null stays unknown."""
    batch = [
        entry(),
        entry(previous_reward=1.7),
        entry(previous_reward=None),
        entry(previous_reward=-2),
    ]
    model = ScriptedChatModel({"annotate": {"steps": batch, "last_reward": None}})
    fresh = [make_step(i) for i in range(4)]
    found = await make_extraction(model).annotate(goal="g", known=(), fresh=fresh, closing=True)
    assert [annotation.reward for annotation in found] == [1.0, None, 0.0, None]


async def test_a_known_reward_stays(make_step, make_annotated, make_extraction):
    """What was known of the step before is not issued again, whatever the model says of it."""
    model = ScriptedChatModel({"annotate": {"steps": [entry(previous_reward=0.1)]}})
    found = await make_extraction(model).annotate(
        goal="g", known=[make_annotated(0, reward=0.7)], fresh=[make_step(1)], closing=False
    )
    assert [annotation.index for annotation in found] == [1]


async def test_a_step_without_annotation_gets_no_reward(make_step, make_extraction):
    """Behind a batch that failed only the new steps are annotated."""
    model = ScriptedChatModel({"annotate": {"steps": [entry(previous_reward=0.1)]}})
    found = await make_extraction(model).annotate(
        goal="g", known=[make_step(0)], fresh=[make_step(1)], closing=False
    )
    assert [annotation.index for annotation in found] == [1]


async def test_a_boundary_lies_below_the_threshold_only(make_step, embedder, written):
    """Cosines 0.80, 0.75 and 0.74 give one boundary, before the fourth step."""
    angles = np.cumsum([0.0, *np.rad2deg(np.arccos([0.80, 0.75, 0.74]))])
    names = ["a", "b", "c", "d"]
    embedder.degrees = dict(zip(names, angles, strict=True))
    steps = await annotate_all(written(WrittenAnnotator(names)), [make_step(i) for i in range(4)])
    assert [s.annotation.boundary for s in steps if s.annotation] == [False, False, False, True]
    assert [s.trajectory_id for s in steps] == ["episode-1/0"] * 3 + ["episode-1/3"]


@pytest.mark.parametrize("batch", [1, 2, 6])
async def test_batches_do_not_change_the_cuts(make_step, written, batch):
    """A trajectory is named by its first step, however the steps are batched."""
    extraction = written(WrittenAnnotator(["a", "a", "b", "b", "a", "c"]))
    steps = await annotate_all(extraction, [make_step(i) for i in range(6)], batch=batch)
    numbers = [str(step.trajectory_id).rpartition("/")[2] for step in steps]
    assert numbers == ["0", "0", "2", "2", "4", "5"]
    assert [step.reward for step in steps] == [0.5] * 5 + [1.0]


async def test_equal_subgoals_are_embedded_once(make_step, embedder, written):
    """A repeated subgoal has the very vector it had before."""
    extraction = written(WrittenAnnotator(["a"] * 5))
    await annotate_all(extraction, [make_step(i) for i in range(5)])
    assert embedder.embedded == ["a"]


@pytest.mark.parametrize("batch", [1, 2, 8])
async def test_a_subgoal_has_its_vector_where_it_is_new(make_step, written, batch):
    """Steps that go on with it need none, and the next other subgoal is compared all the same."""
    extraction = written(WrittenAnnotator(["a", "a", "", "a", "b", "b", "a", "a"]))
    steps = await annotate_all(extraction, [make_step(i) for i in range(8)], batch=batch)
    found = [step.annotation for step in steps if step.annotation]
    assert [one.vector is not None for one in found] == [i in (0, 4, 6) for i in range(8)]
    assert [one.boundary for one in found] == [i in (4, 6) for i in range(8)]


async def test_a_break_begins_a_trajectory_but_not_before_the_first_step(make_step, written):
    """Something besides the subgoal may say that a new trajectory begins."""
    extraction = written(WrittenAnnotator(["a"] * 3, breaks=(0, 2)))
    steps = await annotate_all(extraction, [make_step(i) for i in range(3)])
    assert [s.annotation.boundary for s in steps if s.annotation] == [False, False, True]


async def test_a_step_without_subgoal_is_skipped_in_the_comparison(make_step, written):
    """The subgoal behind a blank one is compared with the one before it."""
    extraction = written(WrittenAnnotator(["a", "", "a", "", "b"]))
    steps = await annotate_all(extraction, [make_step(i) for i in range(5)])
    assert [s.annotation.boundary for s in steps if s.annotation] == [False] * 4 + [True]


@pytest.mark.parametrize("batch", [1, 4])
async def test_a_break_without_subgoal_begins_a_trajectory_all_the_same(make_step, written, batch):
    """What follows such a step belongs to its trajectory, however the steps are batched."""
    extraction = written(WrittenAnnotator(["a", "a", "", "a"], breaks=(2,)))
    steps = await annotate_all(extraction, [make_step(i) for i in range(4)], batch=batch)
    numbers = [str(step.trajectory_id).rpartition("/")[2] for step in steps]
    assert numbers == ["0", "0", "2", "2"]


async def test_a_boundary_is_found_behind_steps_that_have_lost_their_vectors(
    make_step, make_annotated, written
):
    """A resumed session compares with the text where the vector is not at hand."""
    extraction = written(WrittenAnnotator(["", "", "cook"]))
    known = [make_annotated(0), make_annotated(1, trajectory=1)]
    found = await extraction.annotate(goal="g", known=known, fresh=[make_step(2)], closing=False)
    assert found[-1].boundary
    assert found[-1].trajectory_id == "episode-1/2"


async def test_a_gap_that_is_filled_later_takes_no_other_trajectorys_name(
    make_step, make_annotated, written
):
    """A batch had failed before a boundary; asked again, its steps do not join what came after."""
    extraction = written(WrittenAnnotator(["a", "b", "c"]))
    known = [make_annotated(0, subgoal="a"), make_step(1)]
    after = await extraction.annotate(goal="g", known=known, fresh=[make_step(2)], closing=False)
    filled = await extraction.annotate(
        goal="g", known=known[:1], fresh=[make_step(1)], closing=False
    )
    assert after[-1].trajectory_id == "episode-1/2"
    assert filled[-1].trajectory_id == "episode-1/1"


async def test_entries_are_matched_by_index_and_surplus_ones_ignored(make_step, make_extraction):
    """The order of a reply does not matter where it names indexes."""
    entries = [entry("late", index=3), entry("", index=99), entry("early", index=2)]
    model = ScriptedChatModel({"annotate": {"steps": entries}})
    fresh = [make_step(2), make_step(3)]
    found = await make_extraction(model).annotate(goal="g", known=(), fresh=fresh, closing=False)
    assert [annotation.subgoal for annotation in found] == ["early", "late"]


async def test_entries_without_index_are_matched_by_position(make_step, make_extraction):
    """A reply without indexes is in the order of the steps, with anything after them ignored."""
    model = ScriptedChatModel({"annotate": {"steps": [entry("a"), entry("b"), entry("c")]}})
    fresh = [make_step(2), make_step(3)]
    found = await make_extraction(model).annotate(goal="g", known=(), fresh=fresh, closing=False)
    assert [annotation.subgoal for annotation in found] == ["a", "b"]


@pytest.mark.parametrize(
    ("reply", "wrong"),
    [
        ({"steps": [entry(index=7)]}, "step 2 has no entry"),
        ({"steps": []}, "step 2 has no entry"),
        ({"steps": [entry(" ")]}, "the subgoal of step 2 is blank"),
        ({"steps": [{"subgoal": "s", "state": "\n"}]}, "the state of step 2 is blank"),
        ({"steps": [entry(previous_reward="good")]}, "previous_reward"),
    ],
)
async def test_an_incomplete_annotation_is_invalid(make_step, make_extraction, reply, wrong):
    """Every new step needs a state and a subgoal, or the whole reply is asked for again."""
    model = ScriptedChatModel({"annotate": reply})
    with pytest.raises(InvalidReply, match=wrong):
        await make_extraction(model).annotate(
            goal="g", known=(), fresh=[make_step(2)], closing=False
        )
    assert len(model.calls("annotate")) == 2


async def test_long_states_and_subgoals_are_cut(make_step, make_extraction):
    """A wordy model does not make a reply invalid."""
    model = ScriptedChatModel({"annotate": {"steps": [{"state": "s" * 999, "subgoal": "g" * 999}]}})
    found = await make_extraction(model).annotate(
        goal="g", known=(), fresh=[make_step(0)], closing=False
    )
    assert (len(found[0].state or ""), len(found[0].subgoal)) == (600, 200)


async def test_a_failing_annotator_is_an_error_by_default(make_step, written):
    """Without a stand-in the failure is the caller's to handle."""
    with pytest.raises(ModelUnavailable):
        await written(FailingAnnotator()).annotate(
            goal="g", known=(), fresh=[make_step(0)], closing=False
        )


async def test_a_stand_in_annotates_where_the_annotator_fails_and_marks_it(make_step, written):
    """With ``on_failure="embedded"`` the step is annotated all the same, and says by whom."""
    extraction = written(FailingAnnotator(), fallback=WrittenAnnotator(["a"]))
    found = await extraction.annotate(goal="g", known=(), fresh=[make_step(0)], closing=False)
    assert [annotation.embedded for annotation in found] == [True]


def test_the_batch_size_is_the_annotators_or_the_settings(
    written,
):
    """An annotator that names none leaves it to the configuration."""
    config = Config(annotation=AnnotationConfig(batch_size=5))
    assert written(WrittenAnnotator([]), config).batch_size == 5
    assert written(FailingAnnotator(), config).batch_size == 3


async def test_only_the_nearest_known_steps_are_shown(make_step, make_annotated, make_extraction):
    """A long episode does not make each question longer."""
    model = ScriptedChatModel.answering()
    known = [make_annotated(i, f"seen {i:03d}") for i in range(50)]
    await make_extraction(model).annotate(
        goal="g", known=known, fresh=[make_step(50)], closing=False
    )
    request: ChatRequest = model.requests[0]
    assert "seen 049" in request.messages[1].content
    assert "seen 041" not in request.messages[1].content
