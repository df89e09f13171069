"""Notes: what stays after a task, written at its end, kept as topics with a history."""
