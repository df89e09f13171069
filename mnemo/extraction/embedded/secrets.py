"""
Values that must never be learnt: keys, tokens, passwords.

They are replaced before any text is looked at, so that no fact, instruction, tag,
subgoal or state can hold one. The raw step keeps its words; it is the user's own.
"""

from __future__ import annotations

from mnemo.runtime.secrets import without_secrets

__all__ = ["HIDDEN", "redact"]

HIDDEN = "[hidden]"
"""What stands in the place of a secret."""


def redact(text: str) -> str:
    """*text* with every value that looks like a secret replaced by ``HIDDEN``."""
    return without_secrets(text, lambda kind: HIDDEN)
