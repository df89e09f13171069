"""What is given where a model belongs, and is none, is refused before it would be asked."""

import pytest

from mnemo import ConfigError, Mnemo
from mnemo.testing import HashingEmbedder, ScriptedChatModel

WRONG = [
    ({"chat_model": "gpt-4o"}, "chat_model must be an object to ask, .* not a str"),
    ({"chat_model": ScriptedChatModel}, "not the class .*ScriptedChatModel"),
    ({"chat_model": HashingEmbedder()}, "chat_model must .* not a HashingEmbedder"),
    ({"embedder": "text-embedding-3-small"}, "there is no embedder .*, or an object to ask"),
    ({"embedder": HashingEmbedder}, "not the class .*HashingEmbedder"),
    ({"embedder": ScriptedChatModel()}, "embedder must .* not a ScriptedChatModel"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_a_service_refuses_what_is_no_model(arguments, message):
    """A name, a class and the other kind of model are told where they are given."""
    with pytest.raises(ConfigError, match=message):
        Mnemo("memory:", **arguments)


@pytest.mark.parametrize(("arguments", "message"), WRONG)
async def test_a_repository_refuses_what_is_no_model(arguments, message):
    """So they are for one repository, which can be opened rightly afterwards."""
    async with Mnemo("memory:") as memory:
        with pytest.raises(ConfigError, match=message):
            await memory.open_repo("trips", **arguments)
        await memory.open_repo("trips", embedder=HashingEmbedder())
