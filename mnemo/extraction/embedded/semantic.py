"""Extract facts without a model, in the order in which they were said."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

from mnemo.config import Config
from mnemo.english.sentences import sentences
from mnemo.english.verbs import is_question, tokens_of
from mnemo.extraction.embedded.scene import Parties, Role, Scene, scene_of, workers
from mnemo.extraction.embedded.speech import facts_of_agent, facts_of_turn
from mnemo.extraction.embedded.statements import SpeechTurn, Statement
from mnemo.extraction.embedded.text_kinds import (
    Kind,
    call_name,
    excerpt,
    kind_of,
    without_calls,
    without_code,
)
from mnemo.extraction.embedded.tool_output import CONFIDENCE, facts_of_output
from mnemo.index.corpus import ROLES
from mnemo.runtime.clock import Breather
from mnemo.runtime.text import is_blank, one_line
from mnemo.values.steps import Fact, Trajectory

_QUESTION = re.compile(r"(?:^|(?<=[.!?…])\s+|(?<=\n))([^.!?\n]{2,240}\?)")
_FIRST_WORD = re.compile(r"[a-z]+")
_LONGEST_QUESTION = 160  # characters of a question without a mark


class EmbeddedSemanticExtractor:
    """
    Extract facts by rules; every word is the steps', a name, a date or a template's.

    Args:
        config: The names of the parties are read.
    """

    def __init__(self, config: Config) -> None:
        self._parties = Parties.of(config)

    async def extract_facts(self, trajectory: Trajectory) -> list[Fact]:
        """
        Give the facts, in the order in which they were said.

        *Cancellation*: safe; the thread at work ends by itself.
        """
        work = partial(_extract, trajectory, self._parties)
        return await workers().run(work, abandon=True)


def _extract(trajectory: Trajectory, parties: Parties) -> list[Fact]:
    scene = scene_of((*trajectory.context, *trajectory.steps), parties)
    breather = Breather()
    said: list[Statement] = []
    for at in range(len(trajectory.context), len(scene.steps)):
        said.extend(_of_step(scene, at, breather.breathe))
        breather.breathe()
    return [_fact(statement, trajectory) for statement in said]


def _fact(said: Statement, trajectory: Trajectory) -> Fact:
    indexes = {step.index for step in trajectory.steps}
    steps = tuple(i for i in said.steps if i in indexes)
    return Fact(proposition=_begun(said.text), confidence=said.confidence, steps=steps)


def _begun(text: str) -> str:
    """*text* with a capital where it begins with a role: "user lives in Bern."."""
    named = _FIRST_WORD.match(text)
    is_role = named is not None and named[0] in ROLES
    return text[:1].upper() + text[1:] if is_role else text


def _of_step(scene: Scene, at: int, breathe: Callable[[], None]) -> Iterator[Statement]:
    step = scene.steps[at]
    if not is_blank(step.observation):
        yield from _of_observation(scene, at, breathe)
    if not is_blank(step.action) and call_name(step.action) is None:
        action = without_code(without_calls(excerpt(step.action)))
        if kind_of(action) is Kind.SPEECH:
            yield from facts_of_agent(_turn(action, scene.agent, scene, at), breathe)


def _of_observation(scene: Scene, at: int, breathe: Callable[[], None]) -> Iterator[Statement]:
    step = scene.steps[at]
    text, shell, output = without_code(excerpt(step.observation)).partition("\n$ ")
    if shell:
        call = call_name(output.split("\n", 1)[0])
        for fact in facts_of_output(output, call, breathe):
            yield Statement(fact, CONFIDENCE, (step.index,), "")
    if scene.is_output(at, text):
        call = scene.call_before(at) or call_name(text.split("\n", 1)[0])
        for fact in facts_of_output(text, call, breathe):
            yield Statement(fact, CONFIDENCE, (step.index,), "")
        return
    turn = _turn(text, step.actor, scene, at)
    by_person = scene.speaks(at)
    yield from facts_of_turn(turn, breathe) if by_person else facts_of_agent(turn, breathe)


def _turn(text: str, speaker: str, scene: Scene, at: int) -> SpeechTurn:
    step = scene.steps[at]
    asked, asker = _asked_before(scene, at) if speaker == step.actor else (None, None)
    return SpeechTurn(
        text=text,
        speaker=speaker,
        at=step.at,
        step=step.index,
        scene=scene,
        asked=asked,
        asker=asker,
    )


def _asked_before(scene: Scene, at: int) -> tuple[str | None, tuple[str, int] | None]:
    """The question that step *at* may answer, who asked it, and in which step."""
    if at == 0:
        return None, None
    before = scene.steps[at - 1]
    if not is_blank(before.action):
        return _question(excerpt(before.action[-2_000:])), (scene.agent, before.index)
    if before.actor == scene.steps[at].actor or scene.role(at - 1) is Role.TOOL:
        return None, None
    return _question(excerpt(before.observation[-2_000:])), (before.actor, before.index)


def _question(text: str) -> str | None:
    if "?" not in text:
        last = text[-_LONGEST_QUESTION:].rsplit("\n", 1)[-1]
        asked = next(reversed(sentences(last)), "")
        return one_line(asked) if is_question(tokens_of(asked)) and '"' not in asked else None
    found = _QUESTION.findall(text)
    return one_line(found[-1]) if found and '"' not in found[-1] else None
