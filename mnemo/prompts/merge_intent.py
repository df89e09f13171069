"""``merge_intent``: one description for two intents that are nearly the same."""

from __future__ import annotations

from typing import Any

from mnemo.prompts.data import DATA_RULE, block
from mnemo.prompts.profiles import Profile, instructed
from mnemo.prompts.question import Question, Reply, schema_of
from mnemo.runtime.text import is_blank, one_line

INTENTS = "INTENTS"
"""The block of the two intents."""
MAX_INTENT_CHARACTERS = 200

STANDING = f"""\
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
    return Question(
        purpose="merge_intent",
        system=instructed(STANDING, "merge_intent", profile),
        user="\n\n".join(
            (
                block(INTENTS, [{"intent": stored}, {"intent": new}]),
                "Give the one intent for both.",
            )
        ),
        schema=schema_of(MergeIntentReply),
        read=_read,
    )


def _read(value: Any) -> str:
    intent = one_line(MergeIntentReply.model_validate(value).intent)
    if is_blank(intent):
        raise ValueError("the intent is blank")
    return intent[:MAX_INTENT_CHARACTERS].rstrip()
