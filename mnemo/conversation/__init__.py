"""What was said: the append-only history of threads, and what is loaded of it."""
