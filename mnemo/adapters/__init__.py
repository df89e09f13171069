"""Adapters to agent frameworks, one file each, behind the framework's extra."""
