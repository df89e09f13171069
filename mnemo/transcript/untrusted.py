"""Text that models or strangers wrote, wrapped so that it cannot speak as anybody else."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["escaped", "untrusted"]

_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_QUOTED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\n": "&#10;"})


def escaped(text: str) -> str:
    """*text* with ``&``, ``<`` and ``>`` as entities: it can neither open nor close a tag."""
    return text.translate(_MARKUP)


def untrusted(tag: str, text: str, attributes: Mapping[str, object] | None = None) -> str:
    """
    Wrap *text* in a tag that says ``trusted="false"``; exactly one tag opens and one closes.

    Args:
        tag: A plain name, such as ``summary``; given by code, never by data.
        attributes: In order, before ``trusted``; values are escaped too.
    """
    named = {**(attributes or {}), "trusted": "false"}
    written = "".join(f' {name}="{str(value).translate(_QUOTED)}"' for name, value in named.items())
    return f"<{tag}{written}>\n{escaped(text)}\n</{tag}>"
