"""One recall: its checked arguments, its plan, and its progress, with the chat model it may ask."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar, get_args

import anyio

from mnemo.errors import ModelError, ModelTimeout, ModelUnavailable
from mnemo.prompts.calling import Asker
from mnemo.prompts.plan import MODES, Mode, mode_question, plan_question
from mnemo.prompts.profiles import Profile
from mnemo.prompts.question import AskedQuestion, Question
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatModel, Purpose
from mnemo.recall.result import RecallTrace
from mnemo.runtime.clock import elapsed
from mnemo.runtime.spans import NO_SPANS, Spans
from mnemo.runtime.text import clean, fold, is_blank, one_line
from mnemo.runtime.validation import (
    every,
    finite_number,
    flag,
    known_id,
    one_of,
    quoted,
    whole_number,
)
from mnemo.values.filters import Filters
from mnemo.values.graph import NodeType
from mnemo.values.steps import Step

log: logging.Logger = logging.getLogger("mnemo")

T = TypeVar("T")
D = TypeVar("D")

MAX_QUERY_CHARACTERS = 8_192
"""Characters of a query that are read; a longer one is a document, not a question."""
MAX_CONTEXT_CHARACTERS = 2_048
"""Characters of the goal and of each step that augment a query."""

_TYPES: tuple[NodeType, ...] = get_args(NodeType)
_FILTERS = ("where", "session_id", "thread_id", "actor", "since", "until")


@dataclass(frozen=True, slots=True)
class RecallContext:
    """The goal and the last steps, at most three, of the episode that a query is asked from."""

    goal: str
    steps: tuple[Step, ...] = ()

    @property
    def text(self) -> str:
        said = (self.goal, *(step.text for step in self.steps))
        return "\n".join(part[:MAX_CONTEXT_CHARACTERS] for part in said)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallRequest:
    """The arguments of ``Repository.recall``; *types* has no ``"item"``."""

    query: str
    filters: Filters = field(default_factory=Filters)
    k: int = 10
    mode: Mode | None = None
    max_hops: int = 2
    reason: bool | None = None
    use_model: bool | None = None
    types: tuple[NodeType, ...] | None = None
    items: bool = False
    context: RecallContext | None = None
    explain: bool = False
    notes: bool = False
    min_score: float = 0.0
    min_confidence: float = 0.0
    expect: str | None = None

    def __post_init__(self) -> None:
        whole_number("k", self.k, 1)
        whole_number("max_hops", self.max_hops, 0)
        if self.mode is not None:
            one_of("mode", self.mode, MODES)
        for name in ("reason", "use_model", "explain", "notes"):
            if (chosen := getattr(self, name)) is not None:
                flag(name, chosen)
        if self.expect is not None:
            known_id("expect", self.expect)
        for name in ("min_score", "min_confidence"):
            if not 0 <= finite_number(name, value := getattr(self, name)) <= 1:
                raise ValueError(f"{name} must be from 0 to 1, not {value}")

    @classmethod
    def checked(
        cls, query: str, *, types: Sequence[str] | None = None, **given: Any
    ) -> RecallRequest:
        """Check attributes and filters; ``ValueError``: blank query or out of range."""
        wanted = None if types is None else checked_types(types, _TYPES)
        filters = {name: given.pop(name) for name in _FILTERS if name in given}
        return cls(
            query=clean(checked_query(query)),
            filters=Filters.checked(**filters),
            types=wanted and tuple(type for type in wanted if type != "item"),
            items="item" in (wanted or ()),
            **given,
        )


def checked_query(query: str | None) -> str:
    """What is read of *query*. *Raises* ``ValueError``: it is no text, or blank."""
    if query is not None and not isinstance(query, str):
        raise ValueError(f"query must be text, not {type(query).__name__}")
    if query is None or is_blank(query):
        raise ValueError("Query cannot be blank")
    return query[:MAX_QUERY_CHARACTERS]


def checked_types(types: Sequence[str], known: Sequence[T]) -> tuple[T, ...]:
    """The *known* that are among *types*. *Raises* ``ValueError``: others are, or none."""
    given = every("types", types)
    if not given or not all(isinstance(type, str) and type in known for type in given):
        raise ValueError(f"types must be some of {', '.join(map(str, known))}, not {quoted(types)}")
    return tuple(type for type in known if type in given)


# ── While it runs ────────────────────────────────────────────────────────────────────


@dataclass(slots=True, eq=False)
class RecallRun:
    """
    One recall in progress, and what its trace will report.

    Attributes:
        dense_weight: What a cosine counts in the embedding space.
        timeout_s: Seconds per question to it, a correction and its own retries included.
        away: Why it is asked no more: one that hangs or is not reached costs one wait a recall.
        removal: The last one in the store that it knows of, as of ``FeedCursor``.
    """

    request: RecallRequest
    now: datetime
    dense_weight: float = 1.0
    profile: Profile | None = None
    plans: bool = False
    timeout_s: float = 0.0
    away: ModelError | None = None
    removal: int = 0
    failures: dict[Purpose, ModelError] = field(default_factory=dict)
    meter: UsageMeter = field(default_factory=UsageMeter, init=False)
    trace: RecallTrace = field(init=False)
    _asker: Asker | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        given, query = self.request.mode, self.request.query
        chosen_by = "caller" if given else "embedded"
        self.trace = RecallTrace(given or choose_mode(query), chosen_by)

    def advised_by(
        self, model: ChatModel, usage: UsageMeter, timeout_s: float, spans: Spans = NO_SPANS
    ) -> None:
        """Let *model* be asked; its calls are added to *usage*, of all recalls, when made."""
        self.timeout_s, self.meter = timeout_s, UsageMeter(whole=usage)
        self._asker = Asker(model, meter=self.meter, timeout_s=timeout_s, spans=spans)

    @property
    def weights(self) -> Mapping[NodeType, float]:
        """The types that are searched, and the weight of each one's candidates."""
        types = self.request.types
        return MODE_WEIGHTS[self.trace.mode] if types is None else dict.fromkeys(types, 1.0)

    @property
    def asked(self) -> AskedQuestion:
        """The query as models are shown it."""
        asked = AskedQuestion(query=self.request.query, at=self.now)
        context = self.request.context
        return asked if context is None else replace(asked, goal=context.goal, steps=context.steps)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time spent inside to phase *name*."""
        began = elapsed()
        try:
            yield
        finally:
            seconds = self.trace.seconds
            seconds[name] = seconds.get(name, 0.0) + elapsed() - began

    def does_without(self, part: str, error: BaseException) -> None:
        """Record that *part* failed and the recall went on without it."""
        line = f"{part}: {type(error).__name__}"
        if line not in self.trace.degraded:
            self.trace.degraded += (line,)
            log.warning("recall goes on without %s: %s", part, error)

    async def plan(self) -> None:
        """Ask the chat model at the same time for tags and, where no caller gave it, the mode."""
        trace = self.trace

        async def ask_mode() -> None:
            if mode := await self.ask(mode_question(self.asked, self.profile), None):
                trace.mode, trace.mode_chosen_by = mode, "model"

        async def ask_tags() -> None:
            trace.tags = await self.ask(plan_question(self.asked, self.profile), ())

        async with anyio.create_task_group() as group:
            if trace.mode_chosen_by != "caller":
                group.start_soon(ask_mode)
            group.start_soon(ask_tags)

    async def ask(self, question: Question[T], otherwise: D) -> T | D:
        """Answer *question*, or give *otherwise*; raises nothing. *Cancellation*: safe."""
        purpose = question.purpose
        try:
            if self._asker is not None and self.away is None:
                with anyio.move_on_after(self.timeout_s):
                    answer = await self._asker.ask(question)
                    self.trace.stages[purpose] = "model"
                    return answer
                what = f"the model kept this recall waiting for {self.timeout_s:g} s"
                self.away = ModelTimeout(what)
                self.meter.ran(purpose, "failed")
            kind = ModelTimeout if self.away is None else type(self.away)
            raise kind(str(self.away), purpose=purpose)
        except ModelError as error:
            if isinstance(error, ModelUnavailable) and error.retryable:  # and was tried again
                self.away = error
            self.failures[purpose] = error
            self.trace.stages[purpose] = "failed"
            self.does_without(purpose, error)
            return otherwise


# ── Plan ────────────────────────────────────────────────────────────────────────────────


MODE_WEIGHTS: dict[Mode, dict[NodeType, float]] = {
    "semantic": {"semantic": 1.0, "procedural": 0.7, "episodic": 1.0},
    "procedural": {"semantic": 0.7, "procedural": 1.0, "episodic": 0.7},
    "episodic": {"semantic": 0.7, "procedural": 0.7, "episodic": 1.0},
    "mixed": {"semantic": 1.0, "procedural": 1.0, "episodic": 1.0},
}
"""
Mode → type → weight of its candidates; a type left out is not searched.

