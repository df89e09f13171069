"""Repositories of a store as wholes: listing them, and deleting one with everything in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from datetime import datetime
from typing import Any

from mnemo.errors import NotFound
from mnemo.jobs.calls import drop_calls
from mnemo.log.record_rows import message_row, snapshot_row, step_row
from mnemo.log.tombstones import remember_erased
from mnemo.store.rows import Rows, repo_row
from mnemo.store.tables import TABLES
from mnemo.store.texts import drop_texts
from mnemo.store.tx import Tx
from mnemo.values.codec import decode_time
from mnemo.values.erasure import ErasureReport
from mnemo.values.journal import RepositoryRecord

# ── Listing ──────────────────────────────────────────────────────────────────────────

_REPOS = """
SELECT r.no, r.id, (SELECT count(*) FROM threads t WHERE t.repo = r.no),
       (SELECT count(*) FROM sessions s WHERE s.repo = r.no)
FROM repos r ORDER BY r.id
"""
_OWED = """
SELECT repo, state, count(*) FROM sessions WHERE state IN ('failed', 'ready') GROUP BY repo, state
UNION ALL SELECT repo, state, count(*) FROM jobs
          WHERE state IN ('dead', 'waiting', 'running') AND kind <> 'embed' GROUP BY repo, state
"""
_NODES = "SELECT repo, type, count(*) FROM nodes GROUP BY repo, type"
# The first and the last of each group, by an index; never over all rows.
_TIMES = """
SELECT n.repo, m.created_at FROM (SELECT repo, min(no) AS first, max(no) AS last FROM nodes
    GROUP BY repo, type) n JOIN nodes m ON $also m.repo = n.repo AND m.no IN (n.first, n.last)
UNION ALL SELECT s.repo, s.updated_at FROM sessions s
UNION ALL SELECT s.repo, t.recorded_at FROM sessions s
          JOIN episodes e ON e.repo = s.repo AND e.session = s.no
          JOIN steps t ON t.repo = e.repo AND t.episode = e.no AND t.idx IN
          ((SELECT min(idx) FROM steps WHERE repo = e.repo AND episode = e.no),
           (SELECT max(idx) FROM steps WHERE repo = e.repo AND episode = e.no))
UNION ALL SELECT t.repo, m.recorded_at FROM threads t
          JOIN messages m ON m.repo = t.repo AND m.thread = t.no AND m.seq IN
          ((SELECT min(seq) FROM messages WHERE repo = t.repo AND thread = t.no),
           (SELECT max(seq) FROM messages WHERE repo = t.repo AND thread = t.no))
UNION ALL SELECT repo, created_at FROM notes UNION ALL SELECT repo, updated_at FROM notes
UNION ALL SELECT repo, min(created_at) FROM items GROUP BY repo
UNION ALL SELECT repo, max(updated_at) FROM items GROUP BY repo
"""
_AT = Rows("repos", "i s", lambda row: (int(row[0]), decode_time(row[1])))


def repository_records(tx: Tx) -> list[RepositoryRecord]:
    """All repositories by id; a damaged time is passed by."""
    nodes: dict[int, dict[str, int]] = {}
    for repo, type, count in tx.run(_NODES):
        nodes.setdefault(repo, {})[type] = count
    owed: dict[int, Counter[str]] = {}
    for repo, state, count in tx.run(_OWED):
        owed.setdefault(repo, Counter())[state] += count
    times: dict[int, list[datetime]] = {}
    for repo, at in _AT.intact(tx.run(_TIMES)):
        times.setdefault(repo, []).append(at)
    return [
        RepositoryRecord(
            id=id,
            threads=threads,
            sessions=sessions,
            nodes=nodes.get(no, {}),
            created_at=min(times.get(no, ()), default=None),
            changed_at=max(times.get(no, ()), default=None),
            failed=found["failed"] + found["dead"],
            ready=found["ready"],
            waiting=found["waiting"] + found["running"],
        )
        for no, id, threads, sessions in tx.run(_REPOS).fetchall()
        for found in (owed.get(no, Counter()),)
    ]


# ── Deleting ─────────────────────────────────────────────────────────────────────────

_IDS = """
SELECT id FROM sessions WHERE repo = :repo
UNION ALL SELECT id FROM episodes WHERE repo = :repo
UNION ALL SELECT node_id FROM steps WHERE repo = :repo
"""
_STEPS = "SELECT ordinal FROM steps WHERE repo = ?"
_MESSAGES = "SELECT no FROM messages WHERE repo = ?"
_SNAPSHOTS = "SELECT no FROM snapshots WHERE repo = ?"
_TABLES = (
    *TABLES,
    *(
        "message_calls",
        "note_words",
        "note_vectors",
        "node_keys",
        "moving",
        "segments",
        "surfaced_records",
    ),
    "item_vectors",
)
"""Every table with rows of a repository, but for those of the full text."""


def what_is_in(tx: Tx, repo_id: str) -> ErasureReport:
    """What ``delete_repository`` would delete."""
    repo = _known(tx, repo_id)
    queries = (f"SELECT '{t}', count(*) FROM {t} WHERE repo = :repo" for t in (*_TABLES, "texts"))
    found = Counter(dict(tx.run(" UNION ALL ".join(queries), {"repo": repo}).fetchall()))
    return _report(found, found.pop("texts"))


def delete_repository(tx: Tx, repo_id: str) -> ErasureReport:
    """Delete a repository with everything in it; its ids are not used again under its name."""
    repo = _known(tx, repo_id)
    drop_calls(tx, repo_id)
    remember_erased(tx, repo_id, [id for (id,) in tx.run(_IDS, {"repo": repo}).fetchall()])
    rows = [step_row(ordinal, side) for ordinal in _numbers(tx, _STEPS, repo) for side in (0, 1)]
    rows += map(message_row, _numbers(tx, _MESSAGES, repo))
    rows += map(snapshot_row, _numbers(tx, _SNAPSHOTS, repo))
    texts = drop_texts(tx, repo, rows)
    gone = Counter[str]()
    for table in _TABLES:
        gone[table] += tx.run(f"DELETE FROM {table} WHERE repo = ?", (repo,)).rowcount
    for table in ("repos", "$names"):
        tx.run(f"DELETE FROM {table} WHERE no = ?", (repo,))
    tx.dialect.note_erased(tx)
    return _report(gone, texts)


def _known(tx: Tx, repo_id: str) -> int:
    repo = repo_row(tx, repo_id)[0]
    if not repo:
        raise NotFound("repository", repo_id)
    return repo


def _report(gone: Counter[str], texts: int) -> ErasureReport:
    gone["vectors"] += gone["note_vectors"] + gone["item_vectors"]
    counts: dict[str, Any] = {f.name: gone[f.name] for f in fields(ErasureReport) if f.name in gone}
    return ErasureReport(**counts, fulltext_rows=texts)


def _numbers(tx: Tx, query: str, repo: int) -> Iterable[int]:
    return [number for (number,) in tx.run(query, (repo,)).fetchall()]
