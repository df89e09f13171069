"""What the conversations of one repository share, and what one handle asks for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from mnemo.config import Config
from mnemo.episode.erasure import ErasureReport
from mnemo.events import Event
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatModel, Clock, Embedder, TranscriptStore
from mnemo.runtime.spans import NO_SPANS, Spans
from mnemo.transcript.strategies import Retrieval, Summary, ToolOutputPruner

__all__ = ["ConversationParts", "ThreadSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSettings:
    """
    What a handle's keywords came to, configuration included.

    Attributes:
        ttl_s: Seconds; ``None``: as the configuration says; 0: for ever.
    """

    thread_id: str
    retrieval: Retrieval
    compressions: tuple[Summary | ToolOutputPruner, ...] = ()
    ttl_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationParts:
    """
    The seams of one repository's conversations.

    Attributes:
        publish: Sends an event to whoever listens; a plain call.
        spawn: Starts a task that is cancelled when the repository closes; a plain call.
        meter: Counts what calls of models cost.
        forget: Erases a thread with all that was derived from it alone.
        appended: To be called after every append that stored something; a plain call.
    """

    repo_id: str
    store: TranscriptStore
    embedder: Embedder
    chat_model: ChatModel | None
    clock: Clock
    config: Config
    publish: Callable[[Event], None]
    spawn: Callable[..., object]
    meter: UsageMeter
    forget: Callable[[str], Awaitable[ErasureReport]]
    appended: Callable[[ThreadSettings], None]
    spans: Spans = NO_SPANS
