"""One recall run: the trace it fills, and the chat model it may ask."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import anyio

from mnemo.errors import ModelError, ModelTimeout
from mnemo.prompts.calling import Asker
from mnemo.prompts.data import AskedQuestion
from mnemo.prompts.question import Question
from mnemo.prompts.usage import How, UsageMeter
from mnemo.protocols import ChatModel, Purpose, Usage
from mnemo.recall.request import RecallRequest
from mnemo.runtime.clock import elapsed
from mnemo.runtime.spans import NO_SPANS, Spans

__all__ = ["Adviser", "Progress", "Run"]

log = logging.getLogger("mnemo")

T = TypeVar("T")
D = TypeVar("D")


@dataclass(slots=True)
class Progress:
    """
    What the trace of a recall will report; filled while it runs.

    Attributes:
        seconds: Phase → seconds.
        degraded: What failed and was done without, in order, each once.
        stages: Purpose → how it ran; purposes that were not needed are absent.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    degraded: list[str] = field(default_factory=list)
    stages: dict[str, How] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time spent inside to phase *name*."""
        began = elapsed()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + elapsed() - began

    def does_without(self, part: str, error: BaseException) -> None:
        """Record that *part* failed and the recall went on without it."""
        line = f"{part}: {type(error).__name__}"
        if line not in self.degraded:
            self.degraded.append(line)
            log.warning("recall goes on without %s: %s", part, error)


class Adviser:
    """
    Asks a chat model on behalf of one recall; failures are recorded in *progress*.

    A model that has timed out once is not asked again by the same recall: one that hangs
    costs one timeout, not one per question.

    Args:
        usage: Of all recalls; this one's calls are added to it as they are made.
        timeout_s: Seconds per question, a correction and the model's own retries included.

    Attributes:
        failures: What each failed purpose ended with.
    """

    def __init__(
        self,
        model: ChatModel,
        *,
        usage: UsageMeter,
        timeout_s: float,
        progress: Progress,
        spans: Spans = NO_SPANS,
    ) -> None:
        self._meter = _Share(usage)
        self._asker = Asker(model, meter=self._meter, timeout_s=timeout_s, spans=spans)
        self._timeout_s = timeout_s
        self._progress = progress
        self._hangs = False
        self.failures: dict[Purpose, ModelError] = {}

    @property
    def calls(self) -> int:
        """Calls that were started for this recall."""
        return self._meter.total.calls

    @property
    def hangs(self) -> bool:
        """Whether the model did not answer in time, so that asking again is no use."""
        return self._hangs

    async def ask(self, question: Question[T], otherwise: D) -> T | D:
        """
        Answer *question*, or give *otherwise*; never raises but on cancellation.

        *Cancellation*: safe; the call is dropped.
        """
        purpose = question.purpose
        try:
            answer = await self._answered(question)
        except ModelError as error:
            self.failures[purpose] = error
            self._progress.stages[purpose] = "failed"
            self._progress.does_without(purpose, error)
            return otherwise
        self._progress.stages[purpose] = "model"
        return answer

    async def _answered(self, question: Question[T]) -> T:
        if not self._hangs:
            with anyio.move_on_after(self._timeout_s):
                return await self._asker.ask(question)
            self._hangs = True
            self._meter.ran(question.purpose, "failed")
        what = f"the model kept this recall waiting for {self._timeout_s:g} s"
        raise ModelTimeout(what, purpose=question.purpose)


class _Share(UsageMeter):
    """The usage of one recall, added to that of all recalls too."""

    __slots__ = ("_whole",)

    def __init__(self, whole: UsageMeter) -> None:
        super().__init__()
        self._whole = whole

    def started(self, purpose: Purpose) -> None:
        self._whole.started(purpose)
        super().started(purpose)

    def answered(self, purpose: Purpose, usage: Usage) -> None:
        self._whole.answered(purpose, usage)
        super().answered(purpose, usage)

    def ran(self, stage: str, how: How) -> None:
        self._whole.ran(stage, how)
        super().ran(stage, how)


@dataclass(frozen=True, slots=True)
class Run:
    """
    One recall in progress.

    Attributes:
        asked: The query as models are shown it.
        adviser: The chat model, if there is one; *planner* likewise, if it may plan.
    """

    request: RecallRequest
    asked: AskedQuestion
    progress: Progress
    adviser: Adviser | None
    planner: Adviser | None
