"""The notes of one repository as rows: read, written and erased within one transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from mnemo.log.erase_messages import thread_number
from mnemo.log.tombstones import erased_messages
from mnemo.runtime.transactions import transacted
from mnemo.store.archive import StagedRule
from mnemo.store.archive_rows import Kind
from mnemo.store.check import misshapen
from mnemo.store.engine import OfRepository
from mnemo.store.rows import (
    Passed,
    Rows,
    chunks,
    holes,
    listed,
    repo_number,
    repo_row,
)
from mnemo.store.tables import (
    NOTE_CHANGES,
    NOTE_CONVERSATIONS,
    NOTE_MARKS,
    NOTE_REQUESTS,
    NOTE_TASKS,
    NOTE_USAGE,
    NOTE_VERSIONS,
    NOTES,
)
from mnemo.store.tx import Tx
from mnemo.values.archive import NoteChangeRow, NoteMark, NoteRequestRow, NoteTask
from mnemo.values.chat import EmbeddingSpace
from mnemo.values.codec import decode_vector, encode_time, encode_vector
from mnemo.values.erasure import ErasureReport, Selection
from mnemo.values.graph import Vector
from mnemo.values.notes import (
    ConversationRow,
    Covered,
    NoteChange,
    NoteRow,
    NoteVersion,
    UsageRow,
    absorbed_by,
)

T = TypeVar("T")

_NOTE = f"SELECT {NOTES.of('n')} FROM notes n"
_THERE = f"{_NOTE} WHERE n.repo = ? AND n.deleted_by IS NULL ORDER BY n.topic"
_OWED = f"""
{_NOTE} LEFT JOIN note_vectors v ON v.repo = n.repo AND v.note = n.no AND v.version = n.version
    AND v.space = ? AND v.dimensions = ?
WHERE n.repo = ? AND n.deleted_by IS NULL AND v.note IS NULL ORDER BY n.topic LIMIT ?
"""
_TOPICS = "SELECT topic FROM notes WHERE repo = ? AND deleted_by IS NULL ORDER BY topic"
_ALL_TOPICS = "SELECT topic FROM notes WHERE repo = ? ORDER BY topic"
_VERSIONS = f"""
SELECT n.topic, {NOTE_VERSIONS.of("v")}
FROM notes n JOIN note_versions v ON v.repo = n.repo AND v.note = n.no
WHERE n.repo = ? AND n.topic = ? ORDER BY v.version
"""
_CHANGES = f"""
SELECT n.topic, {NOTE_CHANGES.of("j")} FROM note_journal j
JOIN notes n ON n.no = j.note AND $also n.repo = j.repo
WHERE j.repo = ? AND j.update_id = ? ORDER BY j.seq
"""
_COUNTS = """
SELECT (SELECT count(*) FROM notes WHERE repo = :repo AND deleted_by IS NULL),
       (SELECT count(*) FROM note_versions WHERE repo = :repo)
"""
_WORDS = """
SELECT n.topic, w.words FROM note_words w JOIN notes n ON n.no = w.note AND $also n.repo = w.repo
WHERE w.repo = ?
"""
_WORD_ROWS: Rows[tuple[str, str]] = Rows("note_words", "s s", lambda row: (row[0], row[1]))
_VECTORS = """
SELECT n.topic, v.vector FROM notes n JOIN note_vectors v ON v.repo = n.repo AND v.note = n.no
WHERE n.repo = ? AND n.deleted_by IS NULL AND v.version = n.version
  AND v.space = ? AND v.dimensions = ?
