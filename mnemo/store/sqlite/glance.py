"""Look for words in messages where there is no time to open the store; standard library alone."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from math import log
from os.path import exists

NEWEST = 2000
"""Messages that are looked at (S)."""
_SAID = """
SELECT m.content, coalesce(m.at, m.recorded_at) FROM messages m
JOIN repos r ON r.no = m.repo JOIN threads t ON t.no = m.thread
WHERE r.id = ? AND t.id <> ? AND t.ttl_s IS NULL AND m.epoch = t.epoch
AND m.role IN ('user', 'assistant') AND m.content IS NOT NULL ORDER BY m.no DESC LIMIT ?
"""


def glance(
    path: str, repo: str, query: str, other_than: str, most: int = 5
) -> list[tuple[str, str]]:
    """
    The newest messages that share rare words with *query*, best first, with their days.

    Args:
        other_than: The thread that is left out.

    Raises:
        OSError: The file cannot be read.
    """
    asked = _words(query)
    if not asked or not exists(path):
        return []
    try:
        with closing(sqlite3.connect(path, timeout=0.05)) as connection:
            connection.execute("PRAGMA query_only = 1")
            if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                return []  # whoever makes the store has not made its tables yet
            rows = connection.execute(_SAID, (repo, other_than, NEWEST)).fetchall()
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_BUSY:
            return []  # whoever opens it has locked it; there is no time to wait
        raise OSError(f"{path}: {error}") from error
    texts = [(text, at[:10], asked & _words(text)) for text, at in rows]
    held = {word: sum(word in shared for *_, shared in texts) for word in asked}
    worth = {word: log(1 + len(rows) / (1 + count)) for word, count in held.items()}
    found = [(sum(map(worth.__getitem__, shared)), text, at) for text, at, shared in texts]
    found.sort(key=lambda one: -one[0])
    best = {text: at for score, text, at in found if score > 0}  # each text once
    return list(best.items())[:most]


def _words(text: str) -> set[str]:
    """The heads of longer words, so that their endings do not matter much."""
    return {word[:5] for word in re.findall(r"\w{4,}", text.lower())}
