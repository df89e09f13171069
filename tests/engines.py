"""The same test over SQLite and over PostgreSQL."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import psycopg
import pytest
from helpers import examples
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine
from postgres_server import empty, execute

from mnemo.config import StoreConfig
from mnemo.store.postgres.connection import Address, PostgresTx, adapt
from mnemo.store.postgres.schema import migrate as migrate_schema
from mnemo.store.sqlite.connection import SqliteTx, connect_in_memory
from mnemo.store.sqlite.dialect import tokens
from mnemo.store.sqlite.schema import migrate as migrate_file


def emptied(url: str | None, folder: Path | str) -> Path | str:
    """Where a store begins empty: a file in *folder*, or the schema that *url* names."""
    if url is None:
        return Path(folder) / "m.db"
    empty(url)
    return url


def rows_of(place: Path | str, query: str) -> list[tuple[Any, ...]]:
    """What *query* finds in a store, read past the library."""
    if isinstance(place, str):
        server, _, schema = place.partition("&schema=")
        return execute(server, f"SET search_path = {schema}; {query}")
    with closing(sqlite3.connect(place)) as file:
        return file.execute(query).fetchall()


def change(file: Path, *statements: str) -> None:
    """Run *statements* on a store's file, past the library."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.create_function("mnemo_tokens", 3, tokens)
        for statement in statements:
            connection.execute(statement)


@contextmanager
def bare_transaction(url: str | None) -> Iterator[SqliteTx | PostgresTx]:
    """``Tx`` without an engine, over SQLite in memory or the emptied schema of *url*."""
    if url is None:
        file = connect_in_memory(StoreConfig())
        migrate_file(file, None)
        yield SqliteTx(file)
        file.close()
        return
    address = Address.of(url)
    with psycopg.connect(address.conninfo, autocommit=True) as connection:
        adapt(connection)
        migrate_schema(connection, address.schema)
        empty(url)
        connection.execute(f"SET search_path = {address.schema}")
        yield PostgresTx(connection)


class OverEngines(RuleBasedStateMachine):
    """
    A machine that runs on each engine.

    Attributes:
        url: Of the schema that an example empties; ``None``: it uses SQLite.
    """

    url: ClassVar[str | None] = None


def on_postgres(machine: type[OverEngines], *, tries: int, steps: int) -> type:
    """The test of *machine* on PostgreSQL, with fewer examples than on SQLite."""

    class OnPostgres(machine):  # type: ignore[misc, valid-type]
        pass

    OnPostgres.__qualname__ = f"{machine.__name__}OnPostgres"

    @pytest.mark.postgres
    @pytest.mark.slow
    class Test(OnPostgres.TestCase):  # type: ignore[misc, name-defined]
        settings = settings(
            max_examples=examples(tries),
            stateful_step_count=steps,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )

        @pytest.fixture(autouse=True)
        def place(self, postgres_url: str) -> None:
            """Run in the schema of this test."""
            OnPostgres.url = postgres_url

    return Test
