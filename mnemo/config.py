"""
Settings: a tree of frozen models, each number with its unit, range, default and source.

Precedence: argument of the call > session > repository > service > default. Only
fields that were set on purpose override; see ``Config.overlaid``.

Sources: (P) PlugMem, arXiv 2603.03296; (M) Mnemosyne; (S) chosen for mnemo, measured
where ``scripts/bench_questions`` can see it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    InstanceOf,
    ValidationError,
    create_model,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from mnemo.errors import ConfigError
from mnemo.runtime.validation import MOST_NUMBER, checked_path
from mnemo.values.counting import IMAGE_TOKENS, Counter
from mnemo.values.messages import MOST_TOKENS
from mnemo.values.strategies import Composite, Nearest, Recent, Summary, ToolOutputPruner

__all__ = [
    "AnnotationConfig",
    "CommitConfig",
    "Config",
    "ConversationConfig",
    "ExtractionConfig",
    "IndexConfig",
    "JobsConfig",
    "MaintenanceConfig",
    "NotesConfig",
    "RecallConfig",
    "ScoringConfig",
    "SessionConfig",
    "StoreConfig",
    "TelemetryConfig",
    "TypeScoring",
    "ViewportConfig",
]

Seconds = Annotated[float, Field(gt=0)]
BlockType = Annotated[str, Field(min_length=1)]
BlockTokens = Annotated[int, Field(ge=0, le=MOST_TOKENS)]
Share = Annotated[float, Field(ge=0, le=1)]
Cosine = Annotated[float, Field(ge=-1, le=1)]


LEAST_WINDOW = 0.3
"""Share of a viewport's budget that the window must keep."""


class Settings(BaseModel):
    """
    A frozen section of the configuration; its numbers are finite, and integers fit a store.

    Unknown keys and values out of range are refused with ``ConfigError``.
    """

    # Deferred: a schema is built when its first section is made, not by importing mnemo.
    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True,
        extra="forbid",
        arbitrary_types_allowed=True,
        defer_build=True,
        allow_inf_nan=False,
    )

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(_readable(error, type(self).model_fields)) from error

    @model_validator(mode="after")
    def _storable(self) -> Self:
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, int) and abs(value) > MOST_NUMBER:
                raise ConfigError(f"{name} must be at most {MOST_NUMBER:,}")
        return self.consistent()

    def overlaid(self, over: Self | None) -> Self:
        """This section with every field that was set on purpose in *over*, at any depth."""
        if over is None:
            return self
        if not isinstance(over, type(self)):
            wanted = type(self).__name__
            raise ConfigError(f"config must be a {wanted}, not {type(over).__name__}")
        update: dict[str, Any] = {}
        for name in over.model_fields_set:
            mine, theirs = getattr(self, name), getattr(over, name)
            both = isinstance(mine, Settings) and isinstance(theirs, Settings)
            update[name] = mine.overlaid(theirs) if both else theirs
        return self.model_copy(update=update).consistent()

    def consistent(self) -> Self:
        """Itself. *Raises* ``ConfigError``: its fields do not fit each other."""
        return self


def _readable(error: ValidationError, known: Iterable[str]) -> str:
    return "; ".join(_line(details, known) for details in error.errors())


def _line(details: ErrorDetails, known: Iterable[str]) -> str:
    # A part with a bracket names a branch of a union, not a setting.
    place = ".".join(part for part in map(str, details["loc"]) if "[" not in part)
    inner = details.get("ctx", {}).get("error")
    if isinstance(inner, ConfigError):
        # A section has refused its own field, and named it from there on.
        return f"{place}.{inner}" if place else str(inner)
    if details["type"] == "extra_forbidden":
        return f"{place} is no setting; known: {', '.join(known)}"
    return f"{place or 'config'}: {details['msg']}"


