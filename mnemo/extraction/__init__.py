"""Extraction: from an episode to a changeset."""