"""
_DONE = "SELECT 1 FROM note_tasks WHERE repo = ? AND task_id = ?"
_USAGE = f"{NOTE_USAGE.select} AND update_id = ? ORDER BY seq"

_NOTE_OF = "note_vectors v JOIN notes n ON n.no = v.note AND $also n.repo = v.repo"
RULES = (misshapen("vectors of notes", "n.topic", _NOTE_OF, "v.dimensions"),)
KINDS = (
    Kind("note", NOTES, found_by={"words": "TEXT"}, find=lambda row, note: (note.words,)),
    Kind("note_version", NOTE_VERSIONS),
    Kind(
        "note_change",
        NOTE_CHANGES,
        first=True,
        order="coalesce(d.update_id, ''), d.seq",
        is_unique=False,
    ),
    Kind("note_mark", NOTE_MARKS, order="d.seq"),
    # The topic of a note that was purged would be a trace of it.
    Kind(
        "note_request",
        NOTE_REQUESTS,
        source="note_requests d LEFT JOIN notes n ON n.repo = d.repo AND n.topic = d.topic",
        said={"topic": "n.topic"},
    ),
    Kind("note_task", NOTE_TASKS),
)
INDEXES = (
    "CREATE INDEX staging.notes_topic ON notes (topic)",
    "CREATE INDEX staging.note_versions_number ON note_versions (note, version)",
)
STAGED: tuple[StagedRule, ...] = (
    *(
        (
            "its note has not come to that version",
            f"""SELECT a.line FROM staging.{table} a WHERE NOT EXISTS
                (SELECT 1 FROM staging.notes n WHERE n.topic = a.note AND n.version >= a.version)
                ORDER BY a.n""",
        )
        for table in ("note_versions", "note_journal")
    ),
    (
        "the note is not as its latest version says",
        """SELECT n.line FROM staging.notes n WHERE NOT EXISTS
           (SELECT 1 FROM staging.note_versions v WHERE v.note = n.topic
            AND v.version = n.version AND v.body = n.body AND v.description = n.description
            AND (v.action = 'deleted') = (n.deleted_by IS NOT NULL)) ORDER BY n.n""",
    ),
    (
        "the note that it names is not in the archive",
        """SELECT line FROM staging.note_requests WHERE topic IS NOT NULL
           AND topic NOT IN (SELECT topic FROM staging.notes) ORDER BY n""",
    ),
)

MOVE = """
INSERT INTO note_words (repo, note, words)
SELECT :repo, :notes + n, words FROM staging.notes WHERE deleted_by IS NULL
"""


class NoteReader:
    """Reads notes at *now*, aware; damaged ones go to *unreadable*, else ``StoreCorrupt``."""

    def __init__(self, tx: Tx, repo: int, now: datetime, unreadable: Passed | None = None) -> None:
        self.now = now
        self._tx = tx
        self._repo = repo
        self._unreadable = unreadable

    def _all(self, query: str, *values: object) -> list[Any]:
        return self._tx.run(query, values).fetchall()

    def _of_keys(self, query: str, keys: Sequence[str]) -> Iterator[Any]:
        """Rows of *query* with the repository and *keys* in its two holes."""
        for some in chunks(keys):
            yield from self._all(query.format(holes(some)), self._repo, *some)

    def rows(self, topics: Sequence[str] | None = None) -> list[NoteRow]:
        """The notes there are, by topic, less damaged ones; of *topics*, deleted ones, too."""
        if topics is None:
            return NOTES.rows.intact(self._all(_THERE, self._repo))
        query = f"{_NOTE} WHERE n.repo = ? AND n.topic IN ({{}}) ORDER BY n.topic"
        return NOTES.rows.all(self._of_keys(query, sorted(set(topics))), self._unreadable)

    def row(self, topic: str) -> NoteRow | None:
        """The note's row, deleted or not."""
        return next(iter(self.rows([topic])), None)

    def topics(self, *, deleted: bool = False) -> list[str]:
        """The topics of the notes that are there, sorted; with those that were, if asked."""
        query = _ALL_TOPICS if deleted else _TOPICS
        return [topic for (topic,) in self._all(query, self._repo)]

    def versions(self, topic: str, *, intact: bool = False) -> list[NoteVersion]:
        """What is kept of its versions, oldest first."""
        rows = self._all(_VERSIONS, self._repo, topic)
        read = NOTE_VERSIONS.rows
        return read.intact(rows) if intact else read.all(rows)

    def changes(self, update_id: str) -> list[NoteChange]:
        """What an update did, in order."""
        rows = self._all(_CHANGES, self._repo, update_id)
        return [record.change for record in NOTE_CHANGES.rows.all(rows)]

    def counts(self) -> tuple[int, int]:
        """Notes that are there, and versions kept of all."""
        notes, versions = self._tx.run(_COUNTS, {"repo": self._repo}).fetchone()
        return int(notes), int(versions)

    def matching(self, terms: Sequence[str]) -> dict[str, frozenset[str]]:
        """Term (as ``runtime.text.terms`` gives them) → topics of the notes that hold it."""
        held = _WORD_ROWS.intact(self._all(_WORDS, self._repo))
        return {
            term: frozenset(topic for topic, words in held if f" {term} " in words)
            for term in terms
        }

    def vectors(self, space: EmbeddingSpace) -> dict[str, Vector]:
        """Topic → vector of its present version, where there is one of *space*."""
        rows = self._all(_VECTORS, self._repo, space.name, space.dimensions)
        read = Rows("note_vectors", "s b", lambda row: decode_vector(row[1], space.dimensions))
        return {row[0]: vector for row in rows for vector in read.intact([row])}

    def owed(self, space: EmbeddingSpace, *, limit: int) -> list[NoteRow]:
        """Notes that have no vector of *space*, by topic."""
        return NOTES.rows.intact(self._all(_OWED, space.name, space.dimensions, self._repo, limit))

    def marked(self, keys: Sequence[str]) -> frozenset[str]:
        """Those of *keys* that are marks."""
        query = "SELECT key FROM note_marks WHERE repo = ? AND key IN ({})"
        return frozenset(key for (key,) in self._of_keys(query, keys))

    def covered(self, digests: Sequence[str]) -> dict[str, Covered]:
        """What became of the requests with these digests, where that is settled."""
        query = f"{NOTE_REQUESTS.select} AND digest IN ({{}})"
        found = NOTE_REQUESTS.rows.all(self._of_keys(query, digests))
        return {request.digest: request.covered for request in found}

    def is_done(self, task_id: str) -> bool:
        """Whether an update of this task has ended without error."""
        return bool(self._all(_DONE, self._repo, task_id))

    def conversation(self, key: str) -> ConversationRow:
        """What is known of its updates; of an unknown one, nothing."""
        found = NOTE_CONVERSATIONS.get(self._tx, self._repo, key)
        return found or ConversationRow(key=key)

    def usage(self, update_id: str) -> list[UsageRow]:
        """What its calls cost, in order."""
        return NOTE_USAGE.rows.all(self._all(_USAGE, self._repo, update_id))