class SessionConfig(Settings):
    """The write side (``config.session``)."""

    auto_commit: bool = False
    """Extract and commit finished trajectories while collecting goes on."""
    flush_timeout_s: Seconds | None = 120.0
    """Seconds without an append until the open trajectory is committed; ``None`` is never (M)."""
    session_timeout_s: Seconds | None = 600.0
    """Seconds without an append until the session ends; ``None`` is never (M)."""
    max_pending: Annotated[int, Field(ge=1, le=10_000)] = 5
    """Queued operations waiting at once, per session (M)."""
    max_append_backlog: Annotated[int, Field(ge=1)] = 10_000
    """Durable steps waiting for annotation, per session (S)."""
    max_model_calls: Annotated[int, Field(ge=0)] | None = None
    """Chat model calls of one open session, then ``BudgetExceeded``; ``None`` is no bound."""
    max_model_tokens: Annotated[int, Field(ge=0)] | None = None
    """Input and output tokens of its answered calls together, likewise."""
    max_model_cost_usd: Annotated[float, Field(ge=0)] | None = None
    """US dollars of its answered calls whose price is known, likewise."""
    lease_s: Seconds = 30.0
    """Seconds until the ownership of an unreachable process may be taken over (S)."""


class AnnotationConfig(Settings):
    """Subgoal, state and reward of each step (``config.annotation``)."""

    batch_size: Annotated[int, Field(ge=1, le=256)] = 8
    """Steps per model call, at most (S)."""
    boundary_threshold: Cosine = 0.75
    """Cosine of consecutive subgoals below which a trajectory begins (P)."""
    on_failure: Literal["retry", "embedded"] = "retry"
    """Ask again at extraction, or let the embedded annotator step in."""


class ExtractionConfig(Settings):
    """From trajectory to changeset (``config.extraction``)."""

    profile: Any = None
    """An extraction profile, the name of a shipped one, or ``None``."""
    max_parallel: Annotated[int, Field(ge=1, le=64)] = 4
    """Trajectories extracted at once, per session; threads, per repository (S)."""
    max_facts: Annotated[int, Field(ge=0, le=1_000)] = 24
    """Facts per four steps of a trajectory, rounded up, those of highest confidence (S)."""
    max_instructions: Annotated[int, Field(ge=0, le=1_000)] = 8
    """Instructions per trajectory (S)."""
    sibling_window: Annotated[int, Field(ge=0, le=100)] = 2
    """Following facts each fact is linked to (S)."""
    timeout_s: Seconds = 60.0
    """Seconds per model call, then ``ModelTimeout`` (M)."""
    default_actor: Annotated[str, Field(min_length=1)] = "User"
    """Whose words an observation is when the step does not say."""
    agent_name: Annotated[str, Field(min_length=1)] = "Agent"
    """The one who acts."""


class JobsConfig(Settings):
    """Work that is done in the background, by any process (``config.jobs``)."""

    quiet_s: Annotated[float, Field(ge=0, le=3_600)] = 5.0
    """Seconds after the last ``remember`` of a thread until its messages are extracted (S)."""
    most_waiting: Annotated[int, Field(ge=1, le=10_000)] = 12
    """Messages of a thread that are extracted without waiting for quiet (S)."""
    max_tries: Annotated[int, Field(ge=1, le=100)] = 5
    """Failed tries of a job after which it is dead; more work for it revives it (S)."""
    retry_backoff_s: Annotated[float, Field(ge=0, le=3_600)] = 5.0
    """Seconds before the second try, doubled for each after it (S)."""
    poll_s: Annotated[float, Field(gt=0, le=3_600)] = 1.0
    """Seconds between two looks for jobs and results of other processes (S)."""
    background: bool = True
    """Whether this process extracts and embeds; off, that waits for another one (bulk imports)."""


class CommitConfig(Settings):
    """Reconciling with the stored graph (``config.commit``)."""

    duplicate_threshold: Cosine = 0.92
    """Cosine from which two facts are the same, if the guard holds (S)."""
    intent_identity_threshold: Cosine = 0.95
    """Cosine from which two intents are one (M)."""
    intent_merge_threshold: Cosine = 0.8
    """Cosine from which two intents get a common description (M)."""
    supersede: bool = True
    """Whether a later contradicting fact closes the older one."""


