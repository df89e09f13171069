"""
Extract instructions without a model: fixes, successful runs, standing wishes, repeated failures.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from mnemo.config import Config
from mnemo.english.clauses import bare, is_imperative
from mnemo.english.sentences import sentences
from mnemo.english.words import BASE_VERBS, content_count, generalised
from mnemo.extraction.annotator import shortened, verdict_of_reply
from mnemo.extraction.scene import (
    OutcomeVerdict,
    Parties,
    Scene,
    call_name,
    calls_in,
    error_line,
    excerpt,
    masked,
    scene_of,
    success_line,
    verdict,
    workers,
)
from mnemo.extraction.speech import finished
from mnemo.runtime.clock import Breather
from mnemo.runtime.text import fold, is_blank, one_line
from mnemo.values.steps import Instruction, Step, Trajectory, mean_reward

_MOST_ACTIONS = 6  # of one instruction, the last ones
_LONGEST_ACTION = 240  # characters
_WISH = re.compile(
    r"^(?:(?:please|also|and|but|oh|ok|okay|so|hey|one more thing|remember)[,:]?\s+){0,2}"
    r"(?:never|always|please (?:don['’]?t|do not|never|always)"
    r"|(?:don['’]?t|do not)(?: ever)?|from now on|going forward|in (?:the )?future|henceforth"
    r"|(?:make sure|remember) (?:to|you) (?:always|never)"
    r"|(?:whenever|every time|each time) you"
    r"|i(?: would|['’]d)? (?:want|like|need) you to (?:always|never)"
    r"|i (?:don['’]?t|do not|never) want you to"
    r"|you (?:(?:should|must) (?:always|never|not)|(?:should|must)n['’]?t))"
    r"\b[,:]?\s+(?P<rest>\S.*)",
    re.IGNORECASE,
)
# "Answer in French from now on": an order, and that it lasts.
_LASTING = re.compile(
    r"\b(?:from now on|going forward|in (?:the )?future|at all times|every time|each time)\W*$",
    re.IGNORECASE,
)
_NO_WISH = re.compile(
    r"^(?:i |my |we |thought |wanted |know |liked |loved |been |had |have |was |were |really |worry"
    r"|give up|forget|say never"
    r"|mind|hesitate|be |get me wrong|tell me|ask|know)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Act:
    """A step as instructions see it: what was observed, and what was done about it."""

    step: Step
    observation: str
    action: str
    seen: OutcomeVerdict
    spoken: bool

    @property
    def failed(self) -> bool:
        return self.seen.bad

    @property
    def succeeded(self) -> bool:
        return self.seen.good and not self.seen.bad


class EmbeddedProceduralExtractor:
    """Finds instructions by cues; no cue, no instruction."""

    def __init__(self, config: Config) -> None:
        self._limit = config.extraction.max_instructions
        self._parties = Parties.of(config)

    async def extract_instructions(self, trajectory: Trajectory) -> list[Instruction]:
        """Give the instructions with their returns. *Cancellation*: safe; the thread goes on."""
        work = partial(_extract, trajectory, self._parties)
        found = await workers().run(work, abandon=True)
        return found[: self._limit]


def _extract(trajectory: Trajectory, parties: Parties) -> list[Instruction]:
    breather = Breather()
    scene = scene_of((*trajectory.context, *trajectory.steps), parties)
    acts = []
    for at in range(len(trajectory.context), len(scene.steps)):
        acts.append(_act(scene, at))
        breather.breathe()
    intent = _intent(excerpt(trajectory.subgoal), excerpt(trajectory.goal))
    found = [
        *_fixed(acts, intent),
        *_avoided(acts, intent),
        *_wishes(acts, scene, intent, breather),
    ]
    if not any(act.failed for act in acts):
        found.extend(_done(acts, intent, one_line(excerpt(trajectory.subgoal))))
    return _distinct(found)


def _intent(subgoal: str, goal: str) -> str:
    """The subgoal without names and numbers; the goal's, where the subgoal is a bare command."""
    for text in (subgoal, goal):
        if call_name(text) is None and content_count(bare := generalised(text)) > 1:
            return bare
    return generalised(goal)


def _act(scene: Scene, at: int) -> _Act:
    step = scene.steps[at]
    observation = excerpt(step.observation)
    output = scene.is_output(at, observation)
    before = excerpt(scene.steps[at - 1].action) if at else ""
    seen = verdict(observation) if output else verdict_of_reply(observation, before)
    action = one_line(excerpt(step.action))
    return _Act(step, observation, action, seen, not output and scene.speaks(at))


