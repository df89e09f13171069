"""Which embedding space a repository's vectors are of."""

from __future__ import annotations

from collections.abc import Iterable

from mnemo.errors import EmbeddingSpaceMismatch
from mnemo.protocols import EmbeddingSpace
from mnemo.store.rows import repo_row
from mnemo.store.tx import Tx

__all__ = ["check_space"]

_STAMP = "UPDATE repos SET space_name = ?, space_dimensions = ? WHERE no = ?"
_FLOAT_BYTES = 4


def check_space(
    tx: Tx,
    repo_id: str,
    space: EmbeddingSpace | None,
    vectors: Iterable[bytes],
) -> None:
    """
    Compare vectors about to be stored with the repository's stamp; the first ones set it.

    Args:
        space: That of the vectors; ``None`` if only their length is known.

    Raises:
        EmbeddingSpaceMismatch: They are of another space.
    """
    lengths = {len(vector) // _FLOAT_BYTES for vector in vectors}
    if not lengths:
        return
    number, _, name, dimensions = repo_row(tx, repo_id)
    if name is None and space is not None:
        tx.run(_STAMP, (space.name, space.dimensions, number))
    expected = dimensions or (space.dimensions if space else min(lengths))
    stored = f"{name} ({dimensions} dimensions)" if name else f"{expected} dimensions"
    if (
        name is not None
        and space is not None
        and (space.name, space.dimensions)
        != (
            name,
            dimensions,
        )
    ):
        raise EmbeddingSpaceMismatch(repo_id, stored, str(space))
    if lengths != {expected}:
        other = max(lengths - {expected})
        raise EmbeddingSpaceMismatch(repo_id, stored, f"vectors of {other} dimensions")