class RecallConfig(Settings):
    """From a question to evidence (``config.recall``)."""

    use_model: bool = False
    """Have the chat model plan and refine every recall that does not say; there must be one."""
    timeout_s: Seconds = 60.0
    """Seconds per question to a model, retries and correction included; then without it (S)."""
    embed_owed_ms: Annotated[int, Field(ge=0)] = 30
    """Milliseconds in which a recall embeds texts without a vector, two up to 250; 0: none (S)."""
    record_access: bool = True
    """Count the access of every returned candidate."""
    keep_last: Annotated[int, Field(ge=0, le=1_000)] = 0
    """Recalls kept in the repository's recall log, the last ones; 0 keeps none (S)."""
    max_candidates: Annotated[int, Field(ge=1)] = 100
    """Candidates kept through expansion (S)."""
    refinement_threshold: Share = 0.6
    """Best relevance that the first hop is compared with (M)."""
    refinement_budget: Annotated[int, Field(ge=0, le=10)] = 1
    """Refinements per recall, at most (M)."""
    plateau_delta: Share = 0.05
    """Gain in relevance below which a hop counts as a plateau (M)."""
    dense_weight: Annotated[float, Field(ge=0, le=10)] | None = None
    """Weight of the cosine; ``None``: by the embedding space (S)."""
    cut: Share = 0.7
    """
    Share of the best candidate's value below which those behind the fifth are dropped; of turns
    of chats and of long messages its square. 0 drops none (S).
    """
    warn_below: Share = 0.3
    """Confidence below which ``as_text`` begins by saying that nothing near was found (S)."""
    agent_actors: frozenset[str] = frozenset(
        ("agent", "assistant", "ai", "bot", "model", "system", "tool")
    )
    """Actors that are the agent's side, case aside; extraction reads them too."""
    group_min_hits: Annotated[int, Field(ge=2)] = 3
    """Candidates of one session that are printed together (P)."""
    recency_decay: Annotated[float, Field(ge=0, le=10)] = 0.3
    """Keyword search: a hit one year old weighs ``1 / (1 + recency_decay)`` (S)."""
    snippet_chars: Annotated[int, Field(ge=50, le=2_000)] = 300
    """Characters of a hit's excerpt, at most (S)."""
    scan_limit: Annotated[int, Field(ge=1)] = 50_000
    """Records that a search for substrings of one or two characters looks at, newest first (S)."""
    index_tool_results: bool = False
    """Whether tool calls and results are searched as well, from when it is set."""
    view_budget_tokens: Annotated[int, Field(ge=100)] = 4_000
    """Tokens of ``MessageView.as_text()``, at most (S)."""
    passive_enabled: bool = True
    """Whether memories may come to mind in a viewport without being asked for."""
    passive_max_hits: Annotated[int, Field(ge=0, le=10)] = 3
    """Memories that come to mind in one turn, at most (S)."""
    passive_min_terms: Annotated[int, Field(ge=1, le=5)] = 2
    """Distinct terms that a memory must share with the turn (S)."""
    passive_excerpt_chars: Annotated[int, Field(ge=80)] = 2_048
    """Characters of such a memory's excerpt, at most (S)."""
    passive_cooldown_turns: Annotated[int, Field(ge=0)] = 20
    """User turns in which a memory does not come to mind again (S)."""


class TypeScoring(Settings):
    """One row of the value function's table."""

    threshold: Cosine = 0.0
    """Plain cosine below which a candidate must share a word with the query."""
    top_k: Annotated[int, Field(ge=1)] = 20
    """Candidates of this type that go on."""
    lambda_per_hour: Annotated[float, Field(ge=0)] = 0.001
    """Decay of recency per hour (P)."""
    k: Annotated[float, Field(gt=0)] = 5.0
    """Accesses at which frequency is half way to its ceiling (P)."""
    base_floor: Share = 0.3
    """Frequency of a node that was never accessed (P)."""
    beta: Annotated[float, Field(ge=0)] = 1.0
    """Steepness of the reward factor (P)."""


