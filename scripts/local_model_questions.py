"""Every question that mnemo asks a chat model, as often as wanted, each time about other words."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from mnemo.prompts.annotate import annotate_question
from mnemo.prompts.plan import mode_question, plan_question, refine_question
from mnemo.prompts.procedural import merge_intent_question, procedural_question, returns_question
from mnemo.prompts.question import AskedQuestion, Question
from mnemo.prompts.reason import Recalled, reason_question
from mnemo.prompts.semantic import StoredFact, semantic_question
from mnemo.protocols import AnnotationRequest
from mnemo.values.graph import Episodic, Procedural, Semantic
from mnemo.values.steps import Annotation, Instruction, Step, Trajectory

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
PEOPLE = ("Ada", "Boris", "Chen", "Dana", "Emeka", "Freya")
TOWNS = ("Osaka", "Lisbon", "Oslo", "Quito", "Hanoi", "Turin")
TASKS = (
    ("repair the build", "the linker runs out of memory", "set LINK_JOBS to 2"),
    ("plan the journey", "the night train is sold out", "booked the ferry instead"),
    ("answer the customer", "the invoice names the wrong plan", "credited the difference"),
    ("find the paper's data", "the archive asks for a password", "wrote to the authors"),
)


@dataclass(frozen=True)
class Scene:
    """What one round of questions is about; rounds of the same number are alike."""

    goal: str
    steps: tuple[Step, ...]
    instruction: Instruction
    asked: AskedQuestion

    @classmethod
    def number(cls, round: int) -> Scene:
        """A few steps of two people, a task, its trouble and what was done about it."""
        choice = random.Random(round)
        who, other = choice.sample(PEOPLE, 2)
        town, price = choice.choice(TOWNS), choice.randint(20, 900)
        goal, trouble, remedy = choice.choice(TASKS)
        said = (
            (who, f"Please {goal} by Friday.", "Asked what is known so far"),
            (who, f"My sister {other} lives in {town}; she can help.", "Noted it"),
            ("tool", f"Error: {trouble}.", f"Tried again, then {remedy}"),
            ("tool", "It went through.", "Told the user"),
            (who, f"Good. It must not cost more than {price} euros.", "Noted the limit"),
            (who, "Thank you, that is all.", "Closed the task"),
        )
        return cls(
            goal=goal,
            steps=tuple(_step(index, *parts) for index, parts in enumerate(said)),
            instruction=Instruction(
                intent=goal,
                condition=trouble,
                instruction=remedy,
                expected_outcome="it goes through",
                steps=(2, 3),
            ),
            asked=AskedQuestion(
                query=f"Where does {who}'s sister live?", at=START + timedelta(days=9)
            ),
        )

    @property
    def trajectory(self) -> Trajectory:
        """All of it, annotated."""
        return Trajectory(id="t", session_id="s", episode_id="e", goal=self.goal, steps=self.steps)

    @property
    def facts(self) -> tuple[str, ...]:
        """What a search might have found."""
        return tuple(step.observation for step in self.steps[:3])


def _step(index: int, actor: str, observation: str, action: str) -> Step:
    known = Annotation(
        index=index, state="under way", subgoal="get it done", reward=0.5, trajectory_id="t"
    )
    return Step(
        session_id="s",
        episode_id="e",
        index=index,
        observation=observation,
        action=action,
        at=START + timedelta(minutes=index),
        actor=actor,
        node_id=f"n{index}",
        annotation=known,
    )


def _annotate(scene: Scene) -> Question[Any]:
    fresh = tuple(replace(step, annotation=None) for step in scene.steps)
    return annotate_question(
        AnnotationRequest(goal=scene.goal, before=(), fresh=fresh, closing=True), None
    )


def _semantic(scene: Scene) -> Question[Any]:
    stored = [StoredFact("f1", "The task may cost 10 euros.")]
    return semantic_question(scene.trajectory, stored, None, max_facts=24)


def _reason_semantic(scene: Scene) -> Question[Any]:
    recalled = [Recalled(Semantic(proposition=fact), at=START) for fact in scene.facts]
    return reason_question("reason_semantic", scene.asked, recalled, None)


def _reason_procedural(scene: Scene) -> Question[Any]:
    how = scene.instruction
    node = Procedural(how.instruction, how.condition, how.expected_outcome, 0.8)
    return reason_question("reason_procedural", scene.asked, [Recalled(node, at=START)], None)


def _reason_episodic(scene: Scene) -> Question[Any]:
    recalled = [
        Recalled(Episodic(step.observation, step.action), at=step.at, actor=step.actor)
        for step in scene.steps
    ]
    return reason_question("reason_episodic", scene.asked, recalled, None)


QUESTIONS: Mapping[str, Callable[[Scene], Question[Any]]] = {
    "annotate": _annotate,
    "semantic": _semantic,
    "procedural": lambda s: procedural_question(s.trajectory, None, max_instructions=8),
    "returns": lambda s: returns_question(s.trajectory, [s.instruction], None),
    "merge_intent": lambda s: merge_intent_question(s.goal, f"{s.goal} in time", None),
    "mode": lambda s: mode_question(s.asked, None),
    "plan": lambda s: plan_question(s.asked, None),
    "refine": lambda s: refine_question(s.asked, s.facts, None),
    "reason_semantic": _reason_semantic,
    "reason_procedural": _reason_procedural,
    "reason_episodic": _reason_episodic,
}
"""Purpose → its question about a scene."""


def questions(purpose: str, rounds: int) -> Iterator[Question[Any]]:
    """*rounds* questions of one purpose."""
    return (QUESTIONS[purpose](Scene.number(round)) for round in range(rounds))
