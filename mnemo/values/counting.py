"""How many tokens texts and messages have, as one service counts them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from mnemo.runtime.text import count_tokens
from mnemo.runtime.user_code import call
from mnemo.values.messages import MOST_TOKENS, Message, compact_json, measured_text

log: logging.Logger = logging.getLogger("mnemo")

Count: TypeAlias = Callable[[str], int]
"""Counts the tokens of a text."""

BYTES_PER_TOKEN = 4
"""As ``count_tokens`` counts them."""
IMAGE_TOKENS = 1_100
"""Tokens of an image; see ``ConversationConfig.block_tokens``."""
_KINDS_OF_MEDIA = ("mime_type", "mimeType", "media_type")


@dataclass(frozen=True, slots=True)
class Counter:
    """
    Counts as a service is configured to.

    Attributes:
        given: Called on the event loop or off it; ``None``: the estimate, which also stands in
            where it raises, or gives anything but a whole number that a message may have.
        block_tokens: Of each block without text, by its type; ``image`` is any form of image.
    """

    given: Count | None = None
    block_tokens: Mapping[str, int] = field(default_factory=dict)

    def __call__(self, text: str) -> int:
        """The tokens of *text*."""
        if self.given is None:
            return count_tokens(text)
        try:
            tokens = call(self.given, text)
        except Exception as error:
            log.warning("the token counter failed, the estimate is used: %s", error)
            return count_tokens(text)
        is_number = isinstance(tokens, int) and not isinstance(tokens, bool)
        return tokens if is_number and 0 <= tokens <= MOST_TOKENS else count_tokens(text)


def fitted(shown: Callable[[int], str], budget_tokens: int, count: Count) -> str:
    """
    The longest text of at most *budget_tokens* that *shown* gives.

    Args:
        shown: Gives what fits so many bytes of UTF-8; more bytes, no less text.
        count: Counts it. For the estimate, four bytes to a token, one call of *shown* is
            enough; for another counter the number of bytes is searched for.
    """
    low, high, best = 0, BYTES_PER_TOKEN * budget_tokens, None
    text = shown(high)
    if count is count_tokens or (isinstance(count, Counter) and count.given is None):
        return text
    while count(text) <= budget_tokens:
        low, high, best = high, 2 * high, text
        text = shown(high)
        if text == best:
            return text
    while high - low > max(BYTES_PER_TOKEN, low // 16):
        middle = (low + high) // 2
        text = shown(middle)
        fits = count(text) <= budget_tokens
        low, high, best = (middle, high, text) if fits else (low, middle, best)
    return shown(low) if best is None else best


def tokens_of(message: Message, count: Count) -> int:
    """The tokens of *message*: text, calls, blocks; an opaque one counts as its item."""
    content = message.content
    if message.is_opaque and message.extra is not None:
        content = [json.loads(message.extra)]
    given = count.block_tokens if isinstance(count, Counter) else {}
    others, fixed = _without_text(content, {"image": IMAGE_TOKENS, **given})
    return min(count(measured_text(message) + others) + fixed, MOST_TOKENS)


def _without_text(content: Any, each: Mapping[str, int]) -> tuple[str, int]:
    """The blocks that hold no text as compact JSON without those in *each*; the tokens of these."""
    if not isinstance(content, list):
        return "", 0
    fixed: list[int] = []
    try:
        rest = [block for block in _cut(content, each, fixed) if not _is_told(block)]
    except RecursionError:
        rest, fixed = content, []
    return compact_json(rest) if rest else "", sum(fixed)


def _cut(values: Iterable[Any], each: Mapping[str, int], fixed: list[int]) -> list[Any]:
    """*values* without the blocks in *each* at any depth, whose tokens are added to *fixed*."""
    kept = []
    for value in values:
        if isinstance(value, Mapping):
            tokens = _fixed_tokens(value, each)
            if tokens is not None:
                fixed.append(tokens)
                continue
            parts = [next(iter(_cut([part], each, fixed)), None) for part in value.values()]
            value = dict(zip(value, parts, strict=True))
        kept.append(_cut(value, each, fixed) if isinstance(value, list) else value)
    return kept


def _fixed_tokens(block: Mapping[str, Any], each: Mapping[str, int]) -> int | None:
    kind = block.get("type")
    if isinstance(kind, str) and kind in each and not _is_told(block):
        return each[kind]
    return each["image"] if _is_image(block) else None


def _is_image(block: Mapping[str, Any]) -> bool:
    media = (str(block.get(name, "")) for name in _KINDS_OF_MEDIA)
    kind = str(block.get("type", ""))
    return "image" in kind or "screenshot" in kind or any(m.startswith("image/") for m in media)


def _is_told(block: Any) -> bool:
    """Whether its text stands for it."""
    return isinstance(block, Mapping) and isinstance(block.get("text"), str)
