"""``semantic``: extract the facts of a trajectory, and say what became of those known before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from mnemo.prompts.profiles import Profile
from mnemo.prompts.question import DATA_RULE, Question, Reply, block, question, step_rows
from mnemo.values.steps import Fact, Trajectory

DEFAULT_CONFIDENCE = 0.8

STANDING = f"""\
You distil lasting knowledge from one stretch of an agent's work: the facts somebody will want \
to look up weeks later, without the steps at hand.

A fact
- can be understood alone: people and things by name instead of he, it or this; days and times \
as dates, worked out from the time of the step; no "above" or "as mentioned";
- makes one claim, in one sentence; a second sentence only to qualify the first;
- rests on steps, and you list the index of each step that states it;
- is said once, in its most specific wording, with names, numbers and units as they stand;
- is worth keeping: no greetings, no questions, nothing about the course of the conversation.

Add nothing that the steps do not say. What somebody only considers, hopes or reports from \
hearsay is worded as such and gets a lower confidence.

For each fact give
- proposition: the fact;
- concepts: one to six short terms to find it by, if possible words of the fact itself; never \
mere types such as "person" or "date";
- confidence: 0 to 1, how certain it is that the fact holds;
- steps: the indexes of the steps that support it.

Then judge the known facts that the steps say something of. They are numbered and were said \
before. For each give
- number: its number;
- verdict: "replaces" if a fact of your list says what holds instead; "ends" if one says that it \
holds no longer, with nothing in its place (sold, quit, finished, cancelled, died); "keeps" if it \
holds as before; "unrelated" if it is about something else;
- fact: for "replaces" and "ends", the place in your list, from 1, of the fact that does it.
What there may be more than one of (children, hobbies, places visited, clients) is kept, not \
replaced; so is what is of another person or thing, or only has a detail added.

Answer with one JSON object: {{"facts": [{{"proposition", "concepts", "confidence", "steps"}}], \
"known": [{{"number", "verdict", "fact"}}]}}. Empty lists are a good answer where there is nothing \
to learn.

{DATA_RULE}"""


@dataclass(frozen=True, slots=True)
class StoredFact:
    """A fact of the repository that the model is shown, and may say to be replaced or ended."""

    id: str
    proposition: str


class FactEntry(Reply):
    """One fact as the model words it."""

    proposition: str
    concepts: tuple[str, ...] | None = None
    confidence: float | None = None
    steps: tuple[int, ...] | None = None


class KnownEntry(Reply):
    """What became of a known fact."""

    number: int
    verdict: Literal["keeps", "replaces", "ends", "unrelated"]
    fact: int | None = None


class SemanticReply(Reply):
    """The shape of the reply."""

    facts: tuple[FactEntry, ...]
    known: tuple[KnownEntry, ...] | None = None


def semantic_question(
    trajectory: Trajectory, stored: Sequence[StoredFact], profile: Profile | None, *, max_facts: int
) -> Question[list[Fact]]:
    """Ask for facts of *trajectory*, and which *stored* ones, by number, they replace or end."""
    known = ({"number": n, "fact": fact.proposition} for n, fact in enumerate(stored, 1))
    return question(
        "semantic",
        STANDING,
        profile,
        [
            block("GOAL", [{"goal": trajectory.goal, "subgoal": trajectory.subgoal}]),
            block("STEPS BEFORE, FOR UNDERSTANDING ONLY", step_rows(trajectory.context)),
            block("KNOWN FACTS", known),
            block("STEPS", step_rows(trajectory.steps)),
            f"Give the facts of STEPS, at most {max_facts}, in the order they came up.",
        ],
        SemanticReply,
        lambda reply: _read(reply, stored),
        facts=max_facts,
    )


def _read(reply: SemanticReply, stored: Sequence[StoredFact]) -> list[Fact]:
    closed: dict[int, list[str]] = {}
    for entry in reply.known or ():
        is_shown = 1 <= entry.number <= len(stored)
        if is_shown and entry.verdict in ("replaces", "ends") and entry.fact is not None:
            closed.setdefault(entry.fact, []).append(stored[entry.number - 1].id)
    return [_fact(entry, closed.get(n, ())) for n, entry in enumerate(reply.facts, 1)]


def _fact(entry: FactEntry, closed: Iterable[str]) -> Fact:
    return Fact(
        proposition=entry.proposition,
        concepts=entry.concepts or (),
        confidence=DEFAULT_CONFIDENCE if entry.confidence is None else entry.confidence,
        steps=entry.steps or (),
        replaces=tuple(dict.fromkeys(closed)),
    )
