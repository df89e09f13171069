"""The planner's statistics of partitioned tables, whose partitions alone autovacuum analyses."""

from __future__ import annotations

from mnemo.store.postgres.connection import Connection

# The server keeps how many rows it counted also where it takes back what it analysed: so all
# partitions are locked before. Whoever holds one, as autovacuum or a scrub does, goes first.
_ANALYSE = "LOCK TABLE {0} IN SHARE UPDATE EXCLUSIVE MODE NOWAIT; ANALYZE {0}"
_AT_MOST = "SET LOCAL statement_timeout = 60000"
_ALONE = "SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))"
# At 1,000 rows and at each doubling of what the parent had at its last analysis (-1: there was
# none); else once a day, if a tenth of all rows or of those of a partition has changed. Row level
# security hides whether there are statistics.
_DUE = """
SELECT format('%%I.%%I', n.nspname, p.relname)
FROM pg_namespace n JOIN pg_class p ON p.relnamespace = n.oid AND p.relkind = 'p'
JOIN pg_inherits i ON i.inhparent = p.oid
CROSS JOIN LATERAL (SELECT
    pg_stat_get_live_tuples(i.inhrelid) AS rows,
    pg_stat_get_mod_since_analyze(i.inhrelid) AS changed,
    pg_stat_get_last_autoanalyze_time(i.inhrelid) AS at,
    coalesce(pg_stat_get_last_analyze_time(p.oid), '-infinity') AS before) s
WHERE n.nspname = %s AND pg_has_role(p.relowner, 'USAGE')
GROUP BY n.nspname, p.oid, p.relname, p.reltuples
HAVING sum(rows) >= 1000 AND (
    sum(rows) >= 2 * p.reltuples
    OR NOT (row_security_active(p.oid) OR EXISTS (SELECT FROM pg_stats t
        WHERE t.schemaname = n.nspname AND t.tablename = p.relname AND t.inherited))
    OR max(before) < now() - interval '1 day'
    AND (10 * sum(changed) >= sum(rows) OR bool_or(at > before)))
ORDER BY p.relname LIMIT 1
"""


def analyse(connection: Connection, schema: str) -> bool:
    """
    Analyse a partitioned table that has changed much; give whether one had.

    One service at a time; 30,000 rows of the table and of each partition are read at most.
    *Raises* psycopg's errors: others hold the table, or it took a minute.
    """
    with connection.transaction():
        connection.execute(_AT_MOST)
        if connection.execute(_ALONE, (schema,)).fetchone() != (1,):
            return False
        due = connection.execute(_DUE, (schema,)).fetchone()
        if due is not None:
            connection.execute(_ANALYSE.format(due[0]))
    return due is not None
