"""Annotate steps without a model: state, subgoal and reward."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from mnemo.config import Config
from mnemo.english.clauses import bare, split_clauses, wanted_in
from mnemo.english.sentences import sentences, with_apostrophes
from mnemo.english.words import content_count, key_phrases, topical, topics
from mnemo.extraction.scene import (
    Kind,
    OutcomeVerdict,
    Parties,
    Role,
    call_name,
    calls_behind,
    calls_in,
    error_line,
    excerpt,
    is_output,
    kind_of,
    may_have_signs,
    success_line,
    verdict,
    without_code,
    workers,
)
from mnemo.protocols import Annotated, AnnotationRequest, Embedder
from mnemo.runtime.clock import Breather
from mnemo.runtime.text import fold, is_blank, one_line, terms
from mnemo.values.graph import Vector
from mnemo.values.steps import Step

WINDOW = 3
"""Steps before a step that it may continue; the specification's."""
PAUSE = timedelta(minutes=30)
"""A silence of this length begins a new subgoal."""
FEW_WORDS = 4
"""A reply of fewer content words continues whatever was going on."""
CLOSE = 0.40
"""Cosine to the mean of the window from which a step without shared words continues it (S)."""
SHARED, FREE = 0.25, 6
"""Of the topical stems beyond the first six, a quarter must be shared: long texts share
by chance, while a short turn continues with a single one (S)."""
ANSWER_WORDS = 16
"""A turn of at most so many content words after an agent's question is its answer (S)."""
_COMPARED, _COMPARED_ACTION = 600, 200  # characters that topics are taken from: an answer follows
_ASKED = 1_500  # characters, from the end, in which the last question is looked for
_STATE, _SUBGOAL = 600, 200  # characters, at most

_SWITCH = re.compile(
    r"^\W{0,3}(?:(?:ok|okay|well|oh|so|and|now|alright|anyway|great|thanks|right)[,.!]?\s+){0,2}"
    r"(?:by the way|btw|next task|next (?:up|topic|question|item)|new (?:task|topic|question)"
    r"|on (?:another|a different) (?:note|topic)|changing (?:the )?(?:subject|topic)"
    r"|different (?:topic|question|subject)|moving on|let['’]s (?:move on|switch))\b",
    re.IGNORECASE,
)
_QUESTION_MARK = re.compile(r"\?+(?=[\s\"'”’)*\]]|$)")
_SENTENCE_MARKS = ".!?\n"
_SHORTEST_QUESTION, _LONGEST_QUESTION = 2, 300  # characters before its mark


@dataclass(frozen=True, slots=True)
class _Seen:
    """
    What is looked at of one step, excerpts with secrets hidden.

    Attributes:
        topics: Topical stems of both sides.
        words: Content words of the observation, or of the action where that is empty.
        question: The last one of the action, or else of the observation.
        tool: Whether the observation is tool output.
        call: How the action is named if it is a call; *calls*: of all in it.
        breaks: Whether a pause or a change of subject comes before it.
    """

    step: Step
    observation: str
    action: str
    topics: frozenset[str]
    words: int
    question: str | None
    role: Role
    tool: bool
    call: str | None
    calls: tuple[str, ...]
    breaks: bool

    @property
    def text(self) -> str:
        return f"{self.observation[:_COMPARED]}\n{self.action[:_COMPARED_ACTION]}".strip()


class EmbeddedAnnotator:
    """
    Annotate by word lists and, where those do not decide, by an embedder.

    What it says of a step depends on that step, the three before it and the last
    subgoal, never on how steps were batched: give at least three in ``before``.
    """

    def __init__(self, config: Config, *, embedder: Embedder | None = None) -> None:
        self._parties = Parties.of(config)
        self._embedder = embedder

    @property
    def batch_size(self) -> int:
        """No model is asked; bounded, because a batch's results are put in place on the loop."""
        return 64

    async def annotate(
        self, request: AnnotationRequest
    ) -> tuple[Sequence[Annotated], float | None]:
        """
        Annotate ``request.fresh``; nothing is kept between calls.

        The last reward is always ``None``: the last step's own observation is no
        evidence for its action. *Raises* ``ModelError`` of the embedder. *Cancellation*: safe.
        """
        if not request.fresh:
            return (), None
        run = workers().run
        window, lexical = await run(_look, request, self._parties)
        first = len(window) - len(lexical)
        undecided = [first + i for i, answer in enumerate(lexical) if answer is None]
        vectors = await self._vectors(window, undecided)
        return await run(_annotate_all, request, window, lexical, vectors), None

    async def _vectors(self, window: list[_Seen], open_at: list[int]) -> dict[int, Vector]:
        """Of the steps *open_at* and of those before that each may continue, by their places."""
        if self._embedder is None or not open_at:
            return {}
        needed = sorted({back for at in open_at for back in range(max(0, at - WINDOW), at + 1)})
        rows = await self._embedder.embed([window[i].text or "-" for i in needed])
        return dict(zip(needed, rows, strict=True))


