"""Schema 5: what an erasure judges a node by stands in columns, beside its encoded body."""

from __future__ import annotations

from typing import Any

__all__ = ["fifth"]

_STATEMENTS = (
    "ALTER TABLE nodes ADD COLUMN session_id TEXT",
    "ALTER TABLE nodes ADD COLUMN episode_id TEXT",
    "ALTER TABLE nodes ADD COLUMN superseded_by TEXT",
    """
    UPDATE nodes SET session_id = body ->> '$.session_id', episode_id = body ->> '$.episode_id',
                     superseded_by = body ->> '$.superseded_by'
    WHERE json_valid(body)
    """,
    """
    CREATE INDEX nodes_superseded ON nodes (repo, superseded_by) WHERE superseded_by IS NOT NULL
    """,
)


def fifth(db: Any) -> None:
    """Add the columns, and fill them from the bodies that can be read."""
    for statement in _STATEMENTS:
        db.execute(statement)
