"""Keyed items of a repository: put, get, search and expiry."""
