"""Remember, recall, search and memories over HTTP."""

from __future__ import annotations


async def test_what_is_remembered_is_recalled(client):
    """A text that was sent is found, with its source, and as a memory once it is extracted."""
    sent = {"content": "Ada plays the cello.", "key": "k1", "wait": True}
    stored = (await client.post("/v1/remember?repo=a", json=sent)).json()
    again = (await client.post("/v1/remember?repo=a", json=sent)).json()
    assert stored["messages"] == again["messages"]
    found = (await client.post("/v1/recall?repo=a", json={"query": "What does Ada play?"})).json()
    assert found["candidates"][0]["sources"][0]["text"] == "Ada plays the cello."
    assert 0 <= found["confidence"] <= 1
    wrong = {"query": "Ada", "min_confidence": 1.5}
    assert (await client.post("/v1/recall?repo=a", json=wrong)).status_code == 422
    page = (await client.post("/v1/memories/list?repo=a", json={})).json()
    assert [memory["text"] for memory in page["items"]] == ["Ada plays the cello."]


async def test_a_model_that_the_service_lacks_is_told(client):
    """``use_model`` where there is no chat model is the caller's error, not silence."""
    await client.post("/v1/memories", json={"text": "Ada lives in Bern."})
    answer = await client.post("/v1/recall", json={"query": "Who plays?", "use_model": True})
    told = answer.json()
    assert (told["status"], told["error"]) == (422, "ConfigError")
    assert "chat model" in told["detail"]


async def test_a_memory_is_added_corrected_and_erased(client):
    """The history keeps the former wording; a dry run erases nothing."""
    added = (await client.post("/v1/memories", json={"text": "Ada lives in Bern."})).json()
    where = {"id": added["id"]}
    changed = await client.patch("/v1/memory", params=where, json={"text": "Ada lives in Basel."})
    assert changed.json()["version"] == 2
    texts = [w["text"] for w in (await client.get("/v1/memory/history", params=where)).json()]
    assert texts == ["Ada lives in Bern.", "Ada lives in Basel."]
    wish = {"memory_ids": [added["id"]]}
    assert (await client.post("/v1/forget", json=wish)).json()["nodes"] == 1
    assert (await client.get("/v1/memory", params=where)).status_code == 200
    assert (await client.post("/v1/forget", json=wish | {"dry_run": False})).status_code == 200
    assert (await client.get("/v1/memory", params=where)).json()["error"] == "NotFound"


async def test_a_stale_correction_is_a_conflict(client):
    """A correction of an older wording is refused with the exception's name and reason."""
    added = (await client.post("/v1/memories", json={"text": "Ada lives in Bern."})).json()
    wrong = {"text": "Ada lives in Basel.", "expected_version": 7}
    answer = await client.patch("/v1/memory", params={"id": added["id"]}, json=wrong)
    told = answer.json()
    assert (told["status"], told["error"], told["reason"]) == (409, "Conflict", "conflict")


async def test_markup_is_data(client):
    """Markup in a text comes back as it was sent, in JSON that no browser takes for a page."""
    text = "Ada says <script>alert(1)</script> & </title>."
    await client.post("/v1/remember", json={"content": text})
    answer = await client.post("/v1/search", json={"query": "alert"})
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()[0]["snippet"] == text


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
