"""Render a viewport from stored state alone, rarely changing parts first, for servers' caches."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any, Literal, TypeAlias

from mnemo import wire
from mnemo.config import Config
from mnemo.context.goals import goals_text
from mnemo.context.window import Frame, ThreadWindow, WindowReader
from mnemo.context.zones import Budget, CompressedViewport, compress, is_due
from mnemo.conversation.scope import ThreadScope, ThreadSettings
from mnemo.english.sentences import sentence_ends
from mnemo.log.transcript import StoredTranscript, TranscriptReader
from mnemo.runtime.text import clean
from mnemo.runtime.validation import known_id
from mnemo.values.counting import Count
from mnemo.values.derived import Goal, Pin, Snapshot
from mnemo.values.digest import dates
from mnemo.values.messages import VIEW, Message
from mnemo.values.records import Hidden
from mnemo.values.untrusted import untrusted

# ── Memory ────────────────────────────────────────────────────────────────────────


CUT = " […]"
"""Behind a text that was cut."""


def memory_text(
    snapshots: Sequence[Snapshot], budget: Budget, count: Count
) -> tuple[str, list[Snapshot]]:
    """Render current snapshots, long-term memory first, each level in its share; and which."""
    levels = (("## Long-term memory", 2, budget.long_term), ("## Recent memory", 1, budget.recent))
    told, shown, room = "", list[Snapshot](), 0
    for heading, level, share in levels:
        chosen = sorted((s for s in snapshots if s.level == level), key=lambda s: s.to_seq)
        before = f"{told}\n\n" if told else ""
        room += share
        fits = partial(_fits, before=before, share=share, room=room, count=count)
        text, fitting = _level(heading, chosen, fits)
        told = before + text if text else told
        shown += fitting
    return told, shown


def _fits(text: str, *, before: str, share: int, room: int, count: Count) -> bool:
    """Whether *text* keeps within *share*, and with what is told before it within *room*."""
    return count(text) <= share and count(before + text) <= room


def _level(
    heading: str, snapshots: Sequence[Snapshot], fits: Callable[[str], bool]
) -> tuple[str, Sequence[Snapshot]]:
    """Render one level, oldest first: as many of the newest as fit, or the newest one cut."""

    def framed(entries: Sequence[str]) -> str:
        return "\n".join([heading, *_older(len(snapshots) - len(entries)), *entries])

    best: tuple[str, Sequence[Snapshot]] = "", ()
    for number in range(1, len(snapshots) + 1):
        text = framed([_entry(each) for each in snapshots[-number:]])
        if not fits(text):
            break
        best = text, snapshots[-number:]
    if best[0] or not snapshots:
        return best
    newest = snapshots[-1]
    ends = sentence_ends(newest.text)

    def cut(end: int) -> str:
        return framed([_entry(newest, newest.text[:end] + CUT)])

    fitting = bisect_left(ends, True, key=lambda end: not fits(cut(end)))
    return (cut(ends[fitting - 1]), [newest]) if fitting else best


def _older(count: int) -> list[str]:
    if count == 1:
        return ["(1 older memory not shown; search reaches it)"]
    return [f"({count} older memories not shown; search reaches them)"] if count else []


def _entry(snapshot: Snapshot, text: str | None = None) -> str:
    days = dates([snapshot.said_from, snapshot.said_to])
    head = f"[messages {snapshot.from_seq}..{snapshot.to_seq}, {days}]"
    return f"{head}\n{untrusted('memory', snapshot.text if text is None else text)}"


# ── Notes ahead of memory ────────────────────────────────────────────────────────────────


Overview: TypeAlias = Callable[[int], Awaitable[str]]
"""
Renders the notes, a line each, in about so many tokens; the same text for the same notes.

