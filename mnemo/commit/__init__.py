"""From a changeset to the store."""
