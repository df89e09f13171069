"""Instructions without a model: fixed, done, wished, avoided."""

from __future__ import annotations


async def test_a_fix_is_kept_and_the_failed_try_left_out(step, instructions_of):
    """X30: an error, a failing try, a fix and success make one instruction of the fix."""
    (found,) = await instructions_of(
        step(0, "ImportError: no module named yaml", "pip install yml"),
        step(1, "ERROR: No matching distribution found for yml", "pip install pyyaml"),
        step(2, "all tests passed", ""),
    )

    assert "ImportError: no module named yaml" in found.condition
    assert found.instruction == "run `pip install pyyaml`"
    assert "all tests passed" in found.expected_outcome.lower()
    assert found.steps == (1,)
