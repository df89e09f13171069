"""When two texts make the same claim. Pure: no model, no store."""

from __future__ import annotations

import unicodedata

from mnemo._text import one_line

__all__ = ["equal_text", "plain"]

_FINAL = ".。!！"


def plain(text: str) -> str:
    """*text* with blanks squeezed, case folded and the final point removed."""
    squeezed = one_line(unicodedata.normalize("NFC", text)).casefold()
    return squeezed.rstrip(_FINAL).rstrip() or squeezed


def equal_text(a: str, b: str) -> bool:
    """Whether *a* and *b* are the same text, case, blanks and the final point aside."""
    return a == b or plain(a) == plain(b)
