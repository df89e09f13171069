"""Statements and readers of rows that several modules share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from mnemo.store.damage import Rows
from mnemo.store.tx import Tx
from mnemo.values.passages import SIDES, vector_keys

T = TypeVar("T")

# Bound parameters per statement; SQLite takes 32,766, and few sizes keep statements cached.
_CHUNK = 500

NEXT_REVISION = "UPDATE repos SET revision = revision + 1 WHERE no = ?"
_REPO = "SELECT id, no, revision, space_name, space_dimensions FROM repos WHERE id = ?"
_REPOS: Rows[Any] = Rows("repos", "s i i s? i?", tuple)
_ADD_REPO = "INSERT INTO repos (id) VALUES (?) ON CONFLICT (id) DO NOTHING"
_FIND_REPO = "SELECT no FROM repos WHERE id = ?"


def chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """*items* in pieces that fit one statement."""
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]


def holes(items: Sequence[object]) -> str:
    """``?,?,?`` for as many."""
    return ",".join("?" * len(items))


def messages_among(
    tx: Tx, statement: str, repo: int, messages: Iterable[tuple[str, str]]
) -> set[tuple[str, str]]:
    """Those of *messages*, by thread and id, that *statement* finds in the repository."""
    wanted = set(messages)
    found: set[tuple[str, str]] = set()
    for threads in chunks(sorted({thread for thread, _ in wanted})):
        for ids in chunks(sorted({id for _, id in wanted})):
            rows = tx.run(statement.format(holes(threads), holes(ids)), (repo, *threads, *ids))
            found.update(rows)
    return found & wanted


SIDE_KEYS = tuple(vector_keys(SIDES))
"""What the keys of the vectors of a step or message end with."""


def listed(values: Iterable[int | str]) -> str:
    """*values* for ``$numbers`` or ``$texts``; damaged text, which is bytes, names nothing else."""
    return json.dumps([value for value in values if not isinstance(value, bytes)])


def repo_row(tx: Tx, repo_id: str) -> tuple[int, int, str | None, int | None]:
    """
    Number, revision, and the name and dimensions of the embedding space.

    A repository that was never written has number 0, which no row refers to.

    Raises:
        StoreCorrupt: One of them is damaged; the repository can neither be read nor written.
    """
    row = tx.run(_REPO, (repo_id,)).fetchone()
    return _REPOS.one(row)[1:] if row is not None else (0, 0, None, None)


# ── Numbers of texts in the full text of a repository ────────────────────────────────


def step_row(ordinal: int, side: int) -> int:
    """The row of a step's half: *side* 0 is the observation, 1 the action."""
    return 4 * ordinal + side


def message_row(no: int) -> int:
    """The row of a message."""
    return 4 * no + 2


def snapshot_row(no: int) -> int:
    """The row of a snapshot."""
    return 4 * no + 3


def repo_number(tx: Tx, repo_id: str) -> int:
    """The repository's row number, entered at its first write."""
    row = tx.run(_FIND_REPO, (repo_id,)).fetchone()
    if row is None:
        tx.run(_ADD_REPO, (repo_id,))
        row = tx.run(_FIND_REPO, (repo_id,)).fetchone()
    return int(row[0])
