"""Convert messages from and to the wire formats of OpenAI and Anthropic, without loss."""

from mnemo.wire.detection import messages_of
from mnemo.wire.formats import (
    Format,
    Given,
    from_anthropic,
    from_openai,
    from_responses,
    listed,
    to_anthropic,
    to_openai,
    to_responses,
)

__all__ = [
    "Format",
    "Given",
    "from_anthropic",
    "from_openai",
    "from_responses",
    "listed",
    "messages_of",
    "to_anthropic",
    "to_openai",
    "to_responses",
]
