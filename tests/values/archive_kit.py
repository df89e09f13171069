"""What the tests of archive lines share: values of every sort, and a reader of records."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from hypothesis import strategies as st

from mnemo.runtime.text import clean
from mnemo.values.archive_lines import ArchiveReader

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
TEXTS = st.text().map(clean)
TIMES = st.datetimes(
    min_value=datetime(1, 1, 2),
    max_value=datetime(9999, 12, 30),
    timezones=st.integers(-86_399, 86_399).map(lambda s: timezone(timedelta(seconds=s))),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


def read_back(head: str, *lines: str) -> list[Any]:
    """The records of *lines* behind *head*."""
    reader = ArchiveReader()
    reader.head(head)
    records = [record for _, record in reader.records(lines)]
    reader.finish()
    return records
