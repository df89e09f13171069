"""Makes files as older versions of the schema had them, from one of the present."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from mnemo.store.sqlite import schema

_FIRST = {
    "tables": ("meta", "erased", "moving"),
    "columns": (
        ("episodes", "erased"),
        ("repos", "next_space_name"),
        ("repos", "next_space_dimensions"),
    ),
}
_COLUMNS_OF_THIRD = (
    *(("repos", "texts"), ("repos", "grams")),
    *(("steps", "thread"), ("steps", "message")),
)


def make_fourth_version(path: Path) -> None:
    """Take from a file what the fifth version of the schema added."""
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        drop_fifth(file)
        file.execute("PRAGMA user_version = 4")


def drop_fifth(file: sqlite3.Connection) -> None:
    """Drop the columns of the fifth version."""
    file.execute("DROP INDEX nodes_superseded")
    for column in ("session_id", "episode_id", "superseded_by"):
        file.execute(f"ALTER TABLE nodes DROP COLUMN {column}")


def make_second_version(path: Path) -> None:
    """Take from a file what the versions of the schema after the second added."""
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("BEGIN")
        for name in _added_since(file):
            file.execute(f"DROP TABLE {name}")
        drop_fifth(file)
        file.execute("DROP INDEX steps_thread")
        for table, column in _COLUMNS_OF_THIRD:
            file.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        file.execute(schema._RECORDS_FTS)
        for side, column in enumerate(("observation", "action")):
            file.execute(
                f"INSERT INTO records_fts (rowid, text) SELECT 2 * ordinal + {side}, {column} "
                f"FROM steps WHERE {column} <> ''"
            )
        file.execute("PRAGMA user_version = 2")
        file.execute("COMMIT")


def _added_since(file: sqlite3.Connection) -> list[str]:
    with closing(sqlite3.connect(":memory:")) as older:
        from sqlite_utils import Database

        for migration in schema._MIGRATIONS[:2]:
            migration(Database(older))
        before = {name for (name,) in older.execute("SELECT name FROM sqlite_master")}
    tables = file.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
    virtual = [name for name, sql in tables if sql.startswith("CREATE VIRTUAL TABLE")]
    shadows = tuple(f"{name}_" for name in virtual)
    plain = [
        name
        for name, _ in tables
        if name not in {*before, *virtual} and not name.startswith(("sqlite_", *shadows))
    ]
    return virtual + plain


def make_first_version(path: Path) -> None:
    """Take from a file what all later versions of the schema added."""
    make_second_version(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        for table in _FIRST["tables"]:
            file.execute(f"DROP TABLE {table}")
        for table, column in _FIRST["columns"]:
            file.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        file.execute("PRAGMA user_version = 1")
        assert schema.stored_version(file) == 1
