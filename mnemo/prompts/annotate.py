"""``annotate``: the state and subgoal of new steps, and the rewards that have become known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import ConfigDict

from mnemo.prompts.profiles import Profile
from mnemo.prompts.question import DATA_RULE, Question, Reply, block, question, step_rows
from mnemo.protocols import Annotated, AnnotationRequest
from mnemo.runtime.text import is_blank, one_line
from mnemo.values.steps import Step

NEW_STEPS = "NEW STEPS"
"""The block of the steps that are to be annotated."""
MAX_STATE_CHARACTERS = 600
MAX_SUBGOAL_CHARACTERS = 200

STANDING = f"""\
You keep the log of an agent's work. An episode pursues one goal; each step is an observation \
and the action that the agent took on it. For every new step you write down three things.

state: what is the case now, once this observation is in. Start from the state before it and \
the action before it, and say what has changed and what is still open. At most \
{MAX_STATE_CHARACTERS} characters, plain statements, no guesses.

subgoal: why this action was taken, given the state, the observation and the goal: the aim \
behind it, not a paraphrase of it. At most {MAX_SUBGOAL_CHARACTERS} characters. As long as the \
aim stays the same, repeat the subgoal of the step before word for word; word a new one only \
where the agent turns to something else.

previous_reward: how well the action of the step BEFORE this one served the subgoal of that \
step, judged by what this observation shows. 1 is fully, 0 is not at all or harmful, null is \
that it cannot be told. Do not reward effort or good manners. For a step whose row already has \
a reward, and for the step before the very first one, give null.

last_reward is the same for the last step of the episode, and is asked for only when it ends.

Answer with one JSON object: {{"steps": [{{"index", "state", "subgoal", "previous_reward"}}], \
"last_reward"}}, with exactly one entry per new step, in order, each with its step's own index.

{DATA_RULE}"""


class StepEntry(Reply):
    """What is said of one new step; what is beyond the new steps is not looked at."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        json_schema_extra={"required": ["state", "subgoal"]}
    )

    index: int | None = None
    state: str | None = None
    subgoal: str | None = None
    previous_reward: float | None = None


class AnnotateReply(Reply):
    """The shape of the reply; a call without steps is read without them too."""

    model_config: ClassVar[ConfigDict] = ConfigDict(json_schema_extra={"required": ["steps"]})

    steps: tuple[StepEntry, ...] = ()
    last_reward: float | None = None


def annotate_question(
    request: AnnotationRequest, profile: Profile | None
) -> Question[tuple[list[Annotated], float | None]]:
    """Ask for all that *request* wants to know, in one question."""
    return question(
        "annotate",
        STANDING,
        profile,
        [
            block("GOAL", [{"goal": request.goal}]),
            block("EARLIER STEPS", step_rows(request.before)),
            block(NEW_STEPS, step_rows(request.fresh)),
            _task(request),
        ],
        AnnotateReply,
        lambda reply: _read(reply, request),
    )


def _task(request: AnnotationRequest) -> str:
    tasks = []
    if request.fresh:
        tasks.append(f"Annotate step {', '.join(str(step.index) for step in request.fresh)}.")
    else:
        tasks.append("There is no new step: give an empty list of steps.")
    if request.closing:
        last = (request.fresh or request.before)[-1].index
        tasks.append(
            f"The episode ends here: nothing further was observed after step {last}. "
            f"Give its reward as last_reward, judged by what is known up to here."
        )
    else:
        tasks.append("The episode goes on: give null as last_reward.")
    return " ".join(tasks)


def _read(reply: AnnotateReply, request: AnnotationRequest) -> tuple[list[Annotated], float | None]:
    if not reply.model_fields_set:
        raise ValueError("neither steps nor last_reward is given")
    entries = _matched(reply.steps, request.fresh)
    return entries, _clamped(reply.last_reward) if request.closing else None


def _matched(entries: Sequence[StepEntry], fresh: Sequence[Step]) -> list[Annotated]:
    """One annotation per fresh step: of the entry with its index, else at its position."""
    by_index: dict[int, StepEntry] = {}
    for entry, step in zip(entries, fresh, strict=False):
        if entry.index is None:
            by_index[step.index] = entry
    for entry in reversed(entries):
        if entry.index is not None:
            by_index[entry.index] = entry
    return [_annotated(step.index, by_index.get(step.index)) for step in fresh]


def _annotated(index: int, entry: StepEntry | None) -> Annotated:
    if entry is None:
        raise ValueError(f"step {index} has no entry")
    if entry.state is None or is_blank(entry.state):
        raise ValueError(f"the state of step {index} is blank")
    if entry.subgoal is None or is_blank(entry.subgoal):
        raise ValueError(f"the subgoal of step {index} is blank")
    return Annotated(
        index=index,
        state=entry.state.strip()[:MAX_STATE_CHARACTERS].rstrip(),
        subgoal=one_line(entry.subgoal)[:MAX_SUBGOAL_CHARACTERS].rstrip(),
        previous_reward=_clamped(entry.previous_reward),
    )


def _clamped(reward: float | None) -> float | None:
    return None if reward is None else min(1.0, max(0.0, reward))
