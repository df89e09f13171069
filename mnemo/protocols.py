"""
Every replaceable part, on one page.

What the parts hand to each other is here or in ``values``.
Fakes of all of them are in ``mnemo.testing``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Never, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from mnemo.config import TypeScoring
from mnemo.events import Event
from mnemo.values.archive import ArchiveHead, NumberedRecord, Record
from mnemo.values.changeset import Revision
from mnemo.values.chat import ChatMessage, ChatReply, ChatRequest, EmbeddingSpace, Purpose, Usage
from mnemo.values.corpus import CorpusView
from mnemo.values.derived import SummaryRequest
from mnemo.values.erasure import Erased, ErasureReport, Selection
from mnemo.values.feed import FeedChanges, FeedCursor, FoundMessage
from mnemo.values.graph import Edge, EdgeKind, Listing, Node, NodeMetadata, NodeType, Vector
from mnemo.values.jobs import JobKind
from mnemo.values.journal import (
    Act,
    Applied,
    GraphWrite,
    Intact,
    Journal,
    Owner,
    RepositoryRecord,
    SessionRecord,
    StoreReport,
)
from mnemo.values.records import (
    RecordHit,
    RecordQuery,
    Surfacing,
    SurfacingQuery,
    Surroundings,
    ViewQuery,
)
from mnemo.values.steps import (
    Annotated,
    AnnotationRequest,
    Fact,
    Instruction,
    Step,
    StepDraft,
    Trajectory,
)

__all__ = [
    "Annotated",
    "AnnotationRequest",
    "Annotator",
    "Applied",
    "Archive",
    "ChatMessage",
    "ChatModel",
    "ChatReply",
    "ChatRequest",
    "Clock",
    "DocumentFeed",
    "Embedder",
    "EmbeddingSpace",
    "FeedChanges",
    "FeedCursor",
    "GraphStore",
    "GraphWrite",
    "Observer",
    "Overhaul",
    "ProceduralExtractor",
    "Purpose",
    "RecordStore",
    "SemanticExtractor",
    "SessionStore",
    "Store",
    "StoreReport",
    "Summarizer",
    "SummaryRequest",
    "Transactions",
    "Usage",
    "ValueFunction",
    "VectorIndex",
]

# ── Models ───────────────────────────────────────────────────────────────────────────


class ChatModel(Protocol):
    """
    Answers requests; retries of the network are its own affair.

    A model that bounds every try by ``request.timeout_s`` itself says so by an attribute
    ``keeps_time = True``; any other is cut off from outside after that time. One with an
    ``aclose()`` is closed with the service that it was given to.
    """

    async def complete(self, request: ChatRequest) -> ChatReply:
        """
        Answer *request*.

        Raises:
            ModelError: One of its kinds. *Cancellation*: safe; the request is dropped.
        """


class Embedder(Protocol):
    """Turns texts into unit vectors of one space."""

    @property
    def space(self) -> EmbeddingSpace:
        """The space of its vectors; known without loading the model."""

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> NDArray[np.float32]:
        """
        Embed *texts*; shape ``(len(texts), d)``, unit rows.

        Raises:
            ModelError: One of its kinds. *Cancellation*: safe.
        """


# ── Extraction ───────────────────────────────────────────────────────────────────────


class Annotator(Protocol):
    """Gives steps their state and subgoal, and the steps before them their reward."""

    @property
    def batch_size(self) -> int | None:
        """Most steps per call; ``None``: ``config.annotation.batch_size``."""

    async def annotate(
        self, request: AnnotationRequest
    ) -> tuple[Sequence[Annotated], float | None]:
        """
        Annotate every step of ``request.fresh``, in order, and give the last reward if closing.

        Raises:
            ModelError: One of its kinds; the whole batch stays unannotated.
        """


class SemanticExtractor(Protocol):
    """Distils facts from a trajectory."""

    async def extract_facts(self, trajectory: Trajectory) -> Sequence[Fact]:
        """Give the facts, in the order in which they were said. *Raises* ``ModelError``."""


class ProceduralExtractor(Protocol):
    """Distils instructions from a trajectory and says how well each did."""

    async def extract_instructions(self, trajectory: Trajectory) -> Sequence[Instruction]:
        """Give the instructions with their returns. *Raises* ``ModelError``."""


# ── Conversations ────────────────────────────────────────────────────────────────────


class Summarizer(Protocol):
    """Writes the text that stands for a part of a conversation."""

    async def summarize(self, request: SummaryRequest) -> str:
        """
        Give the text: not blank, at most ``request.max_tokens`` long.

        Raises:
            ModelError: One of its kinds. *Cancellation*: safe.
        """


# ── Stores ───────────────────────────────────────────────────────────────────────────


class SessionStore(Protocol):
    """The journal of one repository's sessions. Every method is one transaction."""

    async def create(self, record: SessionRecord, *, goal_at: datetime, owner: Owner) -> None:
        """
        Record a new session with its open episode (``record.episode_id``), owned by *owner*.

        Raises:
            Conflict: The repository ever had a session of this id.
        """

    def append(
        self,
        session_id: str,
        episode_id: str,
        draft: StepDraft,
        owner: Owner,
        done: Callable[[Step | BaseException], None],
    ) -> None:
        """
        Hand a step to the writer, in this turn of the loop; a plain call.

        *done* is called once, on the event loop, after the step is durable (with the
        ``Step``, its index given in the order of these calls, without gaps) or was
        refused alone (with a ``StoreError``, or ``Conflict`` if *owner* is not the
        owner any more). Nothing can take back a step that was handed over.
        """

    async def record(self, act: Act, owner: Owner) -> None:
        """
        Write one act.

        Raises:
            Conflict: *owner* does not own the session any more.
        """

    async def load(self, session_id: str) -> Journal | None:
        """The session as its last durable act left it; ``None`` if unknown."""

    async def records(self, *, unfinished: bool) -> list[SessionRecord]:
        """The sessions, or only those that are not idle, newest act first."""

    async def claim(self, session_id: str, owner: Owner, *, left_by: str | None = None) -> None:
        """
        Become the owner, if there is none, or it is dead, or out of reach for its lease.

        Args:
            left_by: Token of the owner that has left the session to the worker of a job.

        Raises:
            SessionBusy: ``owned_elsewhere``.
            NotFound: There is no such session.
        """

    async def release(self, owner: Owner, session_id: str) -> None:
        """Give up a session; an unknown one is no error."""


