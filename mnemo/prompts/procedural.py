"""``procedural``: extract the instructions of a trajectory."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import StringConstraints

from mnemo.prompts.data import DATA_RULE, block, step_rows
from mnemo.prompts.profiles import Profile, instructed
from mnemo.prompts.question import Question, Reply, schema_of
from mnemo.values.steps import Instruction, Trajectory

STANDING = f"""\
You distil know-how from one stretch of an agent's work: what to do when the same kind of \
situation comes up again, elsewhere and for somebody else.

An instruction has four parts, none of them empty:
- intent: the goal it serves, free of names and numbers, so that it fits other cases too;
- condition: when it applies, as narrowly as the steps justify;
- instruction: what to do, in order, concrete enough to be followed; it may also say what not \
to do, with the reason;
- expected_outcome: what shows that it worked.
Also give steps: the indexes of the steps that it rests on.

Keep only what the steps have shown to work or to fail. Leave out detours and failed attempts \
unless the lesson is to avoid them. Talk that led to no action teaches no instruction.

Answer with one JSON object: {{"instructions": [{{"intent", "condition", "instruction", \
"expected_outcome", "steps"}}]}}. An empty list is a good answer where there is nothing to learn.

{DATA_RULE}"""

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class InstructionEntry(Reply):
    """One instruction as the model words it."""

    intent: Text
    condition: Text
    instruction: Text
    expected_outcome: Text
    steps: tuple[int, ...] | None = None


class ProceduralReply(Reply):
    """The shape of the reply."""

    instructions: tuple[InstructionEntry, ...]


def procedural_question(
    trajectory: Trajectory, profile: Profile | None, *, max_instructions: int
) -> Question[list[Instruction]]:
    """Ask for the instructions of *trajectory*; what exceeds *max_instructions* is left out."""
    return Question(
        purpose="procedural",
        system=instructed(STANDING, "procedural", profile),
        user="\n\n".join(
            (
                block("GOAL", [{"goal": trajectory.goal, "subgoal": trajectory.subgoal}]),
                block("STEPS BEFORE, FOR UNDERSTANDING ONLY", step_rows(trajectory.context)),
                block("STEPS", step_rows(trajectory.steps)),
                f"Give the instructions that STEPS teach, at most {max_instructions}, "
                "the most useful first.",
            )
        ),
        schema=schema_of(ProceduralReply, instructions=max_instructions),
        read=lambda value: _read(value)[:max_instructions],
    )


def _read(value: Any) -> list[Instruction]:
    return [
        Instruction(
            intent=entry.intent,
            condition=entry.condition,
            instruction=entry.instruction,
            expected_outcome=entry.expected_outcome,
            steps=entry.steps or (),
        )
        for entry in ProceduralReply.model_validate(value).instructions
    ]
