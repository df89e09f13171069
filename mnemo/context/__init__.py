"""The context of an agent: its window, and what remains of what left it."""
