"""Vectors over HTTP: batches, order, cache, usage, and replies that cannot be used."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import httpx
import numpy as np
import pytest
import scripted_faults as faults
from scripted_server import ScriptedServer

from mnemo.errors import ConfigError, InvalidReply, ModelTimeout, ModelUnavailable, RateLimited
from mnemo.models.openai_embedder import EmbeddingUsage, OpenAIEmbedder, read_rows
from mnemo.models.prices import Price
from mnemo.testing import HashingEmbedder, ManualClock

Make = Callable[..., OpenAIEmbedder]
D = 32


@pytest.fixture
async def make(server: ScriptedServer) -> AsyncIterator[Make]:
    """Makes embedders of the server, 32 dimensions, no retries, which are closed at the end."""
    made = []

    def one(**arguments: Any) -> OpenAIEmbedder:
        given = {"dimensions": D, "max_retries": 0, "timeout_s": 60.0, **arguments}
        embedder = OpenAIEmbedder(f"{server.url}/v1", "e", **given)
        made.append(embedder)
        return embedder

    server.dimensions = D
    yield one
    for embedder in made:
        await embedder.aclose()


def sent(server: ScriptedServer) -> list[list[str]]:
    """The texts of every request."""
    return [call.body["input"] for call in server.calls("embed")]


# ── What comes back ──────────────────────────────────────────────────────────────────


async def test_rows_are_those_of_their_texts(server, make):
    """One unit row per text, in the order of the texts, however the server sorts them."""
    server.shuffled = True
    texts = ["tea with milk", "a long walk", "the last train", "tea with milk"]
    rows = await make().embed(texts)
    assert rows.dtype == np.float32
    assert np.allclose(rows, await HashingEmbedder(D).embed(texts), atol=1e-6)


async def test_the_space_is_known_without_the_server(make):
    """Model and prefixes name it; another name can be given."""
    embedder = make(dense_weight=0.9)
    assert str(embedder.space) == "e (32 dimensions)"
    assert embedder.space.dense_weight == 0.9
    assert make(query_prefix="query: ").space.name == "e ('query: ', '')"
    assert make(query_prefix="query: ", name="mine").space.name == "mine"


async def test_lists_are_read_where_base64_is_not_given(server, make):
    """A server that refuses ``encoding_format`` is asked again without it, and from then on."""
    server.refuses = {"encoding_format": 400}
    embedder = make()
    rows = await embedder.embed(["tea"])
    await embedder.embed(["ham"])
    assert np.allclose(rows, await HashingEmbedder(D).embed(["tea"]), atol=1e-6)
    assert [call.body.get("encoding_format") for call in server.calls("embed")] == [
        "base64",
        None,
        None,
    ]


async def test_no_texts_need_no_call(server, make):
    """The shape is that of no rows, and nothing is opened."""
    assert (await make().embed([])).shape == (0, D)
    assert server.requests == []


async def test_a_blank_text_is_sent_as_a_space(server, make):
    """Servers refuse an empty input; the row is a vector like any other."""
    rows = await make().embed(["", " \n", "tea"])
    assert sent(server) == [[" ", "tea"]]
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)


async def test_a_text_that_cannot_be_sent_is_cleaned(server, make):
    """Lone surrogates and U+0000 become U+FFFD."""
    await make().embed(["a\ud800b\0c"])
    assert sent(server) == [["a\ufffdb\ufffdc"]]


async def test_dimensions_are_asked_for_only_if_told(server, make):
    """Most servers do not know the field."""
    await make().embed(["tea"])
    await make(send_dimensions=True, dimensions=16).embed(["tea"])
    assert [call.body.get("dimensions") for call in server.calls("embed")] == [None, 16]


async def test_prefixes_set_documents_and_queries_apart(server, make):
    """Each kind has its prefix, and is remembered by itself."""
    embedder = make(query_prefix="query: ", document_prefix="passage: ")
    await embedder.embed(["tea"])
    await embedder.embed(["tea"], kind="query")
    await embedder.embed(["tea"], kind="query")
    assert sent(server) == [["passage: tea"], ["query: tea"]]


# ── Batches and the cache ────────────────────────────────────────────────────────────


async def test_batches_keep_to_count_and_tokens(server, make):
    """No request has more texts or tokens than allowed, and together they have all."""
    server.max_inputs = 4
    texts = [f"text {i}" for i in range(9)] + [f"{i} " * 40 for i in range(10, 13)]
    rows = await make(batch_size=4, max_batch_tokens=30).embed(texts)
    assert sorted(text for batch in sent(server) for text in batch) == sorted(texts)
    assert sorted(map(len, sent(server))) == [1, 1, 1, 1, 4, 4]
    assert np.allclose(rows, await HashingEmbedder(D).embed(texts), atol=1e-6)


async def test_batches_run_side_by_side_within_the_limit(server, make):
    """Two at once, never three."""
    server.fail(faults.delayed(0.02), times=6)
    await make(batch_size=1, max_concurrency=2).embed([f"text {i}" for i in range(6)])
    assert server.most_at_once == 2


async def test_a_known_text_is_not_sent_again(server, make):
    """Within a call and between calls, in whatever mixture."""
    embedder = make()
    first = await embedder.embed(["tea", "ham", "tea"])
    again = await embedder.embed(["ham", "egg", "tea"])
    assert sent(server) == [["tea", "ham"], ["egg"]]
    assert np.array_equal(first[[1, 0]], again[[0, 2]])


async def test_the_cache_forgets_what_was_used_longest_ago(server, make):
    """It holds two rows; the one that was read last stays. A cache of 0 keeps nothing."""
    embedder = make(cache_size=2)
    for text in ("tea", "ham", "tea", "egg", "tea", "ham"):
        await embedder.embed([text])
    assert sent(server) == [["tea"], ["ham"], ["egg"], ["ham"]]
    keepless = make(cache_size=0)
    await keepless.embed(["tea"])
    await keepless.embed(["tea"])
    assert len(sent(server)) == 6


async def test_what_one_batch_brought_survives_the_failure_of_another(server, make):
    """The next try asks only for what is missing."""
    embedder = make(batch_size=1, max_concurrency=1)
    server.fail(faults.KEY_REFUSED, after=1)
    with pytest.raises(ModelUnavailable):
        await embedder.embed(["tea", "ham"])
    await embedder.embed(["tea", "ham"])
    assert sent(server) == [["tea"], ["ham"], ["ham"]]


async def test_long_texts_are_cut(server, make):
    """To the tokens the caller allows, by bytes and not within a character."""
    await make(max_text_tokens=2).embed(["abcdefghijkl", "aaäääää"])
    assert sent(server) == [["abcdefgh", "aaäää"]]


async def test_a_server_that_takes_shorter_texts_teaches_it(server, make, caplog):
    """Refused for its length, a text is halved until it fits; later ones are cut at once."""
    server.max_text_tokens = 60
    embedder = make()
    await embedder.embed(["word " * 160])
    await embedder.embed(["other " * 160])
    assert [len(batch[0]) for batch in sent(server)] == [800, 400, 200, 200]
    assert "50 tokens" in caplog.text


async def test_texts_that_stay_too_long_are_an_error(server, make):
    """Halving ends somewhere, and the server's words are passed on."""
    server.max_text_tokens = 5
    with pytest.raises(ModelUnavailable, match="maximum context length is 5 tokens"):
        await make().embed(["word " * 160])
    assert len(sent(server)) == 3


