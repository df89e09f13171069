"""How many tokens texts and messages have, as one service counts them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from mnemo.runtime.text import count_tokens
from mnemo.runtime.user_code import call
from mnemo.values.messages import MOST_TOKENS, Message, measured_text

__all__ = ["IMAGE_TOKENS", "Count", "Counter", "fitted", "tokens_of"]

log = logging.getLogger("mnemo")

Count: TypeAlias = Callable[[str], int]
"""Counts the tokens of a text."""

BYTES_PER_TOKEN = 4
"""As ``count_tokens`` counts them."""
IMAGE_TOKENS = 1_100
"""Tokens of an image; see ``ConversationConfig.image_tokens``."""
_KINDS_OF_MEDIA = ("mime_type", "mimeType", "media_type")


@dataclass(frozen=True, slots=True)
class Counter:
    """
    Counts as a service is configured to.

    Attributes:
        given: Counts the tokens of a text; ``None``: ``ceil(utf8_bytes / 4)``. It is called
            on the event loop or off it. Where it raises, or gives anything but a whole
            number that a message may have, the estimate stands in.
        image_tokens: Of each image.
    """

    given: Count | None = None
    image_tokens: int = IMAGE_TOKENS

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
    """
    The tokens of *message*: its text, its calls, its images, and other blocks by their size.

    An opaque message counts as the item that it keeps.

    Args:
        count: Counts texts; a ``Counter`` knows what an image counts, too.
    """
    content = message.content
    if message.is_opaque and message.extra is not None:
        content = [json.loads(message.extra)]
    others, images = _without_text(content)
    each = count.image_tokens if isinstance(count, Counter) else IMAGE_TOKENS
    return min(count(measured_text(message) + others) + images * each, MOST_TOKENS)


def _without_text(content: Any) -> tuple[str, int]:
    """The blocks that hold no text as compact JSON, without images; and how many images."""
    if not isinstance(content, list):
        return "", 0
    images: list[Any] = []
    try:
        rest = [block for block in _cut(content, images) if not _is_told(block)]
    except RecursionError:
        rest, images = content, []
    written = json.dumps(rest, ensure_ascii=False, separators=(",", ":")) if rest else ""
    return written, len(images)


def _cut(values: Iterable[Any], images: list[Any]) -> list[Any]:
    """*values* without the images in them at any depth, which are added to *images*."""
    kept = []
    for value in values:
        if isinstance(value, Mapping):
            if _is_image(value):
                images.append(value)
                continue
            value = dict(zip(value, _cut_each(value.values(), images), strict=True))
        kept.append(_cut(value, images) if isinstance(value, list) else value)
    return kept


def _cut_each(values: Iterable[Any], images: list[Any]) -> list[Any]:
    return [next(iter(_cut([value], images)), None) for value in values]


def _is_image(block: Mapping[str, Any]) -> bool:
    media = (str(block.get(name, "")) for name in _KINDS_OF_MEDIA)
    kind = str(block.get("type", ""))
    return "image" in kind or "screenshot" in kind or any(m.startswith("image/") for m in media)


def _is_told(block: Any) -> bool:
    """Whether its text stands for it."""
    return isinstance(block, Mapping) and isinstance(block.get("text"), str)
