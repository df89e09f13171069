"""
The result of a recall: candidates with the raw steps they come from, answer and trace, as text.

Recalled text is data: it can neither open a line of its own, nor hold a mark of a chat
template, nor spell a citation.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias, get_args

from mnemo.english.words import date_in_words, short_day
from mnemo.errors import NotFound
from mnemo.prompts.plan import Mode
from mnemo.prompts.usage import How
from mnemo.runtime.text import count_tokens, counted, html_table, one_line, shown
from mnemo.runtime.validation import MOST_NUMBER, one_of, whole_number
from mnemo.values.changeset import Revision
from mnemo.values.counting import Count, fitted
from mnemo.values.graph import Claim, Episodic, Node, NodeMetadata, NodeType, Procedural, Semantic
from mnemo.values.steps import Step
from mnemo.values.untrusted import without_marks

GROUPS: Mapping[str, tuple[str, ...]] = {
    "words": ("words", "joined", "session"),
    "meaning": ("cosine", "window", "restated", "attribute"),
    "who": ("speaker", "not the agent", "first person", "asks", "name", "another"),
    "when and where": ("date", "where: place", "how long: number", "length", "value"),
}
"""What signals are about, as explanations group them."""

Phase: TypeAlias = Literal["initial", "multi_hop", "refinement", "provenance"]


@dataclass(frozen=True, slots=True)
class SourceRef:
    """
    The raw step, message or keyed item a memory comes from.

    Attributes:
        session_id: ``None`` for a message that is no step of a session, and for a node that
            was stored without a step behind it.
        step_index: 0-based within the episode.
        at: When it happened, aware.
        key: The caller's idempotency key; of a message its id, of an item its key.
        text: What was said: the observation, and the action if there is one.
        thread_id: The conversation thread it was said in; ``None``: in none, or unknown.
        message_id: The message that it is, or that the step was made of; ``None``: of none.
        namespace: Of a keyed item; ``None`` for anything else.
    """

    session_id: str | None
    episode_id: str | None
    step_index: int | None
    at: datetime | None
    actor: str | None
    key: str | None
    text: str
    thread_id: str | None = None
    message_id: str | None = None
    namespace: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        place = self.session_id or self.thread_id or self.key or "no step"
        step = "" if self.step_index is None else f"#{self.step_index}"
        when = f" {self.at:%Y-%m-%d}" if self.at else ""
        return f"<SourceRef {shown(place)}{step}{when}: {shown(self.text)!r}>"

    @classmethod
    def of(cls, step: Step) -> SourceRef:
        """The reference to *step*, which may stand for a message that is no step."""
        return cls(
            session_id=step.session_id or None,
            episode_id=step.episode_id or None,
            step_index=step.index if step.session_id else None,
            at=step.at,
            actor=step.actor,
            key=step.key,
            text=step.text,
            thread_id=step.thread_id,
            message_id=step.message_id,
        )

    @classmethod
    def of_node(cls, node: Node, key: str | None = None) -> SourceRef:
        """The reference of a node without steps to itself; ``actor`` is ``hand`` if it wrote it."""
        at = node.worded_at if isinstance(node, Claim) else None
        actor = "hand" if at is not None else None
        return cls(None, None, None, at or node.created_at, actor, key, node.text)

    @property
    def identity(self) -> tuple[Any, ...]:
        """Equal for two references to one step, to one message, or to one item."""
        if self.namespace is not None:
            return ("item", self.namespace, self.key)
        if self.thread_id is not None and self.message_id is not None:
            return ("message", self.thread_id, self.message_id)
        if self.session_id is None:
            return (None, self.key, self.text)
        return (self.session_id, self.episode_id, self.step_index)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """
    Why a candidate came, and why it stands where it does.

    Attributes:
        signals: Signal → what it added to its score at hop 0, on one scale for all
            candidates; of a fact, to that of the step it was made of.
        cosine: Best cosine with the question or a tag, the tag's share counted.
        via: What the tag, intent or candidate says that led to it; ``None``: the question did.
        recency: In [0, 1]; as *frequency*, *reward* before their exponents.
        penalty: From validation, in [0, 1).
        mode_weight: Of its type in the mode, in [0, 1].
    """

    signals: Mapping[str, float]
    cosine: float
    via: str | None = None
    recency: float
    frequency: float
    reward: float
    penalty: float
    mode_weight: float = 1.0

    @property
    def grouped(self) -> dict[str, dict[str, float]]:
        """Words, meaning, who, when and where → the signals of the group that count."""
        held = {
            group: {name: self.signals[name] for name in names if name in self.signals}
            for group, names in GROUPS.items()
        }
        return {group: signals for group, signals in held.items() if signals}


@dataclass(frozen=True, slots=True)
class Candidate:
    """
    A memory that may answer the question.

    Attributes:
        score: Its value; candidates are ordered by it.
        relevance: How well it answers, in [0, 1], before metadata and mode.
        hop: How far it is from what the question itself finds; ``None`` for provenance.
        sources: The steps it comes from, at least one, best first; of a step also the facts
            that restate it in other words and share its place, as references to that step.
        metadata: Its stored counts; ``None`` for a step that is not committed yet.
        outdated_by: Node id of the newer candidate that replaced or ended it; it stands before
            this one. ``None``: nothing is known to.
        valid_to: When it ceased to hold; ``None`` while it does.
        why: How it came about, if ``explain=True`` asked for it.
    """

    node: Node
    score: float
    relevance: float
    phase: Phase
    hop: int | None
    sources: list[SourceRef]
    metadata: NodeMetadata | None = field(default=None, compare=False)
    outdated_by: str | None = None
    valid_to: datetime | None = None
    why: Explanation | None = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        return f"<Candidate {self.node.type} {self.score:.2f} {shown(self.node.text)!r}>"


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


LeftOut: TypeAlias = Literal[
    "unknown",
    "abstained",
    "type",
    "superseded",
    "filter",
    "context",
    "not_gathered",
    "top_k",
    "max_candidates",
    "min_score",
    "cut",
    "k",
    "min_confidence",
]
"""What leaves a memory out of an answer, in the order in which a recall comes to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """
    Where a memory stands that ``recall(expect=)`` names.

    Attributes:
        id: Of the node, step or message, as it was asked for.
        type: ``None``: nothing has the id.
        rank: Its number among the candidates, from 1, and in ``as_text``; of one that shares the
            place of what restates it that place's. ``None``: it was left out.
        score: As of ``Candidate``; ``None`` where it was no candidate.
        relevance: In [0, 1]; of no candidate by the question alone; ``None``: it was not scored.
        place: By relevance to the question alone, from 1, among all of its type that the filters
            let through, in a large repository among those gathered.
        left_out_by: ``unknown``: nothing that recall finds has the id; ``abstained``: the question
            is no language; ``type``: of ``types`` or the mode; ``superseded``; ``filter``: those
            that *detail* names; ``context``: a step of the session that asks; ``not_gathered``:
            in a large repository others are nearer; ``top_k`` of its type; ``max_candidates``,
            ``min_score``, ``cut``, ``k``, ``min_confidence``: the bounds of these names.
        detail: The filters, or the bound, in words.
        outdated_by: Node id of what is newer, and stands before it.
    """

    id: str
    type: NodeType | None = None
    rank: int | None = None
    score: float | None = None
    relevance: float | None = None
    place: int | None = None
    left_out_by: LeftOut | None = None
    detail: str = ""
    outdated_by: str | None = None


