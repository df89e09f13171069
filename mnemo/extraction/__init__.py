"""From an episode to a changeset."""
