"""What an index holds of its repository in memory, and what it says of that."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from mnemo.index.columns import OBJECT
from mnemo.index.corpus_writer import Corpus
from mnemo.index.erased import MOST_WAITING
from mnemo.index.large import Segment
from mnemo.index.segment_rows import Kept
from mnemo.index.segments import CHAINS, SEALED_FROM, Chain, Repeats, hashes
from mnemo.protocols import FeedCursor
from mnemo.runtime.clock import Breather
from mnemo.values.changeset import Revision
from mnemo.values.graph import Vector
from mnemo.values.vectors import VectorCache

RECENT = 2_048
"""Vectors of texts embedded last that are remembered, for texts that are said again."""
OF_LARGE = 40_000
"""Bytes of a large segment beside those that are mapped."""
JUDGED = 50
"""Messages whose language is looked at, the last ones; more than half of them decide."""


@dataclass(frozen=True, slots=True)
class IndexStatistics:
    """
    Where an index stands; or stood, when its documents were let go.

    Attributes:
        cursor: How far it has read the feed.
        waiting: Vectors that are owed; a document without one is found by keyword only.
        failing: Why the embedder failed last; ``None`` if it did not.
        bytes: Held in memory, estimated; 0: the documents are read again when they are needed.
    """

    cursor: FeedCursor
    revision: Revision
    documents: int
    waiting: int
    failing: str | None
    bytes: int = 0


class Held:
    """What an index holds of its repository in memory, to be let go together."""

    def __init__(self, dimensions: int, passage_tokens: int | None) -> None:
        self.corpus: Corpus = Corpus(dimensions=dimensions, passage_tokens=passage_tokens)
        self.unseen = False
        self.sealed: dict[Chain, int] = {}
        self.large: dict[Chain, tuple[Segment, ...]] = dict.fromkeys(CHAINS, ())
        self.listed: dict[Chain, tuple[Kept, ...]] = dict.fromkeys(CHAINS, ())
        self.gone: deque[str] = deque(maxlen=MOST_WAITING)
        """What has left recall last: of it may still be in large segments what waits there."""
        self.unlisted: bool = False
        """Whether large segments are to be looked up, as they may be others now."""
        self.refused: Collection[str] = ()
        """Keys of texts that the embedder does not take."""
        self.by_key = False
        """Whether vectors up to the cursor are to be read that are owed."""
        self.recent: VectorCache[bytes] = VectorCache[bytes](RECENT)
        self.tongues: deque[bool] = deque(maxlen=JUDGED)
        self.is_foreign = False
        """Whether segments were met that are made by another reading, e.g. of other names."""
        self.early: dict[str, Vector] = {}
        self.damaged: set[str] = set()
        """Rows that are left out, but those of steps and messages."""

    def remove(self, ids: Sequence[str]) -> None:
        """Have nothing of *ids* found, which may stand in large segments for a while."""
        self.corpus.remove(ids)
        self.gone.extend(ids)
        for chain in CHAINS:
            self.hide(chain, ids)
        self.unlisted = any(self.large.values())

    def is_enough(self, chain: Chain) -> bool:
        """Whether what was read and is not kept is enough for a segment."""
        new = self.corpus.count_of(chain) - self.sealed.get(chain, 0)
        if chain == "nodes" and self.damaged:
            return False  # What is put right is read again.
        return new >= max(SEALED_FROM, len(self.corpus.steps.unread))

    def hide(self, chain: Chain, ids: Sequence[str]) -> bool:
        """Find nothing of *ids* in large segments; whether something was."""
        if not ids or not (large := self.large[chain]):
            return False
        hashed = hashes(ids)
        self.large[chain] = left = tuple(one.without(ids, hashed) for one in large)
        return left != large

    def hide_replaced(self) -> None:
        """Find in large segments no nodes that are in memory: these are at least as new."""
        self.hide("nodes", [id for group in self.corpus.nodes.values() for id in group.documents])

    def alone(self, large: Iterable[Segment]) -> dict[str, str]:
        """
        Documents that *large* segments name and do not hold: of texts that the embedder did not
        take, steps that repeat what is gone, and damaged rows, which are given with them.
        """
        found = dict[str, str]()
        for one in large:
            if isinstance(repeats := one.sealed["steps"].batch.repeats, Repeats):
                places = repeats.messages.find_all([*self.gone, ""])[1]
                born, said = repeats.born.rows(places).tolist(), repeats.sessions.some(places)
                rows = ("" if at else row for at, row in zip(born, said, strict=True))
                found |= zip(repeats.steps.some(places), rows, strict=True)
        return {id: row for id, row in found.items() if id not in self.gone}

    @property
    def nbytes(self) -> int:
        """Bytes in memory, of large segments but what is mapped."""
        rows = len(self.recent) + len(self.early)
        rows_bytes = rows * (4 * self.corpus.dimensions + 2 * OBJECT)
        return self.corpus.nbytes + rows_bytes + OF_LARGE * sum(map(len, self.large.values()))

    def end(self, chain: Chain) -> FeedCursor:
        """Up to which documents of a chain are in large segments."""
        return self.listed[chain][-1].until if self.listed[chain] else FeedCursor()

    @property
    def documents(self) -> int:
        """How many can be found."""
        return self.corpus.documents + sum(len(one) for some in self.large.values() for one in some)


NOTHING = Held(0, None)
NOTHING.recent = VectorCache(0)
EMPTY = NOTHING.corpus.view(0, Breather())
