"""Instructions without a model: fixed, done, wished, avoided."""

import pytest

from mnemo.values.steps import Annotation, Step


async def test_a_fix_is_kept_and_the_failed_try_left_out(step, instructions_of):
    """An error, a failing try, a fix and success make one instruction of the fix."""
    (found,) = await instructions_of(
        step(0, "ImportError: no module named yaml", "pip install yml"),
        step(1, "ERROR: No matching distribution found for yml", "pip install pyyaml"),
        step(2, "all tests passed", ""),
    )

    assert "ImportError: no module named yaml" in found.condition
    assert found.instruction == "run `pip install pyyaml`"
    assert "all tests passed" in found.expected_outcome.lower()
    assert found.steps == (1,)


async def test_nothing_is_learnt_without_a_cue(step, instructions_of):
    """No success, no failure, no standing wish: no instruction."""
    assert (
        await instructions_of(
            step(0, "It is Tuesday", "Looked out of the window"), step(1, "It rains", "Closed it")
        )
        == []
    )


async def test_a_run_that_succeeds_is_kept_in_order(step, instructions_of):
    """Done: the actions under the subgoal, then what tells of success."""
    (found,) = await instructions_of(
        step(0, "Ship it", "npm run build"),
        step(1, "dist/app.js 12 kB", "npm publish"),
        step(2, "npm notice publish completed", ""),
        subgoal="publish the package",
    )

    assert found.condition == "When publish the package"
    assert found.instruction == "run `npm run build`; then run `npm publish`"
    assert found.intent == "publish the package"
    assert found.steps == (0, 1)


@pytest.mark.parametrize(
    ("subgoal", "condition"),
    [
        ("Deploy to staging", "When deploy to staging"),
        ("Kubernetes upgrade", "When Kubernetes upgrade"),
    ],
)
async def test_a_condition_is_one_sentence(step, instructions_of, subgoal, condition):
    """A subgoal in a condition keeps the capital of a name, not that of a sentence."""
    (found,) = await instructions_of(
        step(0, "Go", "make deploy"), step(1, "exit code 0"), subgoal=subgoal
    )

    assert found.condition == condition


@pytest.mark.parametrize(
    "wish",
    [
        "Always answer in metric units.",
        "Never push to main without a review.",
        "From now on, deploy only on Tuesdays.",
        "Please don't call me before nine.",
    ],
)
async def test_a_standing_wish_holds_when_assisting_its_speaker(step, instructions_of, wish):
    """Standing wish: always, never, from now on, please don't."""
    (found,) = await instructions_of(step(0, wish, "Noted", actor="Ana"))

    assert found.condition == "When assisting Ana"
    assert found.instruction == wish


@pytest.mark.parametrize(
    "said", ["Never mind.", "I always wanted a boat.", "Never give up!", "Always been a fan."]
)
async def test_talk_of_always_and_never_is_no_wish(step, instructions_of, said):
    """What is told or cheered asks nothing of the agent."""
    assert await instructions_of(step(0, said, "ok", actor="Ana")) == []


async def test_two_people_talking_give_no_wishes(step, instructions_of):
    """Nobody is assisted in a talk of two."""
    steps = [
        step(0, "Always lock the shed.", actor="Ana"),
        step(1, "Never forget the key.", actor="Bo"),
    ]

    assert await instructions_of(*steps) == []


async def test_what_failed_twice_is_to_be_avoided(step, instructions_of):
    """Avoid: the action and its error, with the lowest return."""
    (found,) = await instructions_of(
        step(0, "Scale it", "kubectl scale deploy/api --replicas=5"),
        step(1, "error: not logged in", "kubectl scale deploy/api --replicas=6"),
        step(2, "error: not logged in", ""),
    )

    assert found.instruction.startswith("Do not repeat: run `kubectl scale deploy/api")
    assert found.condition == "When error: not logged in"
    assert found.return_score == 0.0
    assert found.steps == (0, 1)


async def test_the_return_is_the_mean_of_the_known_rewards(step, instructions_of):
    """Unknown rewards are left out of the mean, not counted as a number."""

    def rewarded(made: Step, reward: float | None) -> Step:
        return made.annotated(
            Annotation(
                index=made.index, state="s", subgoal="fix it", reward=reward, trajectory_id="t"
            )
        )

    (found,) = await instructions_of(
        rewarded(step(0, "Error: disk full", "rm -rf build"), 0.5),
        rewarded(step(1, "removed", "make"), 0.9),
        rewarded(step(2, "ok", "make install"), None),
        rewarded(step(3, "done, 3 passed", ""), None),
    )

    assert found.return_score == pytest.approx(0.7)


async def test_numbers_in_errors_are_masked(step, instructions_of):
    """Two runs of one error share their condition."""
    (found,) = await instructions_of(
        step(0, "TimeoutError: gave up after 30 s on port 8080", "Raised the limit to 60"),
        step(1, "12 passed"),
    )

    assert found.condition == "When TimeoutError: gave up after N s on port N"
    assert found.instruction == "Raised the limit to 60"


async def test_an_instruction_holds_no_secret(step, instructions_of):
    """A key used on the way to success is hidden."""
    found = await instructions_of(
        step(0, "Error: denied", "login --token=abcd1234efgh"), step(1, "all tests passed")
    )

    assert len(found) == 1
    assert "abcd1234efgh" not in repr(found)


async def test_the_intent_is_free_of_names_and_numbers(step, instructions_of):
    """The intent generalises the subgoal."""
    (found,) = await instructions_of(
        step(0, "Error: red", "Fixed the linker flags"),
        step(1, "all tests passed"),
        subgoal="repair build 42 for Hofmann",
    )

    assert found.intent == "repair build for"
