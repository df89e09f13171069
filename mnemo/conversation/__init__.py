"""The append-only history of threads, and what is loaded of it."""