class ScoringConfig(Settings):
    """The value function (``config.scoring``)."""

    semantic: TypeScoring = Field(default_factory=lambda: TypeScoring(threshold=0.0, top_k=20))
    procedural: TypeScoring = Field(default_factory=lambda: TypeScoring(threshold=0.25, top_k=10))
    episodic: TypeScoring = Field(default_factory=lambda: TypeScoring(threshold=0.0, top_k=30))
    subgoal: TypeScoring = Field(default_factory=lambda: TypeScoring(threshold=0.3, top_k=10))
    tag: TypeScoring = Field(default_factory=lambda: TypeScoring(threshold=0.5, top_k=10))
    intent: TypeScoring = Field(default_factory=lambda: TypeScoring(threshold=0.5, top_k=10))
    source: TypeScoring = Field(default_factory=lambda: TypeScoring(threshold=0.0, top_k=50))
    recency_weight: Share = 0.0
    """Exponent of recency; 0 switches it off (S)."""
    frequency_weight: Share = 0.01
    """Exponent of frequency; 0 switches it off (S)."""
    reward_weight: Share = 0.02
    """Exponent of reward; 0 switches it off (S)."""
    recency_floor: Share = 0.05
    """Least recency, however old (S)."""
    value_function: Any = None
    """Another ``ValueFunction``, or ``None`` for the shipped one."""


