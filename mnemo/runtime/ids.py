"""Id generation: unique across processes and sortable by time; the only door to chance."""

from __future__ import annotations

import os
import random
import time

# Seeded from the system once: asking it for every id gives up the interpreter lock every
# time, and an event loop that does so for each append waits for the writer as often.
_chance = random.Random(os.urandom(32))
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: _chance.seed(os.urandom(32)))


def new_id(prefix: str) -> str:
    """
    Make an id such as ``semantic-0192f3c4a5b6-9f3a1c2b4d5e``.

    Twelve hex digits of Unix milliseconds, then twelve of chance: ids sort by the
    time they were made, and two processes do not meet (48 bits within one millisecond).

    Args:
        prefix: The type of thing, lower case.
    """
    return f"{prefix}-{time.time_ns() // 1_000_000:012x}-{_chance.getrandbits(48):012x}"
