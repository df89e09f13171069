"""What a process that runs mnemo sets for the whole of itself."""

from mnemo.runtime.collector import settle_collector

__all__ = ["settle_collector"]
