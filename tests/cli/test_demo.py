"""What the demo tells of its store."""

import pytest

from mnemo.cli.demo import _without_password


@pytest.mark.parametrize(
    ("store", "shown"),
    [
        ("kept.db", "kept.db"),
        ("postgresql://ada:secret@host:5432/db", "postgresql://ada@host:5432/db"),
        (
            "postgresql://host/db?schema=m&password=secret&sslmode=require&sslpassword=secret",
            "postgresql://host/db?schema=m&sslmode=require",
        ),
        ("postgres://ada:p%40secret@host/db?user=ada", "postgres://ada@host/db?user=ada"),
    ],
)
def test_the_password_of_a_store_is_not_printed(store, shown):
    """A URL is shown without it, wherever it stands; a path as it is."""
    assert _without_password(store) == shown
