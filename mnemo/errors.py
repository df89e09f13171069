"""
Every error mnemo raises, by who must act: the caller, the model's operator, or the store's.

Facts are attributes, not words to be parsed. A foreign exception (SQLite's, a
model client's) is translated once, at the edge, and kept as ``__cause__``.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "Barred",
    "BudgetExceeded",
    "CommitFailed",
    "ConfigError",
    "Conflict",
    "EmbeddingSpaceMismatch",
    "ExtractionFailed",
    "InvalidArchive",
    "InvalidNote",
    "InvalidOperation",
    "InvalidReply",
    "MnemoError",
    "ModelError",
    "ModelTimeout",
    "ModelUnavailable",
    "NotFound",
    "NotToFeed",
    "PendingQueueFull",
    "PrecedingOperationFailed",
    "RateLimited",
    "RecallFailed",
    "RepositoryAlreadyOpen",
    "SchemaTooNew",
    "SessionBusy",
    "SessionClosed",
    "SessionError",
    "StaleRevision",
    "StoreCorrupt",
    "StoreError",
    "StoreLocked",
    "StoreReadOnly",
    "StoreUnavailable",
    "Unreachable",
    "UsageError",
]


class MnemoError(Exception):
    """The base of every error that mnemo raises on purpose, but for plain ``ValueError``."""


class ConfigError(MnemoError, ValueError):
    """A setting is unknown, out of range or contradicts another; the message names it."""


class UsageError(MnemoError):
    """The call was not legal here; nothing was changed by it."""


class SessionError(UsageError):
    """
    A session refused a call, or ended an operation it had accepted.

    Attributes:
        reason: One of the reasons of the session table, e.g. ``"not_collecting"``.
        state: The session's state at that moment.
        projected: The state that everything ahead of a queued operation leads to; ``None`` where
            that does not matter.
        operation: The operation's name, e.g. ``"append"``.
    """

    def __init__(
        self,
        reason: str,
        *,
        state: str | None = None,
        projected: str | None = None,
        operation: str | None = None,
        message: str | None = None,
        help: str | None = None,
    ) -> None:
        self.reason = reason
        self.state = state
        self.projected = projected
        self.operation = operation
        help = help or _HELP.get(reason)
        super().__init__(message or _refusal(reason, state, operation, help))


def _refusal(reason: str, state: str | None, operation: str | None, help: str | None) -> str:
    what = f"{operation} was refused" if operation else "the operation was refused"
    where = f" while the session is {state}" if state else ""
    return f"{what}{where}: {reason}" + (f"; {help}" if help else "")


_HELP = {
    "not_idle": "close the episode, and commit or discard it, first",
    "not_collecting": "start an episode first",
    "not_ready": "close an episode first, and wait until it is extracted",
    "not_discardable": "close the episode first, and wait until it is extracted",
    "extraction_in_progress": "await session.wait_for('ready', 'failed') first",
    "commit_in_progress": "wait until the commit has ended",
    "session_closed": "repo.resume_session(id) opens its durable work again",
}


class InvalidOperation(SessionError):
    """The operation is not legal in the session's (projected) state."""


class SessionBusy(SessionError):
    """Work in flight, here or in another process, forbids the operation; try again later."""


class PendingQueueFull(SessionError):
    """A bound was reached; nothing was accepted. Await some of the pending operations first."""


class PrecedingOperationFailed(SessionError):
    """An operation that this one was accepted on has failed; ``__cause__`` says how."""


class SessionClosed(SessionError):
    """The session has ended; ``repo.resume_session(id)`` opens its durable work again."""

    def __init__(self, reason: str = "session_closed", **facts: Any) -> None:
        super().__init__(reason, **facts)


class NotFound(UsageError, LookupError):
    """
    There is no such thing in this repository or service.

    Attributes:
        resource: What was looked for, e.g. ``"session"``.
        id: The id that is not known.
    """

    def __init__(self, resource: str, id: str, help: str | None = None) -> None:
        self.resource = resource
        self.id = id
        super().__init__(f"{resource} {id!r} not found" + (f": {help}" if help else ""))