async def test_large_batches_are_read_off_the_loop(server, make):
    """Many wide rows and long texts come out as few short ones do."""
    texts = [f"{i} some words of text {i}" * 80 for i in range(40)]
    rows = await make(dimensions=600, send_dimensions=True).embed(texts)
    assert np.allclose(rows, await HashingEmbedder(600).embed(texts), atol=1e-6)


# ── Usage ────────────────────────────────────────────────────────────────────────────


async def test_usage_counts_calls_and_tokens(server, make):
    """Failed calls count as calls; what the cache answers counts as nothing."""
    embedder = make()
    server.fail(faults.SERVER_ERROR)
    with pytest.raises(ModelUnavailable):
        await embedder.embed(["one two three"])
    await embedder.embed(["one two three"])
    await embedder.embed(["one two three"])
    assert embedder.usage == EmbeddingUsage(calls=2, input_tokens=4)


async def test_a_price_makes_a_cost(make):
    """Dollars per million of the tokens that the server counted; unknown models cost nothing."""
    priced = make(prices={"e": Price(2.0, 0.0)})
    await priced.embed(["one two three"])
    await priced.embed(["four five six"])
    assert priced.usage.cost_usd == pytest.approx(8 * 2.0 / 1_000_000)
    other = make(prices={"f": Price(2.0, 0.0)})
    await other.embed(["one two three"])
    assert other.usage.cost_usd is None


