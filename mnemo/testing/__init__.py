"""Fakes of every seam and the contracts of the stores; part of the product."""

from mnemo.models.hashing import HashingEmbedder

__all__ = ["HashingEmbedder"]
