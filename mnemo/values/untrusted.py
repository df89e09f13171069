"""Stored text in a request: data that can neither close its tag nor speak as anybody else."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from mnemo.runtime.text import visible

_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_QUOTED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\n": "&#10;"})

_MARK = re.compile(
    r"""
    < (?= [|\uff5c]                                   # <|im_start|>, <|eot_id|>, fullwidth bars
        | /? s > | /? [a-z]+_of_turn > | [be]os > | (?:unk|pad|mask|image|audio|video) >
        | <? /? SYS >
        | /? (?: tools? | tool_(?:calls?|responses?|results?|outputs?) | functions?
               | function_(?:calls?|results?) | invoke | parameter | think | thinking | reasoning
               | im_start | im_end | system | user | assistant ) [\s>=/]
        )
    | \[ (?= /? (?: INST | SYSTEM_PROMPT | AVAILABLE_TOOLS | TOOL_CALLS | TOOL_RESULTS
                  | TOOL_CONTENT | CALL_ID | ARGS | MODEL_SETTINGS | THINK | PREFIX | SUFFIX
                  | MIDDLE | IMG(?:_BREAK|_END)? | BEGIN_AUDIO | AUDIO | [gs]MASK | BOS | EOS ) \] )
    """,
    re.IGNORECASE | re.VERBOSE,
)
"""
Marks of chat templates (ChatML, Llama 2 to 4, Gemma, Mistral, DeepSeek, Qwen, GLM).

Servers that split the whole prompt into tokens take them for their own, wherever they stand.
"""


def without_marks(text: str, spelled: Callable[[str], str] = lambda one: f"&#{ord(one)};") -> str:
    """
    *text* in which no mark of a chat template and nothing hidden stands; see ``visible``.

    The one escaping of stored text in a request; *spelled* gives the first character of a mark.
    """
    return _MARK.sub(lambda found: spelled(found.group()), visible(text))


def json_line(row: Mapping[str, Any]) -> str:
    """*row* as JSON on one line; what is hidden and marks of chat templates are escaped in it."""
    return without_marks(visible(json.dumps(row, ensure_ascii=False), _as_json), _as_json)


def _as_json(one: str) -> str:
    return json.dumps(one)[1:-1] if not one.isascii() else f"\\u{ord(one):04x}"


def escaped(text: str) -> str:
    """*text* with ``&``, ``<`` and ``>`` as entities, and without marks of chat templates."""
    return without_marks(text.translate(_MARKUP))


def untrusted(tag: str, text: str, attributes: Mapping[str, object] | None = None) -> str:
    """
    Wrap *text* in a tag that says ``trusted="false"``; exactly one tag opens and one closes. *tag*
    and the names of *attributes* are given by code, never by data; values are escaped.
    """
    named = {**(attributes or {}), "trusted": "false"}
    written = "".join(f' {name}="{_quoted(value)}"' for name, value in named.items())
    return f"<{tag}{written}>\n{escaped(text)}\n</{tag}>"


def _quoted(value: object) -> str:
    return without_marks(str(value).translate(_QUOTED))
