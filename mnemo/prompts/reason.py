"""
``reason_semantic``, ``reason_procedural``, ``reason_episodic``: reason over recalled memories.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import ConfigDict

from mnemo.english.words import date_in_words
from mnemo.prompts.profiles import Profile
from mnemo.prompts.question import (
    DATA_RULE,
    AskedQuestion,
    Question,
    Reply,
    block,
    question,
    shortened,
)
from mnemo.values.graph import Episodic, Node, NodeType, Procedural, Semantic

ReasonPurpose: TypeAlias = Literal["reason_semantic", "reason_procedural", "reason_episodic"]

REASONING: Mapping[ReasonPurpose, NodeType] = {
    "reason_semantic": "semantic",
    "reason_procedural": "procedural",
    "reason_episodic": "episodic",
}
"""Purpose → the type of node that it puts into words."""

RECALLED: Mapping[ReasonPurpose, str] = {
    "reason_semantic": "RECALLED FACTS",
    "reason_procedural": "RECALLED INSTRUCTIONS",
    "reason_episodic": "RECALLED EPISODES",
}
"""Purpose → the block of what was recalled."""

MAX_TEXT_CHARACTERS = 4_000
"""Characters of one text that the model is shown (S)."""
MAX_SHOWN_CHARACTERS = 60_000
"""Characters of all texts together; the best memories stay (S)."""
MAX_INFORMATION_CHARACTERS = 20_000
"""Characters of an answer that are kept (S)."""


def _standing(what: str, how: str) -> str:
    return f"""\
An agent has asked its long-term memory a question. {what}

Say what these memories contribute to the answer, for somebody who does not see them: complete \
sentences, names and dates as they stand. Use nothing but the memories; the asker's goal and \
last steps, where they are given, only help to understand the question. What the memories do \
not say, you do not say either; if they hold nothing that answers the question, information is \
an empty text. They come from a search, so some of them may have nothing to do with it.

{how}

Answer with one JSON object: {{"reasoning", "information"}}. reasoning: in a few words, which \
memories count and why. information: what they say about the question.

{DATA_RULE}"""


_STANDING: Mapping[ReasonPurpose, str] = {
    "reason_semantic": _standing(
        what="A search has brought up facts, best first, each with the day of its evidence "
        "and how certain it is, from 0 to 1.",
        how="Where two facts disagree, the later one holds now; say that it was different "
        "before, and until when, if that is asked. Word what is uncertain as uncertain.",
    ),
    "reason_procedural": _standing(
        what="A search has brought up instructions, best first: when each applies, what to "
        "do, what to expect, and its return: how far it reached its aim before, from 0 to 1.",
        how="Prefer what fits the situation of the question, then what had the higher "
        "return. Keep the order of the steps. Say what is to be avoided where a low return "
        "shows it.",
    ),
    "reason_episodic": _standing(
        what="A search has brought up moments of its past, in the order of time: what was "
        "observed, what was done about it, and the reward: how well that served its aim, "
        "from 0 to 1.",
        how="Say what happened, when and in which order, and who said it. An observation is "
        "the word of the actor that it names, not a proven fact.",
    ),
}


@dataclass(frozen=True, slots=True)
class Recalled:
    """A memory that may answer; *at* and *actor* are of its best evidence."""

    node: Node
    at: datetime | None = None
    actor: str | None = None


class ReasonReply(Reply):
    """The shape of the reply; the answer counts also without its grounds."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        json_schema_extra={"required": ["reasoning", "information"]}
    )

    reasoning: str = ""
    information: str


def fitting(recalled: Sequence[Recalled]) -> int:
    """How many of *recalled*, from the first on, are shown to a model; at least one."""
    room = MAX_SHOWN_CHARACTERS
    for number, memory in enumerate(recalled):
        room -= sum(len(value) for value in _row(memory).values() if isinstance(value, str))
        if room < 0:
            return max(number, 1)
    return len(recalled)


def reason_question(
    purpose: ReasonPurpose,
    asked: AskedQuestion,
    recalled: Sequence[Recalled],
    profile: Profile | None,
) -> Question[str | None]:
    """Ask what *recalled* say about *asked*; ``None`` is nothing."""
    return question(
        purpose,
        _STANDING[purpose],
        profile,
        [
            asked.blocks,
            block(RECALLED[purpose], map(_row, recalled)),
            "Give the information that these memories hold about the question.",
        ],
        ReasonReply,
        _read,
    )


def _row(memory: Recalled) -> dict[str, Any]:
    return {
        name: shortened(value, MAX_TEXT_CHARACTERS) if isinstance(value, str) else value
        for name, value in _values(memory).items()
        if value not in (None, "")
    }


def _values(memory: Recalled) -> dict[str, Any]:
    match memory.node:
        case Semantic() as fact:
            return {
                "fact": fact.proposition,
                "date": _day(memory.at),
                "confidence": fact.confidence,
                "held_until": _day(fact.valid_to),
            }
        case Procedural() as how:
            return {
                "when": how.condition,
                "do": how.instruction,
                "expect": how.expected_outcome,
                "return": how.return_score,
            }
        case Episodic() as episode:
            return {
                "date": _moment(memory.at),
                "actor": memory.actor,
                "observation": episode.observation,
                "action": episode.action,
                "reward": episode.reward,
            }
        case node:
            return {"text": node.text, "date": _day(memory.at)}


def _day(at: datetime | None) -> str | None:
    return None if at is None else date_in_words(at)


def _moment(at: datetime | None) -> str | None:
    return None if at is None else f"{date_in_words(at)} {at:%H:%M}"


def _read(reply: ReasonReply) -> str | None:
    information = reply.information.strip()
    return information[:MAX_INFORMATION_CHARACTERS].rstrip() or None
