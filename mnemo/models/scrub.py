"""What may be quoted of a server's words: one short line without anything secret."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pydantic import SecretStr

from mnemo.runtime.text import clean, one_line

__all__ = ["Scrubber"]

SHARED = 8
"""Characters in a row that a word may share with a secret before it is hidden."""
HIDDEN = "***"

_MASKED = re.compile(r"[*•…]{3,}|\.{4,}|x{6,}", re.IGNORECASE)
_USERINFO = re.compile(r"//[^/\s@]+@")
_WORD = re.compile(r"""[^\s"'<>(){}\[\],;]+""")


class Scrubber:
    """
    Hides secrets in foreign texts: as they are, in part, or masked by the server.

    Args:
        secrets: Keys and header values.
    """

    def __init__(self, secrets: Iterable[SecretStr]) -> None:
        values = (secret.get_secret_value() for secret in secrets)
        self._secrets = tuple(SecretStr(value) for value in values if value)

    def hide(self, text: str) -> str:
        """*text* without secrets; its length and lines are otherwise kept."""
        text = _USERINFO.sub("//", clean(text))
        for secret in self._secrets:
            text = text.replace(secret.get_secret_value(), HIDDEN)
        return _WORD.sub(self._word, text)

    def quote(self, text: str, limit: int = 300) -> str:
        """*text* as one line of at most *limit* characters, without secrets."""
        line = one_line(self.hide(text[: 20 * limit]))
        return line if len(line) <= limit else f"{line[:limit]}…"

    def _word(self, found: re.Match[str]) -> str:
        word = found.group()
        betrays = any(_shares(word, secret.get_secret_value()) for secret in self._secrets)
        return HIDDEN if betrays else word


def _shares(word: str, secret: str) -> bool:
    if _MASKED.search(word) and (secret[:3] in word or secret[-3:] in word):
        return True  # "sk-ab******yz": a mask between the ends of the key
    return any(part in secret for part in _parts(word))


def _parts(word: str) -> Iterator[str]:
    """Every run of so many characters of *word*."""
    return (word[i : i + SHARED] for i in range(len(word) - SHARED + 1))
