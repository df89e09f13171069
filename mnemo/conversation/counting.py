"""How many tokens a text has, as one service counts them."""

from __future__ import annotations

import logging

from mnemo._foreign import call
from mnemo._text import count_tokens
from mnemo.config import ConversationConfig
from mnemo.transcript.message import MOST_TOKENS
from mnemo.transcript.units import Count

__all__ = ["counter_of"]

log = logging.getLogger("mnemo")


def counter_of(config: ConversationConfig) -> Count:
    """
    The counter of *config*, or the estimate ``ceil(utf8_bytes / 4)``.

    A configured counter that raises, or gives anything but a whole number that a message
    may have, is passed over for that text; it is called off the event loop or on it.
    """
    given = config.token_counter
    if given is None:
        return count_tokens

    def count(text: str) -> int:
        try:
            tokens = call(given, text)
        except Exception as error:
            log.warning("the token counter failed, the estimate is used: %s", error)
            return count_tokens(text)
        is_number = isinstance(tokens, int) and not isinstance(tokens, bool)
        return tokens if is_number and 0 <= tokens <= MOST_TOKENS else count_tokens(text)

    return count
