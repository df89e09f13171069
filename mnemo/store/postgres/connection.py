"""Connections to PostgreSQL: the URL, ``Tx`` over psycopg, and psycopg's errors as ours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import psycopg
from psycopg import errors
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import StrDumper
from psycopg_pool import PoolTimeout

from mnemo.errors import ConfigError, MnemoError, StoreError, StoreLocked, StoreUnavailable
from mnemo.store.postgres import dialect
from mnemo.store.tx import Dialect, Values

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
_LIBPQ = {
    "connect_timeout": "10",
    "application_name": "mnemo",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
"""
Unless the URL says otherwise; times in seconds, the last one in milliseconds.

A connection to a machine that was cut off ends after a minute; by default it takes hours.
"""
_TELLS = re.compile(r"\s*(?:(?:INSERT INTO|UPDATE) jobs\b|UPDATE caches SET asked)")
_MOST_JSON = 8_000_000
"""Characters after which rows go into another statement."""
_MOST_AT_ONCE = 10_000
"""Elements of a list that are made into JSON without a pause."""
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")


@dataclass(frozen=True, slots=True)
class Address:
    """
    A schema of a database; *shown* is without the password, which *conninfo* holds; *name* tells it
    from others. *splits*: Whether a transaction is to write one repository alone.
    """

    conninfo: str
    schema: str
    shown: str
    name: str
    splits: bool = False

    @classmethod
    def of(cls, url: str) -> Address:
        """
        Read ``postgresql://user@host/db?schema=mnemo&split=repository``; all else is libpq's.

        *Raises* ``ConfigError``: no such URL, *split* by something else, or the schema's name has
        other characters than small letters, digits and underscores.
        """
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        schema = options.pop("schema", "mnemo")
        if not _SCHEMA.fullmatch(schema):
            raise ConfigError(
                f"the schema {schema!r} is no plain name: use small letters, digits and _"
            )
        split = options.pop("split", "")
        if split not in ("", "repository"):
            raise ConfigError(f"transactions cannot be split by {split!r}: say split=repository")
        query = urlencode(_LIBPQ | options, quote_via=quote)
        conninfo = urlunsplit(parts._replace(query=query))
        host = parts.hostname or options.get("host", "the default server")
        try:
            psycopg.conninfo.conninfo_to_dict(conninfo)
        except psycopg.ProgrammingError as error:
            raise ConfigError(f"not a PostgreSQL URL of {host!r}: {_first_line(error)}") from None
        database = parts.path.lstrip("/") or "the default database"
        shown, port = f"{database} at {host}", parts.port or options.get("port", "")
        return cls(conninfo, schema, shown, f"{shown}:{port}, {schema}", bool(split))


class _IntLoader(Loader):
    """Booleans and whole numerics as integers, as SQLite gives them."""

    def load(self, data: Buffer) -> int | float:
        text = bytes(data)
        if text in (b"t", b"f"):
            return int(text == b"t")
        return float(text) if b"." in text or b"N" in text else int(text)


class _BoolDumper(Int8Dumper):
    """Flags are kept as 0 and 1."""

    def dump(self, obj: Any) -> Buffer | None:
        return super().dump(int(obj))


def adapt(connection: Connection) -> None:
    """Make a new connection give and take values as the rules know them."""
    adapters = connection.adapters
    adapters.register_dumper(str, StrDumper)
    adapters.register_dumper(int, Int8Dumper)
    adapters.register_dumper(bool, _BoolDumper)
    adapters.register_loader("bool", _IntLoader)
    adapters.register_loader("numeric", _IntLoader)


class PostgresTx:
    """``Tx`` over a connection, whose transaction is the engine's."""

    __slots__ = ("_connection", "wrote_jobs")

    dialect: ClassVar[Dialect] = dialect

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.wrote_jobs: bool = False
        """Whether a statement has written jobs, or for caches, what other processes wait for."""

    def run(self, statement: str, values: Values = (), /) -> Any:
        if _TELLS.match(statement):
            self.wrote_jobs = True
        text, names = dialect.spelled(statement)
        cursor = psycopg.RawCursor(self._connection)
        return cursor.execute(text, _placed(names, values))

    def run_many(self, statement: str, rows: Iterable[Values], /) -> int:
        text, names = dialect.spelled(statement)
        given = [_placed(names, row) for row in rows]
        if not given:
            return 0
        cursor = psycopg.RawCursor(self._connection)
        cursor.executemany(text, given)
        return cursor.rowcount

    def insert(self, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], /) -> None:
        """As one value of JSON: as fast as ``COPY``, which row level security does not allow."""
        names = ", ".join(columns)
        statement, _ = dialect.spelled(
            f"INSERT INTO {table} ({names}) SELECT {names} "
            f"FROM json_populate_recordset(NULL::{table}, ?::json)"
        )
        for part in _in_json(columns, rows):
            psycopg.RawCursor(self._connection).execute(statement, (part,))

    @contextmanager
    def refusing(self, refusal: MnemoError) -> Iterator[None]:
        try:
            yield
        except errors.UniqueViolation as error:
            raise refusal from error


