"""Settings of a conversation handle, and the dependencies that a repository's handles share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from mnemo.config import Config
from mnemo.events import Event
from mnemo.log.transcript import StoredTranscript
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatModel, Clock, Embedder
from mnemo.runtime.spans import NO_SPANS, Spans
from mnemo.runtime.validation import exact_id, seconds
from mnemo.values.erasure import Erased, Selection
from mnemo.values.strategies import (
    OMITTED,
    Composite,
    Nearest,
    Recent,
    Retrieval,
    Summary,
    ToolOutputPruner,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSettings:
    """
    The settings of one handle, configuration included.

    Attributes:
        ttl_s: Seconds; ``None``: as the configuration says; 0: for ever.
        remember: Whether what is appended is demanded to be extracted as well.
    """

    thread_id: str
    retrieval: Retrieval
    compressions: tuple[Summary | ToolOutputPruner, ...] = ()
    ttl_s: float | None = None
    remember: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationParts:
    """
    What the conversations of one repository depend on.

    Attributes:
        publish: Sends an event to whoever listens; a plain call.
        spawn: Starts a task that is cancelled when the repository closes; a plain call.
        meter: Counts what calls of models cost.
        forget: Erases what is selected, with all that was derived from it alone.
        appended: To be called after every append that stored something; a plain call.
    """

    repo_id: str
    store: StoredTranscript
    embedder: Embedder
    chat_model: ChatModel | None
    clock: Clock
    config: Config
    publish: Callable[[Event], None]
    spawn: Callable[..., object]
    meter: UsageMeter
    forget: Callable[[Selection], Awaitable[Erased]]
    appended: Callable[[ThreadSettings], None]
    spans: Spans = NO_SPANS


def settings_of(
    thread_id: str,
    config: Config,
    *,
    retrieval: Retrieval = OMITTED,
    compression: Summary | ToolOutputPruner | Sequence[Summary | ToolOutputPruner] | None = OMITTED,
    ttl_s: float | None = OMITTED,
    remember: bool = False,
) -> ThreadSettings:
    """
    Make the settings of a handle's keywords; those omitted are as *config* says.

    Raises:
        ValueError: The id is blank, too long or cannot be stored, a strategy is none, *ttl_s* is
            not above 0, or *remember* no ``bool``.
    """
    exact_id("a thread's id", thread_id)
    own = config.conversation
    chosen = own.retrieval if retrieval is OMITTED else retrieval
    if not isinstance(chosen, Recent | Nearest | Composite):
        raise ValueError("retrieval must be Recent, Nearest or Composite")
    if not isinstance(remember, bool):
        raise ValueError(f"remember must be True or False, not {remember!r}")
    return ThreadSettings(
        thread_id=thread_id,
        retrieval=chosen,
        compressions=own.compressions if compression is OMITTED else _compressions(compression),
        ttl_s=None if ttl_s is OMITTED else _ttl(ttl_s),
        remember=remember,
    )


def _compressions(given: object) -> tuple[Summary | ToolOutputPruner, ...]:
    if given is None:
        return ()
    strategies = tuple(given) if isinstance(given, list | tuple) else (given,)
    for strategy in strategies:
        if not isinstance(strategy, Summary | ToolOutputPruner):
            raise ValueError("compression must be Summary, ToolOutputPruner, several or None")
    return strategies


def _ttl(ttl_s: object) -> float:
    return 0.0 if ttl_s is None else seconds("ttl_s", ttl_s, above=True)