@dataclass(slots=True)
class RecallTrace:
    """
    The trace of a recall, written while it runs.

    Attributes:
        mode: The caller's, or of the query's words, until a model chooses one.
        mode_chosen_by: ``"caller"``, ``"embedded"`` or ``"model"``.
        tags: What a chat model would look for beside the query. Without one there are none:
            phrases of the query's own words changed no order on any development file.
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
    tags: tuple[str, ...] = ()
    revision: Revision = 0
    found: dict[str, int] = field(default_factory=dict)
    evidence: Mapping[str, float] = field(default_factory=dict)
    refinements: tuple[Mapping[str, Any], ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    degraded: tuple[str, ...] = ()
    stages: dict[str, How] = field(default_factory=dict)
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
        expected: Where the memory stands that was named, if one was.
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
    expected: Expected | None = None
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
        return each_once((*first, *others))

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
        one_of("style", style, get_args(Style))
        one_of("order", order, get_args(Order))
        entries = _entries(self.candidates, style, order)
        if style == "full" and order == "relevance":
            entries = _grouped(entries, self.goals, self.group_min_hits)
        head = UNSURE if self.candidates and self.confidence < self.warn_below else ""
        if budget_tokens is None:
            text = _lines(entries, head)
        else:
            most = whole_number("budget_tokens", budget_tokens, 0)
            text = fitted(partial(_within, entries, head), most, self.count)
        return behind(text, self.notes, budget_tokens, self.count)


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


def each_once(sources: Iterable[SourceRef]) -> list[SourceRef]:
    """The first of *sources* to each step, message or item."""
    found: dict[tuple[Any, ...], SourceRef] = {}
    for source in sources:
        found.setdefault(source.identity, source)
    return list(found.values())


# ── As text ─────────────────────────────────────────────────────────────────────────────


Style: TypeAlias = Literal["compact", "full"]
Order: TypeAlias = Literal["relevance", "time"]

_CITATION = re.compile(r"\[(?=\d+\])")
"""The beginning of what reads as a citation; in stored text it is escaped."""
_AT_THE_END = re.compile(r"\[(\d+)\]$", re.MULTILINE)
_NEVER = datetime.max.replace(tzinfo=UTC)
_CONDITIONAL = re.compile(
    r"(?:when(?:ever)?|if|after|before|while|once|unless|until|in case|as (?:soon|long) as"
    r"|every time|each time)\b",
    re.IGNORECASE,
)

_ORDER: tuple[tuple[NodeType, ...], ...] = (
    ("semantic",), ("procedural",), ("episodic", "source"), ("item",), ("subgoal",),
    ("tag", "intent"),
)  # fmt: skip
"""Types of node as they follow one another in full style."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """One line: *rank* by score, *place* in the text, *head* above it; *yearless* dates or not."""

    candidate: Candidate
    rank: int
    place: tuple[Any, ...]
    text: str
    yearless: str
    head: str | None = None

    @property
    def session(self) -> str | None:
        return self.candidate.sources[0].session_id

    @property
    def year(self) -> int | None:
        """Of its date; ``None`` without a date."""
        at = self.candidate.valid_to or _day_of(self.candidate)
        return None if at is None else at.year


def _within(entries: Sequence[_Entry], head: str, size: int) -> str:
    """The lines below *head* that fit *size* bytes, the best so many; or as much of the first."""
    ranked = _news_first(entries)

    def is_too_long(count: int) -> bool:
        return len(_lines(ranked[:count], head).encode("utf-8", "replace")) > size

    count = bisect_left(range(1, len(ranked) + 1), True, key=is_too_long)
    if count or not entries:
        return _lines(ranked[:count], head)
    first = _lines([replace(entries[0], head=None)], head)
    cut = first.encode()[:size].decode("utf-8", "ignore")
    return cut.rstrip("\n") if cut.startswith(head) else ""


def _entries(candidates: Sequence[Candidate], style: Style, order: Order) -> list[_Entry]:
    """The line of each candidate, those alike once."""
    entries: dict[str, _Entry] = {}
    numbers = {candidate.node.id: number for number, candidate in enumerate(candidates, 1)}
    for rank, candidate in enumerate(candidates):
        see = numbers.get(candidate.outdated_by or "")
        if style == "compact":
            line = _compact_text(candidate, see)
            yearless = _compact_text(candidate, see, with_year=False)
        else:
            line = yearless = _full_text(candidate, see)
        texts = (_cited(line, rank), _cited(yearless, rank))
        place = _place(candidate, rank, style, order)
        entries.setdefault(line, _Entry(candidate, rank, place, *texts))
    return list(entries.values())


def cited_in(text: str) -> tuple[int, ...]:
    """The numbers of the citations in a text of ``as_text``, in their order."""
    return tuple(map(int, _AT_THE_END.findall(text)))


def line_tokens(candidates: Sequence[Candidate], count: Count) -> tuple[int, ...]:
    """Count the tokens of each candidate's compact line, with its citation."""
    lines = map(_compact_text, candidates)
    return tuple(count(_cited(line, rank)) for rank, line in enumerate(lines))