# ── Writing ───────────────────────────────────────────────────────────────────────


_FIND = "SELECT no FROM notes WHERE repo = ? AND topic = ?"
_PRUNE = """
DELETE FROM note_versions WHERE repo = :repo AND note = :note AND version <=
    (SELECT version FROM note_versions WHERE repo = :repo AND note = :note
     ORDER BY version DESC LIMIT 1 OFFSET :keep)
"""
_DROP_VERSIONS = "DELETE FROM note_versions WHERE repo = ? AND note = ?"
_DROP_VERSION = f"{_DROP_VERSIONS} AND version = ?"
_DROP_WORDS = "DELETE FROM note_words WHERE repo = ? AND note = ?"
_PUT_WORDS = "INSERT INTO note_words (repo, note, words) VALUES (?, ?, ?)"
_DROP_VECTOR = "DELETE FROM note_vectors WHERE repo = ? AND note = ?"
_PUT_VECTOR = """
INSERT INTO note_vectors (repo, note, version, space, dimensions, vector)
SELECT repo, no, version, ?, ?, ? FROM notes
WHERE repo = ? AND topic = ? AND version = ? AND deleted_by IS NULL
ON CONFLICT (repo, note) DO UPDATE SET version = excluded.version, space = excluded.space,
    dimensions = excluded.dimensions, vector = excluded.vector
"""
# A new row, not an update: the oldest are pruned by their numbers.
_UNMARK = "DELETE FROM note_marks WHERE repo = ? AND key = ?"
_PRUNE_MARKS = """
DELETE FROM note_marks WHERE repo = :repo AND seq <=
    (SELECT seq FROM note_marks WHERE repo = :repo ORDER BY seq DESC LIMIT 1 OFFSET :keep)
"""
_UNNAME = "UPDATE note_requests SET topic = NULL WHERE repo = ? AND topic = ?"


