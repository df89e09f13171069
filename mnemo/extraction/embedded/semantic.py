"""Extract facts without a model, in the order in which they were said."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import anyio.to_thread

from mnemo.config import Config
from mnemo.english.sentences import sentences
from mnemo.english.verbs import is_question, tokens_of
from mnemo.extraction.embedded.concepts import Frequencies, concepts_of, matter_of
from mnemo.extraction.embedded.scene import Parties, Role, Scene, scene_of
from mnemo.extraction.embedded.speech import facts_of_agent, facts_of_turn
from mnemo.extraction.embedded.statements import Statement, Turn, corrected, folded_key
from mnemo.extraction.embedded.text_kinds import (
    Kind,
    call_name,
    excerpt,
    kind_of,
    without_calls,
    without_code,
)
from mnemo.extraction.embedded.tools import CONFIDENCE, facts_of_output
from mnemo.extraction.embedded.workers import workers
from mnemo.runtime.clock import Breather
from mnemo.runtime.text import is_blank, one_line
from mnemo.values.steps import Fact, Step, Trajectory

__all__ = ["EmbeddedSemanticExtractor"]

_QUESTION = re.compile(r"(?:^|(?<=[.!?…])\s+|(?<=\n))([^.!?\n]{2,240}\?)")
_ASKED = re.compile(
    r"^\W*(asked (?:for|about|whether|if|when|where|what|how|who|which)\b[^.!?\n]{2,160})", re.I
)
_LONGEST_QUESTION = 160  # characters of a question without a mark
_LATELY = 4  # own turns before this one that say who "we" are


class EmbeddedSemanticExtractor:
    """
    Extract facts by rules; every word is the steps', a name, a date or a template's.

    Args:
        config: ``config.extraction.max_facts`` and the names of the parties are read.
    """

    def __init__(self, config: Config) -> None:
        self._max_facts = config.extraction.max_facts
        self._parties = Parties.of(config)

    async def extract_facts(self, trajectory: Trajectory) -> list[Fact]:
        """
        Give the facts, in the order in which they were said.

        *Cancellation*: safe; the thread at work ends by itself.
        """
        work = partial(_extract, trajectory, self._parties, self._max_facts)
        return await anyio.to_thread.run_sync(work, limiter=workers(), abandon_on_cancel=True)


def _extract(trajectory: Trajectory, parties: Parties, limit: int) -> list[Fact]:
    scene = scene_of((*trajectory.context, *trajectory.steps), parties)
    breather = Breather()
    said: list[Statement] = []
    for at in range(len(trajectory.context), len(scene.steps)):
        said.extend(_of_step(scene, at, breather.breathe))
        breather.breathe()
    kept = _best(_distinct(corrected(said)), limit)
    return _with_concepts(kept, {step.index for step in trajectory.steps}, breather)


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
    text = without_code(excerpt(step.observation))
    if scene.is_output(at, text):
        for fact in facts_of_output(text, scene.call_before(at), breathe):
            yield Statement(fact, CONFIDENCE, (step.index,), "")
        return
    turn = _turn(text, step.actor, scene, at)
    by_person = scene.speaks(at)
    yield from facts_of_turn(turn, breathe) if by_person else facts_of_agent(turn, breathe)


def _turn(text: str, speaker: str, scene: Scene, at: int) -> Turn:
    step = scene.steps[at]
    asked, asker = _asked_before(scene, at) if speaker == step.actor else (None, None)
    lately = [text, *_own_turns(scene.steps, at, speaker)]
    return Turn(
        text=text,
        speaker=speaker,
        voice=scene.voice(speaker, lately, asked),
        at=step.at,
        step=step.index,
        scene=scene,
        asked=asked,
        asker_step=asker,
    )


def _own_turns(history: Sequence[Step], at: int, speaker: str) -> list[str]:
    own = [
        s.observation[:2_000] for s in history[max(0, at - 2 * _LATELY) : at] if s.actor == speaker
    ]
    return own[: -_LATELY - 1 : -1]


def _asked_before(scene: Scene, at: int) -> tuple[str | None, int | None]:
    """The question that step *at* may answer, and the step that asked it."""
    if at == 0:
        return None, None
    before = scene.steps[at - 1]
    if not is_blank(before.action):
        action = excerpt(before.action[-2_000:])
        told = _ASKED.match(action)
        return (one_line(told.group(1)) if told else _question(action)), before.index
    if before.actor == scene.steps[at].actor or scene.role(at - 1) is Role.TOOL:
        return None, None
    return _question(excerpt(before.observation[-2_000:])), before.index


def _question(text: str) -> str | None:
    if "?" not in text:
        last = text[-_LONGEST_QUESTION:].rsplit("\n", 1)[-1]
        asked = next(reversed(sentences(last)), "")
        return one_line(asked) if is_question(tokens_of(asked)) and '"' not in asked else None
    found = _QUESTION.findall(text)
    return one_line(found[-1]) if found and '"' not in found[-1] else None


def _distinct(said: Sequence[Statement]) -> list[Statement]:
    """Each text once, with the steps of all who said it."""
    kept: dict[str, Statement] = {}
    for fact in said:
        key = folded_key(fact.text)
        old = kept.get(key)
        if old is None:
            kept[key] = fact
            continue
        steps = tuple(sorted({*old.steps, *fact.steps}))
        kept[key] = Statement(old.text, max(old.confidence, fact.confidence), steps, old.speaker)
    return list(kept.values())


def _best(said: list[Statement], limit: int) -> list[Statement]:
    if len(said) <= limit:
        return said
    ranked = sorted(range(len(said)), key=lambda i: (-said[i].confidence, i))
    return [said[i] for i in sorted(ranked[:limit])]


def _with_concepts(said: Sequence[Statement], indexes: set[int], breather: Breather) -> list[Fact]:
    matters = [matter_of(fact.text, fact.speaker) for fact in said]
    frequencies = Frequencies(matters)
    facts = []
    for fact, matter in zip(said, matters, strict=True):
        facts.append(
            Fact(
                proposition=fact.text,
                concepts=concepts_of(matter, frequencies),
                confidence=fact.confidence,
                steps=tuple(i for i in fact.steps if i in indexes),
            )
        )
        breather.breathe()
    return facts