class RepositoryAlreadyOpen(UsageError):
    """The repository is open in this service; use ``memory.repo(repo_id)``."""


class Conflict(UsageError):
    """Somebody else was first: an id in use, a changed revision, a lost ownership."""


class StaleRevision(Conflict):
    """The graph moved on since it was read; reconcile again. It never leaves mnemo."""


class NotToFeed(Conflict):
    """
    The message is a step of the job of its thread, or was erased since a feed read it.

    It never leaves mnemo.
    """


class Barred(Conflict):
    """
    Memories were extracted again that were erased for good; commit the rest. It never leaves mnemo.

    Attributes:
        ids: Of the new nodes that say what was erased.
    """

    def __init__(self, ids: tuple[str, ...]) -> None:
        self.ids = ids
        super().__init__("a memory was erased, and its extraction barred")


class InvalidArchive(UsageError, ValueError):
    """
    A line of an archive cannot be read, or does not fit the others; nothing was imported.

    Attributes:
        line: Its number, from 1.
        reason: What is wrong with it.
    """

    def __init__(self, line: int, reason: str) -> None:
        self.line = line
        self.reason = reason
        super().__init__(f"line {line}: {reason}; nothing was imported")


class InvalidNote(UsageError, ValueError):
    """
    A note, or something that was asked of notes, is not acceptable; nothing was written.

    Attributes:
        reason: The code, e.g. ``"body_too_long"``; the message says what would be accepted.
        topic: Another note that it is about, where there is one.
    """

    def __init__(self, reason: str, message: str, *, topic: str | None = None) -> None:
        self.reason = reason
        self.topic = topic
        super().__init__(f"{reason}: {message}")


class ModelError(MnemoError):
    """
    A model or embedder did not give a usable reply.

    Attributes:
        purpose: The pipeline step that asked, e.g. ``"semantic"``.
        retryable: Whether the same request may succeed later.
        foreign: Whether the model raised something else, of which nobody knows what it means.
    """

    retryable_by_default = False
    foreign = False

    def __init__(
        self, message: str, *, purpose: str | None = None, retryable: bool | None = None
    ) -> None:
        self.purpose = purpose
        default = self.retryable_by_default
        self.retryable: bool = default if retryable is None else retryable
        super().__init__(message)


class ModelTimeout(ModelError):
    """The model did not answer in time."""

    retryable_by_default = True


class ModelUnavailable(ModelError):
    """The model could not be reached, or refused to serve."""

    retryable_by_default = True


class RateLimited(ModelError):
    """
    The model's server asks for patience.

    Attributes:
        retry_after_s: Seconds that the server asked for, or ``None``.
    """

    retryable_by_default = True

    def __init__(self, message: str, *, retry_after_s: float | None = None, **facts: Any) -> None:
        self.retry_after_s = retry_after_s
        super().__init__(message, **facts)


class InvalidReply(ModelError):
    """
    The reply does not fit what was asked, also after the one corrective retry.

    Attributes:
        raw: The reply, cut to 2,000 characters.
    """

    def __init__(self, message: str, *, raw: str = "", **facts: Any) -> None:
        self.raw: str = raw[:2000]
        super().__init__(message, **facts)


class BudgetExceeded(ModelError):
    """
    What may be asked of models is used up; no further call was made.

    Attributes:
        which: What ran out: ``calls``, ``turns``, ``tokens``, ``cost`` or ``wall``.
        limit: Of a session the setting that stopped it, e.g. ``"session.max_model_calls"``;
            of an update of notes the bound itself.
        spent: What was used when it stopped, in the limit's unit (``used`` is the same).
    """

    def __init__(
        self,
        limit: str | float,
        used: float,
        *,
        which: str | None = None,
        purpose: str | None = None,
    ) -> None:
        self.limit = limit
        named = (name for name in ("calls", "tokens", "cost") if name in str(limit))
        self.which: str = which or next(named, str(limit))
        self.spent: float = used
        self.used: float = used
        super().__init__(_out_of_budget(limit, self.which, used), purpose=purpose)


