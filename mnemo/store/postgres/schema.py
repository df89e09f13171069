"""The schema in PostgreSQL: the tables of all engines, and what this one needs beside them."""

from __future__ import annotations

import re
import secrets

from psycopg import errors

from mnemo.errors import SchemaTooNew, StoreCorrupt, StoreError
from mnemo.store import tables
from mnemo.store.postgres.connection import Connection, PostgresTx
from mnemo.store.postgres.dialect import FOLLOWED, spelled
from mnemo.store.schema import CREATE, MIGRATIONS, VERSION, of_development, of_preview
from mnemo.store.table import ARRIVAL

LOCKS = 4096
"""Rows that writers lock by the hash of what they lock: few collide, and none is ever made."""
# Any number that other programs are unlikely to use; held while tables are made.
_MIGRATING = 0x6D6E656D
_LOCKS = f"""
CREATE TABLE locks (no BIGINT PRIMARY KEY) WITH (fillfactor = 50);
INSERT INTO locks SELECT generate_series(0, {LOCKS - 1});
"""
# A writer whose connection was lost during a commit reads here whether it is committed. The
# number of a transaction would not do: after a crash the server may give it to another one.
_COMMITS = """
CREATE TABLE commits (
    writer TEXT PRIMARY KEY, batch BIGINT NOT NULL, at TIMESTAMPTZ NOT NULL
) WITH (fillfactor = 50);
"""
# Words and triples are made by the library's own analyser. New ones wait in a list of 512 kB,
# which each search reads; without it an insert takes three times as long.
_TEXTS = """CREATE TABLE texts (
    no BIGINT NOT NULL, repo BIGINT NOT NULL, words TEXT[] COLLATE "C" NOT NULL,
    length BIGINT NOT NULL, lowered TEXT COLLATE "C", triples TEXT[] COLLATE "C",
    at DOUBLE PRECISION NOT NULL, PRIMARY KEY (repo, no))"""
_OF_TEXTS = """
CREATE INDEX texts_unspaced ON texts (repo, no) WHERE lowered IS NOT NULL;
CREATE INDEX texts_words ON texts USING gin (words) WITH (gin_pending_list_limit = 512);
CREATE INDEX texts_triples ON texts USING gin (triples) WITH (gin_pending_list_limit = 512);
CREATE FUNCTION occurrences(text[], text[]) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS 'SELECT count(*) FROM generate_subscripts($1, 1) i
    WHERE $1[i] = $2[1] AND $1[i : i + cardinality($2) - 1] = $2';
"""
# On several machines each has all of it: whatever else is read is found by the number.
_NAMES = """
CREATE TABLE names (no BIGSERIAL PRIMARY KEY, id TEXT COLLATE "C" NOT NULL UNIQUE);
"""
_COUNTERS = f"""
ALTER TABLE repos {", ".join(f"ADD {name}_no BIGINT NOT NULL DEFAULT 0" for name in FOLLOWED)};
ALTER TABLE repos SET (fillfactor = 50);
"""
PARTITIONS = 16
"""Of each large table."""
PARTED = ("steps", "messages", "nodes", "edges", "vectors", "texts")
"""
The large tables. To plan for one of 8 to 32 parts takes 15 µs more than for a whole table, whatever
their number; to make and to rewrite the tables takes longer with each.
"""
_PARTITION = """
CREATE TABLE {0}_{1} PARTITION OF {0} FOR VALUES WITH (MODULUS {2}, REMAINDER {1});
"""
_TABLE = re.compile(r"CREATE TABLE (\w+)")
# PostgreSQL 15 has no ``IS JSON``.
_JSON = """
CREATE FUNCTION json_of(text) RETURNS json LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN $1::json;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END $$;
"""
_JSON_SINCE_16 = """
CREATE FUNCTION json_of(text) RETURNS json LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS 'SELECT CASE WHEN $1 IS JSON THEN $1::json END';
"""
_NOTED = "INSERT INTO meta (name, value) VALUES ('version', %s), ('salt', %s)"
# A number alone may be anybody's; the salt is mnemo's. Development versions called it "schema".
_STAMPED = """
SELECT v.name, v.value FROM "{0}".meta v JOIN "{0}".meta s ON s.name = 'salt'
WHERE v.name IN ('version', 'schema')
"""
# Folders that keep copies of segments, on any machine: see ``jobs.caches``.
_CACHES = """
CREATE TABLE caches (
    id TEXT PRIMARY KEY, machine TEXT NOT NULL, lease_until DOUBLE PRECISION NOT NULL,
    asked BIGINT NOT NULL DEFAULT 0, swept BIGINT NOT NULL DEFAULT 0
);
"""
_TAKEN = (errors.DuplicateTable, errors.DuplicateObject, errors.DuplicateFunction)
_STAMP = "UPDATE meta SET value = %s WHERE name = 'version'"