class StoredNotes(OfRepository):
    """The notes of one repository, as transactions."""

    async def reading(self, work: Callable[[NoteReader], T]) -> T:
        """Run *work* on one revision of the file. *Cancellation*: safe."""
        repo_id, now = self._repo_id, self._clock.now()
        return await self._engine.reading(
            lambda tx: work(NoteReader(tx, repo_row(tx, repo_id)[0], now))
        )

    async def writing(self, work: Callable[[NoteWriter], T]) -> T:
        """Run *work* in one transaction of the writer. *Cancellation*: completes."""
        repo_id, now = self._repo_id, self._clock.now()
        return await self._engine.writing(
            lambda tx: work(NoteWriter(tx, repo_number(tx, repo_id), now)),
            locks=[("notes", repo_id)],
        )


async def surely(
    store: StoredNotes, work: Callable[[NoteWriter], T], made: Callable[[NoteReader, T], bool]
) -> T:
    """``store.writing``; where it fails, *made* looks whether the store holds the result."""
    return await transacted(store.writing, store.reading, work, made)


class NoteWriter(NoteReader):
    """Writes them, too."""

    def put(self, row: NoteRow, version: NoteVersion, *, keep: int) -> None:
        """Write a note and a version, of which the *keep* latest stay; it is owed a vector."""
        execute = self._tx.run
        NOTES.put(self._tx, self._repo, row)
        ((number,),) = self._all(_FIND, self._repo, row.topic)
        NOTE_VERSIONS.put(self._tx, self._repo, version, number)
        execute(_PRUNE, {"repo": self._repo, "note": number, "keep": keep})
        change = NoteChange(
            topic=row.topic, action=version.action, version=version.version, by=version.by
        )
        entry = NoteChangeRow(update_id=version.update_id, change=change)
        execute(NOTE_CHANGES.insert, (self._repo, number, *NOTE_CHANGES.values(entry)))
        execute(_DROP_WORDS, (self._repo, number))
        execute(_DROP_VECTOR, (self._repo, number))
        if row.is_there:
            execute(_PUT_WORDS, (self._repo, number, row.words))

    def touch(self, topics: Sequence[str], at: datetime) -> None:
        """Set when they were last read; no version."""
        for some in chunks(topics):
            self._tx.run(
                f"UPDATE notes SET last_read_at = ? WHERE repo = ? AND topic IN ({holes(some)})",
                (encode_time(at), self._repo, *some),
            )

    def erase(self, topic: str) -> ErasureReport:
        """Delete a note with all its versions and rows."""
        execute = self._tx.run
        found = execute(_FIND, (self._repo, topic)).fetchone()
        if found is None:
            return ErasureReport()
        self._tx.dialect.note_erased(self._tx)
        note = self._repo, *found
        execute("DELETE FROM note_journal WHERE repo = ? AND note = ?", note)
        execute("DELETE FROM notes WHERE $also repo = ? AND no = ?", note)
        # The request stays covered; the topic may be made of its words.
        execute(_UNNAME, (self._repo, topic))
        return ErasureReport(
            notes=1,
            note_versions=execute(_DROP_VERSIONS, note).rowcount,
            fulltext_rows=execute(_DROP_WORDS, note).rowcount,
            vectors=execute(_DROP_VECTOR, note).rowcount,
        )

    def rewrite(self, version: NoteVersion) -> None:
        """Replace a version by one with fewer words; for erasure."""
        ((number,),) = self._all(_FIND, self._repo, version.topic)
        NOTE_VERSIONS.put(self._tx, self._repo, version, number)
        self._tx.dialect.note_erased(self._tx)

    def drop(self, topic: str, version: int) -> None:
        """Delete one version; for erasure. Its number is not given again."""
        ((number,),) = self._all(_FIND, self._repo, topic)
        self._tx.run(_DROP_VERSION, (self._repo, number, version))
        self._tx.dialect.note_erased(self._tx)

    def save_vectors(
        self, space: EmbeddingSpace, vectors: Mapping[str, tuple[int, Vector]]
    ) -> None:
        """Keep vectors by topic, of the versions that they name; others are skipped."""
        for topic, (version, vector) in vectors.items():
            made = (space.name, space.dimensions, encode_vector(vector))
            self._tx.run(_PUT_VECTOR, (*made, self._repo, topic, version))

    def mark(self, key: str, *, keep: int) -> None:
        """Remember a judged message; *keep* marks are kept, the latest ones."""
        self._tx.run(_UNMARK, (self._repo, key))
        NOTE_MARKS.add(self._tx, self._repo, NoteMark(key=key))
        self._tx.run(_PRUNE_MARKS, {"repo": self._repo, "keep": keep})

    def cover(self, digest: str, covered: Covered) -> None:
        """Remember for good what became of a request; the first word about it stays."""
        request = NoteRequestRow(digest=digest, covered=covered)
        NOTE_REQUESTS.add_once(self._tx, self._repo, request)

    def finish(self, task_id: str) -> None:
        """Remember that an update of this task has ended without error."""
        NOTE_TASKS.add_once(self._tx, self._repo, NoteTask(task_id=task_id))

    def keep_conversation(self, row: ConversationRow) -> None:
        """Write what is known of a conversation's updates."""
        NOTE_CONVERSATIONS.put(self._tx, self._repo, row)

    def add_usage(self, row: UsageRow) -> None:
        """Write what a call cost."""
        NOTE_USAGE.add(self._tx, self._repo, row)


