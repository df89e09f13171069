"""The OpenAPI document: names, descriptions, examples and refusals of every operation."""

import pytest
from document_kit import documented, documented_reasons

OPERATIONS = {
    told["operationId"]: (method.upper(), path, told)
    for path, methods in documented()["paths"].items()
    for method, told in methods.items()
}
SCHEMAS = documented()["components"]["schemas"]


def test_operations_have_the_names_of_python():
    """Of the calls, each once; schemas have plain names."""
    assert len(OPERATIONS) == sum(map(len, documented()["paths"].values()))
    assert {"remember", "notes.write", "conversation.append", "session.commit"} <= {*OPERATIONS}
    assert [name for name in SCHEMAS if "__" in name or "Shape" in name] == []


def test_it_says_where_the_service_is_and_what_a_request_must_bring():
    """A bearer token, but for the health of the process."""
    (scheme,) = documented()["components"]["securitySchemes"].values()
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert documented()["servers"][0]["url"] == "/"
    free = [path for _, path, told in OPERATIONS.values() if told.get("security") == []]
    assert sorted(free) == ["/healthz", "/readyz"]
    assert documented()["security"] == [{"token": []}]


def test_every_property_and_parameter_is_described():
    """By the docstring of its class or method, or else by its name's word."""
    bare = [
        f"{name}.{one}"
        for name, schema in SCHEMAS.items()
        for one, told in schema.get("properties", {}).items()
        if not told.get("description")
    ]
    bare += [
        f"{name}({one['name']})"
        for name, (_, _, told) in OPERATIONS.items()
        for one in told.get("parameters", ())
        if not one.get("description")
    ]
    assert bare == []


@pytest.mark.parametrize("name", OPERATIONS)
def test_refusals_are_problem_documents_with_their_reasons(name):
    """Each operation has its own enumeration, the same for both classes of status."""
    ((_, reasons),) = documented_reasons(OPERATIONS[name][2])
    assert {"invalid_argument", "token_missing", "internal_error"} <= {*reasons}
    assert ("not_ready" in reasons) == ("session" in name and name not in NO_SESSION)


NO_SESSION = ("sessions", "start_session", "resume_session")


async def test_every_example_is_carried_out(client):
    """As the document has it, on a repository in which its ids stand for something."""
    said = {"content": "Ada plays the cello.", "key": "id"}
    memory = (await client.post("/v1/memories", json={"text": "Ada plays the cello."})).json()
    await client.post("/v1/remember", json=said)
    node = {"id": memory["id"]}
    goal = {"goal": "Know Ada", "session_id": "session"}
    await client.post("/v1/sessions", json=goal)
    note = {"body": "- sings", "description": "Ada"}
    await client.put("/v1/note?topic=ada", json=note)
    for name, (method, path, told) in sorted(OPERATIONS.items(), key=reads_first):
        if name in ENDLESS or name in OTHER_STATE:
            continue
        params = {
            one["name"]: one["example"] for one in told.get("parameters", ()) if one["required"]
        }
        if "id" in params and name != "view":
            params |= node
        body = told.get("requestBody", {}).get("content", {}).get("application/json", {})
        sent = {"json": body["example"]} if body else {}
        answer = await client.request(method, path, params=params, **sent)
        assert answer.is_success, (name, answer.text)


def reads_first(one):
    """Reading calls, then writing ones, then those that take away."""
    name, (method, _, _) = one
    return method == "DELETE", method != "GET", name


ENDLESS = ("events",)
OTHER_STATE = (
    *("session.commit", "session.discard", "session.retry", "session.start_episode"),
    *("session.close_and_commit", "session.wait_for", "session.append", "session.append_messages"),
    *("notes.restore", "notes.undo", "notes.update_after_task", "conversation.goals.complete"),
    *("conversation.goals.update", "conversation.pins.attach", "conversation.compact"),
)
"""Calls of what is not, after the others, in the state that they need, or of a model."""