def _plain(text: str) -> str:
    """*text* with what would read as a citation or a mark of a template escaped."""
    return _CITATION.sub("&#91;", without_marks(text))


def _cited(line: str, rank: int) -> str:
    """Append its citation to *line*."""
    return f"{line} [{rank + 1}]"


def _see(number: int | None) -> str:
    return "" if number is None else f"; see [{number}]"


def _place(candidate: Candidate, rank: int, style: Style, order: Order) -> tuple[Any, ...]:
    """What lines are sorted by; in full style by relevance, groups replace the rank."""
    source = candidate.sources[0]
    if order == "time":
        return (source.at or _NEVER, *_when(source), rank)
    if style == "compact":
        return (rank,)
    type_order = next(n for n, types in enumerate(_ORDER) if candidate.node.type in types)
    return (type_order, rank, _when(source))


def _grouped(entries: list[_Entry], goals: Mapping[str, str], group_min_hits: int) -> list[_Entry]:
    """Lines of a session with many hits get its head and stand together, in order of steps."""
    hits = Counter(entry.session for entry in entries if entry.session is not None)
    best: dict[tuple[int, str], int] = {}
    grouped = []
    for entry in entries:
        session = entry.session
        if session is None or hits[session] < group_min_hits:
            grouped.append(entry)
            continue
        order, rank, when = entry.place
        first = best.setdefault((order, session), rank)
        head = without_marks(one_line(f"{session}: {goals.get(session, '')}").rstrip(": "))
        grouped.append(replace(entry, place=(order, first, when), head=head))
    return grouped


