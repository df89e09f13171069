"""Commit: from a changeset to the store."""
