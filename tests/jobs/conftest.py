"""Each row is written under its lock."""

from guarded_rows import guarded_rows

__all__ = ["guarded_rows"]
