"""The only door to chance: ids, unique across processes and sortable by time."""

from __future__ import annotations

import os
import time

__all__ = ["new_id"]


def new_id(prefix: str) -> str:
    """
    Make an id such as ``semantic-0192f3c4a5b6-9f3a1c2b4d5e``.

    Twelve hex digits of Unix milliseconds, then twelve of chance: ids sort by the
    time they were made, and two processes do not meet (48 bits within one millisecond).

    Args:
        prefix: The type of thing, lower case.
    """
    return f"{prefix}-{time.time_ns() // 1_000_000:012x}-{os.urandom(6).hex()}"
