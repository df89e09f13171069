"""Fakes of every seam; part of the product."""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import inspect
import json
import re
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial, wraps
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import anyio
import anyio.lowlevel
import numpy as np
from numpy.typing import NDArray

from mnemo.config import Config
from mnemo.errors import ModelUnavailable, StoreError
from mnemo.events import Event
from mnemo.prompts.annotate import NEW_STEPS
from mnemo.prompts.procedural import INSTRUCTIONS, INTENTS
from mnemo.prompts.question import QUESTION, read_block
from mnemo.prompts.reason import RECALLED, ReasonPurpose
from mnemo.protocols import ChatReply, ChatRequest, Clock, EmbeddingSpace, Purpose, Usage
from mnemo.runtime.clock import Breather, SystemClock
from mnemo.runtime.tasks import Threads
from mnemo.runtime.text import clean, content_words, count_tokens, is_blank, one_line, terms
from mnemo.runtime.validation import one_of
from mnemo.service import store_maker
from mnemo.stores import EngineStore, Part
from mnemo.values.journal import Owner
from mnemo.values.steps import Step, StepDraft

__all__ = [
    "FailingStore",
    "HashingEmbedder",
    "ManualClock",
    "RecordingObserver",
    "ScriptedChatModel",
    "block_rows",
    "block_titles",
    "tool_call",
]

# ── Time and events ──────────────────────────────────────────────────────────────────────


class ManualClock:
    """
    A ``Clock`` that moves only by ``advance``.

    Args:
        start: The first value of ``now``; aware. Default: 2024-01-01 00:00 UTC.
    """

    def __init__(self, start: datetime | None = None) -> None:
        self._start = start or datetime(2024, 1, 1, tzinfo=UTC)
        self._elapsed = 0.0
        self._order = count()
        self._sleepers: list[tuple[float, int, anyio.Event]] = []

    def now(self) -> datetime:
        """The start plus all advances."""
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        """Seconds advanced so far."""
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has been advanced by *seconds*. *Cancellation*: safe."""
        if seconds <= 0:
            await anyio.lowlevel.checkpoint()
            return
        woken = anyio.Event()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, next(self._order), woken))
        await woken.wait()

    def advance(self, seconds: float) -> Settled:
        """
        Move the clock and wake who has slept enough.

        The clock has moved when this returns; await the result to let the woken run.
        """
        self._elapsed += seconds
        while self._sleepers and self._sleepers[0][0] <= self._elapsed:
            heapq.heappop(self._sleepers)[2].set()
        return Settled()


class Settled:
    """Awaited, gives the tasks that were woken some turns of the event loop."""

    def __await__(self) -> Generator[Any, Any, None]:
        return _turns(20).__await__()


async def _turns(number: int) -> None:
    for _ in range(number):
        await anyio.lowlevel.checkpoint()


E = TypeVar("E", bound=Event)


class RecordingObserver:
    """
    A synchronous observer for ``Mnemo.subscribe``.

    Attributes:
        events: Everything it was told, in order.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        """The events of one kind, in order."""
        return [event for event in self.events if isinstance(event, kind)]


# ── Models ──────────────────────────────────────────────────────────────────────────────


Answer: TypeAlias = Mapping[str, Any] | str | ChatReply | Exception
"""
A JSON object, a text, a whole reply, or an exception that is raised. A ``tool_call`` is
the reply that makes it, ``{"tool_calls": [tool_call(…), …], "text": …}`` one with several.
"""
_TITLE = re.compile(r"^BEGIN (.+)$", re.MULTILINE)
Script: TypeAlias = Answer | Sequence[Answer] | Callable[[ChatRequest], Answer | Awaitable[Answer]]
"""One answer for every call; answers in order, of which the last repeats; or a function."""