class GraphStore(Protocol):
    """The graph of one repository. Reads are of one revision and never wait for the writer."""

    async def revision(self) -> Revision:
        """The present revision, of whatever process wrote it."""

    async def apply(self, write: GraphWrite, owner: Owner) -> Applied:
        """
        Write everything of *write* in one transaction, or nothing.

        Raises:
            StaleRevision: Another write came between, or has its turn; reconcile again.
            Conflict: *owner* does not own the settled session any more.
            CommitFailed: The transaction was rolled back. *Cancellation*: completes.
        """

    async def take_turn(self, changeset_id: str) -> bool:
        """
        Let no other changeset be written until this one is, for at most some seconds.

        Returns:
            False: Another one has its turn; ask again. *Cancellation*: completes.
        """

    async def end_turn(self, changeset_id: str) -> None:
        """Let others write, if the turn is this changeset's. *Cancellation*: completes."""

    async def delete(self, ids: Sequence[str]) -> tuple[str, ...]:
        """Delete nodes with their edges, metadata and vectors; give the ids that existed."""

    async def nodes(
        self,
        ids: Sequence[str] | None = None,
        *,
        types: Sequence[NodeType] | None = None,
        keys: Sequence[str] | None = None,
        newest: int | None = None,
        listing: Listing | None = None,
        intact: Intact = False,
    ) -> list[Node]:
        """
        Nodes by id (in the order of *ids*, unknown ones absent) or by type, oldest first.

        With *keys*, those of *types* that have one of them among their ``lookup_keys``
        (``values.lookup``), each once; answered from an index, at a cost that does not grow
        with the graph. With *newest*, only so many of *types*, newest first, ties by id;
        with both, of each key only so many of those stored last, all of them oldest first.
        With *listing*, which stands alone, what it says in its order.
        A damaged one is ``StoreCorrupt``; if *intact*, it is logged and left out; a list gets it.
        """

    async def metadata(
        self, ids: Sequence[str], *, intact: Intact = ...
    ) -> dict[str, NodeMetadata]:
        """Entries of the ids that exist; *intact* as in ``nodes``."""

    async def edges(
        self, ids: Sequence[str], *, kind: EdgeKind | None = None, intact: Intact = False
    ) -> list[Edge]:
        """Edges with an end among *ids*; *intact* as in ``nodes``."""

    async def touch(self, counts: Mapping[str, int], at: datetime) -> None:
        """Add to access counts of nodes that exist; no new revision."""