def _news_first(entries: Iterable[_Entry]) -> list[_Entry]:
    """Sort *entries*: last those whose steps are all behind better ones."""
    told: set[Any] = set()
    news: list[_Entry] = []
    repeats: list[_Entry] = []
    for entry in entries:
        steps = {source.identity for source in entry.candidate.sources}
        (repeats if steps <= told else news).append(entry)
        told |= steps
    return news + repeats


def _lines(entries: Iterable[_Entry], first: str) -> str:
    lines = [first] if first else []
    above: tuple[int, str | None] | None = None
    for entry in _years_once(sorted(entries, key=lambda entry: (entry.place, entry.rank))):
        head = (entry.place[0], entry.head)
        if entry.head is not None and head != above:
            lines.append(f"From {entry.head}")
        above = head
        lines.append(entry.text if entry.head is None else f"  {entry.text}")
    return "\n".join(lines)


def _years_once(entries: Sequence[_Entry]) -> Sequence[_Entry]:
    """Where all dates are of one year, only the first line that has a date names the year."""
    years = [entry.year for entry in entries]
    if len(known := {*years} - {None}) != 1:
        return entries
    said = years.index(known.pop()) + 1
    return [*entries[:said], *(replace(entry, text=entry.yearless) for entry in entries[said:])]


# ── Lines ────────────────────────────────────────────────────────────────────────────


def _full_text(candidate: Candidate, see: int | None) -> str:
    """Render *candidate* as one line: its text, who said it and when, and until when it held."""
    source, until = candidate.sources[0], candidate.valid_to
    origin = (one_line(source.actor or ""), date_in_words(source.at) if source.at else "")
    told = ", ".join(filter(None, origin))
    ended = "" if until is None else f" (until {until:%Y-%m-%d}{_see(see)})"
    return _plain(f"- {_text(candidate.node)}" + (f" [{told}]" if told else "")) + ended


def _compact_text(candidate: Candidate, see: int | None = None, *, with_year: bool = True) -> str:
    """*candidate* as one line: text, day, speaker; until when it held and what to *see*."""
    said, who = _text(candidate.node), one_line(candidate.sources[0].actor or "")
    known = _day_of(candidate)

    def day(at: datetime) -> str:
        return short_day(at) if with_year else short_day(at).rpartition(" ")[0]

    parts = ["" if _names(said, who) else who]
    if candidate.valid_to is not None:
        origin = f"until {day(candidate.valid_to)}{_see(see)}"
    else:
        parts = [day(known) if known is not None else "", *parts]
        origin = _plain(", ".join(part for part in parts if part))
    return _plain(f"- {said}") + (f" ({origin})" if origin else "")


def _day_of(candidate: Candidate) -> datetime | None:
    """When it was said; of a fact that comes from the hand alone, since when it holds."""
    node, sources = candidate.node, candidate.sources
    if isinstance(node, Semantic) and [source.actor for source in sources] == ["hand"]:
        return node.valid_from
    return sources[0].at


def _names(text: str, who: str) -> bool:
    """Whether *text* holds *who* as a word."""
    return re.search(rf"\b{re.escape(who)}\b", text) is not None


def _text(node: Node) -> str:
    match node:
        case Procedural():
            condition, act = condition_text(node.condition), one_line(node.instruction)
            # A sentence stands behind a colon; an act, which begins with its verb, behind "do".
            is_sentence = act[:1].isupper()
            told = act if is_sentence else f"do {act}"
            if condition:
                told = f"{condition}{':' if is_sentence else ';'} {told}"
            expected = one_line(node.expected_outcome)
            return f"{told.rstrip('.')}; expect {expected}" if expected else told
        case Episodic():
            sides = (one_line(node.observation), one_line(node.action))
            return " -> ".join(side for side in sides if side)
        case _:
            return one_line(node.text)


def condition_text(condition: str) -> str:
    """Render *condition* on one line, after ``when`` unless it begins with such a word."""
    condition = one_line(condition)
    if _CONDITIONAL.match(condition):
        return condition[0].lower() + condition[1:]
    return f"when {condition}" if condition else ""


def _when(source: SourceRef) -> tuple[str, str, int]:
    return (source.session_id or "", source.episode_id or "", source.step_index or 0)
