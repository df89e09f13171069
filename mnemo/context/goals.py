"""
Goals of a thread, the messages they pin, and their rendering.

Only the caller changes goals. A pin shows an excerpt and lives while an active goal holds it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from mnemo.conversation.scope import OfThread, ThreadScope
from mnemo.errors import Conflict, NotFound
from mnemo.log.transcript import TranscriptReader, TranscriptWriter
from mnemo.runtime.text import clean, is_blank, one_line
from mnemo.runtime.transactions import transacted
from mnemo.values.counting import Count
from mnemo.values.derived import Goal, GoalCompletion, Pin
from mnemo.values.digest import clipped
from mnemo.values.messages import StoredMessage
from mnemo.values.untrusted import escaped, without_marks

T = TypeVar("T")

MAX_CHARACTERS = 500
"""Of a description (S)."""


def listed(tx: TranscriptReader, thread_id: str, *, active_only: bool = False) -> list[Goal]:
    """The goals of the thread's epoch: roots by creation, each followed by its sub-goals."""
    return in_order(tx.all(Goal, thread_id, epoch=tx.thread(thread_id).epoch, live=active_only))


def in_order(goals: Iterable[Goal]) -> list[Goal]:
    """Sort *goals*: each root followed by its sub-goals, both by creation."""
    return sorted(goals, key=lambda goal: (goal.parent_id or goal.id, goal.id))


def _by_id(tx: TranscriptReader, thread_id: str) -> dict[int, Goal]:
    return {goal.id: goal for goal in listed(tx, thread_id)}


def _pursued(known: dict[int, Goal], goal_id: int) -> Goal:
    if isinstance(goal_id, bool) or not isinstance(goal_id, int):
        raise ValueError(f"a goal's id is a whole number, not {goal_id!r}")
    if goal_id not in known:
        raise NotFound("goal", str(goal_id))
    if not known[goal_id].is_live:
        raise Conflict(f"goal {goal_id} is completed")
    return known[goal_id]


def _description(text: str) -> str:
    if not isinstance(text, str) or is_blank(text):
        raise ValueError("a goal needs a description that is not blank")
    trimmed = text.strip()
    if len(trimmed) > MAX_CHARACTERS:
        raise ValueError(
            f"a goal's description has {len(trimmed)} characters, at most {MAX_CHARACTERS} fit"
        )
    return clean(trimmed)


class Goals(OfThread):
    """The goals of one thread (``conversation.goals``)."""

    async def add(self, description: str, *, parent_id: int | None = None) -> Goal:
        """
        Begin a goal; ids count from 1 per thread and are never used twice.

        An active goal of the same words and parent is given instead of a second one: an add
        whose answer was lost can be repeated.

        Args:
            description: At most 500 characters, trimmed.
            parent_id: The root that it is a part of.

        Raises:
            ValueError: The description is blank or too long, or the parent is a sub-goal.
            NotFound: The parent is unknown.
            Conflict: The parent is completed. *Cancellation*: completes.
        """

        def work(tx: TranscriptWriter) -> Goal:
            words, known = _description(description), _by_id(tx, self._thread_id)
            if parent_id is not None and _pursued(known, parent_id).parent_id is not None:
                raise ValueError(
                    f"goal {parent_id} is a sub-goal, and cannot have sub-goals itself"
                )
            for goal in known.values():
                if goal.is_live and (goal.parent_id, goal.description) == (parent_id, words):
                    return goal
            thread = tx.thread(self._thread_id)
            goal = Goal(
                thread_id=thread.id,
                epoch=thread.epoch,
                id=thread.next_goal,
                parent_id=parent_id,
                description=words,
                status="active",
                created_at=tx.now,
            )
            tx.keep(replace(thread, next_goal=thread.next_goal + 1))
            tx.put(goal)
            return goal

        return await self._write(work, lambda goal: goal)

    async def update(self, goal_id: int, description: str) -> Goal:
        """
        Put a goal into other words.

        Raises:
            ValueError: The description is blank or too long.
            NotFound: The goal is unknown.
            Conflict: It is completed. *Cancellation*: completes.
        """

        def work(tx: TranscriptWriter) -> Goal:
            words = _description(description)
            goal = replace(_pursued(_by_id(tx, self._thread_id), goal_id), description=words)
            tx.put(goal)
            return goal

        return await self._write(work, lambda goal: goal)

    async def complete(self, goal_id: int) -> GoalCompletion:
        """
        Complete a goal, its active sub-goals with it; pins that no active goal holds go.

        Raises:
            NotFound: The goal is unknown.
            Conflict: It is completed already. *Cancellation*: completes.
        """

        def work(tx: TranscriptWriter) -> GoalCompletion:
            known = _by_id(tx, self._thread_id)
            children = [one for one in known.values() if one.parent_id == goal_id and one.is_live]
            ended = [_pursued(known, goal_id), *children]
            done = [replace(one, status="completed", completed_at=tx.now) for one in ended]
            tx.put(*done)
            active = {one.id for one in known.values() if one.is_live} - {one.id for one in done}
            pins = tx.all(Pin, self._thread_id, epoch=tx.thread(self._thread_id).epoch)
            released = [pin for pin in pins if active.isdisjoint(pin.goal_ids)]
            tx.drop(*released)
            return GoalCompletion(
                goal=done[0], completed_children=tuple(done[1:]), released_pins=len(released)
            )

        return await self._write(work, lambda done: done.goal)

    async def list(self, *, active_only: bool = False) -> list[Goal]:
        """Roots by creation, each followed by its sub-goals. *Cancellation*: safe."""
        return await self._parts.store.reading(
            lambda tx: listed(tx, self._thread_id, active_only=active_only)
        )

    async def _write(
        self, work: Callable[[TranscriptWriter], T], goal_of: Callable[[T], Goal]
    ) -> T:
        """Run *work*; a transaction that failed was made if the goal of its result is stored."""

        def made(tx: TranscriptReader, result: T) -> bool:
            return goal_of(result) in listed(tx, self._thread_id)

        return await transacted(self._parts.store.writing, self._parts.store.reading, work, made)