``""``: there are none.
"""
NOTES_HEADING = "## Notes"
GAP = "\n\n"
ATTEMPTS = 8
"""Times that the overview is made shorter, at most: escaping may have made it longer (S)."""


async def notes_text(overview: Overview, share: int, count: Count) -> str:
    """
    The overview under its heading, wrapped as data, in at most *share* tokens; or ``""``.

    *Raises* ``StoreError``: the notes could not be read. *Cancellation*: safe.
    """
    room = share
    for _ in range(ATTEMPTS):
        told = await overview(room) if room > 0 else ""
        if not told:
            break
        text = f"{NOTES_HEADING}\n{untrusted('notes', told)}"
        taken = count(text + GAP)
        if taken <= share:
            return text
        room = min(room - 1, room * share // taken)
    return ""


def with_notes(notes: str, memory: str, budget: Budget, count: Count) -> str:
    """Put *notes* ahead of *memory*; leave them out if both are too long."""
    if not notes or not memory:
        return notes or memory
    both = f"{notes}{GAP}{memory}"
    fits = count(both) <= budget.notes + budget.long_term + budget.recent
    return both if fits else memory


# ── The whole viewport ────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedViewport:
    """
    A request's messages, within the viewport's budget.

    Attributes:
        messages: Ready to send: memory, the window with the state before its latest user
            message. What is not of the log is left out if it is appended.
        memory: What has left the window, in words, behind an overview of notes where that is
            asked for; ``""``: nothing.
        window: Its messages, ascending, whole.
        state: Goals, pins and what comes to mind; ``""``: nothing.
        token_count: Of all messages; at most the budget, unless *over_budget*.
        over_budget: Whether the newest unit alone is larger than the window.
        degraded: Seqs, both inclusive, that are missing from the window in this one
            reading, because it had to be made smaller and that could not be written.
    """

    messages: list[Message]
    memory: str
    window: list[Message]
    state: str
    token_count: int
    over_budget: bool
    degraded: tuple[int, int] | None

    def __repr__(self) -> str:
        return f"<RenderedViewport {len(self.messages)} messages, {self.token_count} tokens>"

    def to_openai(self) -> dict[str, Any]:
        """``{"messages": [...]}``, for ``client.chat.completions.create(model=..., **request)``."""
        return {"messages": wire.to_openai(self.messages)}

    def to_responses(self) -> dict[str, Any]:
        """``{"input": [...]}``, for ``client.responses.create(model=..., **request)``."""
        return {"input": wire.to_responses(self.messages)}

    def to_anthropic(self) -> dict[str, Any]:
        """
        ``{"system": ..., "messages": [...]}``, for ``client.messages.create(**request, ...)``.

        ``system`` is the text of the leading system messages, absent if there are none.
        """
        leading = [*takewhile(lambda message: message.role == "system", self.messages)]
        system = "\n\n".join(filter(None, (message.text for message in leading)))
        messages = wire.to_anthropic(self.messages[len(leading) :])
        return {**({"system": system} if system else {}), "messages": messages}


@dataclass(frozen=True, slots=True)
class ViewportContent:
    """The content of a rendering, read in one transaction; *snapshots* are not covered."""

    window: ThreadWindow
    snapshots: list[Snapshot]
    goals: list[Goal]
    pins: list[Pin]

    def goals_text(self, budget: Budget, count: Count) -> str:
        """The goals and pins in words, within their share."""
        boundary = self.window.scope.thread.boundary
        return goals_text(self.goals, self.pins, boundary=boundary, share=budget.goals, count=count)


def scene_of(tx: TranscriptReader, window: ThreadWindow) -> ViewportContent:
    """Read what belongs to *window*, which was read in this transaction."""
    scope = window.scope
    active = scope.all(tx, Goal, live=True)
    return ViewportContent(
        window,
        scope.all(tx, Snapshot, live=True),
        scope.all(tx, Goal) if active else [],
        scope.all(tx, Pin) if active else [],
    )


def render(
    scene: ViewportContent,
    budget: Budget,
    count: Count,
    *,
    notes: str = "",
    recalled: Callable[[int], str] | None = None,
) -> RenderedViewport:
    """Put *scene* and ``notes_text`` into messages; *recalled* tells memories within a budget."""
    window = scene.window
    memory, _ = memory_text(scene.snapshots, budget, count)
    memory = with_notes(notes, memory, budget, count)
    state = _with_recalled(scene.goals_text(budget, count), budget, count, recalled)
    before, turn = _parted(window.messages)
    messages = [
        *_made("system", "memory", memory, count),
        *before,
        *_made("user", "state", state, count),
        *turn,
    ]
    return RenderedViewport(
        messages=messages,
        memory=memory,
        window=list(window.messages),
        state=state,
        token_count=sum(message.token_count or 0 for message in messages),
        over_budget=window.tokens > budget.window,
        degraded=window.missing,
    )


def _with_recalled(
    goals: str, budget: Budget, count: Count, recalled: Callable[[int], str] | None
) -> str:
    """Append recalled memories to *goals*, within the shares of both."""
    before = f"{goals}\n\n" if goals else ""
    room = budget.goals + budget.recall
    told = recalled(min(budget.recall, room - count(before))) if recalled else ""
    if told and count(before + told) <= room:
        return before + told
    return goals


def _parted(messages: Sequence[Message]) -> tuple[Sequence[Message], Sequence[Message]]:
    """Split at the latest message of a user; without one, all is the second part."""
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if message.role == "user" and VIEW not in message.metadata:
            return messages[:place], messages[place:]
    return [], messages


def _made(role: Literal["system", "user"], how: str, text: str, count: Count) -> list[Message]:
    """Wrap *text* as a message that ``append`` leaves out of the log; none if blank."""
    if not text:
        return []
    return [Message(role=role, content=text, token_count=count(text), metadata={VIEW: how})]


# ── The window in numbers and zones ───────────────────────────────────────────────────


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
    Read the whole window in numbers and zones; default: its watched, else configured budget.

    *Raises* ``ValueError``: the budget is below 1.
    """
    scope = ThreadScope.of(tx, settings, config)
    watched = scope.thread.budget_tokens
    given = (budget_tokens, watched, config.viewport.budget_tokens)
    budget = Budget.of(next(each for each in given if each is not None), config.viewport)
    count = config.conversation.count
    frame = Frame(budget, config.conversation.tool_deadline_s, count)
    window = WindowReader(tx, scope, frame).whole()
    scene = scene_of(tx, window)
    memory, _ = memory_text(scene.snapshots, budget, count)
    state = scene.goals_text(budget, count)
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


