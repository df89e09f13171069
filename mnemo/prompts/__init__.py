"""What we ask models: one file per question."""
