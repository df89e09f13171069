"""Everything that can go wrong with a model over HTTP, asked the way the pipeline asks."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest
import scripted_faults as faults
from http_doubles import KEY, HastyClock
from scripted_server import ScriptedServer

from mnemo.errors import InvalidReply, ModelError, ModelTimeout, ModelUnavailable, RateLimited
from mnemo.models import AnthropicChatModel, OpenAIChatModel
from mnemo.models.chat import HttpChatModel
from mnemo.prompts.calling import Asker
from mnemo.prompts.procedural import merge_intent_question
from mnemo.prompts.usage import UsageMeter

QUESTION = merge_intent_question("sail", "row", None)
ANSWER = "go by boat"
Make = Callable[..., HttpChatModel]


@pytest.fixture(params=["openai", "anthropic"])
async def make(request: pytest.FixtureRequest, server: ScriptedServer) -> AsyncIterator[Make]:
    """Makes a model of either protocol that does not wait between tries."""
    made: list[HttpChatModel] = []
    server.script("merge_intent", {"intent": ANSWER})

    def one(**arguments: Any) -> HttpChatModel:
        given = {"clock": HastyClock(), **arguments}
        if request.param == "openai":
            made.append(OpenAIChatModel(f"{server.url}/v1", "m", KEY, **given))
        else:
            made.append(AnthropicChatModel("m", KEY, base_url=server.url, **given))
        return made[-1]

    yield one
    for model in made:
        await model.aclose()
    await server.until(lambda: server.connections == 0)


async def asked(model: HttpChatModel, *, timeout_s: float = 60.0) -> str:
    return await Asker(model, meter=UsageMeter(), timeout_s=timeout_s).ask(QUESTION)


@pytest.mark.parametrize("fault", [*faults.TRANSIENT, faults.TRUNCATED_JSON], ids=lambda f: f.name)
async def test_what_passes_is_survived(server, make, fault):
    """Dropped connections, 429, 5xx and JSON that is cut off are met by another try."""
    server.fail(fault)
    assert await asked(make()) == ANSWER
    assert len(server.requests) == 2


@pytest.mark.parametrize("fault", faults.REPLIES, ids=lambda f: f.name)
async def test_a_bad_reply_is_corrected(server, make, fault):
    """One bad reply costs one corrective call; two of them are an InvalidReply."""
    server.fail(fault)
    model = make()
    assert await asked(model) == ANSWER
    assert len(server.requests) == 2
    server.fail(fault, times=2)
    with pytest.raises(InvalidReply) as caught:
        await asked(model)
    assert caught.value.purpose == "merge_intent"
    assert len(caught.value.raw) <= 2_000
    assert len(server.requests) == 4
    assert await asked(model) == ANSWER


@pytest.mark.parametrize(
    ("fault", "kind", "retryable"),
    [
        (faults.DROPPED, ModelUnavailable, True),
        (faults.DROPPED_MID_BODY, ModelUnavailable, True),
        (faults.TRUNCATED_JSON, ModelUnavailable, True),
        (faults.SERVER_ERROR, ModelUnavailable, True),
        (faults.OVERLOADED, ModelUnavailable, True),
        (faults.RATE_LIMITED, RateLimited, True),
        (faults.rate_limited(7), RateLimited, True),
        (faults.rate_limited(7_000), RateLimited, True),
        (faults.KEY_REFUSED, ModelUnavailable, False),
        (faults.WRONG_CONTENT_TYPE, ModelUnavailable, False),
        (faults.NEVER_ANSWERS, ModelTimeout, True),
        (faults.SLOW_DRIP, ModelTimeout, True),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
async def test_what_lasts_is_a_typed_error_and_a_retry_completes(
    server,
    make,
    fault,
    kind,
    retryable,
):
    """Each ends as its own kind, with its purpose; once the server is well, the model is, too."""
    server.fail(fault, times=10**6)
    model = make(max_retries=1)
    with pytest.raises(ModelError) as caught:
        await asked(model, timeout_s=0.05 if kind is ModelTimeout else 60)
    assert type(caught.value) is kind
    assert caught.value.retryable is retryable
    assert caught.value.purpose == "merge_intent"
    server.heal()
    assert await asked(model) == ANSWER


@pytest.mark.slow
async def test_a_hundred_questions_keep_to_the_limit(server, make):
    """With faults of every kind among them, none is lost and no more run at once than allowed."""

    server.fail_by_chance(0.1, faults.TRANSIENT, seed=7)
    server.fail(faults.delayed(0.2), times=4)  # so that some are surely in flight together
    model = make(max_concurrency=4, max_retries=8)
    answers: list[str] = []

    async def ask() -> None:
        answers.append(await asked(model))

    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(ask)
    assert answers == [ANSWER] * 100
    assert 1 < server.most_at_once <= 4
    assert server.connections <= 4
