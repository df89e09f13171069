"""Chat models and embedders; nothing heavy is imported, nothing opened before a call."""

from mnemo.models.anthropic import AnthropicChatModel
from mnemo.models.openai import OpenAIChatModel
from mnemo.models.openai_embedder import OpenAIEmbedder
from mnemo.models.prices import Price

__all__ = ["AnthropicChatModel", "OpenAIChatModel", "OpenAIEmbedder", "Price"]
