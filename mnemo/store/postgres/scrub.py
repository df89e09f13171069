"""Scrubbing: tables and their indexes are rewritten without the rows that were erased."""

from __future__ import annotations

import logging
import time

from psycopg import errors

from mnemo.store.postgres.connection import Connection
from mnemo.store.tx import Tx

log = logging.getLogger("mnemo")

# How often, and how long each time, readers are waited for: three seconds in all.
_TRIES = 30
_PAUSE_S = 0.1
# Everything else that reads or writes a table waits behind a rewrite that waits for it.
_PATIENCE = "SET lock_timeout = 1000"

_OWED = "SELECT 1 FROM meta WHERE name LIKE 'scrub %' OR name = 'scrubbing'"
# What is erased from here on is noted anew; what was erased has transactions below the value.
_BEGIN = """
WITH noted AS (DELETE FROM "{0}".meta WHERE name LIKE 'scrub %' RETURNING name)
INSERT INTO "{0}".meta (name, value) SELECT 'scrubbing', pg_current_xact_id()::text
WHERE EXISTS (SELECT 1 FROM noted)
   OR EXISTS (SELECT 1 FROM "{0}".meta WHERE name = 'scrubbing')
ON CONFLICT (name) DO UPDATE SET value = excluded.value RETURNING value
"""
_DONE = """DELETE FROM "{0}".meta WHERE name = 'scrubbing' AND value = %s"""
# VACUUM keeps a row that another transaction, a replica or a prepared transaction may still
# read. What a role may not see of other roles' transactions counts as such.
_READERS = """
SELECT count(*) FROM (
    SELECT greatest(age(backend_xmin), age(backend_xid)) AS age,
           query = '<insufficient privilege>' AS is_hidden
    FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
    UNION ALL SELECT age(backend_xmin), false FROM pg_stat_replication
    UNION ALL SELECT age(xmin), false FROM pg_replication_slots
    UNION ALL SELECT age(transaction), false FROM pg_prepared_xacts
) t WHERE is_hidden OR age >= age(%s::xid8::xid)
"""
_TABLES = """
SELECT format('%%I.%%I', n.nspname, c.relname), pg_has_role(c.relowner, 'USAGE')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relkind = 'r'
  AND c.relname NOT IN ('locks', 'commits', 'caches', 'meta', 'owners')
ORDER BY c.relname
"""


def is_clean(tx: Tx) -> bool:
    return tx.run(_OWED).fetchone() is None


def scrub(connection: Connection, schema: str, *, is_pooled: bool) -> bool:
    """
    Rewrite all tables if something was erased; give whether nothing of it is left.

    A plain ``VACUUM`` would leave it in unused parts of pages, and words in the GIN indexes.
    Whoever reads a table for longer than a second, as an export does, keeps it from that.

    *connection*: Outside of a transaction: each table is rewritten in one of its own. *is_pooled*:
    Whether a pooler shares it with others, for whom a setting would remain: a rewrite then waits
    for readers as long as it takes.
    """
    begun = connection.execute(_BEGIN.format(schema)).fetchone()
    if begun is None:
        return True
    tables = connection.execute(_TABLES, (schema,)).fetchall()
    if not all(is_owned for _, is_owned in tables):
        log.warning("what was erased is not scrubbed: the role does not own the tables")
        return False
    if not _outlasts_readers(connection, begun[0]):
        return False
    if not is_pooled:
        connection.execute(_PATIENCE)
    for table, _ in tables:
        if not _is_rewritten(connection, table):
            return False
    if not _outlasts_readers(connection, begun[0]):
        return False
    connection.execute(_DONE.format(schema), begun)
    return True


def _is_rewritten(connection: Connection, table: str) -> bool:
    try:
        connection.execute(f"VACUUM (FULL) {table}")
    except errors.LockNotAvailable:
        log.info("what was erased is not scrubbed: %s is being read", table)
        return False
    return True


def _outlasts_readers(connection: Connection, transaction: str) -> bool:
    """Wait for readers of what *transaction* deleted; whether none is left."""
    for _ in range(_TRIES):
        row = connection.execute(_READERS, (transaction,)).fetchone()
        if row is not None and row[0] == 0:
            return True
        time.sleep(_PAUSE_S)
    return False
