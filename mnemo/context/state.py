"""Goals and their pins, as the agent is told of them before its turn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from mnemo.context.goals import in_order
from mnemo.runtime.text import one_line
from mnemo.transcript.derived import Goal, Pin
from mnemo.transcript.digest import clipped
from mnemo.transcript.units import Count
from mnemo.transcript.untrusted import escaped, without_marks

__all__ = ["goals_text"]

HEADING = "## Goals"
CLIPPED_CHARACTERS = 80
"""Of a goal's description where the goals alone are too long."""


def goals_text(
    goals: Iterable[Goal], pins: Iterable[Pin], *, boundary: int, share: int, count: Count
) -> str:
    """
    The active goals with their sub-goals, each with its pins, in at most *share* tokens.

    Goals go before pins. Only pins older than *boundary* are told: the others are in the
    window. Where not all fit, the newest pins do; then goals are clipped, then the oldest
    sub-goals are counted, at last the oldest goals.
    """
    pursued = _pursued(goals)
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
        self._note = [
            *_counted(sub_goals, "older sub-goal"),
            *_counted(roots, "older goal"),
        ]

    def fitting(self, pins: Sequence[Pin], share: int, count: Count) -> str:
        """It with as many of the newest *pins* as fit, and the number of the others."""
        best = self.text(())
        for shown in range(len(pins) + 1):
            left_out = len(pins) - shown
            text = self.text(pins[left_out:], left_out)
            if count(text) > share:
                break
            best = text
        return best

    def text(self, pins: Sequence[Pin], left_out: int = 0) -> str:
        """It with *pins* under the goals that hold them."""
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


def _pursued(goals: Iterable[Goal]) -> list[Goal]:
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