def _fixed(acts: Sequence[_Act], intent: str) -> Iterator[Instruction]:
    """An error, then success: the actions since the last failure are what helped."""
    first: int | None = None
    last = 0
    for at, act in enumerate(acts):
        if act.failed:
            first = at if first is None else first
            last = at
        elif act.succeeded and first is not None:
            fix = [a for a in acts[last:at] if not is_blank(a.action)]
            if fix:
                yield _instruction(
                    intent=intent,
                    condition=f"When {_errors(acts[first : last + 1])}",
                    acts=fix,
                    outcome=_success(act),
                )
            first = None


def _errors(failures: Sequence[_Act]) -> str:
    named: dict[str, None] = {}
    for act in failures:
        line = error_line(act.observation) if act.failed else None
        if line:
            named.setdefault(masked(one_line(line)).rstrip("."), None)
    lines = list(named)
    return lines[0] if len(lines) < 2 else f"{lines[0]}, then {lines[-1]}"


def _done(acts: Sequence[_Act], intent: str, subgoal: str) -> Iterator[Instruction]:
    """A run of actions that ended in success, with nothing failing on the way."""
    run: list[_Act] = []
    for at, act in enumerate(acts):
        after_call = at > 0 and bool(calls_in(acts[at - 1].step.action))
        tangible = act.succeeded and (after_call or not act.seen.polite)
        if tangible and run:
            yield _instruction(
                intent=intent, condition=_when(subgoal), acts=run, outcome=_success(act)
            )
            run = []
        if _is_deed(act.action):
            run.append(act)


def _when(subgoal: str) -> str:
    """*subgoal* behind "When"; a verb that opens it loses its capital, a name does not."""
    verb = subgoal.split(" ", 1)[0].lower() in BASE_VERBS
    return f"When {subgoal[:1].lower() if verb else subgoal[:1]}{subgoal[1:]}"


def _is_deed(action: str) -> bool:
    """Whether *action* can be repeated: a call, or a short statement; no question or essay."""
    if is_blank(action) or action.endswith("?"):
        return False
    return call_name(action) is not None or (
        len(action) <= _LONGEST_ACTION and content_count(action) > 1
    )


def _avoided(acts: Sequence[_Act], intent: str) -> Iterator[Instruction]:
    """An action that failed twice and never succeeded."""
    tries: dict[str, list[tuple[_Act, _Act]]] = {}
    for act, following in pairwise(acts):
        if not is_blank(act.action) and (following.seen.good or following.seen.bad):
            tries.setdefault(masked(fold(act.action)), []).append((act, following))
    for outcomes in tries.values():
        if len(outcomes) < 2 or not all(after.failed for _, after in outcomes):
            continue
        act, after = outcomes[-1]
        error = masked(one_line(error_line(after.observation) or "")).rstrip(".")
        yield Instruction(
            intent=intent,
            condition=f"When {error}",
            instruction=f"Do not repeat: {_told(act.action)}",
            expected_outcome=finished(f"It fails again with {error}"),
            return_score=0.0,
            steps=tuple(a.step.index for a, _ in outcomes),
        )


def _wishes(
    acts: Sequence[_Act], scene: Scene, intent: str, breather: Breather
) -> Iterator[Instruction]:
    """What the one who is assisted wants always or never; two people talking assist nobody."""
    if scene.is_talk:
        return
    for act in acts:
        actor = act.step.actor
        for sentence in sentences(act.observation) if act.spoken else ():
            breather.breathe()
            if not _is_wish(sentence):
                continue
            yield Instruction(
                intent=intent,
                condition=f"When assisting {actor}",
                instruction=finished(sentence),
                expected_outcome=f"no reminder from {actor}",
                return_score=act.step.reward,
                steps=(act.step.index,),
            )


def _is_wish(sentence: str) -> bool:
    if sentence.endswith("?"):
        return False
    if match := _WISH.match(sentence):
        return _NO_WISH.match(match["rest"]) is None
    return _LASTING.search(sentence) is not None and is_imperative(bare(sentence))


def _instruction(*, intent: str, condition: str, acts: Sequence[_Act], outcome: str) -> Instruction:
    last = acts[-_MOST_ACTIONS:]
    return Instruction(
        intent=intent,
        condition=condition,
        instruction="; then ".join(dict.fromkeys(_told(act.action) for act in last)),
        expected_outcome=finished(outcome),
        return_score=mean_reward(act.step.reward for act in last),
        steps=tuple(act.step.index for act in last),
    )


def _told(action: str) -> str:
    """*action* as something to do: a call is run, a statement stands for itself."""
    if call_name(action) is None:
        return shortened(action, _LONGEST_ACTION).rstrip(".")
    return f"run `{shortened(action, _LONGEST_ACTION)}`"


def _success(act: _Act) -> str:
    return one_line(success_line(act.observation) or shortened(one_line(act.observation), 200))


def _distinct(found: Sequence[Instruction]) -> list[Instruction]:
    kept: dict[tuple[str, str], Instruction] = {}
    for one in found:
        kept.setdefault((fold(one.condition), fold(one.instruction)), one)
    return list(kept.values())
