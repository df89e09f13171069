"""Whether everything in the file agrees with everything else; nothing is changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import chain

from mnemo.store.sqlite.check_rows import check_rows
from mnemo.store.sqlite.check_texts import check_texts
from mnemo.store.sqlite.check_threads import THREAD_CHECKS
from mnemo.store.sqlite.texts import all_text_tables, count_texts

__all__ = ["check_full_text", "check_store"]

# Each finds what must not be there; a row is (what, how many, an example).
_CHECKS = (
    (
        "vectors whose node or step is gone",
        """
        SELECT count(*), min(v.key) FROM vectors v
        WHERE NOT EXISTS (SELECT 1 FROM nodes n WHERE n.repo = v.repo AND n.id IN (v.key, {owner}))
        AND NOT EXISTS (SELECT 1 FROM steps t WHERE t.repo = v.repo AND t.node_id = {owner}
                        AND t.gone = 0)
        """,
    ),
    (
        "vectors of a wrong length",
        """
        SELECT count(*), min(v.key) FROM vectors v JOIN repos r ON r.no = v.repo
        WHERE length(v.vector) <> 4 * r.space_dimensions
        """,
    ),
    (
        "staged vectors of a wrong length",
        """
        SELECT count(*), min(v.key) FROM moving v JOIN repos r ON r.no = v.repo
        WHERE length(v.vector) <> 4 * r.next_space_dimensions
        """,
    ),
    (
        "vectors of notes of a wrong length",
        """
        SELECT count(*), min(n.topic) FROM note_vectors v JOIN notes n ON n.no = v.note
        WHERE length(v.vector) <> 4 * v.dimensions
        """,
    ),
    (
        "edges whose end is gone",
        """
        SELECT count(*), min(e.kind) FROM edges e
        WHERE NOT EXISTS (SELECT 1 FROM nodes n WHERE n.no = e.source)
        OR NOT EXISTS (SELECT 1 FROM nodes n WHERE n.no = e.target)
        """,
    ),
    (
        "committed steps without their node",
        """
        SELECT count(*), min(t.node_id) FROM steps t WHERE t.committed = 1 AND t.gone = 0
        AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.repo = t.repo AND n.id = t.node_id)
        """,
    ),
    (
        "sessions that are ready without a staged changeset",
        """
        SELECT count(*), min(s.id) FROM sessions s JOIN episodes e ON e.no = s.episode
        WHERE s.state = 'ready' AND e.changeset IS NULL
        """,
    ),
    (
        "sessions whose episode does not fit their state",
        """
        SELECT count(*), min(s.id) FROM sessions s LEFT JOIN episodes e ON e.no = s.episode
        WHERE e.no IS NULL
        OR (s.state = 'idle') <> (e.status IN ('committed', 'discarded'))
        OR (s.state = 'collecting') <> (e.status = 'open')
        """,
    ),
    (
        "staged results of episodes that are over",
        """
        SELECT count(*), min(g.key) FROM staged g LEFT JOIN episodes e ON e.no = g.episode
        WHERE e.no IS NULL OR e.status IN ('committed', 'discarded')
        """,
    ),
    (
        "episodes with a gap in their steps",
        """
        SELECT count(*), min(episode) FROM
        (SELECT episode FROM steps GROUP BY episode HAVING max(idx) + 1 <> count(*))
        WHERE episode NOT IN (SELECT no FROM episodes WHERE erased)
        """,
    ),
)
_OWNER = """
CASE WHEN v.key LIKE '%/observation' THEN substr(v.key, 1, length(v.key) - 12)
     WHEN v.key LIKE '%/action' THEN substr(v.key, 1, length(v.key) - 7) ELSE v.key END
"""
_COUNTED = (
    *("repos", "sessions", "episodes", "steps", "nodes", "edges", "vectors", "threads"),
    *("messages", "message_vectors", "compactions", "snapshots", "goals", "pins"),
    *("notes", "note_versions"),
)


def check_store(connection: sqlite3.Connection) -> tuple[list[str], dict[str, int]]:
    """The problems found (none is healthy), and how many rows there are of each kind."""
    problems = [*_damage(connection), *check_rows(connection), *_disagreements(connection)]
    problems += check_texts(connection)
    counts = {
        table: int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
        for table in _COUNTED
    }
    return problems, counts | {"texts": count_texts(connection)}


def _damage(connection: sqlite3.Connection) -> Iterator[str]:
    for (found,) in connection.execute("PRAGMA integrity_check(20)"):
        if found != "ok":
            yield f"damaged file: {found}"


def _disagreements(connection: sqlite3.Connection) -> Iterator[str]:
    for what, query in (*_CHECKS, *THREAD_CHECKS):
        count, example = connection.execute(query.replace("{owner}", _OWNER)).fetchone()
        if count:
            yield f"{count} {what}, e.g. {example}"


def check_full_text(connection: sqlite3.Connection) -> list[str]:
    """What FTS5 says of its own structure; for the writer, since it is asked by an ``INSERT``."""
    try:
        for table in chain.from_iterable(all_text_tables(connection)):
            connection.execute(f"INSERT INTO {table} ({table}) VALUES ('integrity-check')")
    except sqlite3.DatabaseError as error:
        return [f"damaged full text: {error}"]
    return []
