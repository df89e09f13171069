"""
What the texts of a note must be like; pure.

Nothing is cut or renamed to fit: what does not fit is refused with a code and a message
that says what would be accepted.
"""

from __future__ import annotations

import re
import unicodedata

from mnemo._text import clean, fold, is_blank, one_line, stem, words
from mnemo.errors import InvalidNote

__all__ = [
    "MAX_TOPIC",
    "check_neighbours",
    "checked_body",
    "checked_description",
    "checked_topic",
    "check_neighbours",
