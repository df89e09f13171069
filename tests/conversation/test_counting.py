"""Tokens of messages: text, calls, images, and other blocks by their size."""

from typing import Any

import pytest

from mnemo.config import Config, ConversationConfig
from mnemo.errors import ConfigError
from mnemo.values.counting import IMAGE_TOKENS, Counter, tokens_of
from mnemo.values.messages import Message

DATA = "A" * 400_000


def blocks(*content: dict[str, Any], **fields: Any) -> Message:
    """A message of content blocks."""
    return Message(role="user", content=list(content), **fields)


@pytest.mark.parametrize(
    "image",
    [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
        {"type": "input_image", "image_url": f"data:image/png;base64,{DATA}"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
        {"type": "image", "data": DATA, "mimeType": "image/png"},
        {"type": "file", "mime_type": "image/webp", "data": DATA},
    ],
)
def test_an_image_counts_the_same_whatever_its_form(image):
    """Its bytes are not what a model reads; its text, if it has one, counts as well."""
    assert IMAGE_TOKENS == 1_100
    assert tokens_of(blocks(image), Counter()) == 1_100
    assert tokens_of(blocks(image, image), Counter(block_tokens={"image": 7})) == 14
    assert tokens_of(blocks({"type": "text", "text": "four"}, image), Counter()) == 1_101


def test_an_image_within_another_block_counts_as_one():
    """What is around it counts by its size."""
    image = {"type": "image", "source": {"type": "base64", "data": DATA}}
    result = {"type": "tool_result", "content": [{"type": "text", "text": "seen"}, image]}
    assert 1_100 < tokens_of(blocks(result), Counter()) < 1_150
    part = {"inline_data": {"mime_type": "image/png", "data": DATA}}
    assert 1_100 < tokens_of(blocks(part), Counter()) < 1_120


def test_a_block_without_text_counts_by_its_size():
    """Sound, documents and thoughts of a model's own form."""
    sound = {"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}}
    assert tokens_of(blocks(sound), Counter()) > 100_000
    thought = {"type": "thinking", "thinking": "word" * 100, "signature": "x" * 40}
    assert 110 < tokens_of(blocks(thought), Counter()) < 140


def test_a_type_of_block_may_count_a_fixed_number():
    """A named type counts so many each; images keep their default, and texts are never fixed."""
    sound = {"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}}
    counter = Counter(block_tokens={"input_audio": 400, "text": 9})
    assert tokens_of(blocks(sound, sound), counter) == 800
    assert tokens_of(blocks({"type": "image", "data": DATA}), counter) == 1_100
    assert tokens_of(blocks({"type": "text", "text": "four"}), counter) == 1


@pytest.mark.parametrize("wrong", [{"image": -1}, {"image": "many"}, {"": 3}, 7])
def test_wrong_tokens_of_a_block_are_refused(wrong):
    """The error names the setting."""
    with pytest.raises(ConfigError, match=r"block_tokens"):
        Config(conversation={"block_tokens": wrong})


def test_text_and_calls_count_as_they_did():
    """A block with a text counts by that alone."""
    cached = {"type": "text", "text": "hello world", "cache_control": {"type": "ephemeral"}}
    assert tokens_of(blocks(cached), Counter()) == 3
    assert tokens_of(Message(role="user", content="hello world"), len) == 11
    assert tokens_of(Message(role="assistant", content=None), Counter()) == 0


def test_blocks_nested_without_end_are_counted_by_size():
    """Too deep to be looked through for images is not too deep to be counted."""
    deep: Any = "x"
    for _ in range(400):
        deep = [deep]
    assert tokens_of(blocks({"type": "deep", "in": deep}), Counter()) > 200


async def test_images_fill_a_budget(open_conversations):
    """Three data URLs of 400 KB need the tokens of three images, or as many as is configured."""
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}}
    talk = await open_conversations()
    await talk.log().append([blocks(image) for _ in range(3)])
    assert len(await talk.log().load(budget_tokens=3_300)) == 3
    assert len(await talk.log().load(budget_tokens=3_299)) == 2
    config = Config(conversation=ConversationConfig(block_tokens={"image": 10}))
    other = await open_conversations(config=config, after=talk)
    (stored,) = await other.log("u").append(blocks(image))
    assert stored.token_count == 10