# ── Rendering ────────────────────────────────────────────────────────────────────────────


HEADING = "## Goals"
CLIPPED_CHARACTERS = 80
"""Of a goal's description where the goals alone are too long."""


def goals_text(
    goals: Iterable[Goal], pins: Iterable[Pin], *, boundary: int, share: int, count: Count
) -> str:
    """
    The active goals with sub-goals and pins older than *boundary*, in at most *share* tokens.

    Where not all fit, oldest pins go first, then goals are clipped, then the oldest are counted.
    """
    pursued = _not_completed(goals)
    outside = sorted((pin for pin in pins if pin.seq < boundary), key=lambda pin: pin.seq)
    outline = next((each for each in _outlines(pursued) if count(each.text(())) <= share), None)
    if outline is None or not pursued:
        return ""
    held = {goal.id for goal in outline.goals if goal.is_live}
    tellable = [pin for pin in outside if not held.isdisjoint(pin.goal_ids)]
    return outline.fitting(tellable, share, count)


class _Outline:
    """Goals that are told, of which some are only counted."""

    def __init__(self, goals: Sequence[Goal], *, sub_goals: int = 0, roots: int = 0) -> None:
        self.goals = goals
        self._note = [*_counted(sub_goals, "older sub-goal"), *_counted(roots, "older goal")]

    def fitting(self, pins: Sequence[Pin], share: int, count: Count) -> str:
        """Render with as many of the newest *pins* as fit, and the number of the others."""
        best = self.text(())
        for shown in range(len(pins) + 1):
            left_out = len(pins) - shown
            text = self.text(pins[left_out:], left_out)
            if count(text) > share:
                break
            best = text
        return best

    def text(self, pins: Sequence[Pin], left_out: int = 0) -> str:
        """Render with *pins* under the goals that hold them."""
        held = defaultdict(list)
        for pin in pins:
            for goal_id in pin.goal_ids:
                held[goal_id].append(pin)
        told: set[int] = set()
        lines = [HEADING]
        for goal in self.goals:
            lines.append(_goal_line(goal))
            if goal.is_live:
                lines += _pin_lines(goal, held[goal.id], told)
        return "\n".join([*lines, *self._note, *_counted(left_out, "older pin")])


def _not_completed(goals: Iterable[Goal]) -> list[Goal]:
    """Active roots, each followed by its sub-goals, completed ones too."""
    ordered = in_order(goals)
    roots = {goal.id for goal in ordered if goal.parent_id is None and goal.is_live}
    return [goal for goal in ordered if (goal.parent_id or goal.id) in roots]


def _outlines(goals: Sequence[Goal]) -> Iterator[_Outline]:
    """Ways to tell them, each shorter than the one before."""
    yield _Outline(goals)
    clip = [replace(g, description=clipped(g.description, CLIPPED_CHARACTERS)) for g in goals]
    sub_goals = sorted(goal.id for goal in clip if goal.parent_id is not None)
    for n in range(len(sub_goals) + 1):
        counted = set(sub_goals[:n])
        yield _Outline([goal for goal in clip if goal.id not in counted], sub_goals=n)
    roots = [goal for goal in clip if goal.parent_id is None]
    for n in range(1, len(roots)):
        yield _Outline(roots[n:], sub_goals=len(sub_goals), roots=n)


def _goal_line(goal: Goal) -> str:
    indent = "  " if goal.parent_id is not None else ""
    mark = " " if goal.is_live else "x"
    told = without_marks(one_line(goal.description))
    return f"{indent}- [{mark}] {told} (goal {goal.id})"


def _pin_lines(goal: Goal, pins: Iterable[Pin], told: set[int]) -> Iterator[str]:
    indent = "    " if goal.parent_id is not None else "  "
    for pin in pins:
        shown = " (above)" if pin.seq in told else f": {escaped(one_line(pin.excerpt))}"
        told.add(pin.seq)
        yield f"{indent}📌 message {pin.seq}{shown}"


def _counted(count: int, thing: str) -> list[str]:
    return [f"(+{count} {thing}{'s' if count > 1 else ''})"] if count else []


# ── Pins ──────────────────────────────────────────────────────────────────────────


