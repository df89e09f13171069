"""Fakes of every seam and the contracts of the stores; part of the product."""