class MaintenanceConfig(Settings):
    """Decay and validation (``config.maintenance``)."""

    decay_grace_s: Annotated[float, Field(ge=0)] = 86_400.0
    """Seconds from its creation in which no node decays (S)."""
    validation_threshold: Cosine = 0.3
    """Best cosine with its evidence from which a fact or instruction is grounded (M)."""
    weak_grounding_penalty: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Penalty of what its evidence does not say (M)."""
    orphan_penalty: Annotated[float, Field(ge=0, lt=1)] = 0.3
    """Penalty of what no provenance leads from to a step (M)."""


OneCompression: TypeAlias = InstanceOf[Summary] | InstanceOf[ToolOutputPruner]


class ConversationConfig(Settings):
    """What was said (``config.conversation``)."""

    retrieval: InstanceOf[Recent] | InstanceOf[Nearest] | InstanceOf[Composite] = Recent(10)
    """What ``load`` chooses of the history."""
    compression: OneCompression | tuple[OneCompression, ...] | None = None
    """How the history is made shorter: one strategy, several in order, or none."""
    ttl_s: Seconds | None = None
    """Seconds from its recording after which a message is expired; ``None`` is never."""
    token_counter: Callable[[str], int] | None = None
    """Counts tokens in place of the estimate; one that fails is passed over."""
    block_tokens: Mapping[BlockType, BlockTokens] = {"image": IMAGE_TOKENS}
    """
    Tokens of a content block without text, by its type; ``image`` holds for every form of
    an image, of whatever size. A type that is not named counts by its size (S).

    Source: OpenAI's "Images and vision" guide counts 85 + 6 x 170 = 1,105 for an image of
    2,048 x 4,096 pixels in high detail; Anthropic's counts width x height / 750, which is
    1,100 for about 1,024 x 800.
    """
    tool_deadline_s: Seconds = 180.0
    """Seconds until a call without a result counts as abandoned (S)."""
    summary_max_attempts: Annotated[int, Field(ge=1, le=10)] = 3
    """Attempts at one summary before the next append (S)."""
    retry_backoff_s: Annotated[float, Field(ge=0)] = 5.0
    """Seconds before the second attempt, doubled for each after it (S)."""

    @property
    def count(self) -> Counter:
        """Counts the tokens of texts and messages as is configured here."""
        return Counter(self.token_counter, self.block_tokens)

    @property
    def compressions(self) -> tuple[Summary | ToolOutputPruner, ...]:
        """The strategies in order."""
        given = self.compression
        if given is None:
            return ()
        return given if isinstance(given, tuple) else (given,)


class ViewportConfig(Settings):
    """The context window, and who makes room in it (``config.viewport``)."""

    budget_tokens: Annotated[int, Field(ge=1)] = 120_000
    """Tokens of the whole rendering."""
    auto_evict: bool = True
    """Whether room is made in the background, or only when somebody asks or a reading needs it."""
    l1_fraction: Share = 0.15
    """Share of the budget for recent memory."""
    l2_fraction: Share = 0.05
    """Share of the budget for long-term memory."""
    goals_fraction: Share = 0.05
    """Share of the budget for goals and pins."""
    recall_fraction: Share = 0.05
    """Share of the budget for what comes to mind."""
    notes_fraction: Share = 0.05
    """Share of the budget for notes, taken from the window where a viewport shows them (S)."""
    trigger_fraction: Annotated[float, Field(ge=0.5, le=1)] = 0.85
    """Share of the window above which room is made."""
    eviction_fraction: Annotated[float, Field(ge=0.05, le=0.9)] = 1 / 3
    """Share of the window that leaves it at once."""
    l2_threshold: Annotated[int, Field(ge=2, le=100)] = 5
    """Level-1 snapshots that are folded into one of level 2."""
    snapshot_max_chars: Annotated[int, Field(ge=1)] = 8_192
    """Characters of a snapshot's text, at most."""
    max_output_tokens: Annotated[int, Field(ge=1)] = 8_192
    """Tokens of one reply; at least half of *snapshot_max_chars*."""
    max_input_tokens: Annotated[int, Field(ge=1)] = 100_000
    """Tokens of the viewport that a model is shown, at most."""
    max_rounds: Annotated[int, Field(ge=1)] = 6
    """Requests of one run, at most."""
    max_attempts: Annotated[int, Field(ge=1)] = 3
    """Runs over the same range before the fallback."""
    retry_backoff_s: Annotated[float, Field(ge=0)] = 5.0
    """Seconds before the second attempt, doubled for each after it."""
    run_timeout_s: Seconds = 120.0
    """Seconds of one run, at most."""
    max_parallel_runs: Annotated[int, Field(ge=1)] = 4
    """Runs at once, of different threads."""

    def consistent(self) -> Self:
        """Itself. *Raises* ``ConfigError``: its fields do not fit each other."""
        self.window_fraction()
        if 2 * self.max_output_tokens < self.snapshot_max_chars:
            raise ConfigError(
                f"max_output_tokens {self.max_output_tokens} cuts snapshots of "
                f"{self.snapshot_max_chars} characters: give at least half as many tokens"
            )
        return self

    def window_fraction(self, *, notes: bool = False) -> float:
        """What the others leave the window, *notes* or not; ``ConfigError``: too little."""
        kept = 1 - self.l1_fraction - self.l2_fraction - self.goals_fraction - self.recall_fraction
        kept -= self.notes_fraction if notes else 0
        if round(kept, 9) < LEAST_WINDOW:
            raise ConfigError(
                f"l1_fraction, l2_fraction, goals_fraction{', notes_fraction' if notes else ''} "
                f"and recall_fraction leave {max(kept, 0):.2f} of the budget for the window, "
                f"which needs {LEAST_WINDOW}: make them smaller"
            )
        return kept


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from error
    return text


Phrases = tuple[Annotated[str, AfterValidator(_pattern)], ...]
"""Regular expressions, case aside."""


