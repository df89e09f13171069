"""Encoding of values that columns hold as text."""

import sys
from datetime import datetime, timedelta, tzinfo
from types import FrameType

from mnemo.values.changeset import Changeset
from mnemo.values.codec import decode_changeset, encode_changeset, utc_text
from mnemo.values.graph import Edge, EdgeKind, MetadataDelta


class Summer(tzinfo):
    """A clock that is set back by an hour; ``fold`` tells the second of two equal hours."""

    def utcoffset(self, at: datetime | None) -> timedelta:
        """Two hours, then one."""
        return timedelta(hours=1 if at is not None and at.fold else 2)

    def dst(self, at: datetime | None) -> timedelta:
        """What of it is daylight saving."""
        return self.utcoffset(at) - timedelta(hours=1)


def test_an_hour_that_comes_twice_is_two_times():
    """Python calls both equal; what is stored tells them apart."""
    first = datetime(2024, 10, 27, 2, 30, tzinfo=Summer())
    second = first.replace(fold=1)
    assert first == second
    assert utc_text(first) == "2024-10-27T00:30:00.000000+00:00"
    assert utc_text(second) == "2024-10-27T01:30:00.000000+00:00"


def test_an_edge_of_a_changeset_costs_few_calls():
    """A changeset of an episode has thousands, and its encoding keeps the interpreter busy."""
    edges = tuple(Edge(f"n{number}", f"t{number}", EdgeKind.MEMBERSHIP) for number in range(1_000))
    changeset = Changeset(edges=edges, metadata={"n1": MetadataDelta(support_count=2)}, id="c")
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        blob = encode_changeset(changeset)
    finally:
        sys.setprofile(None)
    assert decode_changeset(blob) == changeset
    assert calls <= len(edges)
