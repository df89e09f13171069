"""Recall: from a query to evidence."""