def _look(request: AnnotationRequest, parties: Parties) -> tuple[list[_Seen], list[bool | None]]:
    """The steps that are looked at, and of each fresh one what words say of continuing."""
    breather = Breather()
    window: list[_Seen] = []
    for step in (*request.before[-WINDOW:], *request.fresh):
        window.append(_see(step, window[-WINDOW:], parties))
        breather.breathe()
    lexical = []
    for at in range(len(window) - len(request.fresh), len(window)):
        lexical.append(_continues(window, at, parties.agent))
        breather.breathe()
    return window, lexical


def _see(step: Step, before: Sequence[_Seen], parties: Parties) -> _Seen:
    observation, action = excerpt(step.observation), excerpt(step.action)
    call, role = call_name(action), _role(step, before, parties)
    observed = list(terms(observation[:_COMPARED]))
    return _Seen(
        step=step,
        observation=observation,
        action=action,
        topics=topical((*observed, *terms(action[:_COMPARED_ACTION]))),
        words=len(observed) if observation else content_count(action[:_COMPARED]),
        question=_last_question(action) or _last_question(observation),
        role=role,
        tool=is_output(observation, role, after_call=bool(before) and bool(before[-1].calls)),
        call=call,
        calls=(call,) if call is not None else calls_behind(action),
        breaks=bool(before) and _breaks(before[-1].step, step, observation, action),
    )


def _role(step: Step, before: Sequence[_Seen], parties: Parties) -> Role:
    called = frozenset([fold(name) for seen in before for name in seen.calls])
    role = parties.role(step, called)
    marked = any(seen.role is Role.TOOL for seen in before)
    return Role.PERSON if marked and role is Role.UNMARKED else role


def _last_question(text: str) -> str | None:
    if "?" not in text:
        return None
    text = text[-_ASKED:]
    # From the end and from its mark backwards: forwards, every character may begin one.
    for mark in reversed(list(_QUESTION_MARK.finditer(text))):
        begin = 1 + max(text.rfind(end, 0, mark.start()) for end in _SENTENCE_MARKS)
        if mark.start() - begin >= _SHORTEST_QUESTION:
            return one_line(text[max(begin, mark.start() - _LONGEST_QUESTION) : mark.end()])
    return None


def _breaks(before: Step, now: Step, observation: str, action: str) -> bool:
    if abs(now.at - before.at) >= PAUSE:
        return True
    return bool(_SWITCH.match(observation) or _SWITCH.match(action))


def _names(seen: Iterable[_Seen], agent: str) -> frozenset[str]:
    """The stems of the parties' names: they only address, so sharing one says nothing."""
    return frozenset(terms(" ".join((agent, *(one.step.actor for one in seen)))))


def _continues(window: list[_Seen], at: int, agent: str) -> bool | None:
    """Whether a step continues the subgoal, by its words; ``None``: they do not decide."""
    if at == 0 or window[at].breaks:
        return False
    now, recent = window[at], _recent(window, at)
    if now.words < FEW_WORDS:
        return True
    if _answers(recent[-1], now) or (recent[-1].calls and now.tool):
        return True
    names = _names((*recent, now), agent)
    known = frozenset().union(*(seen.topics for seen in recent)) - names
    mine = now.topics - names
    if not known or len(mine) < 2:
        return True
    shared = len(mine & known)
    least = SHARED * max(0, min(len(mine), len(known)) - FREE)
    return True if shared > least else None


def _recent(window: list[_Seen], at: int) -> list[_Seen]:
    """The steps before, back to the last break: what came before that is another matter."""
    first = at - 1
    while first > max(0, at - WINDOW) and not window[first].breaks:
        first -= 1
    return window[first:at]


def _answers(before: _Seen, now: _Seen) -> bool:
    """Whether *now* is a reply to a question; agents end long turns with one by habit."""
    if before.question is None:
        return False
    if not is_blank(before.action):
        return now.words <= ANSWER_WORDS
    return before.step.actor != now.step.actor or is_blank(now.observation)


def _is_near(vectors: Mapping[int, Vector], recent: Sequence[int], at: int) -> bool:
    """Whether step *at* is close to the mean of the steps *recent*."""
    mean = np.add.reduce([vectors[i] for i in recent]) / len(recent)
    norm = float(np.sqrt(mean @ mean))
    return norm > 0 and float(vectors[at] @ mean) / norm >= CLOSE