# ── What forgetting conversations does to notes that were written from them ───────


_VERSIONS_OF = f"""
SELECT v.note, v.thread_id, v.session_id, n.topic,
       {", ".join(f"v.{column}" for column in NOTE_VERSIONS.columns)}
FROM notes n $join note_versions v ON v.repo = n.repo AND v.note = n.no
WHERE n.repo = ? AND v.action <> 'deleted' AND (v.thread_id IN $texts
    OR (v.thread_id IS NULL AND v.session_id IN $texts) OR ? = 1)
"""
_NO_TIME = datetime.min.replace(tzinfo=UTC)
_LEFT = "SELECT 1 FROM note_versions WHERE repo = ? AND note = ?"


def erase_notes(
    tx: Tx,
    repo: int,
    selection: Selection,
    *,
    taken: Mapping[str, Collection[str]],
    touched: Collection[str],
    gone: frozenset[str],
    unreadable: Passed,
) -> ErasureReport:
    """
    Erase what rests on the erased alone; after it was erased, and its ids remembered.

    Args:
        taken: The ids of the messages that this erasure takes, or takes the steps of, by their
            thread's. What rests on none of them is left alone, though its own have expired.
        touched: The sessions that lose steps.
        gone: Those of which nothing is left.
    """
    if selection.whole_session is not None:  # whether or not its steps were kept
        gone |= {selection.whole_session}

    def erased(thread_id: str, ids: Sequence[str]) -> frozenset[str]:
        if frozenset(taken.get(thread_id, ())).isdisjoint(ids):
            return frozenset()
        thread = thread_number(tx, repo, thread_id)
        return erased_messages(tx, thread, ids) if thread else frozenset()

    writer = NoteWriter(tx, repo, _NO_TIME, unreadable)  # erasing notes writes no time
    threads = [*taken, *filter(None, [selection.thread_id])]
    sessions = [*touched, *gone, *filter(None, [selection.session_id])]
    stems = (repo, listed(threads), listed(sessions), selection.before is not None)
    thread = selection.whole_thread
    done = _erase_damaged(tx, writer, stems, thread, gone, unreadable)
    return done + forget_sources(writer, thread_id=thread, session_ids=gone, erased=erased)


