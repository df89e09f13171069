"""``procedural``, ``returns``, ``merge_intent``: instructions, their scores, their intents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import StringConstraints

from mnemo.prompts.profiles import Profile
from mnemo.prompts.question import DATA_RULE, Question, Reply, block, question, step_rows
from mnemo.runtime.text import is_blank, one_line
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
    return question(
        "procedural",
        STANDING,
        profile,
        [
            block("GOAL", [{"goal": trajectory.goal, "subgoal": trajectory.subgoal}]),
            block("STEPS BEFORE, FOR UNDERSTANDING ONLY", step_rows(trajectory.context)),
            block("STEPS", step_rows(trajectory.steps)),
            f"Give the instructions that STEPS teach, at most {max_instructions}, "
            "the most useful first.",
        ],
        ProceduralReply,
        lambda reply: [_instruction(entry) for entry in reply.instructions[:max_instructions]],
        instructions=max_instructions,
    )


def _instruction(entry: InstructionEntry) -> Instruction:
    return Instruction(**{**entry.model_dump(), "steps": entry.steps or ()})


# ── Returns ─────────────────────────────────────────────────────────────────────────────


INSTRUCTIONS = "INSTRUCTIONS"
"""The block of the instructions that are to be scored."""
_SHOWN = ("intent", "condition", "instruction", "expected_outcome")

RETURNS_STANDING = f"""\
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
    return question(
        "returns",
        RETURNS_STANDING,
        profile,
        [
            block("GOAL", [{"goal": trajectory.goal, "subgoal": trajectory.subgoal}]),
            block("STEPS", step_rows(trajectory.steps)),
            block(INSTRUCTIONS, map(_row, range(len(instructions)), instructions)),
            "Score every one of INSTRUCTIONS.",
        ],
        ReturnsReply,
        lambda reply: _returns(reply, len(instructions)),
        scores=len(instructions),
    )


def _row(index: int, instruction: Instruction) -> dict[str, Any]:
    values = asdict(instruction)
    return {"index": index} | {name: values[name] for name in _SHOWN}


def _returns(reply: ReturnsReply, number: int) -> list[float | None]:
    """Scores of 1 to 10 as returns in [0, 1]; those outside are clamped."""
    returns = {one.index: min(1.0, max(0.0, (one.score - 1.0) / 9.0)) for one in reply.scores}
    return [returns.get(i) for i in range(number)]


# ── Merged intents ──────────────────────────────────────────────────────────────────────


INTENTS = "INTENTS"
"""The block of the two intents."""
MAX_INTENT_CHARACTERS = 200

MERGE_INTENT_STANDING = f"""\
Two intents, each the goal that some instructions serve, are so near to each other that they \
shall share one description. Word it: broad enough for both, no broader, free of names and \
numbers, one short phrase that begins with a verb.

Answer with one JSON object: {{"intent"}}.

{DATA_RULE}"""


class MergeIntentReply(Reply):
    """The shape of the reply."""

    intent: str


def merge_intent_question(stored: str, new: str, profile: Profile | None) -> Question[str]:
    """Ask for a common description of *stored* and *new*."""
    return question(
        "merge_intent",
        MERGE_INTENT_STANDING,
        profile,
        [block(INTENTS, [{"intent": stored}, {"intent": new}]), "Give the one intent for both."],
        MergeIntentReply,
        _merged,
    )


def _merged(reply: MergeIntentReply) -> str:
    intent = one_line(reply.intent)
    if is_blank(intent):
        raise ValueError("the intent is blank")
    return intent[:MAX_INTENT_CHARACTERS].rstrip()
