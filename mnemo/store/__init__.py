"""Where it is kept."""
