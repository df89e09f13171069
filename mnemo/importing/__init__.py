"""Import what other programs keep: readers of their files, and one loop that stores records."""
