"""The wording of a common intent, for the commit to ask for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from mnemo.config import Config
from mnemo.prompts.ask import Asker
from mnemo.prompts.merge_intent import merge_intent_question
from mnemo.prompts.profiles import resolve_profile
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatModel
from mnemo.runtime.spans import NO_SPANS, Spans

__all__ = ["build_intent_merger"]


def build_intent_merger(
    chat_model: ChatModel | None,
    config: Config,
    meter: UsageMeter | None = None,
    spans: Spans = NO_SPANS,
) -> Callable[[str, str], Awaitable[str]] | None:
    """
    Give ``merge(stored, new)``, which words one intent for two and may raise ``ModelError``.

    Returns:
        ``None`` without a model: then the stored wording is used as it is.

    Raises:
        ConfigError: ``config.extraction.profile`` is no profile.
    """
    profile = resolve_profile(config.extraction.profile)
    if chat_model is None:
        return None
    timeout_s = config.extraction.timeout_s
    asker = Asker(chat_model, meter=meter or UsageMeter(), timeout_s=timeout_s, spans=spans)

    async def merge(stored: str, new: str) -> str:
        return await asker.ask(merge_intent_question(stored, new, profile))

    return merge
