"""The store that keeps nothing: the embedded store's twin in plain Python."""

from mnemo.store.memory.store import MemoryStore

__all__ = ["MemoryStore"]
