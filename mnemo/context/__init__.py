"""What the agent sees: the window, and what survives leaving it."""
