"""Repair: rows that others contradict, put right where those say how they were."""

from __future__ import annotations

from datetime import datetime

from mnemo.store.check import DANGLING_VECTORS
from mnemo.store.codec import utc_text
from mnemo.store.tx import Tx

# Where messages were erased, those that are left may end before the thread does.
_NEXT = """
$greatest(
    erased + (SELECT count(*) FROM messages m WHERE m.thread = threads.no),
    (SELECT coalesce(max(m.seq) + 1, 0) FROM messages m WHERE m.thread = threads.no)
)
"""
_ADVANCE = f"""
UPDATE threads SET next_seq = {_NEXT} WHERE next_seq < {_NEXT} RETURNING repo, id
"""
_OWE_REST = """
UPDATE jobs SET state = 'waiting', due_at = ?
WHERE repo = ? AND subject = ? AND kind = 'extract' AND state = 'done' AND EXISTS
    (SELECT 1 FROM threads t
     WHERE t.repo = jobs.repo AND t.id = jobs.subject AND t.extracted_seq < t.next_seq)
"""
_DROP_DANGLING = f"DELETE FROM vectors WHERE seq IN (SELECT v.seq FROM {DANGLING_VECTORS})"


def repair_store(tx: Tx, now: datetime) -> list[str]:
    """
    Repair threads and vectors of all repositories; give what was done.

    In earlier versions a commit could undo what another process wrote to the thread at the same
    time: ``next_seq`` went back, and the job that was left for the later messages was done.
    """
    done = []
    if threads := tx.run(_ADVANCE).fetchall():
        tx.run_many(_OWE_REST, [(utc_text(now), *thread) for thread in threads])
        first = min(id for _, id in threads)
        done.append(f"{len(threads)} threads whose next seq was behind, e.g. {first}")
    if vectors := tx.run(_DROP_DANGLING).rowcount:
        done.append(f"{vectors} vectors whose node, step or message is gone")
    return done
