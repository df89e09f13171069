"""Conversations, sessions, notes, background work and metrics over HTTP."""

import re

import pytest


async def test_a_conversation_is_appended_to_and_read_in_parts(client):
    """Messages come back in parts by seq, and as an agent is to read them."""
    where = {"repo": "a", "thread": "desk/1"}
    said = [{"role": "user", "content": f"message {n}"} for n in range(5)]
    stored = await client.post(
        "/v1/conversation/messages", params=where, json={"messages": said, "expected_seq": 0}
    )
    assert [message["seq"] for message in stored.json()] == [0, 1, 2, 3, 4]
    first = await client.get("/v1/conversation/messages", params=where | {"limit": 3})
    rest = await client.get(
        "/v1/conversation/messages", params=where | {"from_seq": first.json()["next"]}
    )
    texts = [message["content"] for part in (first, rest) for message in part.json()["items"]]
    assert texts == [message["content"] for message in said]
    assert rest.json()["next"] is None
    loaded = await client.post("/v1/conversation/load", params=where, json={"budget_tokens": 100})
    assert len(loaded.json()) == 5
    window = (await client.get("/v1/conversation/window", params=where)).json()
    assert window["thread_id"] == "desk/1"
    derived = (await client.get("/v1/conversation/derived", params=where)).json()
    assert derived == {"goals": [], "pins": [], "snapshots": []}
    again = await client.post(
        "/v1/conversation/messages", params=where, json={"messages": said, "expected_seq": 0}
    )
    assert again.json()["reason"] == "conflict"
    hit = (await client.post("/v1/search?repo=a", json={"query": "message 2"})).json()[0]
    view = await client.get(
        "/v1/view", params={"repo": "a", "id": hit["message_id"], "session_id": "desk/1"}
    )
    assert "message 2" in view.json()["text"]


async def test_a_session_is_driven_step_by_step(client):
    """Start, append, close, wait, look at the changeset, commit; a wrong order has its reason."""
    goal = {"goal": "plan a trip", "session_id": "s/1"}
    started = (await client.post("/v1/sessions?repo=a", json=goal)).json()
    assert (started["id"], started["state"]) == ("s/1", "collecting")
    at = {"repo": "a", "session": "s/1"}
    step = {"observation": "Ada wants to see Tokyo.", "action": "Asked for dates.", "key": "k"}
    first = (await client.post("/v1/session/steps", params=at, json=step)).json()
    again = (await client.post("/v1/session/steps", params=at, json=step)).json()
    assert (first["index"], first["node_id"]) == (0, again["node_id"])
    early = (await client.post("/v1/session/commit", params=at)).json()
    assert (early["error"], early["reason"]) == ("InvalidOperation", "not_ready")
    assert early["facts"]["state"] == "collecting"
    await client.post("/v1/session/close", params=at)
    waited = await client.post("/v1/session/wait", params=at, json={"states": ["ready"]})
    assert waited.json() == "ready"
    steps = (await client.get("/v1/session/steps", params=at)).json()
    assert [one["observation"] for one in steps["steps"]] == ["Ada wants to see Tokyo."]
    assert {node["type"] for node in steps["nodes"]} >= {"semantic"}
    receipt = (await client.post("/v1/session/commit", params=at)).json()
    assert receipt["status"] == "committed"
    assert (await client.get("/v1/session", params=at)).json()["state"] == "idle"
    assert (await client.delete("/v1/session", params=at)).status_code == 204
    assert (await client.get("/v1/session", params=at)).json()["statistics"] is None
    episode = {"goal": "another"}
    resumed = await client.post("/v1/session/start_episode", params=at, json=episode)
    assert resumed.json()["state"] == "collecting"
    done = await client.post("/v1/session/retry", params=at)
    assert done.json()["reason"] == "not_failed"