class DocumentFeed(Protocol):
    """What one repository's indexes follow: every searchable text, in order of change."""

    async def changes(self, after: FeedCursor, *, limit: int = 5_000) -> FeedChanges:
        """What came after *after*, at most *limit* steps, messages, nodes and vectors each."""

    async def save_vectors(self, space: EmbeddingSpace, vectors: Mapping[str, Vector]) -> None:
        """
        Keep vectors (keys as in ``FeedChanges.vectors``; keys whose owner is gone are skipped).

        Raises:
            EmbeddingSpaceMismatch: The repository is stamped with another space.
        """

    async def space(self) -> EmbeddingSpace | None:
        """What the repository is stamped with; ``None`` before the first vector."""

    async def steps(self, node_ids: Sequence[str]) -> dict[str, Step]:
        """The steps behind episodic node ids, committed or not, with their annotations."""

    async def messages(self, ids: Sequence[str]) -> dict[str, FoundMessage]:
        """The messages behind ids of documents; expired ones are among them."""

    async def goals(self, episode_ids: Sequence[str]) -> dict[str, str]:
        """The goals of episodes."""

    async def counts(self) -> dict[str, int]:
        """
        How many there are: ``steps``, ``messages``, ``messages_in_sessions``, ``items``,
        ``vectors``, ``edges:<kind>``, ``nodes:<type>``.
        """


class Overhaul(Protocol):
    """What is rarely done to one repository as a whole: erasing, and moving its vectors."""

    async def touched(self, selection: Selection) -> tuple[str, ...]:
        """The sessions that would lose steps, or go; changes nothing."""

    async def erase(self, selection: Selection) -> Erased:
        """
        Erase in one transaction, its sessions lose their owner; then rid the files of the bytes.

        Raises:
            StoreError: Nothing was erased. *Cancellation*: the transaction completes.
        """

    async def begin_move(self, space: EmbeddingSpace) -> None:
        """Say which space the vectors move to; those staged for another one go."""

    async def unmoved(self, digests: Mapping[str, bytes]) -> frozenset[str]:
        """Those of the keys that no vector is staged for, of a text with this digest."""

    async def stage(
        self, space: EmbeddingSpace, vectors: Mapping[str, tuple[bytes, Vector]]
    ) -> None:
        """
        Keep vectors, each with its text's digest, for the switch.

        Raises:
            Conflict: The repository is on its way to another space, or to none.
        """

    async def switch(self, space: EmbeddingSpace, cursor: FeedCursor) -> int:
        """
        Put what is staged in the place of all vectors, in one transaction; how many are.

        Nodes that changed after *cursor*, and staged changesets, have none afterwards.

        Raises:
            Conflict: As of ``stage``.
        """


class Archive(Protocol):
    """One repository as records, out and in: what ``values.archive`` names, in its order."""

    def read(
        self,
    ) -> AbstractAsyncContextManager[tuple[ArchiveHead, AsyncIterator[Sequence[Record]]]]:
        """Everything as of one moment, in pages; it is held until the context ends."""

    async def write(
        self, head: ArchiveHead, pages: AsyncIterator[Sequence[NumberedRecord]]
    ) -> None:
        """
        Keep everything that *head* and *pages* say, in one transaction; sessions have no owner.

        Raises:
            UsageError: The repository is not empty.
            Conflict: A session, episode or step of it was forgotten in this repository.
            InvalidArchive: Records do not fit each other. *Cancellation*: safe.
        """


# ── What was said ────────────────────────────────────────────────────────────────────

T = TypeVar("T")
R = TypeVar("R", covariant=True)
W = TypeVar("W", covariant=True)


class Transactions(Protocol[R, W]):
    """Rows of one repository. *work* is plain code and runs off the event loop."""

    async def reading(self, work: Callable[[R], T]) -> T:
        """Run *work* on one moment of the store. *Raises* ``StoreError``. *Cancellation*: safe."""

    async def writing(self, work: Callable[[W], T]) -> T:
        """
        Run *work* in one transaction and give its result once that is durable.

        Raises:
            Exception: What *work* raised; nothing was written.
            StoreError: Likewise. *Cancellation*: completes.
        """


class RecordStore(Protocol):
    """Every single thing said or observed in one repository, found by its words."""

    async def search(self, wanted: RecordQuery) -> list[RecordHit]:
        """
        Find records, best first; every filter of *wanted* applies before its limit.

        Raises:
            ValueError: The index refuses the expression. *Cancellation*: safe.
        """

    async def around(self, wanted: ViewQuery) -> Surroundings:
        """
        A record with its nearest neighbours in its stream, and the snapshots around them.

        Raises:
            NotFound: There is no such record.
            Conflict: Several threads have a record of this id. *Cancellation*: safe.
        """

    async def surfacing(self, wanted: SurfacingQuery) -> Surfacing:
        """
        Records that match any of some terms, each with the terms it matches, best first,
        and in how many records each term occurs. *Cancellation*: safe.
        """


