"""LlamaIndex: ``MnemoMemoryBlock``, a block of its ``Memory``."""

from __future__ import annotations

from collections.abc import Sequence
from operator import methodcaller
from typing import Any

from pydantic import PrivateAttr

from mnemo import Message, Repository
from mnemo import sync as blocking
from mnemo.adapters.handles import AnyRepository, Handle
from mnemo.runtime.extras import refuse
from mnemo.runtime.text import count_tokens

try:
    from llama_index.core.base.llms.types import ChatMessage
    from llama_index.core.memory import BaseMemoryBlock
except ImportError as error:
    refuse(__name__, "llama-index", error)

__all__ = ["MnemoMemoryBlock"]

_ROLES = {"assistant": "assistant", "chatbot": "assistant", "model": "assistant"}
_ROLES |= {"system": "system", "developer": "system", "tool": "tool", "function": "tool"}


class MnemoMemoryBlock(BaseMemoryBlock[str]):
    """
    A memory block: what leaves the short-term memory is remembered, and recalled by what is asked.

    ``Memory.from_defaults(session_id=…, memory_blocks=[MnemoMemoryBlock(repo)])``. Messages are
    those of the thread that is called as the session; facts are extracted from them in the
    background. The block's text are the lines of a recall of the user's last message, from all
    threads of the repository.

    Args:
        repo: An open repository, or one of ``mnemo.sync``.
        name: Of the block.
        priority: 0: never cut by the framework.
        k: Lines at most.
        budget_tokens: Their tokens, at most.

    Raises:
        ConfigError: *repo* is no open repository.
    """

    k: int = 10
    budget_tokens: int = 500
    _handle: Handle = PrivateAttr()

    def __init__(
        self, repo: AnyRepository, *, name: str = "mnemo", priority: int = 1, **fields: Any
    ) -> None:
        handle = Handle.of(repo, Repository, blocking.Repository)
        super().__init__(name=name, priority=priority, **fields)
        self._handle = handle

    async def _aget(
        self, messages: Sequence[ChatMessage] | None = None, **block_kwargs: Any
    ) -> str:
        """The lines of a recall; ``""`` where nothing is found. *Cancellation*: safe."""
        asked = [one.content for one in messages or () if one.role.value == "user" and one.content]
        if not asked:
            return ""
        found = await self._handle.run(lambda repo: repo.recall(asked[-1], k=self.k))
        return str(found.as_text(self.budget_tokens))

    async def _aput(self, messages: Sequence[ChatMessage]) -> None:
        """Remember *messages*, all or none; durable when it returns. *Cancellation*: safe."""
        by_thread: dict[str, list[Message]] = {}
        for one in messages:
            thread = str(one.additional_kwargs.get("session_id") or self.name)
            by_thread.setdefault(thread, []).append(_said(one))
        for thread, said in by_thread.items():
            await self._handle.run(methodcaller("remember", said, thread_id=thread))

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """The best lines of *content* that are left by so many tokens less; ``None``: none are."""
        lines = content.splitlines()
        left = count_tokens(content) - tokens_to_truncate
        while lines and count_tokens("\n".join(lines)) > left:
            lines.pop()
        return "\n".join(lines) or None


def _said(message: ChatMessage) -> Message:
    """Its words; a block without words is named."""
    parts = [getattr(block, "text", None) or f"[{block.block_type}]" for block in message.blocks]
    role: Any = _ROLES.get(message.role.value, "user")
    call = str(message.additional_kwargs.get("tool_call_id") or "call") if role == "tool" else None
    return Message(role=role, content="\n".join(parts) or "[empty]", tool_call_id=call)
