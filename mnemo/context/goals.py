"""
Goals: what a thread is after, on two levels.

They do not expire, and nobody but the caller creates, changes or completes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from mnemo.context.pins import release
from mnemo.errors import Conflict, NotFound
from mnemo.protocols import TranscriptReader, TranscriptStore, TranscriptWriter
from mnemo.runtime.text import clean, is_blank
from mnemo.transcript.derived import Goal, GoalCompletion

__all__ = ["Goals", "add", "complete", "in_order", "listed", "update"]

MAX_CHARACTERS = 500
"""Of a description (S)."""


def add(tx: TranscriptWriter, thread_id: str, text: str, parent_id: int | None) -> Goal:
    """
    Begin a goal, below *parent_id* if that is given.

    Raises:
        ValueError: *text* is blank or too long, or the parent has a parent itself.
        NotFound: The parent is unknown.
        Conflict: The parent is completed.
    """
    description = _description(text)
    thread = tx.thread(thread_id)
    if parent_id is not None:
        parent = _pursued(_by_id(tx, thread_id), parent_id)
        if parent.parent_id is not None:
            raise ValueError(f"goal {parent_id} is a sub-goal, and cannot have sub-goals itself")
    goal = Goal(
        thread_id=thread_id,
        epoch=thread.epoch,
        id=thread.next_goal,
        parent_id=parent_id,
        description=description,
        status="active",
        created_at=tx.now,
    )
    tx.keep(replace(thread, next_goal=thread.next_goal + 1))
    tx.put(goal)
    return goal


def update(tx: TranscriptWriter, thread_id: str, goal_id: int, text: str) -> Goal:
    """
    Put a goal into other words.

    Raises:
        ValueError: *text* is blank or too long.
        NotFound: The goal is unknown.
        Conflict: It is completed.
    """
    description = _description(text)
    goal = replace(_pursued(_by_id(tx, thread_id), goal_id), description=description)
    tx.put(goal)
    return goal


def complete(tx: TranscriptWriter, thread_id: str, goal_id: int) -> GoalCompletion:
    """
    Complete a goal with its active sub-goals, and release what no goal pins any more.

    Raises:
        NotFound: The goal is unknown.
        Conflict: It is completed already.
    """
    known = _by_id(tx, thread_id)
    children = [each for each in known.values() if each.parent_id == goal_id and each.is_live]
    done = [
        replace(each, status="completed", completed_at=tx.now)
        for each in (_pursued(known, goal_id), *children)
    ]
    tx.put(*done)
    return GoalCompletion(
        goal=done[0], completed_children=tuple(done[1:]), released_pins=release(tx, thread_id)
    )


def listed(tx: TranscriptReader, thread_id: str, *, active_only: bool = False) -> list[Goal]:
    """The goals of the thread's epoch: roots by creation, each followed by its sub-goals."""
    return in_order(tx.all(Goal, thread_id, epoch=tx.thread(thread_id).epoch, live=active_only))


def in_order(goals: Iterable[Goal]) -> list[Goal]:
    """*goals*, each root followed by its sub-goals, both by creation."""
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


class Goals:
    """
    The goals of one thread (``conversation.goals``).

    Args:
        store: The repository's conversations.
        thread_id: The thread that they belong to.
    """

    __slots__ = ("_store", "_thread_id")

    def __init__(self, store: TranscriptStore, thread_id: str) -> None:
        self._store = store
        self._thread_id = thread_id

    async def add(self, description: str, *, parent_id: int | None = None) -> Goal:
        """
        Begin a goal; ids count from 1 per thread and are never used twice.

        Args:
            description: At most 500 characters, trimmed.
            parent_id: The root that it is a part of.

        Raises:
            ValueError: The description is blank or too long, or the parent is a sub-goal.
            NotFound: The parent is unknown.
            Conflict: The parent is completed. *Cancellation*: completes.
        """
        return await self._store.writing(
            lambda tx: add(tx, self._thread_id, description, parent_id)
        )

    async def update(self, goal_id: int, description: str) -> Goal:
        """
        Put a goal into other words.

        Raises:
            ValueError: The description is blank or too long.
            NotFound: The goal is unknown.
            Conflict: It is completed. *Cancellation*: completes.
        """
        return await self._store.writing(
            lambda tx: update(tx, self._thread_id, goal_id, description)
        )

    async def complete(self, goal_id: int) -> GoalCompletion:
        """
        Complete a goal, its active sub-goals with it; pins that no active goal holds go.

        Raises:
            NotFound: The goal is unknown.
            Conflict: It is completed already. *Cancellation*: completes.
        """
        return await self._store.writing(lambda tx: complete(tx, self._thread_id, goal_id))

    async def list(self, *, active_only: bool = False) -> list[Goal]:
        """Roots by creation, each followed by its sub-goals. *Cancellation*: safe."""
        return await self._store.reading(
            lambda tx: listed(tx, self._thread_id, active_only=active_only)
        )
