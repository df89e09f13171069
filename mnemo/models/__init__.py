"""
Chat models and embedders.

Nothing heavy is imported here, and nothing opened before the first call. The embedders
that need no network are imported from their own modules.
"""

from mnemo.models.anthropic import AnthropicChatModel
from mnemo.models.openai import OpenAIChatModel
from mnemo.models.openai_embedder import OpenAIEmbedder
from mnemo.models.prices import Price

__all__ = ["AnthropicChatModel", "OpenAIChatModel", "OpenAIEmbedder", "Price"]
