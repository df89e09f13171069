"""
Count how many replies of the local model fit what was asked, by purpose.

The questions are mnemo's own, asked as a session asks them: over HTTP by
``OpenAIChatModel``, each reply validated, one correction. The model is greedy
(temperature 0); still, counts may differ by one or two between runs, since its server
reuses what it has computed for the last prompt.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import anyio
from local_model import MODEL_NAME

from mnemo.errors import InvalidReply, ModelError
from mnemo.models import OpenAIChatModel
from mnemo.prompts.annotate import annotate_question
from mnemo.prompts.calling import Asker
from mnemo.prompts.plan import mode_question, plan_question, refine_question
from mnemo.prompts.procedural import merge_intent_question, procedural_question, returns_question
from mnemo.prompts.question import AskedQuestion, Question, what_is_wrong
from mnemo.prompts.reason import Recalled, reason_question
from mnemo.prompts.semantic import StoredFact, semantic_question
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import AnnotationRequest
from mnemo.values.graph import Episodic, Procedural, Semantic
from mnemo.values.steps import Annotation, Instruction, Step, Trajectory

TIMEOUT_S, MOST_TOKENS = 600.0, 128
"""Of a call; seconds so many that a busy machine does not change the counts."""
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
"""Purpose → its question about a scene: every one that mnemo asks a chat model."""


def questions(purpose: str, rounds: int) -> Iterator[Question[Any]]:
    """*rounds* questions of one purpose."""
    return (QUESTIONS[purpose](Scene.number(round)) for round in range(rounds))


@dataclass
class Count:
    """What became of the questions of one purpose."""

    became: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    used: Counter[str] = field(default_factory=Counter)

    def add(self, error: ModelError | None, meter: UsageMeter, seconds: float) -> None:
        """Count one question; its second call was the correction."""
        used = meter.total
        self.seconds.append(seconds)
        self.used.update(calls=used.calls, read=used.input_tokens, wrote=used.output_tokens)
        if error is None:
            self.became["at once" if used.calls == 1 else "corrected"] += 1
        else:
            self.became["never" if isinstance(error, InvalidReply) else "failed"] += 1
            cause = error.__cause__
            self.wrong[what_is_wrong(cause) if isinstance(cause, ValueError) else str(error)] += 1

    def row(self, purpose: str) -> str:
        """The line of the table."""
        outcomes = [self.became[what] for what in ("at once", "corrected", "never", "failed")]
        tokens = [round(self.used[what] / self.used["calls"]) for what in ("read", "wrote")]
        mostly = "; ".join(f"{what} ({n})" for what, n in self.wrong.most_common(1))
        cells = (purpose, *outcomes, f"{median(self.seconds):.1f} s", *tokens, mostly)
        return "| " + " | ".join(map(str, cells)) + " |"


@contextmanager
def served() -> Iterator[str]:
    """The base URL of a server of our own."""
    command = [sys.executable, str(Path(__file__).with_name("local_model.py"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            url = server.stdout.readline().strip() if server.stdout else ""
            if not url:
                sys.exit("scripts/local_model: the server did not start")
            yield url
        finally:
            server.terminate()


async def validate(url: str, rounds: int) -> None:
    """Ask *rounds* questions of every purpose, and print a table."""
    print(f"{MODEL_NAME}, {rounds} questions per purpose, at most {MOST_TOKENS} tokens each")
    print("| purpose | at once | corrected | never | failed | median | in | out | mostly wrong |")
    print("|---|---|---|---|---|---|---|---|---|")
    model = OpenAIChatModel(
        url, MODEL_NAME, max_concurrency=1, max_retries=0, max_output_tokens=MOST_TOKENS
    )
    async with model:
        for purpose in QUESTIONS:
            count = Count()
            for question in questions(purpose, rounds):
                meter, began, failure = UsageMeter(), perf_counter(), None
                try:
                    await Asker(model, meter=meter, timeout_s=TIMEOUT_S).ask(question)
                except ModelError as error:
                    failure = error
                count.add(failure, meter, perf_counter() - began)
            print(count.row(purpose), flush=True)


def main() -> None:
    """Read the command line, serve, ask and count."""
    parser = argparse.ArgumentParser(prog="scripts/local_model")
    parser.add_argument("--validate", type=int, metavar="N", help="questions per purpose")
    asked = parser.parse_args()
    if asked.validate < 1:
        parser.error("give a number from 1")
    with served() as url:
        anyio.run(validate, url, asked.validate)


if __name__ == "__main__":
    main()