class NotesConfig(Settings):
    """Notes, and the update at the end of a task (``config.notes``); (C): Clacky."""

    enabled: bool = True
    """Whether updates run at all (C)."""
    min_iterations: Annotated[int, Field(ge=1, le=1_000)] = 10
    """Passes of a task's loop from which it is looked back over without a cue (C)."""
    debounce_s: Annotated[float, Field(ge=0, le=86_400)] = 120.0
    """Seconds after an update in which its conversation has no other: one reply of a person (S)."""
    request_phrases: Phrases = ()
    """More ways to open an order to keep something; the built-in ones are English."""
    correction_phrases: Phrases = ()
    """More ways to correct what was said."""
    preference_phrases: Phrases = ()
    """More ways to state a preference."""
    max_failures: Annotated[int, Field(ge=1, le=10)] = 3
    """Failed updates in a row over the same part, after which it counts as judged (S)."""
    max_concurrent: Annotated[int, Field(ge=1, le=64)] = 4
    """Updates at once, of different conversations (S)."""
    max_turns: Annotated[int, Field(ge=1, le=50)] = 6
    """Calls of the model in one update: list, read, write, mend, and two spare (S)."""
    max_output_tokens: Annotated[int, Field(ge=256, le=65_536)] = 8_192
    """Tokens of all its replies together (S)."""
    max_total_tokens: Annotated[int, Field(ge=1_000, le=10_000_000)] = 1_000_000
    """Tokens in and out together: six turns over a history of 150,000 (S)."""
    max_cost_usd: Annotated[float, Field(ge=0, le=100)] = 0.50
    """US dollars of one update (S)."""
    max_wall_s: Annotated[float, Field(ge=1, le=3_600)] = 90.0
    """Seconds of one update (S)."""
    body_max_chars: Annotated[int, Field(ge=200, le=4_000)] = 4_000
    """Code points of a note's body, at most (C)."""
    description_max_chars: Annotated[int, Field(ge=20, le=200)] = 200
    """Code points of its description, at most (S)."""
    max_notes: Annotated[int, Field(ge=1)] = 500
    """Notes of one repository, at most (S)."""
    max_writes: Annotated[int, Field(ge=0)] = 8
    """Notes that one update may write (S)."""
    max_deletes: Annotated[int, Field(ge=0)] = 3
    """Notes that one update may retire, merged ones included (S)."""
    list_page: Annotated[int, Field(ge=1, le=50)] = 20
    """Notes that ``list_notes`` shows at once (C)."""
    recency_half_life_d: Annotated[float, Field(gt=0)] = 30.0
    """Days of disuse in which a note's recency halves (S)."""
    min_cosine: Share = 0.4
    """Cosine from which a note without a shared word is recalled (S)."""
    keep_versions: Annotated[int, Field(ge=2)] = 50
    """Versions kept of each note, the latest ones (S)."""
    require_evidence: bool = True
    """Whether a model has to quote what a change rests on."""
    allow_tool_evidence: bool = False
    """Whether it may quote the output of tools."""
    redact: bool = True
    """Whether secrets are taken out of what is written; off for tests only."""


def _folder(text: str) -> str:
    checked_path("folder", text)
    return text


class IndexConfig(Settings):
    """What recalls search, of all repositories of a service (``config.index``)."""

    memory_mb: Annotated[int, Field(ge=1)] = 512
    """
    Megabytes (10⁶ bytes, estimated) that they hold together; above it those used longest ago let
    go of theirs, and read it again at their next use. The one in use may hold more (S).
    """
    folder: Annotated[str, AfterValidator(_folder)] | None = None
    """
    Where files lie that are mapped to search large repositories, in a folder for each store; the
    same for all its processes. ``None``: in ``FILE.index`` beside a file, and of a store on
    PostgreSQL in the user's cache. What is missing there is made anew from the store.
    """
    folder_mb: Annotated[int, Field(ge=100)] = 10_000
    """Megabytes of these files, at most, of a store on PostgreSQL; those used last stay (S)."""


class StoreConfig(Settings):
    """The embedded store (``config.store``)."""

    synchronous: Literal["normal", "full"] = "normal"
    """``normal`` survives a killed process; ``full`` survives a power cut as well."""
    busy_timeout_s: Seconds = 10.0
    """Seconds to wait for another process's write lock, then ``StoreLocked`` (S)."""
    max_queued_writes: Annotated[int, Field(ge=1)] = 4_096
    """Units of work waiting for the writer; beyond it callers are held back (S)."""
    backup_on_migrate: bool = True
    """Copy the file beside itself before its schema is migrated."""