class Store(Protocol):
    """One place where everything is kept, shared by all repositories of a service."""

    async def open(self) -> Owner:
        """Create, open or migrate, and register an owner. *Raises* ``StoreError``; untouched."""

    async def aclose(self) -> None:
        """Let running transactions end, then close. Idempotent."""

    def sessions(self, repo_id: str) -> SessionStore: ...

    def graph(self, repo_id: str) -> GraphStore: ...

    def feed(self, repo_id: str) -> DocumentFeed: ...

    def transcript(self, repo_id: str) -> Any: ...

    def records(self, repo_id: str) -> RecordStore: ...

    def overhaul(self, repo_id: str) -> Overhaul: ...

    def archive(self, repo_id: str) -> Archive: ...

    def notes(self, repo_id: str) -> Transactions[Any, Any]: ...

    def checkpoints(self, repo_id: str) -> Transactions[Any, Any]: ...
    def items(self, repo_id: str) -> Transactions[Any, Any]: ...

    async def repositories(self) -> list[RepositoryRecord]:
        """All stored ones by id, open or not."""

    async def owing(self, me: Owner, kinds: Collection[JobKind] | None) -> list[str]:
        """Ids of repositories with a job that *me* could claim now, the longest due first."""

    async def delete_repository(self, repo_id: str) -> ErasureReport:
        """Delete everything of one, in one transaction. *Raises* ``NotFound``."""

    async def backup(self, path: Path) -> None:
        """Write a consistent copy to *path*. *Raises* ``UsageError`` or ``StoreError``: no copy."""

    async def renew(self, owner: Owner, lease_s: float) -> None:
        """Prolong the lease of *owner* on all its sessions."""

    async def release(self, owner: Owner) -> None:
        """Give up all sessions of *owner*, and the ownership itself."""

    async def scrub(self, *, at_once: bool = False) -> bool: ...

    async def tend(self, woken: Callable[[], None]) -> Never: ...

    async def check(self, *, repair: bool = False) -> StoreReport:
        """
        Check the file, full text against steps, vectors against their owners, edges' ends.

        *repair* first puts right what follows from the other rows.
        """


# ── Recall ───────────────────────────────────────────────────────────────────────────


class VectorIndex(Protocol):
    """
    The vectors of one repository, in memory; follows the store, is never the truth.

    It carries the cursor it reflects, catches up before every read, and can be thrown
    away at any time.
    """

    async def run(self) -> None:
        """Embed what lacks a vector, whenever poked, until cancelled; never dies of a model."""

    def poke(self, *, by_job: bool = False) -> None:
        """
        Something was written: follow soon. A plain call, cheap enough for every append.

        Args:
            by_job: Whether background work wrote it, which other such work need not give way to.
        """

    def statistics(self) -> Any:
        """A frozen value: ``revision`` reflected, ``documents``, ``waiting`` for a vector."""

    async def catch_up(self) -> Revision:
        """Read what is new in the store, also from other processes; give its revision."""

    async def renew(self) -> None:
        """Read everything anew, beside what serves meanwhile; nothing removed is left."""

    async def corpus(self, *, embedded: bool = False, query: str = "") -> CorpusView:
        """
        Catch up, and give every document as it is then; it does not change afterwards.

        Args:
            embedded: Wait a moment for vectors that are owed, such as may answer *query*.
        """

    async def nearest(
        self,
        vectors: NDArray[np.float32],
        *,
        type: NodeType,
        threshold: float,
        limit: int = 12,
    ) -> list[list[tuple[str, float]]]:
        """
        For each row of *vectors* the ids and cosines ≥ *threshold* of one type, best first.

        Reads what ``catch_up`` reached last. Off the event loop. *Cancellation*: safe.
        """


class ValueFunction(Protocol):
    """What a candidate is worth, before its mode's weight."""

    def __call__(
        self,
        relevance: float,
        node: Node,
        metadata: NodeMetadata | None,
        parameters: TypeScoring,
        now: datetime,
    ) -> float: ...


# ── Around it ────────────────────────────────────────────────────────────────────────

Observer: TypeAlias = Callable[[Event], Any]
"""``observer(event)``, a function or a coroutine function."""


class Clock(Protocol):
    """Time, as the service sees it."""

    def now(self) -> datetime:
        """Aware, UTC."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary origin."""

    async def sleep(self, seconds: float) -> None:
        """Wait. *Cancellation*: safe."""