class ScriptedChatModel:
    """
    A ``ChatModel`` that answers by purpose, records what it was asked, and can be blocked.

    Args:
        replies: Purpose → script. A purpose without one is ``ModelUnavailable``.

    Attributes:
        requests: Every request, in the order in which they came, blocked ones included.
        waiting: Requests that are held back by ``block`` at this moment.
    """

    def __init__(self, replies: Mapping[Purpose, Script] | None = None) -> None:
        self.requests: list[ChatRequest] = []
        self.waiting: int = 0
        self._scripts: dict[Purpose, Script] = {}
        self._blocks: dict[Purpose | None, anyio.Event] = {}
        for purpose, script in (replies or {}).items():
            self.script(purpose, script)

    @classmethod
    def answering(cls, replies: Mapping[Purpose, Script] | None = None) -> ScriptedChatModel:
        """
        Make a model with a sensible answer to every question.

        One trajectory per episode, every reward 0.5, a fact per step, an instruction of
        the actions if there are any, every score 8. Mode mixed, the question's content
        words as tags, no refinement, and reasoning that repeats the first memory shown.
        A summary of one sentence; a snapshot that says the same where tools are offered.
        No change of notes.

        Args:
            replies: Scripts that take the place of these answers.
        """
        return cls({**_ANSWERS, **(replies or {})})

    def script(self, purpose: Purpose, script: Script) -> None:
        """
        Answer *purpose* by *script* from now on.

        Raises:
            ValueError: It is an empty list.
        """
        if isinstance(script, Sequence) and not isinstance(script, str) and not script:
            raise ValueError(f"the script of {purpose} has no answer")
        self._scripts[purpose] = script

    def calls(self, purpose: Purpose) -> list[ChatRequest]:
        """The requests of *purpose* so far."""
        return [request for request in self.requests if request.purpose == purpose]

    def block(self, purpose: Purpose | None = None) -> None:
        """Hold back every answer to *purpose* (``None``: to any) until ``unblock``."""
        self._blocks.setdefault(purpose, anyio.Event())

    def unblock(self, purpose: Purpose | None = None) -> None:
        """Let go what a block of *purpose* holds back; ``None`` ends every block."""
        for blocked in [purpose] if purpose else list(self._blocks):
            held = self._blocks.pop(blocked, None)
            if held:
                held.set()

    async def complete(self, request: ChatRequest) -> ChatReply:
        """
        Answer *request* by its script.

        Raises:
            Exception: The one that the script says. *Cancellation*: safe.
        """
        turn = len(self.calls(request.purpose))
        self.requests.append(request)
        await self._released(request.purpose)
        answer = await self._answer(request, turn)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, ChatReply) else _reply(request, answer)

    async def _released(self, purpose: Purpose) -> None:
        await anyio.lowlevel.checkpoint()
        while held := self._blocks.get(purpose) or self._blocks.get(None):
            self.waiting += 1
            try:
                await held.wait()
            finally:
                self.waiting -= 1

    async def _answer(self, request: ChatRequest, turn: int) -> Answer:
        script = self._scripts.get(request.purpose)
        if script is None:
            what = f"nothing is scripted for {request.purpose}"
            return ModelUnavailable(what, purpose=request.purpose, retryable=False)
        if callable(script):
            answer = script(request)
            return await answer if inspect.isawaitable(answer) else answer
        if isinstance(script, Sequence) and not isinstance(script, str):
            return script[min(turn, len(script) - 1)]
        return script


def block_titles(request: ChatRequest) -> list[str]:
    """
    List the titles of the data blocks of *request*, in order.

    A prompt shows stored text in blocks, ``BEGIN STEPS`` … ``END STEPS``, one JSON object
    per line; ``block_rows`` reads one of them.
    """
    return [title for message in request.messages for title in _TITLE.findall(message.content)]


def block_rows(request: ChatRequest, title: str) -> list[dict[str, Any]]:
    """
    Read the rows of the data block *title* of *request*; ``[]`` without such a block.

    For the functions of a script, e.g.
    ``lambda request: {"tags": [block_rows(request, "QUESTION")[0]["question"]]}``.
    """
    found = (read_block(message.content, title) for message in request.messages)
    return next(filter(None, found), [])


def tool_call(name: str, /, **arguments: Any) -> dict[str, Any]:
    """
    Give a call of the tool *name*, as an answer of a ``ScriptedChatModel``.

    It gets its id as it is made; ``{**tool_call("look"), "arguments": 7}`` is one of wrong type.
    """
    return {"name": name, "arguments": arguments}


def _reply(request: ChatRequest, answer: Mapping[str, Any] | str) -> ChatReply:
    calls = _calls(answer)
    text = answer.get("text", "") if calls and isinstance(answer, Mapping) else _text(answer)
    asked = sum(count_tokens(message.content) for message in request.messages)
    said = count_tokens(text) + count_tokens(json.dumps(calls, default=str) if calls else "")
    usage = Usage(model="scripted", input_tokens=asked, output_tokens=said)
    return ChatReply(text=text, tool_calls=_numbered(request, calls), usage=usage)


def _text(answer: Mapping[str, Any] | str) -> str:
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)


def _calls(answer: Mapping[str, Any] | str) -> list[Any]:
    if isinstance(answer, str):
        return []
    if {"name", "arguments"} <= set(answer) <= {"id", "name", "arguments"}:
        return [answer]
    is_reply = {"tool_calls"} <= set(answer) <= {"tool_calls", "text"}
    return list(answer["tool_calls"]) if is_reply else []


def _numbered(request: ChatRequest, calls: Sequence[Any]) -> tuple[Any, ...]:
    """*calls* with ids that no call of the request has."""
    round_ = sum(message.role == "assistant" for message in request.messages) + 1
    return tuple(
        {"id": f"call_{round_}_{number}", **call} if isinstance(call, Mapping) else call
        for number, call in enumerate(calls, start=1)
    )


