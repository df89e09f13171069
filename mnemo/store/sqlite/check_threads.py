"""Whether threads, their messages and what was derived from those agree with each other."""

from __future__ import annotations

__all__ = ["THREAD_CHECKS"]

_OWNED = (
    *("messages", "message_calls", "message_vectors", "compactions", "snapshots", "outcomes"),
    *("goals", "pins", "surfaced"),
)
_COVERAGE = """
SELECT count(*), min(id) FROM
(SELECT t.id, o.from_seq, o.to_seq,
        lag(o.to_seq) OVER (PARTITION BY o.thread, o.epoch ORDER BY o.from_seq) AS before
 FROM outcomes o JOIN threads t ON t.no = o.thread)
WHERE to_seq < from_seq OR before + 1 <> from_seq
"""

THREAD_CHECKS: tuple[tuple[str, str], ...] = (
    *(
        (
            f"{table} of no thread",
            f"""
            SELECT count(*), min(x.thread) FROM {table} x
            WHERE NOT EXISTS (SELECT 1 FROM threads t WHERE t.no = x.thread)
            """,
        )
        for table in _OWNED
    ),
    *(
        (
            f"{table} without their message",
            f"""
            SELECT count(*), min(x.seq) FROM {table} x WHERE NOT EXISTS
            (SELECT 1 FROM messages m WHERE m.thread = x.thread AND m.seq = x.seq)
            """,
        )
        for table in ("message_calls", "message_vectors", "pins")
    ),
    (
        "threads with a gap in their seqs",
        """
        SELECT count(*), min(t.id) FROM threads t WHERE t.next_seq <>
        t.erased + (SELECT count(*) FROM messages m WHERE m.thread = t.no)
        OR EXISTS (SELECT 1 FROM messages m WHERE m.thread = t.no
                   AND (m.seq < 0 OR m.seq >= t.next_seq))
        """,
    ),
    (
        "threads whose boundary is not in their epoch",
        """
        SELECT count(*), min(id) FROM threads
        WHERE boundary < epoch_start OR boundary > next_seq OR epoch_start < 0
        """,
    ),
    (
        "messages of another repository than their thread",
        """
        SELECT count(*), min(m.id) FROM messages m JOIN threads t ON t.no = m.thread
        WHERE m.repo <> t.repo
        """,
    ),
    (
        "messages that are owed a vector and have one",
        """
        SELECT count(*), min(m.id) FROM messages m
        JOIN message_vectors v ON v.thread = m.thread AND v.seq = m.seq WHERE m.owed = 1
        """,
    ),
    (
        "messages whose calls are not known by their ids",
        """
        SELECT count(*), min(m.id) FROM messages m WHERE m.tool_calls IS NOT NULL
        AND EXISTS (SELECT 1 FROM json_each(iif(json_valid(m.tool_calls), m.tool_calls, '[]')) c
                    WHERE c.type = 'array' AND NOT EXISTS
                    (SELECT 1 FROM message_calls k WHERE k.thread = m.thread
                     AND k.call_id = c.value ->> '$[0]' AND k.seq = m.seq))
        """,
    ),
    (
        "vectors of messages of a wrong length",
        """
        SELECT count(*), min(v.seq) FROM message_vectors v JOIN threads t ON t.no = v.thread
        JOIN repos r ON r.no = t.repo WHERE length(v.vector) <> 4 * r.space_dimensions
        """,
    ),
    ("outcomes that do not follow each other", _COVERAGE),
    (
        "outcomes whose snapshot is gone",
        """
        SELECT count(*), min(o.snapshot_id) FROM outcomes o WHERE o.snapshot_id IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM snapshots s WHERE s.thread = o.thread
                        AND s.id = o.snapshot_id)
        """,
    ),
    (
        "summaries whose replacement is gone",
        """
        SELECT count(*), min(x.id) FROM
        (SELECT c.id FROM compactions c WHERE c.superseded_by IS NOT NULL AND NOT EXISTS
            (SELECT 1 FROM compactions o WHERE o.thread = c.thread AND o.id = c.superseded_by)
         UNION ALL SELECT s.id FROM snapshots s WHERE s.covered_by IS NOT NULL AND NOT EXISTS
            (SELECT 1 FROM snapshots o WHERE o.thread = s.thread AND o.id = s.covered_by)) x
        """,
    ),
    (
        "goals whose root is gone",
        """
        SELECT count(*), min(g.id) FROM goals g WHERE g.parent_id IS NOT NULL AND NOT EXISTS
        (SELECT 1 FROM goals r WHERE r.thread = g.thread AND r.id = g.parent_id)
        """,
    ),
    (
        "records that came to mind in no turn",
        """
        SELECT count(*), min(x.record) FROM surfaced_records x WHERE NOT EXISTS
        (SELECT 1 FROM surfaced s WHERE s.thread = x.thread AND s.epoch = x.epoch
         AND s.seq = x.seq)
        """,
    ),
)
"""What must not be there, and the query that finds it; a row is (how many, an example)."""
