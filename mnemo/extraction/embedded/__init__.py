"""
Extraction without a model: rules, word lists and cues; deterministic, no network.

Every word of a fact comes from the steps, the actor's name, the resolved date or a
fixed template, so nothing is invented; what cannot be said truly is left out.
"""

from mnemo.extraction.embedded.annotator import EmbeddedAnnotator
from mnemo.extraction.embedded.instructions import EmbeddedProceduralExtractor
from mnemo.extraction.embedded.semantic import EmbeddedSemanticExtractor
from mnemo.extraction.embedded.text_kinds import redact

__all__ = [
    "EmbeddedAnnotator",
    "EmbeddedProceduralExtractor",
    "EmbeddedSemanticExtractor",
    "redact",
]