def _annotate(request: ChatRequest) -> Answer:
    goal = one_line(block_rows(request, "GOAL")[0]["goal"])
    entries = [
        {
            "index": row["index"],
            "state": f"{row['actor']}: {one_line(row['observation'])}"[:600],
            "subgoal": goal[:200],
            "previous_reward": 0.5,
        }
        for row in block_rows(request, NEW_STEPS)
    ]
    return {"steps": entries, "last_reward": 0.5}


def _semantic(request: ChatRequest) -> Answer:
    return {"facts": [_fact(row) for row in block_rows(request, "STEPS")]}


def _fact(row: Mapping[str, Any]) -> dict[str, Any]:
    said = one_line(row["observation"] or row["action"])[:500]
    return {
        "proposition": f"In step {row['index']}, {row['actor']} said: {said}",
        "concepts": content_words(said)[:2],
        "confidence": 0.8,
        "steps": [row["index"]],
    }


def _procedural(request: ChatRequest) -> Answer:
    acted = [row for row in block_rows(request, "STEPS") if not is_blank(row["action"])]
    if not acted:
        return {"instructions": []}
    goal = one_line(block_rows(request, "GOAL")[0]["goal"])
    instruction = {
        "intent": goal,
        "condition": f"when the goal is: {goal}",
        "instruction": "; ".join(one_line(row["action"])[:500] for row in acted),
        "expected_outcome": "the goal is reached",
        "steps": [row["index"] for row in acted],
    }
    return {"instructions": [instruction]}


def _returns(request: ChatRequest) -> Answer:
    rows = block_rows(request, INSTRUCTIONS)
    return {"scores": [{"index": row["index"], "score": 8} for row in rows]}


def _merge_intent(request: ChatRequest) -> Answer:
    return {"intent": block_rows(request, INTENTS)[0]["intent"]}


def _plan(request: ChatRequest) -> Answer:
    return {"tags": content_words(block_rows(request, QUESTION)[0]["question"])}


def _reason(purpose: ReasonPurpose, request: ChatRequest) -> Answer:
    best = block_rows(request, RECALLED[purpose])[0]
    told = (best.get(name) for name in ("fact", "do", "observation", "action"))
    information = one_line(next(text for text in told if text))
    return {"reasoning": "It is the first.", "information": information}


def _summarize(request: ChatRequest) -> Answer:
    told = "They spoke with each other."
    return tool_call("save_snapshot", text=told) if request.tools else told


_ANSWERS: dict[Purpose, Script] = {
    "annotate": _annotate,
    "semantic": _semantic,
    "procedural": _procedural,
    "returns": _returns,
    "merge_intent": _merge_intent,
    "mode": {"mode": "mixed"},
    "plan": _plan,
    "refine": {"tags": []},
    "summarize": _summarize,
    "update_notes": "Nothing to keep.",
    **{purpose: partial(_reason, purpose) for purpose in RECALLED},
}


class HashingEmbedder:
    """
    Feature hashing of a text's terms: cosines say how many words two texts share.

    The same on every machine and in every run. A text without any term gets one fixed
    vector, so that every row is of unit length.

    Args:
        dimensions: Width of the vectors, at least 2; fewer make more terms collide.

    Raises:
        ValueError: *dimensions* is below 2.
    """

    def __init__(self, dimensions: int = 256) -> None:
        if dimensions < 2:
            raise ValueError(f"dimensions must be at least 2, not {dimensions}")
        self._space = EmbeddingSpace(f"hashing-{dimensions}", dimensions, dense_weight=0.2)
        self._threads = Threads()

    @property
    def space(self) -> EmbeddingSpace:
        """``hashing-<dimensions>``, dense weight 0.2."""
        return self._space

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> NDArray[np.float32]:
        """Embed *texts*; shape ``(len(texts), d)``, unit rows. *Cancellation*: safe."""
        return await self._threads.run(self._embed, tuple(texts))

    def _embed(self, texts: tuple[str, ...]) -> NDArray[np.float32]:
        rows = np.zeros((len(texts), self._space.dimensions), np.float32)
        breather = Breather()
        for row, text in zip(rows, texts, strict=True):
            self._fill(row, text)
            breather.breathe()
        return rows

    def _fill(self, row: NDArray[np.float32], text: str) -> None:
        for term in terms(clean(text)):
            place, sign = _place(term, row.shape[0])
            row[place] += sign
        length = float(np.linalg.norm(row))
        if length == 0:
            row[0] = length = 1.0
        row /= length


@lru_cache(maxsize=2_048)
def _place(term: str, dimensions: int) -> tuple[int, float]:
    # Not hash(): it differs from run to run.
    number = int.from_bytes(hashlib.blake2b(term.encode(), digest_size=8).digest(), "little")
    return (number >> 1) % dimensions, 1.0 if number & 1 else -1.0


