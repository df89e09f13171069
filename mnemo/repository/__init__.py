"""A repository: one isolated memory, with its sessions, graph and recall."""