async def test_a_session_of_another_repository_is_not_there(client):
    """A session's id opens nothing from another repository."""
    await client.post("/v1/sessions?repo=a", json={"goal": "g", "session_id": "s-1"})
    await client.post("/v1/remember?repo=b", json={"content": "Ada sings."})
    for method, path in (("GET", "/v1/session"), ("POST", "/v1/session/close")):
        there, nowhere = [
            await client.request(method, path, params={"repo": "b", "session": f"{id}-1"})
            for id in ("s", "t")
        ]
        assert there.json()["error"] == "NotFound"
        assert there.text == nowhere.text.replace("t-1", "s-1")


async def test_two_repositories_have_sessions_of_the_same_id(client):
    """Each is addressed below its repository: status, steps, states."""
    at = {repo: {"repo": repo, "session": "s"} for repo in ("a", "b")}
    for repo in at:
        body = {"goal": f"Plan in {repo}", "session_id": "s"}
        answer = await client.post("/v1/sessions", params={"repo": repo}, json=body)
        assert (answer.status_code, answer.json()["goal"]) == (200, f"Plan in {repo}")
        step = {"observation": f"Ada sings in {repo}.", "action": ""}
        await client.post("/v1/session/steps", params=at[repo], json=step)
    await client.post("/v1/session/close", params=at["b"])
    states = [(await client.get("/v1/session", params=at[repo])).json()["state"] for repo in at]
    assert states[0] == "collecting" != states[1]
    steps = (await client.get("/v1/session/steps", params=at["a"])).json()["steps"]
    assert [step["observation"] for step in steps] == ["Ada sings in a."]
    await client.delete("/v1/session", params=at["b"])
    resumed = await client.post("/v1/session/resume", params=at["b"])
    assert resumed.json()["repo_id"] == "b"


async def test_background_work_is_settled_and_measured(client):
    """Settling extracts what waits; metrics tell requests by route, and levels in total."""
    await client.post("/v1/remember?repo=a", json={"content": "Ada plays the cello."})
    (job,) = (await client.get("/v1/jobs?repo=a")).json()
    assert (job["subject"], job["state"]) == ("default", "waiting")
    assert not {"owner", "token"} & set(job)
    assert (await client.post("/v1/settle?repo=a", json={"timeout_s": 60})).status_code == 204
    found = (await client.get("/v1/statistics?repo=a")).json()
    assert found["jobs"].pop("per_s") > 0
    assert (found["jobs"], found["nodes"]["semantic"]) == (
        {
            "waiting": 0,
            "running": 0,
            "dead": 0,
            "errors": [],
            "messages": 0,
            "oldest_at": None,
            "seconds_left": 0.0,
        },
        1,
    )
    text = (await client.get("/metrics")).text
    assert 'mnemo_http_requests_total{route="/v1/remember",status="200"} 1' in text
    embedded = re.search(r"^mnemo_embedded_texts_total (\d+)$", text, re.MULTILINE)
    assert embedded is not None
    assert int(embedded[1]) > 0
    assert re.search(r"^mnemo_embedding_seconds_total \d+\.\d+$", text, re.MULTILINE)
    assert "mnemo_messages 1" in text.splitlines()


@pytest.mark.parametrize("what", ["conversations", "sessions", "notes", "statistics"])
async def test_a_listing_of_an_unknown_repository_is_404(client, what):
    """A reading call makes no repository."""
    answer = await client.get(f"/v1/{what}", params={"repo": "nothing"})
    assert answer.status_code == 404
    assert answer.json()["detail"].endswith("'nothing' not found: nothing was written to it yet")
    assert (await client.get("/v1/repositories")).json() == []


async def test_metrics_are_read_by_any_name_of_a_repository(client):
    """Quotes, backslashes and line ends in a repository's id stay inside its label."""
    name = 'a"} 1\nevil\\'
    await client.post("/v1/remember", params={"repo": name}, json={"content": "Ada sings."})
    lines = (await client.get("/metrics", params={"repo": name})).text.splitlines()
    assert 'mnemo_messages{repo="a\\"} 1\\nevil\\\\"} 1' in lines
    assert not [line for line in lines if line.startswith("evil")]


# ── Remember, recall, search and memories over HTTP ───────────────────────────────────


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


