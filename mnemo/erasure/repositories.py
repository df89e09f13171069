"""Repositories of a store as wholes: listing them, and deleting one with everything in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import datetime
from operator import itemgetter
from typing import Any

from mnemo.errors import NotFound
from mnemo.jobs.calls import drop_calls
from mnemo.log.record_rows import message_row, snapshot_row, step_row
from mnemo.log.tombstones import remember_erased
from mnemo.store.rows import Rows, listed, repo_row
from mnemo.store.tables import TABLES
from mnemo.store.texts import drop_texts
from mnemo.store.tx import Tx
from mnemo.values.codec import decode_time
from mnemo.values.erasure import ErasureReport
from mnemo.values.journal import RepositoryRecord

# ── Listing ──────────────────────────────────────────────────────────────────────────

_AT_ONCE = 1_000
"""Repositories that one round of statements reads (S)."""
_PAGE = """
SELECT r.no, n.id FROM $names n JOIN repos r ON r.no = n.no
WHERE n.id > ? AND n.id >= ? ORDER BY n.id LIMIT ?
"""
_NAMED = """
SELECT r.no, n.id FROM $names n JOIN repos r ON r.no = n.no
WHERE n.id > ? AND n.id IN $texts ORDER BY n.id LIMIT ?
"""
_COUNTS = """
SELECT 'threads', repo, '', count(*) FROM threads WHERE repo IN $numbers GROUP BY repo
UNION ALL SELECT 'sessions', repo, state, count(*) FROM sessions WHERE repo IN $numbers
          GROUP BY repo, state
UNION ALL SELECT 'of jobs', repo, state, count(*) FROM sessions WHERE repo IN $numbers
          AND state IN ('failed', 'ready') AND thread_id IS NOT NULL GROUP BY repo, state
UNION ALL SELECT 'errors', repo, '', count(*) FROM jobs WHERE repo IN $numbers
          AND state <> 'done' AND kind <> 'embed' AND error IS NOT NULL GROUP BY repo
UNION ALL SELECT 'jobs', repo, state, count(*) FROM jobs WHERE repo IN $numbers
          AND state <> 'done' AND kind <> 'embed' GROUP BY repo, state
UNION ALL SELECT 'nodes', repo, type, count(*) FROM nodes WHERE repo IN $numbers
          GROUP BY repo, type
"""
# The first and the last of each group, by an index; never over all rows.
_TIMES = """
SELECT n.repo, m.created_at FROM (SELECT repo, min(no) AS first, max(no) AS last FROM nodes
    WHERE repo IN $numbers GROUP BY repo, type) n
    $join nodes m ON $also m.repo = n.repo AND m.no IN (n.first, n.last)
UNION ALL SELECT repo, updated_at FROM sessions WHERE repo IN $numbers
UNION ALL SELECT e.repo, (SELECT recorded_at FROM steps
          WHERE repo = e.repo AND episode = e.no ORDER BY idx LIMIT 1)
          FROM episodes e WHERE e.repo IN $numbers
UNION ALL SELECT e.repo, (SELECT recorded_at FROM steps
          WHERE repo = e.repo AND episode = e.no ORDER BY idx DESC LIMIT 1)
          FROM episodes e WHERE e.repo IN $numbers
UNION ALL SELECT t.repo, (SELECT recorded_at FROM messages
          WHERE repo = t.repo AND thread = t.no ORDER BY seq LIMIT 1)
          FROM threads t WHERE t.repo IN $numbers
UNION ALL SELECT t.repo, (SELECT recorded_at FROM messages
          WHERE repo = t.repo AND thread = t.no ORDER BY seq DESC LIMIT 1)
          FROM threads t WHERE t.repo IN $numbers
UNION ALL SELECT repo, created_at FROM notes WHERE repo IN $numbers
UNION ALL SELECT repo, updated_at FROM notes WHERE repo IN $numbers
UNION ALL SELECT repo, min(created_at) FROM items WHERE repo IN $numbers GROUP BY repo
UNION ALL SELECT repo, max(updated_at) FROM items WHERE repo IN $numbers GROUP BY repo
"""
_AT = Rows("repos", "i s?", lambda row: (int(row[0]), row[1] and decode_time(row[1])))


def repository_records(
    tx: Tx,
    *,
    limit: int | None = None,
    after: str = "",
    ids: Sequence[str] | None = None,
    prefixes: Sequence[str] = (),
) -> list[RepositoryRecord]:
    """
    The repositories behind *after* by id, at most *limit*; a damaged time is passed by.

    Only those of *ids* and *prefixes* of ids, if there are any. What is read are the rows of
    those that are given, not of others before or behind them.
    """
    found: list[RepositoryRecord] = []
    while limit is None or len(found) < limit:
        count = _AT_ONCE if limit is None else min(_AT_ONCE, limit - len(found))
        page = _page(tx, count, after, ids, prefixes)
        found += _records(tx, page)
        if len(page) < count:
            break
        after = page[-1][1]
    return found


def _page(
    tx: Tx, count: int, after: str, ids: Sequence[str] | None, prefixes: Sequence[str]
) -> list[tuple[int, str]]:
    """Number and id of the first *count*."""
    if ids is None and not prefixes:
        return tx.run(_PAGE, (after, "", count)).fetchall()
    rows = set(tx.run(_NAMED, (after, listed(ids or ()), count)).fetchall())
    for prefix in prefixes:
        for row in tx.run(_PAGE, (after, prefix, count)).fetchall():
            if not row[1].startswith(prefix):
                break
            rows.add(row)
    return sorted(rows, key=itemgetter(1))[:count]


def _records(tx: Tx, page: Sequence[tuple[int, str]]) -> list[RepositoryRecord]:
    numbers = listed(no for no, _ in page)
    counts: dict[tuple[str, int], Counter[str]] = {}
    for what, repo, kind, count in tx.run(_COUNTS, (numbers,) * 6):
        counts.setdefault((what, repo), Counter())[kind] = count
    times: dict[int, list[datetime]] = {}
    for repo, at in _AT.intact(tx.run(_TIMES, (numbers,) * 10)):
        if at is not None:
            times.setdefault(repo, []).append(at)

    def of(what: str, no: int) -> Counter[str]:
        return counts.get((what, no), Counter())

    return [
        RepositoryRecord(
            id=id,
            threads=of("threads", no).total(),
            sessions=sessions.total(),
            nodes=dict(of("nodes", no)),
            created_at=min(times.get(no, ()), default=None),
            changed_at=max(times.get(no, ()), default=None),
            failed=sessions["failed"] - of_jobs["failed"] + of("errors", no).total(),
            ready=sessions["ready"] - of_jobs["ready"],
            waiting=jobs["waiting"] + jobs["running"],
        )
        for no, id in page
        for sessions, of_jobs, jobs in [(of("sessions", no), of("of jobs", no), of("jobs", no))]
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