def zones_of(window: ThreadWindow, frame: Frame, max_tokens: int) -> CompressedViewport:
    """Render *window* in three zones, at most *max_tokens* tokens."""
    return compress(
        window.units,
        frame.budget,
        from_seq=window.scope.thread.boundary,
        now=window.now,
        deadline_s=frame.deadline_s,
        max_tokens=max_tokens,
        count=frame.count,
    )


# ── What search and recall leave out ──────────────────────────────────────────────


SEEN_STEPS = 5
"""Last steps of a session that its agent has before it."""


async def hidden_in(
    transcript: StoredTranscript, stream: str | None, config: Config
) -> Hidden | None:
    """What ``seen_by`` gives of *stream*; of ``None`` nothing. *Cancellation*: safe."""
    if stream is None:
        return None
    known = known_id("not_visible_in", stream)
    return await transcript.reading(
        lambda tx: seen_by(tx, ThreadScope.stored(tx, clean(known), config), config)
    )


def seen_by(tx: TranscriptReader, scope: ThreadScope, config: Config) -> Hidden:
    """
    Return what the agent of a thread, or of a session of that id, sees. Of a thread: its messages
    from the boundary on, all of the epoch if it never had a viewport, and the snapshots shown in
    its memory. Of a session: its last five steps.
    """
    thread, shown = scope.thread, list[Snapshot]()
    if thread.budget_tokens is not None and (current := scope.all(tx, Snapshot, live=True)):
        budget = Budget.of(thread.budget_tokens, config.viewport)
        _, shown = memory_text(current, budget, config.conversation.count)
    return Hidden(
        stream=thread.id,
        message_seq=max(thread.boundary, thread.epoch_start),
        message_since=scope.since,
        last_steps=SEEN_STEPS,
        ids=frozenset(snapshot.id for snapshot in shown),
    )