# ── Failures ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fault", "match"),
    [
        (faults.WRONG_WIDTH, r"'e' gives vectors of 31 dimensions, but 32 were expected: .*="),
        (faults.TOO_FEW_ROWS, "1 vectors for 2 texts"),
        (faults.NAN_ROW, "NaN"),
        (faults.ZERO_ROW, "zero"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
async def test_vectors_that_cannot_be_used_are_invalid(server, make, fault, match):
    """The error says what was expected; nothing of the reply is remembered."""
    embedder = make()
    server.fail(fault)
    with pytest.raises(InvalidReply, match=match) as caught:
        await embedder.embed(["tea", "ham"])
    assert caught.value.purpose == "embed"
    await embedder.embed(["tea", "ham"])
    assert len(sent(server)) == 2


@pytest.mark.parametrize(
    ("payload", "match"),
    [
        ([], "no list"),
        ({"data": None}, "no list"),
        ({"data": [3]}, "no list"),
        ({"data": [{"index": 1, "embedding": [1, 0]}]}, "indexes"),
        ({"data": [{"index": 0, "embedding": "%%"}]}, "cannot be read"),
        ({"data": [{"index": 0, "embedding": "AAA="}]}, "cannot be read"),
        ({"data": [{"index": 0, "embedding": ["x", "y"]}]}, "cannot be read"),
        ({"data": [{"index": 0, "embedding": [[1, 0], [0, 1]]}]}, "pool"),
        ({"data": [{"index": 0, "embedding": 3}]}, "pool"),
        ({"data": [{"index": 0}]}, "pool"),
        ({"data": [{"index": 0, "embedding": [1e300, 0]}]}, "infinity"),
    ],
    ids=str,
)
def test_a_reply_of_another_shape_is_invalid(payload, match):
    """Whatever JSON comes back, it ends in an ``InvalidReply`` that says what is wrong."""
    with pytest.raises(InvalidReply, match=match):
        read_rows(payload, rows=1, dimensions=2, model="e")


def test_large_numbers_are_scaled_without_overflow():
    """Squares that leave float32 do not make a row infinite."""
    payload = {"data": [{"embedding": [3e30, 4e30]}]}
    assert np.allclose(read_rows(payload, rows=1, dimensions=2, model="e"), [[0.6, 0.8]])


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (faults.DROPPED, ModelUnavailable),
        (faults.DROPPED_MID_BODY, ModelUnavailable),
        (faults.rate_limited(2), RateLimited),
        (faults.SERVER_ERROR, ModelUnavailable),
        (faults.OVERLOADED, ModelUnavailable),
        (faults.KEY_REFUSED, ModelUnavailable),
        (faults.TRUNCATED_JSON, ModelUnavailable),
        (faults.WRONG_CONTENT_TYPE, ModelUnavailable),
        (faults.NEVER_ANSWERS, ModelTimeout),
        (faults.SLOW_DRIP, ModelTimeout),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
async def test_every_failure_is_typed_and_passes(server, make, fault, error):
    """The purpose is in the error, and the next call succeeds."""
    embedder = make(timeout_s=0.1 if error is ModelTimeout else 60.0)
    server.fail(fault)
    with pytest.raises(error) as caught:
        await embedder.embed(["tea"])
    assert caught.value.purpose == "embed"  # type: ignore[attr-defined]
    embedder._transport.timeout_s = 60.0  # A busy machine takes its time.
    assert (await embedder.embed(["tea"])).shape == (1, D)


async def test_what_passes_is_tried_again(server, make):
    """With retries a caller sees nothing of a dropped connection or an overload."""
    clock = ManualClock()
    embedder = make(max_retries=3, clock=clock)
    server.fail(faults.DROPPED, faults.OVERLOADED, faults.rate_limited(7))
    async with anyio.create_task_group() as group:
        group.start_soon(embedder.embed, ["tea"])
        for calls in (1, 2, 3):
            await server.until(lambda calls=calls: len(sent(server)) == calls)
            with anyio.fail_after(120):
                while not clock._sleepers:  # noqa: ASYNC110 - nobody tells when it sleeps
                    await anyio.sleep(0.001)
            await clock.advance(7)
    assert len(sent(server)) == 4


async def test_a_cancelled_call_closes_its_request(server, make):
    """The server sees its client go; the embedder works on."""
    embedder = make()
    server.fail(faults.NEVER_ANSWERS)
    async with anyio.create_task_group() as group:
        group.start_soon(embedder.embed, ["tea"])
        await server.until(lambda: len(sent(server)) == 1)
        group.cancel_scope.cancel()
    await server.until(lambda: server.requests[0].ended)
    assert server.requests[0].left
    assert (await embedder.embed(["tea"])).shape == (1, D)


async def test_closed_it_leaves_no_connection(server, make):
    """Its connections end with ``aclose``, which may be repeated."""
    embedder = make()
    await embedder.embed(["tea"])
    assert server.connections == 1
    await embedder.aclose()
    await embedder.aclose()
    await server.until(lambda: server.connections == 0)


# ── Arguments and secrets ────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "arguments",
    [
        {"dimensions": 0},
        {"dimensions": 2.5},
        {"batch_size": 0},
        {"max_batch_tokens": 0},
        {"max_text_tokens": 0},
        {"cache_size": -1},
        {"dense_weight": float("nan")},
        {"model": " "},
        {"base_url": "localhost"},
    ],
    ids=str,
)
def test_arguments_out_of_range_are_refused(arguments):
    """``ConfigError`` names the argument before anything is opened."""
    given = {"base_url": "http://127.0.0.1:1/v1", "model": "e", "dimensions": D, **arguments}
    with pytest.raises(ConfigError, match=next(iter(arguments))):
        OpenAIEmbedder(**given)


async def test_another_kind_is_refused(make):
    """Only documents and queries are known."""
    with pytest.raises(ValueError, match="'poem'"):
        await make().embed(["tea"], kind="poem")  # type: ignore[arg-type]


async def test_the_key_is_sent_and_never_shown(server, make):
    """Neither the representation nor an error has it."""
    server.keys = {"sk-right-key-12345"}
    good, bad = make(api_key="sk-right-key-12345"), make(api_key="sk-wrong-key-54321")
    await good.embed(["tea"])
    with pytest.raises(ModelUnavailable, match="api_key=") as caught:
        await bad.embed(["tea"])
    assert "wrong-key" not in f"{caught.value!r} {bad!r} {good!r}"
    assert not caught.value.retryable


async def test_a_transport_can_be_put_in():
    """Tests of a user's own need no socket."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"data": [{"index": 0, "embedding": [0, 2]}]})

    embedder = OpenAIEmbedder("http://x/v1", "e", 2, transport=httpx.MockTransport(answer))
    assert (await embedder.embed(["tea"])).tolist() == [[0, 1]]
    assert str(seen[0].url) == "http://x/v1/embeddings"
    await embedder.aclose()
