"""The write side of a repository: sessions as state machines."""