# ── A store that fails on purpose ────────────────────────────────────────────────────────


T = TypeVar("T")

FailingWrite: TypeAlias = str
"""
The name of an asynchronous method of a store's part, such as ``apply``, ``changes`` or
``reading`` (which is that of conversations and of notes), or ``append``.
"""
_PARTS = ["sessions", *(name for name, part in vars(EngineStore).items() if isinstance(part, Part))]
"""What a store gives of a repository."""


@dataclass(slots=True)
class _Fault:
    """*before*: nothing happens; otherwise it happens and the answer is lost."""

    error: BaseException
    before: bool
    matches: Callable[..., bool]


class FailingStore(EngineStore):
    """
    A store over the engine of another one, the calls of whose parts fail when told to.

    ``fail("apply")`` makes the next ``apply`` of any repository fail with nothing
    written; with ``before=False`` it is written and its answer is lost. All else is done as
    *store* does it.

    Args:
        store: A store that is not open yet, or a path, a URL or ``"memory:"`` as ``Mnemo``
            takes them.
        clock: Of a store that is made of its place; default: the machine's.

    Raises:
        ConfigError: *store* is no place that this version can keep things in.
    """

    def __init__(
        self, store: EngineStore | str | Path = "memory:", *, clock: Clock | None = None
    ) -> None:
        made = store_maker(store, Config(), clock or SystemClock())()
        super().__init__(
            made.engine, clock=made._clock, lease_s=made._lease_s, lease_time=made._lease_time
        )
        self._faults: dict[FailingWrite, deque[_Fault]] = {}
        self.calls: dict[FailingWrite, int] = {}

    def fail(
        self,
        call: FailingWrite,
        *,
        times: int = 1,
        error: BaseException | None = None,
        before: bool = True,
        only: Callable[..., bool] | None = None,
    ) -> None:
        """
        Let the next *times* calls of *call* fail.

        Args:
            error: What they raise; a ``StoreError`` if left out.
            before: Whether they fail instead of being done, or after it.
            only: Given the call's first argument (the write, act, draft, record or
                ids), says whether this call is meant; the others go through.

        Raises:
            ValueError: No part of a store has such an asynchronous method.
        """
        parts = (type(getattr(super(FailingStore, self), name)("")) for name in _PARTS)
        found = (inspect.getmembers(part, inspect.iscoroutinefunction) for part in parts)
        one_of("call", call, sorted({"append", *(name for some in found for name, _ in some)}))
        raised = error or StoreError(f"this {call} was made to fail")
        fault = _Fault(raised, before, only or (lambda _: True))
        self._faults.setdefault(call, deque()).extend([fault] * times)

    def take(self, call: FailingWrite, subject: object) -> _Fault | None:
        """The fault that this call meets, counted off; for the wrappers."""
        self.calls[call] = self.calls.get(call, 0) + 1
        waiting = self._faults.get(call)
        if waiting and waiting[0].matches(subject):
            return waiting.popleft()
        return None

    async def run(self, call: FailingWrite, subject: object, work: Callable[[], Awaitable[T]]) -> T:
        """Do *work*, or fail before or after it; for the wrappers."""
        fault = self.take(call, subject)
        if fault is not None and fault.before:
            await anyio.lowlevel.checkpoint()
            raise fault.error
        result = await work()
        if fault is not None:
            raise fault.error
        return result


class _FailingPart:
    """A part of a store; its asynchronous methods may fail."""

    def __init__(self, part: Any, faults: FailingStore) -> None:
        self._part = part
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if not inspect.iscoroutinefunction(found):
            return found

        @wraps(found)
        async def failing(*arguments: Any, **named: Any) -> Any:
            subject = next(iter((*arguments, *named.values())), None)
            return await self._faults.run(name, subject, partial(found, *arguments, **named))

        return failing


class _FailingSessions(_FailingPart):
    def append(
        self,
        session_id: str,
        episode_id: str,
        draft: StepDraft,
        owner: Owner,
        done: Callable[[Step | BaseException], None],
    ) -> None:
        fault = self._faults.take("append", draft)
        if fault is None:
            self._part.append(session_id, episode_id, draft, owner, done)
        elif fault.before:
            # Through the loop, as the writer would: nobody is told within their own call.
            asyncio.get_running_loop().call_soon(done, fault.error)
        else:
            error = fault.error
            self._part.append(session_id, episode_id, draft, owner, lambda _: done(error))


def _failing(part: str) -> Callable[[FailingStore, str], Any]:
    """The method that gives *part* of a repository, whose calls may fail."""
    kind = _FailingSessions if part == "sessions" else _FailingPart
    return lambda store, repo_id: kind(getattr(super(FailingStore, store), part)(repo_id), store)


for _part in _PARTS:
    setattr(FailingStore, _part, _failing(_part))