A subgoal is a label of its steps and answers nothing that they do not: no mode has it.
"""

ROUTES: dict[Mode, tuple[NodeType, ...]] = {
    "semantic": ("tag",),
    "procedural": ("intent",),
    "episodic": ("tag",),
    "mixed": ("tag", "intent"),
}
"""Mode → the types of node that its hops go over."""

_HOW_TO = re.compile(
    r"\bhow (?:do|can|could|should|would|must) (?:i|we|you|one)\b|\bhow to\b|\bsteps? (?:to|for)\b"
    r"|\bwhat should (?:i|we|you) do\b|\b(?:procedure|instructions?|recipe|workflow)\b"
    r"|\b(?:best|right) way to\b|\bhow is .+ (?:done|made|fixed|deployed)\b"
)
_EPISODE = re.compile(
    r"\bwhen\b|\bwho (?:said|told|asked|mentioned)\b|\bwhat (?:did|has|had) .+ (?:say|said|tell"
    r"|told|ask|asked|mention|mentioned)\b|\bwhat happened\b|\blast time\b|\bhow long ago\b"
    r"|\bwhat (?:date|day|time|year|month)\b|\bearlier\b|\byesterday\b|\blast (?:week|month|year)\b"
)


def choose_mode(query: str) -> Mode:
    """How-to words ask for instructions, time and speech for episodes; both or neither: mixed."""
    folded = one_line(fold(query))
    how_to, episode = bool(_HOW_TO.search(folded)), bool(_EPISODE.search(folded))
    if how_to == episode:
        return "mixed"
    return "procedural" if how_to else "episodic"