async def test_a_recall_has_its_prompt_text_and_the_numbers_of_its_citations(client):
    """Within the budget, in the style and order that were asked for; a number is a candidate's."""
    said = ["I sail to the pier.", "The pier is closed on Monday.", "A boat lies at the pier."]
    for day, text in enumerate(said, 1):
        body = {"content": text, "actor": "Ada", "at": f"2026-03-0{day}T12:00:00Z"}
        await client.post("/v1/remember?repo=a", json=body)
    asked = {"query": "What is at the pier?"}
    whole = (await client.post("/v1/recall?repo=a", json=asked)).json()
    assert whole["citations"] == [1, 2, 3]
    lines = whole["text"].splitlines()
    for number, line in zip(whole["citations"], lines, strict=True):
        assert line.endswith(f"[{number}]")
        assert whole["candidates"][number - 1]["sources"][0]["text"] in line
    ranks = {one["sources"][0]["text"]: n for n, one in enumerate(whole["candidates"], 1)}
    more = {"order": "time", "style": "full"}
    sorted_by_time = (await client.post("/v1/recall?repo=a", json=asked | more)).json()
    assert sorted_by_time["citations"] == [ranks[text] for text in said]
    assert "Ada, " in sorted_by_time["text"]
    short = (await client.post("/v1/recall?repo=a", json=asked | {"budget_tokens": 20})).json()
    assert short["citations"] == [1]
    assert len(short["candidates"]) == 3
    for wrong in ({"budget_tokens": 0}, {"style": "long"}, {"order": "size"}):
        assert (await client.post("/v1/recall?repo=a", json=asked | wrong)).status_code == 422


async def test_several_questions_are_answered_by_one_request(client):
    """In their order, each with its text; more than 64, and a blank one, are refused."""
    await client.post("/v1/remember?repo=a", json={"content": ["I sail.", "The kettle boils."]})
    asked = {"queries": ["kettle?", "Who sails?"], "k": 1, "style": "full"}
    answer = await client.post("/v1/recall_many?repo=a", json=asked)
    assert [one["citations"] for one in answer.json()] == [[1], [1]]
    assert ["kettle" in one["text"] for one in answer.json()] == [True, False]
    assert (await client.post("/v1/recall_many?repo=a", json={"queries": []})).json() == []
    for wrong in (["x"] * 65, ["kettle?", " "]):
        refused = await client.post("/v1/recall_many?repo=a", json={"queries": wrong})
        assert refused.status_code == 422


async def test_the_recall_log_is_read_by_pages(client):
    """It is off by default, and then empty."""
    await client.post("/v1/remember?repo=a", json={"content": "I sail."})
    await client.post("/v1/recall?repo=a", json={"query": "Who sails?"})
    page = await client.get("/v1/recalls", params={"repo": "a", "limit": 2})
    assert page.json() == {"items": [], "next": None}


async def test_a_recall_tells_where_an_expected_memory_stands(client):
    """Its rank, or what left it out."""
    await client.post(
        "/v1/remember?repo=a", json={"content": "I sail.", "actor": "Ada", "key": "m"}
    )
    asked = {"query": "Who sails?", "expect": "m"}
    found = (await client.post("/v1/recall?repo=a", json=asked)).json()["expected"]
    assert (found["rank"], found["left_out_by"]) == (1, None)
    found = (await client.post("/v1/recall?repo=a", json=asked | {"actor": "Bo"})).json()
    assert (found["expected"]["left_out_by"], found["expected"]["detail"]) == ("filter", "actor")


async def test_a_correction_with_a_reason_asks_no_model(client):
    """`reason` of a correction is a text for the history, not the right to have a model asked."""
    memory = (await client.post("/v1/memories", json={"text": "Ada lives in Bern."})).json()
    correction = {"text": "Ada lives in Basel.", "reason": "she moved"}
    answer = await client.patch("/v1/memory", params={"id": memory["id"]}, json=correction)
    assert (answer.status_code, answer.json()["text"]) == (200, "Ada lives in Basel.")
