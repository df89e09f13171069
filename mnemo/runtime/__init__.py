"""Time, chance, tasks and text, and settings of the whole process."""

from mnemo.runtime.collector import settle_collector

__all__ = ["settle_collector"]
