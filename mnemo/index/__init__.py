"""How it is found: in memory, revisioned, rebuildable from the store."""
