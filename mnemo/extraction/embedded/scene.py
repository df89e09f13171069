"""Who takes part in a run of steps, and whom their pronouns mean."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from mnemo._text import fold, is_blank
from mnemo.episode.step import Step
from mnemo.extraction.embedded.lexicon import GROUP_NOUNS
from mnemo.extraction.embedded.persons import Voice

__all__ = ["Scene", "scene_of"]

_AGENTS = frozenset(("assistant", "agent", "ai", "bot", "model", "system", "tool"))
_YOU = re.compile(r"\b(?:you|your|y['’]all)\b", re.IGNORECASE)
_WORD = re.compile(r"[a-z]+")
_BOTH = re.compile(
    r"\b(?:we|us|our)\b.{0,40}\b(?:chat|chatted|talk|talked|spoke|meet|met|catch up)\b"
)


@dataclass(frozen=True, slots=True)
class Scene:
    """
    The parties of a trajectory.

    Attributes:
        people: Distinct actors whose words are observations, in order of appearance.
        agent: Who acts.
        names: The folded words of all parties' names.
    """

    people: tuple[str, ...]
    agent: str
    names: frozenset[str]

    @property
    def is_talk_of_two(self) -> bool:
        """Whether two people talk, each turn a step of its own."""
        return len(self.people) == 2

    def is_agent(self, actor: str) -> bool:
        """Whether *actor* is the one who acts, by name or by role."""
        folded = fold(actor)
        return folded == fold(self.agent) or folded in _AGENTS

    def other(self, speaker: str) -> str | None:
        """The other party; ``None`` if there is not exactly one."""
        others = [name for name in self.people if name != speaker]
        if len(others) == 1:
            return others[0]
        return self.agent if not others and speaker != self.agent else None

    def voice(self, speaker: str, said_lately: Iterable[str], asked: str | None) -> Voice:
        """
        Whom *speaker*'s pronouns mean.

        "We" is both parties, but not where the speaker has just talked of people of
        its own ("my kids"), nor in answer to a question about "you", which leaves out
        who asked, and not with an agent, which goes nowhere.
        """
        other = self.other(speaker)
        together = other is not None and (
            self.is_agent(speaker)
            or not (self.is_agent(other) or _without_other(said_lately, asked))
        )
        return Voice(speaker, f"{speaker} and {other if together else 'others'}", other)

    def is_name(self, word: str) -> bool:
        """Whether *word* (folded) is a party's name, or short for one ("Mel" for "Melanie")."""
        return any(
            word == name
            or (len(word) >= 3 and name.startswith(word[:3]) and len(word) <= len(name))
            for name in self.names
        )


def scene_of(steps: Iterable[Step], agent: str) -> Scene:
    """Who takes part in *steps*."""
    steps = tuple(steps)
    people = dict.fromkeys(s.actor for s in steps if not is_blank(s.observation))
    names = frozenset(word for name in (*people, agent) for word in fold(name).split())
    return Scene(tuple(people), agent, names)


def _without_other(texts: Iterable[str], asked: str | None) -> bool:
    """Whether "we" leaves out the other party, by what was said, the latest first."""
    for at, text in enumerate(texts):
        folded = text.lower()
        if _BOTH.search(folded):
            return False
        if at == 0 and asked is not None and _YOU.search(asked):
            return True
        words = _WORD.findall(folded)
        if any(word in GROUP_NOUNS for word in words):
            return True
    return False
