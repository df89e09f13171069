"""Extract facts and their concepts without a model, in the order in which they were said."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from mnemo.config import Config
from mnemo.english.sentences import sentences
from mnemo.english.topics import core, phrase_key, phrases
from mnemo.english.verbs import is_question, tokens_of
from mnemo.english.words import LIGHT, MONTHS, WEEKDAYS, word_set
from mnemo.extraction.embedded.scene import Parties, Role, Scene, scene_of, workers
from mnemo.extraction.embedded.speech import facts_of_agent, facts_of_turn
from mnemo.extraction.embedded.statements import SpeechTurn, Statement, folded_key
from mnemo.extraction.embedded.text_kinds import (
    Kind,
    call_name,
    excerpt,
    kind_of,
    without_calls,
    without_code,
)
from mnemo.extraction.embedded.tool_output import CONFIDENCE, facts_of_output
from mnemo.runtime.clock import Breather
from mnemo.runtime.text import STOP_WORDS, fold, is_blank, one_line
from mnemo.values.steps import Fact, Trajectory

__all__ = ["EmbeddedSemanticExtractor", "Frequencies", "Matter", "concepts_of", "matter_of"]

_QUESTION = re.compile(r"(?:^|(?<=[.!?…])\s+|(?<=\n))([^.!?\n]{2,240}\?)")
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
    kept = _distinct(said)
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


# ── Concepts: speaker, names, numbers and identifiers first, then key phrases ────────────

MOST = 6
_LONGEST = 48  # characters of one concept
_NAME = re.compile(
    r"(?<!^)(?<![.!?\"“(] )\b[A-Z][\w'’&-]+(?:\s(?:of\s|the\s|de\s"
    r"|and\s(?=[A-Z]))?[A-Z][\w'’&-]+){0,3}"
)
_IDENTIFIER = re.compile(
    r"`([^`\n]{2,48})`|(?<![\w/.-])([A-Za-z_][\w-]*(?:[./_:-][\w-]+)+(?:\(\))?)(?![\w])"
)
_NUMBER = re.compile(
    r"(?<![\w.\[-])((?:[$€£]\s?\d[\d,.]*\d|\d[\d,.]*)\s?(?:%|°\w?|[A-Za-z]{2,12}\b)?)(?![\w\]-])"
)
_TITLE = re.compile(r"\"([^\"\n]{2,48})\"|“([^”\n]{2,48})”")
_DATED = re.compile(r"\[[^\]]*\]")
_NO_NAMES = word_set(
    "i asked output a the she he they it the tool mon tue tues wed thu thur thurs fri sat sun"
).union(MONTHS, WEEKDAYS)


@dataclass(frozen=True, slots=True)
class Matter:
    """
    What concepts are taken from.

    Attributes:
        speaker: Who said it, if the text names it.
        text: The fact without its speaker and its added dates.
        phrases: Its noun-like phrases, in order.
    """

    speaker: str | None
    text: str
    phrases: tuple[str, ...]


def matter_of(text: str, speaker: str | None) -> Matter:
    """Take apart a fact's *text*."""
    bare = _DATED.sub(" | ", text)
    named = speaker is not None and speaker != "" and speaker in bare
    if text.startswith("Asked "):
        bare = bare.replace('"', " | ")
    if speaker and named:
        bare = _without_name(bare, speaker)
    found = dict.fromkeys(p for phrase in phrases(bare) if (p := core(phrase)))
    return Matter(speaker if named else None, bare, tuple(found))


def _without_name(text: str, name: str) -> str:
    return text.replace(f"{name}'s ", "| ").replace(f"{name} ", "| ")


class Frequencies:
    """How often each phrase occurs in a trajectory's facts: the more, the better a concept."""

    def __init__(self, matters: Iterable[Matter]) -> None:
        self._counts: Counter[str] = Counter()
        for matter in matters:
            self._counts.update(map(phrase_key, matter.phrases))

    def of(self, phrase: str) -> int:
        """In how many facts *phrase* occurs."""
        return self._counts[phrase_key(phrase)]


def concepts_of(matter: Matter, frequencies: Frequencies) -> tuple[str, ...]:
    """At most six short terms, the speaker first, no two of them alike."""
    found: dict[str, str] = {}
    if matter.speaker:
        found[fold(matter.speaker)] = matter.speaker
    for term in (*_exact(matter.text), *_by_frequency(matter.phrases, frequencies)):
        _add(found, term)
    return tuple(found.values())[:MOST]


def _exact(text: str) -> Iterable[str]:
    for pattern in (_TITLE, _IDENTIFIER, _NAME, _NUMBER):
        for match in pattern.finditer(text):
            yield _without_stop_word(next((g for g in match.groups() if g), match.group()))


def _without_stop_word(term: str) -> str:
    """*term* without a stop word that the pattern of a unit took along ("12 of")."""
    head, blank, last = term.rpartition(" ")
    return head if blank and fold(last) in STOP_WORDS else term


def _by_frequency(found: Sequence[str], frequencies: Frequencies) -> list[str]:
    # Sorting is stable, so among equals the earlier phrase stays the first.
    return sorted(found, key=lambda p: (-frequencies.of(p), -min(2, p.count(" ") + 1)))


def _add(found: dict[str, str], term: str) -> None:
    term = term.strip(" .,;:!?'’\"").removesuffix("'s").removesuffix("’s")
    key = fold(term)
    if not (1 < len(term) <= _LONGEST) or key in LIGHT or key in STOP_WORDS or key in _NO_NAMES:
        return
    if any(key == known or f" {key} " in f" {known} " for known in found):
        return
    found[key] = term
