"""``mode``: what kind of memory answers a question."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from mnemo.prompts.asked import Asked
from mnemo.prompts.data import DATA_RULE
from mnemo.prompts.modes import MODES, Mode
from mnemo.prompts.profiles import Profile, instructed
from mnemo.prompts.question import Question, Reply, schema_of
from mnemo.runtime.text import fold, one_line

__all__ = ["ModeReply", "mode_question"]

STANDING = f"""\
An agent asks its long-term memory a question. The memory keeps facts, instructions, and a log \
of all that was said and done. You do not answer the question; you say what kind of memory \
answers it best.

semantic: something that holds or held: who somebody is, what they own, like, plan or decided, \
what a thing is called, how much it costs.
procedural: how something is done: which steps to take, what to do in a situation, what to avoid.
episodic: what happened: when, in which order, who said what to whom, how an earlier attempt went.
mixed: more than one of these is needed, or you cannot tell.

Judge by what the answer must contain, not by single words of the question. Where the asker's \
goal and last steps are given, they only help to understand what is meant.

Answer with one JSON object: {{"mode"}}, one of {", ".join(MODES)}.

{DATA_RULE}"""


class ModeReply(Reply):
    """The shape of the reply; its case and blanks are forgiven."""

    mode: Annotated[str, Field(json_schema_extra={"enum": list(MODES)})]


def mode_question(asked: Asked, profile: Profile | None) -> Question[Mode]:
    """Ask what kind of memory answers *asked*."""
    return Question(
        purpose="mode",
        system=instructed(STANDING, "mode", profile),
        user=f"{asked.blocks}\n\nGive the mode of this question.",
        schema=schema_of(ModeReply),
        read=_read,
    )


def _read(value: Any) -> Mode:
    said = one_line(fold(ModeReply.model_validate(value).mode))
    for mode in MODES:
        if said == mode:
            return mode
    raise ValueError(f"the mode is none of {', '.join(MODES)}")