def _out_of_budget(limit: str | float, which: str, used: float) -> str:
    if isinstance(limit, str):
        return (
            f"the session's model budget is used up: config.{limit} is reached at {used:g}; "
            "resume the session with a larger one to go on"
        )
    of = "seconds" if which == "wall" else which
    return f"the budget of {of} is used up: {used:g} of {limit:g}; config.notes sets it"


class ExtractionFailed(SessionError):
    """
    Extraction of an episode or trajectory gave up; the episode is kept.

    Attributes:
        episode_id: The episode.
        trajectory_id: The first trajectory, in order, that failed, if one did.
    """

    def __init__(
        self,
        message: str,
        *,
        episode_id: str | None = None,
        trajectory_id: str | None = None,
        **facts: Any,
    ) -> None:
        self.episode_id = episode_id
        self.trajectory_id = trajectory_id
        super().__init__("extraction_failed", message=message, **facts)


class RecallFailed(MnemoError):
    """Recall could not answer; ``__cause__`` says why. The memory is unchanged."""


class StoreError(MnemoError):
    """The store could not do it; nothing is half-written. The message says what to do."""


class StoreReadOnly(StoreError):
    """The store was opened for reading: its file may not be written, or the disk is full."""


class CommitFailed(StoreError):
    """
    The commit was not confirmed; the changeset is kept.

    Its transaction was rolled back, or the store did not answer. Committing it again is safe:
    a changeset is applied once.
    """


class SchemaTooNew(StoreError):
    """
    The file was written by a newer mnemo; it was not touched.

    Attributes:
        found: The file's schema version.
        supported: The newest version that this mnemo reads.
    """

    def __init__(self, found: int, supported: int) -> None:
        self.found = found
        self.supported = supported
        super().__init__(
            f"the store has schema version {found}, this mnemo reads up to {supported}: run "
            "`pip install --upgrade mnemo-sessions`, or restore what `mnemo backup` wrote before "
            "the upgrade; it was not touched"
        )


class EmbeddingSpaceMismatch(StoreError):
    """
    The repository's vectors were made by another embedder; nothing was written.

    Attributes:
        stored: The name and dimensions that the repository is stamped with.
        offered: Those of the embedder at hand.
        stored_space: Name and dimensions apart, where they are known.
    """

    def __init__(
        self,
        repo_id: str,
        stored: str,
        offered: str,
        *,
        stored_space: tuple[str, int] | None = None,
        way: str = "open it with the embedder it was made with",
    ) -> None:
        self.repo_id = repo_id
        self.stored = stored
        self.stored_space = stored_space
        self.offered = offered
        super().__init__(
            f"repository {repo_id!r} holds vectors of {stored}, the embedder at hand makes "
            f"{offered}: {way}, or move it with reembed({repo_id!r}) or `mnemo reembed`"
        )


class StoreUnavailable(StoreError):
    """The server cannot be reached, or it ended the connection: nothing was written; try again."""


class StoreLocked(StoreError):
    """Another process held the write lock beyond the busy timeout; try again."""


class Unreachable(StoreError):
    """
    The service that keeps the store did not answer; whether the call was carried out is unknown.

    What has a key, or a version that it expects, can be sent again.
    """


class StoreCorrupt(StoreError):
    """
    The file is not a mnemo store, or damaged; nothing was written to it.

    Attributes:
        table: Of the row that cannot be decoded; ``None``: it is the file itself.
        key: What names the row in its table.
    """

    def __init__(self, message: str, *, table: str | None = None, key: str | None = None) -> None:
        self.table = table
        self.key = key
        super().__init__(message)

    @property
    def row(self) -> str:
        """The damaged row as reports name it: the table, a blank, the key."""
        return f"{self.table} {self.key}"
