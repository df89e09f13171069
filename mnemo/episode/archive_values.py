"""Single values in the lines of an archive: times and vectors as text."""

from __future__ import annotations

import base64
from datetime import datetime

import numpy as np

from mnemo.graph.nodes import Vector
from mnemo.runtime.clock import in_utc

__all__ = ["instant_text", "packed", "time_text"]


def time_text(at: datetime) -> str:
    """ISO 8601 with the zone's offset, which is part of what was said."""
    return at.isoformat()


def instant_text(at: datetime | None) -> str | None:
    """The moment alone, in UTC."""
    return None if at is None else in_utc(at).isoformat(timespec="microseconds")


def packed(vector: Vector | None) -> str | None:
    """Little-endian float32 in base64."""
    if vector is None:
        return None
    return base64.b64encode(np.ascontiguousarray(vector, dtype="<f4").tobytes()).decode("ascii")
