"""Maintenance: consolidation, decay and validation, in bounded transactions."""
