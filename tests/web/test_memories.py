"""Remember, recall, search and memories over HTTP."""


async def test_a_model_that_the_service_lacks_is_told(client):
    """``use_model`` where there is no chat model is the caller's error, not silence."""
    await client.post("/v1/memories", json={"text": "Ada lives in Bern."})
    answer = await client.post("/v1/recall", json={"query": "Who plays?", "use_model": True})
    told = answer.json()
    assert (told["status"], told["error"]) == (422, "ConfigError")
    assert "chat model" in told["detail"]


async def test_bad_input_stores_nothing(client, memory):
    """Each mistake is told with its place, and nothing is half-written."""
    for body in (
        {"content": ""},
        {"content": 7},
        {"content": "x", "at": "yesterday"},
        {"content": "x", "metadata": [1]},
        {"content": "x", "thread": "t"},
        {"content": [{"role": "nobody", "content": "x"}]},
        {},
    ):
        told = (await client.post("/v1/remember", json=body)).json()
        assert (told["status"], told["error"]) == (422, "ValueError"), body
    assert [record.messages for record in await memory.repo("default").threads()] == []


async def test_a_large_body_is_refused(client):
    """A body above the bound is 413, announced or not, and the store stays empty."""
    sent = b'{"content": "' + b"x" * 17 * 2**20 + b'"}'

    async def pieces():
        for start in range(0, len(sent), 2**20):
            yield sent[start : start + 2**20]

    kind = {"content-type": "application/json"}
    for content in (sent, pieces()):
        answer = await client.post("/v1/remember", content=content, headers=kind)
        assert (answer.status_code, answer.json()["reason"]) == (413, "content_too_large")