def _erase_damaged(
    tx: Tx,
    writer: NoteWriter,
    stems: Sequence[Any],
    thread_id: str | None,
    gone: Collection[str],
    unreadable: Passed,
) -> ErasureReport:
    """
    Delete versions that cannot be decoded, if by their columns they stem from the erased alone.

    What stems from a thread or session of which a part is erased is *unreadable*.
    """
    done = ErasureReport()
    for note, thread, session, *row in tx.run(_VERSIONS_OF, stems).fetchall():
        damaged: Passed = []
        NOTE_VERSIONS.rows.all([row], damaged)
        if not damaged:
            continue
        is_gone = session in gone if thread is None else thread == thread_id
        if not is_gone:
            unreadable += damaged
            continue
        writer.drop(row[0], row[1])
        done += ErasureReport(note_versions=1)
        if tx.run(_LEFT, (stems[0], note)).fetchone() is None:
            done += writer.erase(row[0])
    return done


def forget_sources(
    tx: NoteWriter,
    *,
    thread_id: str | None = None,
    session_ids: Collection[str] = (),
    erased: Callable[[str, Sequence[str]], frozenset[str]],
) -> ErasureReport:
    """
    Forget what rests on erased messages, in the transaction that erases them.

    Versions that rest on them alone go; a present text of a note that rests on more loses its
    quotes, as versions do that rest on others, too.

    Args:
        thread_id: A thread that is erased whole, whether or not its messages were kept.
        session_ids: Sessions of which nothing is left; of versions that name no thread.
        erased: Those of a thread's message ids that are erased, by this erasure or before it;
            none if this one takes none of them.
    """

    def lost(version: NoteVersion) -> frozenset[str]:
        thread, ids = version.thread_id, version.message_ids
        return erased(thread, ids) if thread is not None and ids else frozenset()

    def is_gone(version: NoteVersion) -> bool:
        if version.thread_id is None:
            return version.session_id in session_ids
        return version.thread_id == thread_id or 0 < len(lost(version)) == len(
            set(version.message_ids)
        )

    done = ErasureReport()
    for topic in tx.topics(deleted=True):
        versions = [v for v in tx.versions(topic, intact=True) if v.action != "deleted"]
        gone = {v.version for v in versions if is_gone(v)}
        touched = [v for v in versions if v.version in gone or lost(v)]
        if gone and len(gone) == len(versions):
            done += erase_note(tx, topic)
        elif touched:
            row = tx.row(topic)
            present = row.version if row is not None and row.is_there else None
            for version in touched:
                if version.version in gone - {present}:
                    tx.drop(topic, version.version)
                    done += ErasureReport(note_versions=1)
                else:
                    kept = () if version.version in gone else version.message_ids
                    left = tuple(id for id in kept if id not in lost(version))
                    tx.rewrite(replace(version, evidence="", message_ids=left))
            done += ErasureReport(mixed_notes=() if present is None else (topic,))
    return done


def erase_note(tx: NoteWriter, topic: str) -> ErasureReport:
    """Delete a note with all its versions, and its name where others were absorbed by it."""
    erased = tx.erase(topic)
    for other in tx.topics(deleted=True):
        for version in tx.versions(other, intact=True):
            if version.reason == absorbed_by(topic):
                tx.rewrite(replace(version, reason=""))
    return erased
