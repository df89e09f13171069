"""The SQLite engine and its dialect."""