EXCERPT_CHARACTERS = 200
"""Of a pin's excerpt, its mark included."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why messages cannot be pinned; each field names what is wrong, ascending."""

    nothing: tuple[str, ...] = ()
    missing_messages: tuple[int, ...] = ()
    completed_goals: tuple[int, ...] = ()
    missing_goals: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(str(self))

    def __str__(self) -> str:
        found = (
            ("Messages not found", self.missing_messages),
            ("Goals already completed", self.completed_goals),
            ("Goals not found", self.missing_goals),
        )
        named = (f"{what}: {', '.join(map(str, which))}" for what, which in found if which)
        return "; ".join((*self.nothing, *named))

    def error(self) -> ValueError | NotFound | Conflict:
        """The typed error of the first reason, with all of them as its note."""
        error: ValueError | NotFound | Conflict
        if self.nothing:
            error = ValueError(str(self))
        elif self.missing_messages:
            error = NotFound("message", ", ".join(map(str, self.missing_messages)))
        elif self.completed_goals:
            error = Conflict(str(self))
        else:
            error = NotFound("goal", ", ".join(map(str, self.missing_goals)))
        error.add_note(str(self))
        return error


def check_pins(
    tx: TranscriptReader, scope: ThreadScope, seqs: Sequence[int], goal_ids: Sequence[int]
) -> Refusal:
    """What forbids pinning the epoch's living messages at *seqs* to *goal_ids*; empty: nothing."""
    found = _messages(tx, scope, seqs)
    known = {goal.id: goal for goal in scope.all(tx, Goal)}
    asked = sorted(set(goal_ids))
    empty = (("No message ids given", seqs), ("No goal ids given", goal_ids))
    return Refusal(
        nothing=tuple(words for words, given in empty if not given),
        missing_messages=tuple(seq for seq in sorted(set(seqs)) if seq not in found),
        completed_goals=tuple(id for id in asked if id in known and not known[id].is_live),
        missing_goals=tuple(id for id in asked if id not in known),
    )


def attach_pins(
    tx: TranscriptWriter,
    scope: ThreadScope,
    seqs: Sequence[int],
    goal_ids: Sequence[int],
    *,
    count: Count,
) -> int:
    """Pin every message to every goal; return the number of links. Raises as ``check_pins``."""
    if refusal := check_pins(tx, scope, seqs, goal_ids):
        raise refusal.error()
    existing = {pin.seq: pin for pin in scope.all(tx, Pin)}
    messages = _messages(tx, scope, seqs)
    for seq, message in messages.items():
        pin = existing.get(seq) or _pin(message, count)
        tx.put(replace(pin, goal_ids=tuple(sorted({*pin.goal_ids, *goal_ids}))))
    return len(messages) * len(set(goal_ids))


def _pin(message: StoredMessage, count: Count) -> Pin:
    """A pin that no goal holds yet, with an excerpt of the text."""
    text = message.text.strip() or ", ".join(call.name for call in message.tool_calls)
    if len(text) > EXCERPT_CHARACTERS:
        text = text[: EXCERPT_CHARACTERS - 1] + "…"
    shown = text or f"message {message.seq}"
    return Pin(
        thread_id=message.thread_id,
        epoch=message.epoch,
        seq=message.seq,
        message_id=message.stored_id,
        excerpt=shown,
        goal_ids=(),
        token_count=count(shown),
    )


def _messages(
    tx: TranscriptReader, scope: ThreadScope, seqs: Sequence[int]
) -> dict[int, StoredMessage]:
    """Read the messages at *seqs* that can be pinned, ascending; one index look-up each."""
    thread = scope.thread
    asked = sorted({seq for seq in seqs if thread.epoch_start <= seq < thread.next_seq})
    return {
        message.seq: message
        for seq in asked
        for message in scope.messages(tx, from_seq=seq, to_seq=seq)
    }


class Pins(OfThread):
    """The pins of one thread (``conversation.pins``)."""

    async def attach(self, seqs: Sequence[int], goal_ids: Sequence[int]) -> int:
        """
        Pin every message to every goal; all of it or nothing, and idempotent.

        Returns:
            How many message-goal links that makes, existing ones included.

        Raises:
            ValueError: No message or no goal is given, or one is not a whole number.
            NotFound: A message or a goal is not in the thread's epoch.
            Conflict: A goal is completed. *Cancellation*: completes.
        """
        given = _numbers("seqs", seqs), _numbers("goal_ids", goal_ids)
        count = self._parts.config.conversation.count

        def work(tx: TranscriptWriter) -> int:
            return attach_pins(tx, self._scope(tx), *given, count=count)

        return await self._parts.store.writing(work)

    async def list(self) -> list[Pin]:
        """All of them, by seq. *Cancellation*: safe."""
        return await self._parts.store.reading(lambda tx: self._scope(tx).all(tx, Pin))


def _numbers(name: str, given: Any) -> list[int]:
    numbers: list[Any] = list(given) if isinstance(given, Iterable) else [None]
    if not all(isinstance(each, int) and not isinstance(each, bool) for each in numbers):
        raise ValueError(f"{name} must be a list of whole numbers")
    return numbers
