"""Each row is written under the lock that guards it."""

from guarded_rows import guarded_rows

__all__ = ["guarded_rows"]
