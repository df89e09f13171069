"""A look at a thread's window in numbers and zones, which changes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from mnemo.config import Config
from mnemo.context.budget import Budget
from mnemo.context.compressed import CompressedViewport, compress
from mnemo.context.goals import goals_text
from mnemo.context.memory import memory_text
from mnemo.context.rendering import scene_of
from mnemo.context.window import Frame, Window, whole_window
from mnemo.context.zones import is_due
from mnemo.conversation.scope import Scope
from mnemo.conversation.settings import ThreadSettings
from mnemo.protocols import TranscriptReader

__all__ = ["WindowLook", "look", "zones_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowLook:
    """
    The window of a viewport in numbers.

    Attributes:
        thread_id: The conversation.
        budget: How the tokens are divided.
        watched_tokens: The budget that the thread is watched with; ``None``: it is not.
        from_seq: Where the window begins: what was said before has left it.
        messages: In the window.
        tokens: Of them, as they are stored.
        is_due: Whether a viewport of this budget would have room made.
        zones: What leaves next, and what stays.
        memory: What has left the window, in words; ``""``: nothing.
        memory_tokens: Of *memory*; *state_tokens* likewise.
        state: Goals and pins; ``""``: none.
    """

    thread_id: str
    budget: Budget
    watched_tokens: int | None
    from_seq: int
    messages: int
    tokens: int
    is_due: bool
    zones: CompressedViewport
    memory: str
    memory_tokens: int
    state: str
    state_tokens: int


def look(
    tx: TranscriptReader, settings: ThreadSettings, config: Config, budget_tokens: int | None
) -> WindowLook:
    """
    The whole window of a thread, however long, as of this moment.

    Args:
        budget_tokens: ``None``: what the thread is watched with, or else as *config* says.

    Raises:
        ValueError: The budget is below 1.
    """
    scope = Scope.of(tx, settings, config)
    watched = scope.thread.budget_tokens
    given = (budget_tokens, watched, config.viewport.budget_tokens)
    budget = Budget.of(next(each for each in given if each is not None), config.viewport)
    count = config.conversation.count
    frame = Frame(budget, config.conversation.tool_deadline_s, count)
    window = whole_window(tx, scope.thread, scope.since, frame)
    scene = scene_of(tx, window)
    memory = memory_text(scene.snapshots, budget, count)
    state = goals_text(
        scene.goals, scene.pins, boundary=scope.thread.boundary, share=budget.goals, count=count
    )
    return WindowLook(
        thread_id=settings.thread_id,
        budget=budget,
        watched_tokens=watched,
        from_seq=scope.thread.boundary,
        messages=sum(len(unit.messages) for unit in window.units),
        tokens=window.span,
        is_due=is_due(window.span, len(window.units), budget),
        zones=zones_of(window, frame, config.viewport.max_input_tokens),
        memory=memory,
        memory_tokens=count(memory),
        state=state,
        state_tokens=count(state),
    )


def zones_of(window: Window, frame: Frame, max_tokens: int) -> CompressedViewport:
    """Render *window* in three zones, at most *max_tokens* tokens."""
    return compress(
        window.units,
        frame.budget,
        from_seq=window.thread.boundary,
        now=window.now,
        deadline_s=frame.deadline_s,
        max_tokens=max_tokens,
        count=frame.count,
    )
