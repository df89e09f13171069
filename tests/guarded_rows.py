"""
A transaction that fails where a row is written without the lock that guards it.

The fixture ``guarded_rows``, in force where it is imported, has the engines of SQLite and
PostgreSQL hand it to every writer. SQLite itself takes no locks, but what its writers name is
checked all the same. Tests that count statements use a fixture of this name that does nothing.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import pytest

from mnemo.store.engine import WHOLE, Bulk, Locks
from mnemo.store.postgres.engine import PostgresEngine
from mnemo.store.sqlite.engine import SqliteEngine
from mnemo.store.tx import Tx, Values

__all__ = ["GUARDS", "UNGUARDED", "UnguardedWrite", "guarded_rows"]

GUARDS: Mapping[str, Sequence[str]] = {
    "session": ("sessions", "episodes", "steps", "staged"),
    "graph": ("nodes", "node_keys", "edges", "vectors", "changesets", "moving"),
    "transcript": (
        *("threads", "messages", "message_calls", "compactions", "snapshots"),
        *("outcomes", "goals", "pins", "surfaced", "surfaced_records", "jobs"),
    ),
    "notes": (
        *("notes", "note_versions", "note_vectors", "note_words", "note_journal", "note_marks"),
        *("note_requests", "note_tasks", "note_conversations", "note_usage"),
    ),
    "items": ("items", "item_vectors"),
    "checkpoints": ("checkpoints", "checkpoint_values", "checkpoint_writes"),
    "owner": ("owners",),
}
"""
Which lock guards the rows of which tables; its id is the repository's, or
``session_lock``'s.

A row is written whole only under the lock that guards it: the writer has read it there, and
nobody else has changed it since. Without that lock, columns that no whole row has are set by
themselves, with their condition in the statement (``sessions.owner``), or added to. ``repos``
is written in this way alone.
"""
_KINDS = {table: kind for kind, tables in GUARDS.items() for table in tables}
_WRITE = re.compile(r"\s*(?:(INSERT INTO|DELETE FROM)|UPDATE) (\w+)\b\s*(.*)", re.S)
_SET = re.compile(r"SET\s(.*?)(?:\bFROM\b|\bWHERE\b|$)", re.S)
_COLUMN = re.compile(r"(?:^|,)\s*(\w+) = ")
_NAMES = re.compile(r"\(([\w\s,]+)\)")
_SESSIONS = {
    "session": """SELECT r.id, s.id FROM sessions s JOIN repos r ON r.no = s.repo
                  WHERE s.no = ?""",
    "episode": """SELECT r.id, s.id FROM episodes e JOIN sessions s ON s.no = e.session
                  JOIN repos r ON r.no = s.repo WHERE e.no = ?""",
}
_REPOSITORIES = {
    "repo": "SELECT id FROM repos WHERE no = ?",
    "thread": "SELECT r.id FROM threads t JOIN repos r ON r.no = t.repo WHERE t.no = ?",
    "note": "SELECT r.id FROM notes n JOIN repos r ON r.no = n.repo WHERE n.no = ?",
}
"""The parts of the id of the lock of an inserted row, by the column that leads to it."""
UNGUARDED = {"sessions": frozenset({"owner"}), "steps": frozenset({"gone"})}
"""Columns that are set without their row's lock, each with its condition in the statement."""
_DELETED = {"vectors": "transcript", "moving": "transcript"}
"""The other lock of some rows: vectors of messages are written under both, so each may delete."""


class UnguardedWrite(AssertionError):
    """A writer changed a row and had not named the lock that guards it."""


class Held(NamedTuple):
    """What a writer has named; nothing keeps out all others."""

    names: frozenset[tuple[str, str]]

    def has(self, kind: str, id: str | None = None) -> bool:
        """Whether the lock *kind* is held; of *id*, if that is known."""
        ids = {held for held_kind, held in self.names if held_kind in (kind, WHOLE)}
        of = {id, id and id.partition("\0")[0]}
        return not self.names or bool(ids if id is None else ids & of)


