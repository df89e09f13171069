"""Durable memory for agents."""
