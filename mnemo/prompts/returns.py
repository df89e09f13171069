"""``returns``: score how far each instruction of a trajectory reached its intent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from mnemo.prompts.data import DATA_RULE, block, step_rows
from mnemo.prompts.profiles import Profile, instructed
from mnemo.prompts.question import Question, Reply, schema_of
from mnemo.values.steps import Instruction, Trajectory

INSTRUCTIONS = "INSTRUCTIONS"
"""The block of the instructions that are to be scored."""
_SHOWN = ("intent", "condition", "instruction", "expected_outcome")

STANDING = f"""\
You judge instructions by the work they were drawn from. For each one, look in the steps for \
what following it led to, and say how far its intent was reached there:
10 reached in full, with evidence in an observation; 7 reached for the most part; 4 a partial \
or doubtful result; 1 not reached, or made worse. Judge the outcome, not the wording.

Answer with one JSON object: {{"scores": [{{"index", "score"}}]}}, with one entry per \
instruction: its own index, and a whole number from 1 to 10.

{DATA_RULE}"""


class ScoreEntry(Reply):
    """The score of one instruction."""

    index: int
    score: float


class ReturnsReply(Reply):
    """The shape of the reply."""

    scores: tuple[ScoreEntry, ...]


def returns_question(
    trajectory: Trajectory, instructions: Sequence[Instruction], profile: Profile | None
) -> Question[list[float | None]]:
    """Ask for the return of each of *instructions*; those without a score have ``None``."""
    return Question(
        purpose="returns",
        system=instructed(STANDING, "returns", profile),
        user="\n\n".join(
            (
                block("GOAL", [{"goal": trajectory.goal, "subgoal": trajectory.subgoal}]),
                block("STEPS", step_rows(trajectory.steps)),
                block(INSTRUCTIONS, map(_row, range(len(instructions)), instructions)),
                "Score every one of INSTRUCTIONS.",
            )
        ),
        schema=schema_of(ReturnsReply, scores=len(instructions)),
        read=lambda value: _read(value, len(instructions)),
    )


def return_of(score: float) -> float:
    """A score of 1 to 10 as a return in [0, 1]; scores outside are clamped."""
    return min(1.0, max(0.0, (score - 1.0) / 9.0))


def _row(index: int, instruction: Instruction) -> dict[str, Any]:
    values = asdict(instruction)
    return {"index": index} | {name: values[name] for name in _SHOWN}


def _read(value: Any, number: int) -> list[float | None]:
    scores = {entry.index: entry.score for entry in ReturnsReply.model_validate(value).scores}
    return [return_of(scores[i]) if i in scores else None for i in range(number)]
