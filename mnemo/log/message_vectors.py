"""The vectors of messages, and who is owed one."""

from __future__ import annotations

from collections.abc import Sequence

from mnemo.store.spaces import check_space
from mnemo.store.tx import Tx
from mnemo.values.chat import EmbeddingSpace

_SETTLE = "UPDATE messages SET owed = 0 WHERE thread = ? AND seq = ? AND owed = 1"
_SAVE = """
INSERT INTO message_vectors (thread, seq, vector)
SELECT thread, seq, ? FROM messages WHERE thread = ? AND seq = ? AND owed = 1
"""
_DROP_OLD = """
DELETE FROM message_vectors WHERE thread = :thread AND seq <
    (SELECT seq FROM message_vectors WHERE thread = :thread
     ORDER BY seq DESC LIMIT 1 OFFSET :keep)
"""
_DROP_ALL = "DELETE FROM message_vectors WHERE thread = ?"
_THREADS = "SELECT no FROM threads WHERE repo = ?"
_OWE = """
UPDATE messages SET owed = 1 WHERE (thread, seq) IN
    (SELECT thread, seq FROM message_vectors WHERE thread = ?)
"""


def save_vectors(
    tx: Tx,
    repo_id: str,
    space: EmbeddingSpace,
    rows: Sequence[tuple[int, int, bytes]],
) -> None:
    """
    Keep vectors by thread and seq, of those messages that are owed one.

    Raises:
        EmbeddingSpaceMismatch: The repository is stamped with another space.
    """
    if tx.run_many(_SAVE, [(vector, thread, seq) for thread, seq, vector in rows]):
        tx.run_many(_SETTLE, [(thread, seq) for thread, seq, _ in rows])
        check_space(tx, repo_id, space, [vector for _, _, vector in rows])


def drop_old_vectors(tx: Tx, thread: int, keep_newest: int) -> int:
    """Delete all but so many vectors of the thread; give how many went."""
    if keep_newest < 1:
        return tx.run(_DROP_ALL, (thread,)).rowcount
    return tx.run(_DROP_OLD, {"thread": thread, "keep": keep_newest - 1}).rowcount


def owe_all(tx: Tx, repo: int) -> None:
    """Delete the vectors of all messages of the repository, to be made anew."""
    for thread in tx.run(_THREADS, (repo,)).fetchall():
        tx.run(_OWE, thread)
        tx.run(_DROP_ALL, thread)