def migrate(connection: Connection, schema: str, *, parts: int = PARTITIONS) -> None:
    """
    Make the tables, or bring them to ``VERSION``; one process at a time, in one transaction.

    *parts*: Of each large one; 0: whole, for an engine that has shards.

    A schema of this version is only looked at, so that a role without DDL can open it.

    *Raises* ``SchemaTooNew``: a newer mnemo made them; ``StoreCorrupt``: the schema holds something
    of somebody else; ``StoreError``: the role may not make tables, or a mnemo from before the first
    release made them.
    """
    if _version(connection, schema) == VERSION:
        return
    connection.execute("BEGIN")
    try:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MIGRATING,))
        found = _version(connection, schema)
        if found < VERSION:
            _advance(connection, schema, found, parts)
        connection.execute("COMMIT")
    except _TAKEN as error:
        connection.execute("ROLLBACK")
        raise _of_others(schema) from error
    except errors.InsufficientPrivilege as error:
        connection.execute("ROLLBACK")
        raise StoreError(
            f"the schema {schema!r} has version {found or 'none'}, this mnemo needs {VERSION}, and "
            f"the role may not make tables ({error.diag.message_primary}): open it once as owner"
        ) from error
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _advance(connection: Connection, schema: str, found: int, parts: int) -> None:
    if not found:
        connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
    connection.execute(f'SET LOCAL search_path = "{schema}"')
    if not found:
        _make(connection, parts)
        return
    for migration in MIGRATIONS[found - 1 :]:
        migration(PostgresTx(connection))
    connection.execute(_STAMP, (str(VERSION),))


def _version(connection: Connection, schema: str) -> int:
    """The version of the schema; 0: there are no tables in it."""
    if not _count_tables(connection, schema):
        return 0
    try:
        row = connection.execute(_STAMPED.format(schema)).fetchone()
    except (errors.UndefinedTable, errors.UndefinedColumn):
        row = None
    if row is None or not str(row[1]).isdecimal() or not (version := int(row[1])):
        raise _of_others(schema)
    if row[0] == "schema":
        raise of_development(version)
    if not _count_tables(connection, schema, "recalls"):
        raise of_preview()
    if version > VERSION:
        raise SchemaTooNew(version, VERSION)
    return version


def _of_others(schema: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"the schema {schema!r} holds what is not mnemo's: name another one in the URL, "
        "as in ?schema=mnemo"
    )


def _count_tables(connection: Connection, schema: str, named: str = "%") -> int:
    found = connection.execute(
        "SELECT count(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n "
        "ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relkind IN ('r', 'p', 'v') "
        "AND c.relname LIKE %s",
        (schema, named),
    ).fetchone()
    return int(found[0]) if found else 0


def _make(connection: Connection, parts: int) -> None:
    for statement in (*(spelled(one)[0] for one in CREATE), _TEXTS):
        table = _TABLE.match(statement)
        is_parted = parts > 0 and table is not None and table[1] in PARTED
        connection.execute(statement + " PARTITION BY HASH (repo)" * is_parted)
    for arriving in (tables.STAGED, tables.CHANGESETS):
        connection.execute(f"ALTER TABLE {arriving.name} ADD {ARRIVAL} BIGSERIAL")
    since_16 = connection.info.server_version >= 160_000
    json = _JSON_SINCE_16 if since_16 else _JSON
    for script in (_NAMES, _COUNTERS, _LOCKS, _COMMITS, _OF_TEXTS, json, _CACHES):
        connection.execute(script)
    for name in PARTED if parts else ():
        made = (_PARTITION.format(name, number, parts) for number in range(parts))
        connection.execute("".join(made))
    # Made here, so that no two processes make one each.
    connection.execute(_NOTED, (str(VERSION), secrets.token_hex(16)))
