"""When: the write side of a repository, a state machine."""
