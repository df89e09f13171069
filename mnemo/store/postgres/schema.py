"""The schema in PostgreSQL: the tables of all engines, and what this one needs beside them."""

from __future__ import annotations

import secrets

from psycopg import errors

from mnemo.errors import SchemaTooNew, StoreCorrupt, StoreError
from mnemo.store import tables
from mnemo.store.postgres.connection import Connection, PostgresTx
from mnemo.store.postgres.dialect import spelled
from mnemo.store.schema import CREATE, MIGRATIONS, VERSION, of_development
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
_TEXTS = """
CREATE TABLE texts (
    no BIGINT PRIMARY KEY,
    repo BIGINT NOT NULL,
    words TEXT[] COLLATE "C" NOT NULL,
    length BIGINT NOT NULL,
    lowered TEXT COLLATE "C",
    triples TEXT[] COLLATE "C",
    at DOUBLE PRECISION NOT NULL
);
CREATE INDEX texts_repo ON texts (repo);
CREATE INDEX texts_unspaced ON texts (repo, no) WHERE lowered IS NOT NULL;
CREATE INDEX texts_words ON texts USING gin (words) WITH (gin_pending_list_limit = 512);
CREATE INDEX texts_triples ON texts USING gin (triples) WITH (gin_pending_list_limit = 512);
ALTER TABLE repos SET (fillfactor = 50);
CREATE FUNCTION occurrences(text[], text[]) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS 'SELECT count(*) FROM generate_subscripts($1, 1) i
    WHERE $1[i] = $2[1] AND $1[i : i + cardinality($2) - 1] = $2';
CREATE TABLE note_words (rowid BIGINT PRIMARY KEY, words TEXT[] COLLATE "C" NOT NULL);
CREATE INDEX note_words_words ON note_words USING gin (words);
"""
# Followers read these by number: it is taken while the repository's row is held.
_NUMBERS = """
CREATE FUNCTION number_in_order() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM repos WHERE no = NEW.repo FOR NO KEY UPDATE;
    NEW.seq := nextval(TG_ARGV[0]);
    RETURN NEW;
END $$;
"""
_IN_ORDER = """
CREATE TRIGGER in_order BEFORE INSERT ON {0}
FOR EACH ROW EXECUTE FUNCTION number_in_order('{0}_seq_seq')
"""
_NUMBERED = ("vectors", "removals", "item_vectors")
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
# Folders that keep copies of segments, on any machine: see ``caches``.
_CACHES = """
CREATE TABLE caches (
    id TEXT PRIMARY KEY, machine TEXT NOT NULL, lease_until DOUBLE PRECISION NOT NULL,
    asked BIGINT NOT NULL DEFAULT 0, swept BIGINT NOT NULL DEFAULT 0
);
"""
_TAKEN = (errors.DuplicateTable, errors.DuplicateObject, errors.DuplicateFunction)
_STAMP = "UPDATE meta SET value = %s WHERE name = 'version'"


def migrate(connection: Connection, schema: str) -> None:
    """
    Make the tables, or bring them to ``VERSION``; one process at a time, in one transaction.

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
            _advance(connection, schema, found)
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


def _advance(connection: Connection, schema: str, found: int) -> None:
    if not found:
        connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
    connection.execute(f'SET LOCAL search_path = "{schema}"')
    if not found:
        _make(connection)
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
    if version > VERSION:
        raise SchemaTooNew(version, VERSION)
    return version


def _of_others(schema: str) -> StoreCorrupt:
    return StoreCorrupt(
        f"the schema {schema!r} holds what is not mnemo's: name another one in the URL, "
        "as in ?schema=mnemo"
    )


def _count_tables(connection: Connection, schema: str) -> int:
    found = connection.execute(
        "SELECT count(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n "
        "ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relkind IN ('r', 'p', 'v')",
        (schema,),
    ).fetchone()
    return int(found[0]) if found else 0


def _make(connection: Connection) -> None:
    for statement in CREATE:
        connection.execute(spelled(statement)[0])
    for table in (tables.STAGED, tables.CHANGESETS):
        connection.execute(
            f"ALTER TABLE {table.name} ADD {ARRIVAL} BIGINT GENERATED ALWAYS AS IDENTITY"
        )
    since_16 = connection.info.server_version >= 160_000
    for script in (
        _LOCKS,
        _COMMITS,
        _TEXTS,
        _NUMBERS,
        _JSON_SINCE_16 if since_16 else _JSON,
        _CACHES,
    ):
        connection.execute(script)
    for name in _NUMBERED:
        connection.execute(_IN_ORDER.format(name))
    # Made here, so that no two processes make one each.
    connection.execute(_NOTED, (str(VERSION), secrets.token_hex(16)))
