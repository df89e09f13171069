"""The result of a recall: candidates, answer, trace, and its rendering as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, get_args

from mnemo.errors import NotFound
from mnemo.prompts.plan import Mode
from mnemo.prompts.usage import How
from mnemo.recall.candidate import Candidate, SourceRef
from mnemo.recall.candidate_text import Order, Style, print_candidates
from mnemo.runtime.text import count_tokens, counted, html_table
from mnemo.runtime.validation import MOST_NUMBER, one_of, whole_number
from mnemo.values.changeset import Revision
from mnemo.values.counting import Count

GAP = "\n\n"
UNSURE = "Nothing near the question was found; what follows may not answer it."
"""First line of a result of little confidence."""


class FoundNotes(Protocol):
    """What a recall of notes found; ``NoteRecall`` is one."""

    @property
    def hits(self) -> Sequence[Any]:
        """Best first, each with ``note``, ``score`` and the ``passage`` that fits best."""
        ...

    def as_text(self, budget_tokens: int | None = None) -> str:
        """Render the notes as text labelled as data, in about *budget_tokens* tokens."""
        ...


@dataclass(frozen=True, slots=True)
class ReasonedMemory:
    """
    The answer in words, by type; ``None`` for a type without candidates.

    Attributes:
        sources: The steps behind what was put into words, by type, each once.
    """

    semantic: str | None = None
    procedural: str | None = None
    episodic: str | None = None
    sources: tuple[SourceRef, ...] = ()


@dataclass(frozen=True, slots=True)
class RecallTrace:
    """
    The trace of a recall.

    Attributes:
        mode_chosen_by: ``"caller"``, ``"embedded"`` or ``"model"``.
        revision: Of the graph, that all candidates belong to.
        found: Phase, and for hops their number (``"multi_hop 1"``) → candidates found.
        evidence: What ``RecallResult.confidence`` was made of: ``cosine``, ``margin`` over the
            tenth, ``size`` (decimal logarithm of the documents), ``words``.
        refinements: One entry per refinement: ``hop`` that it followed, ``tags``, and the
            best relevance on the way over the graph ``best_before`` and ``best_after`` it.
        seconds: Phase → seconds.
        degraded: What failed and was done without, e.g. ``"embedder: ModelTimeout"``.
        stages: Purpose → ``"model"``, ``"embedded"`` or ``"failed"``: how each stage ran
            that can ask a model; absent where it was not needed.
        model_calls: Calls of the chat model, failed and corrective ones included.
        tokens: Of each candidate's line of ``as_text``, in their order, by the service's count;
            with ``explain=True``, else empty.
        abstained: Whether nothing was looked for: the question is no language, and nothing
            stored has a word of it.
        owed: Texts that had no vector yet, and were found by their words alone.
    """

    mode: Mode
    mode_chosen_by: str
    tags: tuple[str, ...]
    revision: Revision
    found: Mapping[str, int] = field(default_factory=dict)
    evidence: Mapping[str, float] = field(default_factory=dict)
    refinements: tuple[Mapping[str, Any], ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    degraded: tuple[str, ...] = ()
    stages: Mapping[str, How] = field(default_factory=dict)
    model_calls: int = 0
    tokens: tuple[int, ...] = ()
    owed: int = 0
    abstained: bool = False


@dataclass(frozen=True, slots=True)
class RecallResult:
    """
    The answer to one recall; *candidates* are best first.

    Attributes:
        tags: What a chat model would look for beside the question; without one, none.
        answer: The candidates in words, if there are any and somebody put them into words.
        goals: Session id → its goal, for sessions whose candidates are printed together.
        group_min_hits: Candidates of one session from which they are.
        confidence: How likely the answer is among the candidates, in [0, 1].
        warn_below: Confidence below which ``as_text`` says so first, in [0, 1].
        notes: A ``NoteRecall``; ``None`` where notes were not asked for, or failed.
        count: What the tokens of ``as_text`` are counted with.
    """

    mode: Mode
    tags: tuple[str, ...]
    candidates: list[Candidate]
    answer: ReasonedMemory | None
    trace: RecallTrace
    goals: Mapping[str, str] = field(default_factory=dict, repr=False)
    group_min_hits: int = 3
    confidence: float = 1.0
    warn_below: float = field(default=0.0, repr=False)
    notes: FoundNotes | None = None
    count: Count = field(default=count_tokens, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"<RecallResult {self.mode}, {counted(len(self.candidates), 'candidate')}>"

    def _repr_html_(self) -> str:
        rows = (
            (f"{c.score:.2f}", c.node.type, c.node.text, repr(c.sources[0]) if c.sources else "")
            for c in self.candidates
        )
        return html_table(repr(self), ("score", "type", "text", "source"), rows)

    @property
    def sources(self) -> list[SourceRef]:
        """
        The steps behind the candidates, each once.

        The first source of each candidate, in the order of the candidates; then the
        others, in the same order, so that a fact with many sources delays no candidate.
        """
        first = [source for candidate in self.candidates for source in candidate.sources[:1]]
        others = [source for candidate in self.candidates for source in candidate.sources[1:]]
        found: dict[tuple[Any, ...], SourceRef] = {}
        for source in (*first, *others):
            found.setdefault(source.identity, source)
        return list(found.values())

    def cited(self, number: int) -> SourceRef:
        """
        Give the best source of the memory that ``as_text`` marks ``[number]``, from 1.

        Raises:
            ValueError: It is no whole number.
            NotFound: No candidate has that number.
        """
        if not 1 <= whole_number("number", number, -MOST_NUMBER) <= len(self.candidates):
            raise NotFound("citation", str(number))
        return self.candidates[number - 1].sources[0]

    def as_text(
        self,
        budget_tokens: int | None = None,
        *,
        style: Style = "compact",
        order: Order = "relevance",
    ) -> str:
        """
        Print the candidates for a prompt, then the notes.

        A line that says so comes first where ``confidence`` is below ``warn_below``. Then whole
        lines, each memory once, with its citation ``[n]`` at the end; ``cited(n)``
        is the step behind it. Stored text cannot open a line or spell a citation or a mark
        of a chat template. When the lines do not all fit, the best stay; only the first
        may be cut. Notes have what the candidates leave of the budget.

        Args:
            budget_tokens: Never more than this, by the service's count
                (``config.conversation.token_counter``); ``None`` prints all, 0 gives ``""``.
            style: ``"compact"``: a line per memory, ``- text (2 Mar 2026, Ada) [3]``, with
                the day and the speaker where they are known. ``"full"``: speaker and weekday
                too; facts, then instructions, then episodes; those of one session together,
                below its id and goal.
            order: ``"relevance"``: best first. ``"time"``: oldest first, undated last, and
                no groups; the numbers of the citations stay.

        Raises:
            ValueError: *budget_tokens* is negative, or no whole number; *style* or *order*
                is none of those.
        """
        if budget_tokens is not None:
            whole_number("budget_tokens", budget_tokens, 0)
        print_within = partial(
            print_candidates,
            self.candidates,
            goals=self.goals,
            group_min_hits=self.group_min_hits,
            count=self.count,
            style=one_of("style", style, get_args(Style)),
            order=one_of("order", order, get_args(Order)),
        )
        if self.candidates and self.confidence < self.warn_below:
            text = _warned(print_within, budget_tokens, self.count)
        else:
            text = print_within(budget_tokens=budget_tokens)
        return behind(text, self.notes, budget_tokens, self.count)


def _warned(print_within: Callable[..., str], budget_tokens: int | None, count: Count) -> str:
    """The candidates behind the line ``UNSURE``; no candidate stands without it."""
    whole = f"{UNSURE}\n{print_within(budget_tokens=None)}"
    if budget_tokens is None or count(whole) <= budget_tokens:
        return whole
    left = budget_tokens - count(f"{UNSURE}\n")
    if left < 0:
        return ""
    part = f"{UNSURE}\n{print_within(budget_tokens=left)}".rstrip("\n")
    return part if count(part) <= budget_tokens else UNSURE


def behind(
    text: str, notes: FoundNotes | None, budget_tokens: int | None, count: Count = count_tokens
) -> str:
    """Append to *text* as much of *notes* as fits the rest of the budget."""
    if notes is None or not notes.hits:
        return text
    before = f"{text}{GAP}" if text else ""
    if budget_tokens is None:
        return before + notes.as_text()
    left = budget_tokens - count(before)
    whole = before + notes.as_text(left) if left > 0 else text
    return whole if count(whole) <= budget_tokens else text