class TelemetryConfig(Settings):
    """OpenTelemetry spans (``config.telemetry``), where the extra ``[otel]`` is installed."""

    enabled: bool = True
    """Whether spans are made at all."""
    capture_content: bool = False
    """Whether spans carry texts: queries, messages to models and their replies."""


class Config(Settings):
    """All settings; every section has defaults, so ``Config()`` is complete."""

    session: SessionConfig = Field(default_factory=SessionConfig)
    annotation: AnnotationConfig = Field(default_factory=AnnotationConfig)
    extraction: ExtractionConfig = Field(default_factory=ExtractionConfig)
    jobs: JobsConfig = Field(default_factory=JobsConfig)
    commit: CommitConfig = Field(default_factory=CommitConfig)
    recall: RecallConfig = Field(default_factory=RecallConfig)
    scoring: ScoringConfig = Field(default_factory=ScoringConfig)
    conversation: ConversationConfig = Field(default_factory=ConversationConfig)
    viewport: ViewportConfig = Field(default_factory=ViewportConfig)
    notes: NotesConfig = Field(default_factory=NotesConfig)
    maintenance: MaintenanceConfig = Field(default_factory=MaintenanceConfig)
    index: IndexConfig = Field(default_factory=IndexConfig)
    store: StoreConfig = Field(default_factory=StoreConfig)
    telemetry: TelemetryConfig = Field(default_factory=TelemetryConfig)
    shutdown_grace_s: Annotated[float, Field(ge=0)] = 10.0
    """Seconds that ``aclose`` lets extraction and background commits go on (S)."""

    # Written out for type checkers: a section may be given as a dict of its fields, too.
    def __init__(self, **values: Any) -> None:
        super().__init__(**values)

    @classmethod
    def from_env(cls) -> Config:
        """
        Read ``MNEMO_*``, e.g. ``MNEMO_SESSION__AUTO_COMMIT=true``; two underscores go one level in.

        Raises:
            ConfigError: If a variable names no setting, or its value is out of range.
        """
        return cls(**_read_environment(cls.model_fields))


_PREFIX = "mnemo_"

_NOT_SETTINGS = frozenset(
    {
        *("mnemo_embedder", "mnemo_store", "mnemo_venv", "mnemo_model_venv", "mnemo_model_url"),
        *("mnemo_model", "mnemo_model_key", "mnemo_api_key_env", "mnemo_host", "mnemo_port"),
        *("mnemo_token_file", "mnemo_log_level", "mnemo_audit_log", "mnemo_workers"),
        *("mnemo_repo", "mnemo_hook_tools"),
    }
)
"""Variables of the command line and the scripts that share the prefix."""


def _read_environment(sections: Mapping[str, FieldInfo]) -> dict[str, Any]:
    """The settings of the environment, as nested keyword arguments for the *sections*."""
    from pydantic_settings import BaseSettings, EnvSettingsSource  # slow to import

    for variable in os.environ:
        name = variable.lower()
        section = name.removeprefix(_PREFIX).partition("__")[0]
        if name.startswith(_PREFIX) and name not in _NOT_SETTINGS and section not in sections:
            raise ConfigError(f"{variable}: there is no setting {section!r}")
    fields: dict[str, Any] = {
        name: (field.annotation, field.default) for name, field in sections.items()
    }
    shape = create_model("Environment", __base__=BaseSettings, **fields)
    source = EnvSettingsSource(shape, env_prefix=_PREFIX, env_nested_delimiter="__")
    source.env_vars = {k: v for k, v in source.env_vars.items() if k not in _NOT_SETTINGS}
    try:
        return source()
    except ValueError as error:
        raise ConfigError(f"the environment cannot be read: {error}") from error
