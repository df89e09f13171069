"""The PostgreSQL engine: one database for many processes; extra ``[postgres]``."""

from mnemo.store.postgres.engine import PostgresEngine, PostgresStore

__all__ = ["PostgresEngine", "PostgresStore"]