class GuardedTx:
    """``Tx`` that checks what it is given to write."""

    def __init__(self, tx: Tx, held: Held) -> None:
        self._tx = tx
        self._held = held

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    def run(self, statement: str, *values: Values) -> Any:
        """Run one statement, once it is checked."""
        self._check(statement, values[0] if values else ())
        return self._tx.run(statement, *values)

    def run_many(self, statement: str, rows: Iterable[Values], /) -> int:
        """Run *statement* for each of *rows*, once they are checked."""
        rows = list(rows)
        for row in rows:
            self._check(statement, row)
        return self._tx.run_many(statement, rows)

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], /) -> None:
        """Insert *rows*, once they are checked."""
        for row in rows:
            self._check(f"INSERT INTO {table} ({', '.join(columns)}) VALUES", row)
        self._tx.insert(table, columns, rows)

    def _check(self, statement: str, values: Values) -> None:
        found = _WRITE.match(statement)
        kind = _KINDS.get(found[2]) if found else None
        if found is None or kind is None:
            return
        verb, table, rest = found[1], found[2], found[3]
        id = self._owner(kind, rest, values) if verb == "INSERT INTO" else None
        if self._held.has(kind, id):
            return
        if verb == "DELETE FROM" and self._held.has(_DELETED.get(table, kind)):
            return
        if verb is None and _columns(rest) <= UNGUARDED.get(table, frozenset()):
            return
        told = " ".join(statement.split())
        raise UnguardedWrite(f"without the lock {kind!r} of {id!r}: {told}")

    def _owner(self, kind: str, rest: str, values: Values) -> str | None:
        """What the lock of an inserted row is named by; ``None``: the statement does not say."""
        names = _NAMES.match(rest)
        columns = re.split(r",\s*", names[1].strip()) if names else []
        for column, query in (_SESSIONS if kind == "session" else _REPOSITORIES).items():
            if column in columns and "SELECT" not in rest and not isinstance(values, dict):
                row = self._tx.run(query, (values[columns.index(column)],)).fetchone()
                return row and "\0".join(row)
        return None


def _columns(rest: str) -> frozenset[str]:
    """The columns that an UPDATE sets; *rest* is what follows its table."""
    found = _SET.match(rest)
    assert found is not None, rest
    return frozenset(_COLUMN.findall(found[1]))


# ── Engines ──────────────────────────────────────────────────────────────────────────


@pytest.fixture(autouse=True)
def guarded_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the engines check what their writers write."""
    for engine in (SqliteEngine, PostgresEngine):
        _guard(monkeypatch, engine)


def _guard(patch: pytest.MonkeyPatch, engine: type[Any]) -> None:
    writing, merging, post = engine.writing, engine.merging, engine.post
    bulks: dict[Bulk, Bulk] = {}

    def checked(work: Bulk) -> Bulk:
        # The same for the same work: by that the writer knows what it may run together.
        return bulks.setdefault(work, lambda tx, handed: _run(work, tx, handed))

    async def guarded_writing(self: Any, work: Callable[[Tx], Any], *, locks: Locks = ()) -> Any:
        return await writing(self, lambda tx: work(GuardedTx(tx, _held([locks]))), locks=locks)

    async def guarded_merging(self: Any, work: Bulk, payload: Any, *, locks: Locks = ()) -> Any:
        return await merging(self, checked(work), (locks, payload), locks=locks)

    def guarded_post(self: Any, work: Bulk, payload: Any, done: Any, *, locks: Locks = ()) -> None:
        post(self, checked(work), (locks, payload), done, locks=locks)

    patch.setattr(engine, "writing", guarded_writing)
    patch.setattr(engine, "merging", guarded_merging)
    patch.setattr(engine, "post", guarded_post)


def _held(named: Sequence[Locks]) -> Held:
    return Held(frozenset(map(tuple, chain(*named))) if all(named) else frozenset())


def _run(work: Bulk, tx: Tx, handed: Sequence[tuple[Locks, Any]]) -> Sequence[Any]:
    held = _held([locks for locks, _ in handed])
    return work(GuardedTx(tx, held), [payload for _, payload in handed])
