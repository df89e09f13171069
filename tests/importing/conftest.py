"""Fixtures: commands that run in this process, and files."""

from cli_kit import cli, write

__all__ = ["cli", "write"]
