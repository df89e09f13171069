"""Tool calls in words: what stands for them where only text can stand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mnemo.runtime.text import is_blank
from mnemo.transcript.message import THINKING_TOOL, Message, ToolCall

__all__ = ["call_text", "told_text"]


def call_text(call: ToolCall) -> str:
    """*call* as one would write it, e.g. ``search(query="tea", limit=3)``."""
    arguments = call.arguments
    if isinstance(arguments, Mapping) and all(map(str.isidentifier, arguments)):
        return f"{call.name}({', '.join(f'{k}={_compact(v)}' for k, v in arguments.items())})"
    return f"{call.name}({_compact(arguments)})"


def told_text(message: Message) -> str:
    """
    What *message* says and does, in words; ``""``: nothing.

    Its text, then a line for each call that is not just the thought that the text tells;
    of a failed tool call it says that it failed.
    """
    said = message.text.strip()
    told = message.kind == "thought" and is_blank(message._own_text())
    calls = [
        call_text(call) for call in message.tool_calls if not (told and call.name == THINKING_TOOL)
    ]
    failed = "[failed]" if message.is_error else ""
    return "\n".join([" ".join(filter(None, (failed, said))), *calls]).strip()


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
