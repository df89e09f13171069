"""The shape of a reply that names what to look for, and its reading."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mnemo.prompts.question import Reply
from mnemo.runtime.text import fold, one_line

__all__ = ["TagsReply", "distinct", "read_tags"]

MAX_TAG_CHARACTERS = 100
"""Characters of one tag; a longer one is a text, not something to look for (S)."""


class TagsReply(Reply):
    """The shape of the reply."""

    tags: tuple[str, ...]


def read_tags(value: Any, *, at_most: int, query: str) -> tuple[str, ...]:
    """The first *at_most* tags that say something and are not the *query* itself, each once."""
    tags = distinct(TagsReply.model_validate(value).tags)
    return tuple(tag for tag in tags if _key(tag) != _key(query))[:at_most]


def distinct(tags: Iterable[str]) -> tuple[str, ...]:
    """*tags* in one line each, without blank ones and repeats; case and accents aside."""
    found: dict[str, str] = {}
    for tag in tags:
        line = one_line(tag)[:MAX_TAG_CHARACTERS].rstrip()
        if line:
            found.setdefault(_key(line), line)
    return tuple(found.values())


def _key(text: str) -> str:
    return one_line(fold(text)).strip(" ?!.")
