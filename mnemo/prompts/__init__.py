"""Questions to models: one file per question, with its text, schema and parser."""
