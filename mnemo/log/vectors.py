"""Vectors, and the embedding space that those of a repository are of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mnemo.errors import EmbeddingSpaceMismatch
from mnemo.protocols import EmbeddingSpace
from mnemo.store.rows import listed, repo_row
from mnemo.store.tx import Tx

# Vectors of nodes, messages and items are written under locks of their own.
_STAMP = """
UPDATE repos SET space_name = ?, space_dimensions = ? WHERE no = ? AND space_name IS NULL
"""
_FLOAT_BYTES = 4
_DROP = "DELETE FROM vectors WHERE repo = ? AND key IN $texts"
_ADD_VECTOR = "INSERT INTO vectors (seq, repo, key, vector) VALUES (?, ?, ?, ?)"


def stamp(row: tuple[int, int, str | None, int | None]) -> EmbeddingSpace | None:
    """What the *row* of a repository says of its space."""
    *_, name, dimensions = row
    return None if name is None or dimensions is None else EmbeddingSpace(name, dimensions)


def put_vectors(tx: Tx, repo: int, vectors: Mapping[str, bytes]) -> None:
    """Insert vectors, or replace those of the same keys by new rows: the feed follows numbers."""
    if not vectors:
        return
    drop_vectors(tx, repo, vectors)
    first = tx.dialect.reserve(tx, "vectors", {repo: len(vectors)})[repo] + 1
    rows = enumerate(vectors.items(), first)
    tx.run_many(_ADD_VECTOR, [(number, repo, *vector) for number, vector in rows])


def drop_vectors(tx: Tx, repo: int, keys: Iterable[str]) -> int:
    """Delete the vectors of *keys*; give how many there were."""
    return tx.run(_DROP, (repo, listed(keys))).rowcount


def check_space(
    tx: Tx,
    repo_id: str,
    space: EmbeddingSpace | None,
    vectors: Iterable[bytes],
    row: tuple[int, int, str | None, int | None] | None = None,
) -> None:
    """
    Compare vectors about to be stored with the repository's stamp; the first ones set it.

    *space* is ``None`` if only their length is known; *row* is the repository's, where it was read.
    *Raises* ``EmbeddingSpaceMismatch``: they are of another space.
    """
    lengths = {len(vector) // _FLOAT_BYTES for vector in vectors}
    if not lengths:
        return
    number, _, name, dimensions = row or repo_row(tx, repo_id)
    if name is None and space is not None:
        tx.run(_STAMP, (space.name, space.dimensions, number))
        _, _, name, dimensions = repo_row(tx, repo_id)
    expected = dimensions or (space.dimensions if space else min(lengths))
    stored = f"{name} ({dimensions} dimensions)" if name else f"{expected} dimensions"
    if name and space and (space.name, space.dimensions) != (name, dimensions):
        raise EmbeddingSpaceMismatch(repo_id, stored, str(space))
    if lengths != {expected}:
        other = max(lengths - {expected})
        raise EmbeddingSpaceMismatch(repo_id, stored, f"vectors of {other} dimensions")
