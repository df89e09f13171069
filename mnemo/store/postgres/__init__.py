"""The PostgreSQL engine: one database for many processes; extra ``[postgres]``."""
