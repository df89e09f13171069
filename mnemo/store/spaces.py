"""Vectors of a repository, and the embedding space that they are of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mnemo.errors import EmbeddingSpaceMismatch
from mnemo.protocols import EmbeddingSpace
from mnemo.store.rows import listed, repo_row
from mnemo.store.tables import VECTORS
from mnemo.store.tx import Tx

# Vectors of nodes, messages and items are written under locks of their own.
_STAMP = """
UPDATE repos SET space_name = ?, space_dimensions = ? WHERE no = ? AND space_name IS NULL
"""
_FLOAT_BYTES = 4
_DROP = "DELETE FROM vectors WHERE repo = ? AND key IN $texts"


def put_vectors(tx: Tx, repo: int, vectors: Mapping[str, bytes]) -> None:
    """Insert vectors, or replace those of the same keys by new rows: the feed follows numbers."""
    drop_vectors(tx, repo, vectors)
    tx.run_many(VECTORS.insert, [(repo, key, vector) for key, vector in vectors.items()])


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

    Args:
        space: That of the vectors; ``None`` if only their length is known.
        row: The repository's, where this transaction has read it.

    Raises:
        EmbeddingSpaceMismatch: They are of another space.
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
