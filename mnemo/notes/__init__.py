"""Long-term notes: written at the end of a task, one per topic, with a version history."""
