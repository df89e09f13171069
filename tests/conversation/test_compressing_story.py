"""A long talk with a summariser that fails in every way: nothing is lost, nothing is hidden."""

import random
from typing import Any

import pytest
from compress_kit import Compressed, compressed
from talk_kit import assistant, result, user

from mnemo.config import Config
from mnemo.errors import ModelUnavailable, RateLimited
from mnemo.protocols import ChatReply, ChatRequest
from mnemo.values.messages import Message
from mnemo.values.strategies import Recent, Summary

SUMMARY = Summary(max_tokens=120, keep_last=3, max_summary_tokens=25)


def answers(chance: random.Random) -> Any:
    """A model that fails in every second call, on average, and is sometimes verbose."""
    failures: list[Any] = [
        RuntimeError("boom"),
        ModelUnavailable("away"),
        RateLimited("slowly", retry_after_s=3),
        "",
        ChatReply(text="cut o", truncated=True),
    ]

    def answer(request: ChatRequest) -> Any:
        kind = chance.randrange(10)
        if kind < len(failures):
            return failures[kind]
        return "They went on. " * (30 if kind == 9 else 1)

    return answer


def some(chance: random.Random, place: int) -> list[Message]:
    """What may be said at once: words, or a call whose results come at once, or never."""
    kind = chance.randrange(4)
    if kind == 0:
        return [assistant(None, f"c{place}", id=f"a{place}")]
    if kind == 1:
        call = assistant("looking", f"c{place}", id=f"a{place}")
        return [call, user("meanwhile", id=f"u{place}"), result(f"c{place}", id=f"r{place}")]
    return [user("word " * chance.randrange(1, 40), id=f"u{place}")]


async def everything_is_there(kit: Compressed) -> None:
    """Each message is either loaded as itself or inside exactly one summary's range."""
    loaded = await kit.talk.log(retrieval=Recent(10_000)).load()
    ranges = [
        (m.metadata["start_seq"], m.metadata["end_seq"]) for m in loaded if m.kind == "summary"
    ]
    shown = {message.id for message in loaded}
    for message in await kit.log.history():
        covering = sum(start <= message.seq <= end for start, end in ranges)
        assert covering + (message.id in shown) == 1, message


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_whatever_the_summariser_does_nothing_is_lost(open_conversations, seed):
    """Append and load answer as if compression did not exist; records never overlap."""
    chance = random.Random(seed)
    config = Config(conversation={"tool_deadline_s": 40})
    script = answers(random.Random(seed))
    kit = await compressed(open_conversations, SUMMARY, script=script, config=config)
    stored = 0
    for place in range(60):
        batch = some(chance, place)
        assert len(await kit.log.append(batch)) == len(batch)
        stored += len(batch)
        await kit.compressing.settled("t")
        if chance.random() < 0.3:
            await kit.talk.clock.advance(chance.choice([1, 5, 20, 60]))
        if chance.random() < 0.3:
            await everything_is_there(kit)
    for _ in range(12):
        await kit.talk.clock.advance(60)
        await kit.compressing.settled("t")
    await everything_is_there(kit)
    assert len(await kit.log.history()) == stored
    assert kit.failures
    live = await kit.records()
    assert live
    assert all(one.token_count <= SUMMARY.max_summary_tokens for one in live)
