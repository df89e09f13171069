"""Participants of a run of steps: people, the agent and tools, and whom their pronouns mean."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from mnemo.config import Config
from mnemo.english.canonical import speaks_of_self
from mnemo.english.clauses import has_verb, is_imperative
from mnemo.english.sentences import sentences
from mnemo.extraction.embedded.text_kinds import Kind, calls_in, excerpt, kind_of, verdict
from mnemo.runtime.tasks import Threads, shared_threads
from mnemo.runtime.text import fold, is_blank
from mnemo.values.steps import Step

TOOLS = frozenset(("tool", "function", "environment", "env", "terminal", "shell", "console"))
"""Actors whose words are the output of a call; so are those named like a tool that was called."""

_ADDRESSES = re.compile(
    r"\b(?:i|i['’]\w+|my|me|we|our|you|your|please|thanks|thank|yes|no|ok|okay|sorry|actually)\b"
    r"|\?",
    re.IGNORECASE,
)


class Role(StrEnum):
    """What an actor is in an agent's loop; ``UNMARKED``: the step did not say who spoke."""

    PERSON = "person"
    AGENT = "agent"
    TOOL = "tool"
    UNMARKED = "unmarked"


_ROLES = {
    "user": Role.PERSON,
    "assistant": Role.AGENT,
    "system": Role.AGENT,
    "tool": Role.TOOL,
}
_SAID = ("user", "assistant", "system")
"""Roles of messages that are no output of a call, whatever they look like."""


@dataclass(frozen=True, slots=True)
class Parties:
    """
    The names that a configuration gives to roles.

    Attributes:
        agent: Who acts.
        agents: Folded actors of the agent's side.
        unnamed: The actor of an observation whose step names none.
    """

    agent: str
    agents: frozenset[str]
    unnamed: str

    @classmethod
    def of(cls, config: Config) -> Parties:
        """The parties of *config*."""
        agent = config.extraction.agent_name
        agents = frozenset(map(fold, (*config.recall.agent_actors, agent)))
        return cls(agent, agents - TOOLS, config.extraction.default_actor)

    def role(self, step: Step, called: frozenset[str]) -> Role:
        """
        What the actor of *step* is.

        Its message says so; of a step that was made from none, the actor's name does.

        Args:
            called: Folded names of the tools that were called.
        """
        if step.role in _ROLES:
            return _ROLES[step.role]
        folded = fold(step.actor)
        if folded in TOOLS or folded in called:
            return Role.TOOL
        if folded in self.agents:
            return Role.AGENT
        return Role.UNMARKED if step.actor == self.unnamed else Role.PERSON


@dataclass(frozen=True, slots=True)
class Scene:
    """
    The parties of a run of steps.

    Attributes:
        steps: The run, ascending.
        people: Distinct people whose words are observations, in order of appearance.
        agent: Who acts, under the name that it has here.
        with_agent: Whether the agent takes part.
        names: The folded words of all parties' names.
        called: Folded names of the tools that were called.
        marked: Whether some step says who spoke: then an unnamed actor is a person.
    """

    steps: tuple[Step, ...]
    parties: Parties
    people: tuple[str, ...]
    agent: str
    with_agent: bool
    names: frozenset[str]
    called: frozenset[str]
    marked: bool

    @property
    def is_talk(self) -> bool:
        """Whether people talk with each other, each turn a step of its own."""
        return len(self.people) > 1 and not self.with_agent

    def role(self, at: int) -> Role:
        """What the actor of step *at* is."""
        role = self.parties.role(self.steps[at], self.called)
        return Role.PERSON if role is Role.UNMARKED and self.marked else role

    def speaks(self, at: int) -> bool:
        """Whether the actor of step *at* is neither the agent nor a tool."""
        return self.role(at) in (Role.PERSON, Role.UNMARKED)

    def call_before(self, at: int) -> str | None:
        """How the call is named whose output step *at* observes; ``""``: one of several."""
        if self.steps[at].role in _SAID:
            return None
        if fold(self.steps[at].actor) in self.called:
            return self.steps[at].actor
        back = at - 1
        while back > 0 and is_blank(self.steps[back].action) and self.role(back) is Role.TOOL:
            back -= 1
        calls = calls_in(excerpt(self.steps[back].action)) if back >= 0 else ()
        return calls[0] if len(set(calls)) == 1 else ("" if calls else None)

    def is_output(self, at: int, text: str) -> bool:
        """Whether *text*, the observation of step *at*, is a tool's output."""
        return is_output(text, self.role(at), after_call=self.call_before(at) is not None)

    def other(self, speaker: str) -> str | None:
        """The other party; ``None`` if there is not exactly one."""
        others = [name for name in self.people if name != speaker]
        if speaker != self.agent and (self.with_agent or not others):
            others.append(self.agent)
        return others[0] if len(others) == 1 else None

    def is_name(self, word: str) -> bool:
        """Whether *word* (folded) is a party's name, or short for one ("Mel" for "Melanie")."""
        return any(
            word == name
            or (len(word) >= 3 and name.startswith(word[:3]) and len(word) <= len(name))
            for name in self.names
        )


def scene_of(steps: Sequence[Step], parties: Parties) -> Scene:
    """Who takes part in *steps*."""
    called = frozenset(fold(name) for s in steps if "(" in s.action for name in calls_in(s.action))
    heard = {s.actor: parties.role(s, called) for s in steps if not is_blank(s.observation)}
    acts = any(not is_blank(s.action) for s in steps)
    agents = [a for a, role in heard.items() if role is Role.AGENT and fold(a) != "system"]
    agent = parties.agent if acts or not agents else agents[0]
    people = tuple(a for a, role in heard.items() if role in (Role.PERSON, Role.UNMARKED))
    return Scene(
        steps=tuple(steps),
        parties=parties,
        people=people,
        agent=agent,
        with_agent=acts or bool(agents),
        names=frozenset(word for name in (*people, agent) for word in fold(name).split()),
        called=called,
        marked=Role.TOOL in heard.values() or any(s.role is not None for s in steps),
    )


def is_output(text: str, role: Role, *, after_call: bool) -> bool:
    """
    Whether *text*, observed of an actor with *role*, is a tool's output.

    The role says so. Where it is not known, a text behind a call is its output unless it
    is a sentence or addresses somebody.
    """
    said = role is Role.PERSON or (role is not Role.TOOL and not after_call)
    if said and speaks_of_self(text.split("\n", 1)[0]):
        return False
    if role is Role.TOOL or kind_of(text, said=said) is Kind.TOOL:
        return True
    return not said and not _is_said(text)


def _is_said(text: str) -> bool:
    """Whether *text* addresses somebody or has a sentence; a result or an error is none."""
    head = text[:2_000]
    if _ADDRESSES.search(head):
        return True
    found = verdict(head)
    return not (found.good or found.bad) and any(
        has_verb(sentence) or is_imperative(sentence) for sentence in sentences(head)
    )


# ── The worker thread ────────────────────────────────────────────────────────────────────


def workers() -> Threads:
    """
    The one thread of this event loop that analyses texts.

    The work is pure Python, so a second thread would not be faster, only make the
    event loop wait for the interpreter twice as long.
    """
    return shared_threads("mnemo.extraction.embedded")
