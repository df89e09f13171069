"""
Transactions on the notes of a repository together with their vectors.

No transaction is open while a text is embedded, and a note is written whether or not
that works: a vector that is missing is owed, and made up for before the next ranking.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

import anyio

from mnemo.config import NotesConfig
from mnemo.errors import StoreError
from mnemo.notes.guards import said_of
from mnemo.notes.note_rows import NoteReader
from mnemo.notes.note_writing import NoteStore, NoteWriter
from mnemo.notes.recall import NoteHit, NoteRecall, Ranked, by_query, by_use, passage, query_terms
from mnemo.notes.writing import NoteSource, Write, Written, present, retire, there, write
from mnemo.protocols import Clock, Embedder
from mnemo.recall.request import MAX_QUERY_CHARACTERS
from mnemo.runtime.text import count_tokens, is_blank
from mnemo.runtime.transactions import transacted
from mnemo.values.counting import Count
from mnemo.values.graph import Vector
from mnemo.values.notes import NoteRow
from mnemo.values.vectors import unit_rows

log = logging.getLogger("mnemo")

EMBEDDING_S = 10.0
"""Seconds that the embedding of a note may take; then its vector is owed (S)."""
DEBTS = 64
"""Vectors that are made up for at once (S)."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A point in time: by the clock, and by the number of notes created here."""

    at: datetime
    created: int


class Shelf:
    """
    The notes of one repository.

    Args:
        store: Where they are.
        embedder: Makes their vectors, and those of queries.
        count: Counts the tokens of what is shown.
    """

    def __init__(
        self,
        store: NoteStore,
        embedder: Embedder,
        clock: Clock,
        config: NotesConfig,
        count: Count = count_tokens,
    ) -> None:
        self.store = store
        self.config = config
        self._count = count
        self._embedder = embedder
        self._clock = clock
        self._created = 0
        self._created_as: dict[str, int] = {}

    def moment(self) -> Moment:
        """The present, for ``is_newer``; a plain call."""
        return Moment(self._clock.now(), self._created)

    def is_newer(self, row: NoteRow, moment: Moment) -> bool:
        """Whether the note was created after *moment*, here or by another process."""
        return self._created_as.get(row.topic, 0) > moment.created or row.created_at > moment.at

    async def write(self, change: Write) -> Written:
        """
        Write *change* with its vector, in one transaction.

        Raises:
            UsageError: As ``writing.write``.
            StoreError: Nothing was written. *Cancellation*: completes once it is begun.
        """
        (vector,) = await self._embedded([change.text.searchable], "document")
        space = self._embedder.space

        def work(tx: NoteWriter) -> Written:
            written = write(tx, change, self.config)
            if vector is not None and written.changed:
                row = written.row
                tx.save_vectors(space, {row.topic: (row.version, vector)})
            return written

        def made(tx: NoteReader, written: Written) -> bool:
            return written.changed and present(tx, written.row.topic) == written.row

        written = await transacted(self.store.writing, self.store.reading, work, made)
        if written.created:
            self._created += 1
            self._created_as[written.row.topic] = self._created
        return written

    async def delete(
        self, topic: str, source: NoteSource, *, expected: int | None = None
    ) -> NoteRow:
        """Retire a note. *Raises* as ``writing.retire``, and ``StoreError``."""
        gone = await transacted(
            self.store.writing,
            self.store.reading,
            lambda tx: retire(tx, topic, source, self.config, expected=expected),
            lambda tx, gone: present(tx, topic) == gone,
        )
        self._created_as.pop(topic, None)
        return gone

    async def read(self, topic: str, *, touching: bool) -> NoteRow:
        """
        The note as it is now.

        Args:
            touching: Whether it counts as read.

        Raises:
            NotFound: It is not there.
        """
        row = await self.store.reading(lambda tx: there(tx, topic))
        if not touching:
            return row
        read_at = await self._touched([topic])
        return row if read_at is None else replace(row, last_read_at=read_at)

    async def _touched(self, topics: Sequence[str]) -> datetime | None:
        """Record that *topics* were read now; ``None`` if the store fails."""
        now = self._clock.now()
        try:
            await self.store.writing(lambda tx: tx.touch(topics, now))
        except StoreError as error:
            log.warning("that notes were read was not stored: %s", error)
            return None
        return now

    async def topics(self) -> frozenset[str]:
        """Of the notes that are there. *Raises* ``StoreError``."""
        return frozenset(await self.store.reading(lambda tx: tx.topics()))

    # ── Ranked ───────────────────────────────────────────────────────────────────────

    async def ranked(self, query: str | None) -> list[NoteRow]:
        """All notes: latest use first, or best for *query* first."""
        if query is None or is_blank(query):
            return by_use(await self.store.reading(lambda tx: tx.rows()))
        return [one.row for one in await self._ranked(query)]

    async def recall(self, query: str, k: int) -> NoteRecall:
        """The notes that share a word with *query*, or mean much the same; they count as read."""
        found = [one for one in await self._ranked(query) if self._fits(one)][:k]
        if not found:
            return NoteRecall()
        now = await self._touched([one.row.topic for one in found])
        return NoteRecall(
            tuple(
                _hit(one, one.row if now is None else replace(one.row, last_read_at=now))
                for one in found
            ),
            self._count,
        )

    def _fits(self, one: Ranked) -> bool:
        return bool(one.shared) or one.cosine >= self.config.min_cosine

    async def _ranked(self, query: str) -> list[Ranked]:
        query = query[:MAX_QUERY_CHARACTERS]
        await self.settle_debts()
        (vector,) = await self._embedded([query], "query")
        terms, space = query_terms(query), self._embedder.space

        def work(tx: NoteReader) -> list[Ranked]:
            return by_query(
                tx.rows(),
                matching=tx.matching(terms),
                vectors=tx.vectors(space),
                query=vector,
                now=self._clock.now(),
                half_life_d=self.config.recency_half_life_d,
            )

        return await self.store.reading(work)

    # ── Vectors ──────────────────────────────────────────────────────────────────────

    async def settle_debts(self) -> None:
        """Embed one batch of notes whose vector is missing. *Raises* ``StoreError``."""
        space = self._embedder.space
        owed = await self.store.reading(lambda tx: tx.owed(space, limit=DEBTS))
        if not owed:
            return
        vectors = await self._embedded([row.text for row in owed], "document")
        made = {
            row.topic: (row.version, vector)
            for row, vector in zip(owed, vectors, strict=True)
            if vector is not None
        }
        if made:
            await self.store.writing(lambda tx: tx.save_vectors(space, made))

    async def _embedded(
        self, texts: Sequence[str], kind: Literal["document", "query"]
    ) -> list[Vector | None]:
        made: list[Vector | None] = [None] * len(texts)
        dimensions = self._embedder.space.dimensions
        try:
            with anyio.move_on_after(EMBEDDING_S):
                reply = await self._embedder.embed(texts, kind=kind)
                made = [*unit_rows(reply, rows=len(texts), dimensions=dimensions)]
        except Exception as error:
            # An embedder may repeat the text that it was given.
            log.warning("the vector of a note is owed: %s", said_of(error))
        return made


def _hit(one: Ranked, row: NoteRow) -> NoteHit:
    return NoteHit(row.note, round(one.score, 6), passage(row.body, one.shared))