def _annotate_all(
    request: AnnotationRequest,
    window: list[_Seen],
    lexical: list[bool | None],
    vectors: Mapping[int, Vector],
) -> list[Annotated]:
    breather = Breather()
    goal = shortened(one_line(excerpt(request.goal)), _SUBGOAL)
    subgoal = next((s.subgoal for s in reversed(request.before) if s.subgoal), None)
    found = []
    first = len(window) - len(request.fresh)
    for at in range(first, len(window)):
        now = window[at]
        continues = lexical[at - first]
        if continues is None and vectors:
            continues = _is_near(vectors, range(at - len(_recent(window, at)), at), at)
        if subgoal is None or not continues:
            subgoal = new_subgoal(
                now.observation, now.action, now.step.actor, goal, is_output=now.tool
            )
        found.append(
            Annotated(
                index=now.step.index,
                state=_state(goal, window, at),
                subgoal=subgoal,
                previous_reward=_reward(window, at),
                breaks=now.breaks,
            )
        )
        breather.breathe()
    return found


def _reward(window: list[_Seen], at: int) -> float | None:
    """What this observation says of the action before it; chat without actions says nothing."""
    if at == 0:
        return None
    now, before = window[at], window[at - 1]
    if is_blank(now.observation) or (is_blank(before.action) and not now.tool):
        return None
    if now.tool:
        return verdict(now.observation).reward
    return verdict_of_reply(now.observation, before.action).reward


def _state(goal: str, window: list[_Seen], at: int) -> str:
    now = window[at]
    parts = [f"Goal: {goal}"]
    if at and window[at - 1].action:
        before = window[at - 1]
        parts.append(f"Last action: {shortened(before.call or one_line(before.action[:400]), 120)}")
    if now.observation:
        parts.append(f"Observed: {shortened(_key_line(now), 160)}")
    question = next((s.question for s in reversed(_recent(window, at)) if s.question), None)
    if question:
        parts.append(f"Open question: {shortened(question, 100)}")
    return shortened("; ".join(parts), _STATE)


def _key_line(seen: _Seen) -> str:
    if seen.tool:
        line = error_line(seen.observation) or success_line(seen.observation)
        if line:
            return one_line(line)
    return one_line(seen.observation[:400])


# ── Subgoals ────────────────────────────────────────────────────────────────────────────


_READ, _FIRST = 2_000, 4  # characters and sentences in which a request is looked for
_SHORT_ACTION = 24  # words; a longer one is an answer, not the name of what is done
_CLAUSE_END = re.compile(r"[.!?;\n]|,\s(?:and|but|so|which|because)\b|\s[-–—]\s")
# A wish for all time is not what is wanted now.
_STANDING = re.compile(r"\W*(?:and |but |please )?(?:always|never|from now on|don['’]t)\b", re.I)
_ARGUMENTS = re.compile(r"\(\s*(.*?)\s*\)\s*;?\s*$", re.DOTALL)
_QUOTED = re.compile(r"[\"']([^\"'\n]{1,60})[\"']")
_SMALL_TALK = re.compile(
    r"^\W*(?:(?:thanks|thank you|sure|ok|okay|certainly|of course|great|hi|hello|hey|absolutely|yes"
    r"|no problem|you['’]re welcome)\b[^.!?]{0,30}[.!?,]\s*)+",
    re.IGNORECASE,
)