def _in_json(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Lists of *rows* as objects; a value of the server has less than 1 GB."""
    part: list[str] = []
    size = 0
    for row in rows:
        # Flags are kept as 0 and 1.
        values = [int(value) if isinstance(value, bool) else value for value in row]
        text = _object(dict(zip(columns, values, strict=True)))
        part.append(text)
        size += len(text)
        if size > _MOST_JSON:
            yield f"[{','.join(part)}]"
            part, size = [], 0
    if part:
        yield f"[{','.join(part)}]"


def _object(values: dict[str, Any]) -> str:
    """*values* as JSON; a long list part by part, since each call holds the interpreter."""
    long = {
        name: values.pop(name)
        for name, value in list(values.items())
        if isinstance(value, list) and len(value) > _MOST_AT_ONCE
    }
    members = [_json(values)[1:-1]] if values else []
    for name, value in long.items():
        parts = (value[at : at + _MOST_AT_ONCE] for at in range(0, len(value), _MOST_AT_ONCE))
        members.append(f'"{name}":[{",".join(_json(part)[1:-1] for part in parts)}]')
    return f"{{{','.join(members)}}}"


def _json(value: Any) -> str:
    return json.dumps(value, default=lambda value: "\\x" + value.hex(), ensure_ascii=False)


def _placed(names: Sequence[str], values: Values) -> Sequence[Any]:
    return [values[name] for name in names] if isinstance(values, Mapping) else values


_REFUSED = re.compile(r"authentication failed|no password|pg_hba|does not exist|SSL|certificate")
"""What a server, or libpq, says to a connection that no repetition makes possible."""
_RIGHTS = (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction)
_TIMEOUTS = (errors.QueryCanceled, errors.LockNotAvailable)
_LOST = (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout)
_ENDED = ("25P03", "25P04")
"""The server ended the connection: idle in a transaction, or that took too long altogether."""


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn psycopg's errors within the block into ours; *what* was being done."""
    try:
        yield
    except psycopg.Error as error:
        raise _ours(error, what) from error


def _ours(error: psycopg.Error, what: str) -> StoreError:
    said = _first_line(error)
    if isinstance(error, _TIMEOUTS):
        return StoreLocked(f"{what}: {said}; try again")
    if isinstance(error, _RIGHTS):
        return StoreError(f"{what}: the role may not do this ({said}); see `mnemo guide postgres`")
    if isinstance(error, errors.DiskFull):
        return StoreError(f"{what}: the server's disk is full; nothing was half-written")
    if isinstance(error, errors.ProgramLimitExceeded):
        return StoreError(f"{what}: {said}")
    if isinstance(error, _LOST) or error.sqlstate in _ENDED:
        if error.sqlstate is None and _REFUSED.search(said):
            return StoreError(f"{what}: the server refuses the connection ({said})")
        return StoreUnavailable(f"{what}: the server is not available ({said}); try again")
    return StoreError(f"{what}: {said}")


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
