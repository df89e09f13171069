"""Hygiene: facts become one, fade, or count less; in bounded pieces beside who writes."""