def shortened(text: str, limit: int) -> str:
    """*text*, cut at a word to at most *limit* characters, with a mark where it was cut."""
    if len(text) <= limit:
        return text
    cut = text[: limit - 1]
    head, blank, _ = cut.rpartition(" ")
    return (head if blank and len(head) > limit // 2 else cut).rstrip(" ,;:") + "…"


def new_subgoal(
    observation: str, action: str, actor: str, goal: str, *, is_output: bool = False
) -> str:
    """
    Why the action was taken, in its own words, at most 200 characters.

    What was asked for (*is_output*: nothing), else the call's name and first argument, else the
    action's first clause if it is short, else the key phrases of what was said, else the goal.
    """
    observation, action = without_code(observation), without_code(action)
    subgoal = (
        ("" if is_output else _of_request(observation))
        or _of_call(action)
        or _of_clause(action)
        or _of_phrases(observation, action, actor)
    )
    return shortened(subgoal or goal or "go on", _SUBGOAL)


def _of_request(observation: str) -> str:
    for sentence in sentences(observation[:_READ])[:_FIRST]:
        for clause in split_clauses(sentence):
            wanted = None if _STANDING.match(clause) else wanted_in(bare(clause))
            if wanted and 1 < content_count(wanted) <= _SHORT_ACTION:
                return one_line(wanted).rstrip(".!? ")
    return ""


def _of_call(action: str) -> str:
    name = call_name(action)
    if name is None:
        return ""
    if " " in name or "(" not in action:
        return name
    arguments = _ARGUMENTS.search(action[:2_000])
    quoted = _QUOTED.search(arguments.group(1)) if arguments else None
    words = name.replace("_", " ").replace(".", " ")
    return f"{words} {quoted.group(1)}" if quoted else words


def _of_clause(action: str) -> str:
    if is_blank(action) or kind_of(action) is Kind.TOOL:
        return ""
    bare = _SMALL_TALK.sub("", action)
    clause = one_line(_CLAUSE_END.split(bare, maxsplit=1)[0])
    if len(action.split(None, _SHORT_ACTION + 1)) > _SHORT_ACTION or content_count(clause) < 2:
        return ""
    return clause.rstrip(" ,:")


def _of_phrases(observation: str, action: str, actor: str) -> str:
    mine = fold(actor)
    found = [p for p in key_phrases([observation[:_READ]], 6) if fold(p) != mine]
    if len(found) < 2:
        found += [p for p in key_phrases([action[:_READ]], 4) if fold(p) != mine]
    return ", ".join(dict.fromkeys(found[:4]))


# ── What a reply says of an action ──────────────────────────────────────────────────────


_SOFTWARE = (
    r"\w*error|\w*exception|traceback|exit(?:ed)?(?: with)?[ _](?:code|status)|exitcode"
    r"|returncode|http/\d|npm err|no such file|timeout|timed out|command not found|build|suite"
    r"|pipeline|ci|deploy(?:ment)?|migration|script|server|login|merge|commit|install(?:ation)?"
    r"|import|export|upload|download|command|container|database|query|api|endpoint"
)
_STRICT = re.compile(rf"\b(?:{_SOFTWARE}|(?:unit |my |our )tests)s?\b", re.IGNORECASE)
_TECHNICAL = re.compile(
    rf"\b(?:{_SOFTWARE}|tests?|checks?|app|site|page|code|branch|job|service|function|file|status"
    r"|\d+ passed|\d+ failed)s?\b",
    re.IGNORECASE,
)
_OWN = re.compile(r"^(?:i|i['’]\w+|we|we['’]\w+|my|our)\b", re.IGNORECASE)
# Of people and what is theirs, not of what the agent did.
_PERSONAL = re.compile(
    r"^(?:(?:yesterday|today|last \w+|this morning|then|so|and|but|unfortunately|sadly),? )*"
    r"(?:i|i['’]\w+|we|we['’]\w+|he|she|they|my|our|his|her|their|one of"
    r"|(?!it|that|what|there|here|everything|nothing)(?-i:[A-Z])[a-z]+['’]s)\b",
    re.IGNORECASE,
)
_POINTS_BACK = re.compile(
    r"^(?:(?:and|but|so|no|yes|ok|okay|sorry|now|great|well|hmm|it looks like|looks like)[, ]+)*"
    r"(?:it|it['’]s|that|that['’]s|this|these|those|you|you['’]ve|everything|nothing|all|still|now"
    r"|not|already|works?|worked|working|fixed|done|solved|resolved|perfect|wrong|broken|failed"
    r"|success|completed?|passed|does(?:n['’]t| not)|did(?:n['’]t| not)|same)\b",
    re.IGNORECASE,
)


# Behind a question "it" is what was asked about: "How did it go?", "It went wrong".
_WORKS = re.compile(r"\b(?:work(?:s|ed|ing)?|fixed|solved|resolved)\b", re.IGNORECASE)


def verdict_of_reply(reply: str, action: str) -> OutcomeVerdict:
    """The signs in *reply*, a person's words, that speak of *action*; thanks always do."""
    if not may_have_signs(reply):
        return OutcomeVerdict()
    reply = with_apostrophes(reply)
    whole = verdict(reply)
    if not (whole.good or whole.bad):
        return whole
    told = _signs(reply, action)
    good = [found for found in told if found.good]
    return OutcomeVerdict(
        good=bool(good),
        bad=any(found.bad for found in told),
        polite=bool(good) and all(found.polite for found in good),
    )


def _signs(reply: str, action: str) -> list[OutcomeVerdict]:
    any_counts = is_blank(action) or bool(calls_in(action))
    asks = action.rstrip().endswith("?")
    about = topics(action)
    clauses = [bare(c) or c for sentence in sentences(reply) for c in split_clauses(sentence)]
    found = [(clause, verdict(clause)) for clause in clauses]
    return [
        sign
        for clause, sign in found
        if sign.polite
        or (any_counts and not _PERSONAL.match(clause))
        or _speaks_of(clause, about, asked=asks)
    ]


def _speaks_of(clause: str, about: frozenset[str], *, asked: bool) -> bool:
    if _PERSONAL.match(clause):
        return _OWN.match(clause) is not None and _STRICT.search(clause) is not None
    if _TECHNICAL.search(clause):
        return True
    if _POINTS_BACK.match(clause) and not (asked and _WORKS.search(clause) is None):
        return True
    return not about.isdisjoint(topics(clause))
