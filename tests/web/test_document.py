"""The OpenAPI document: names, descriptions, examples and refusals of every operation."""

import json
import re
import shlex

import httpx
import pytest
from document_kit import documented, documented_reasons, faults_of, faults_of_message

import mnemo.operations
from mnemo import events

OPERATIONS = {
    told["operationId"]: (method.upper(), path, told)
    for path, methods in documented()["paths"].items()
    for method, told in methods.items()
}
SCHEMAS = documented()["components"]["schemas"]


def test_operations_have_the_names_of_python():
    """Of the calls, each once; schemas have plain names."""
    assert len(OPERATIONS) == sum(map(len, documented()["paths"].values()))
    declared = {one.name for one in mnemo.operations.OPERATIONS.values() if "http" in one.surfaces}
    assert declared <= {*OPERATIONS}
    odd = "__|Shape|-Input|-Output|mnemo"
    assert [name for name in SCHEMAS if re.search(odd, name)] == []


def test_it_says_where_the_service_is_and_what_a_request_must_bring():
    """A bearer token, but for the health of the process."""
    (scheme,) = documented()["components"]["securitySchemes"].values()
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert documented()["servers"][0]["url"] == "/"
    free = [path for _, path, told in OPERATIONS.values() if told.get("security") == []]
    assert sorted(free) == ["/healthz", "/readyz"]
    assert documented()["security"] == [{"token": []}]


def test_every_property_and_parameter_is_described():
    """Nested ones too: by the docstring of the class or method, or else by the name's word."""
    bare = [where for where, told in properties(documented()) if not told.get("description")]
    bare += [
        f"{name}({one['name']})"
        for name, (_, _, told) in OPERATIONS.items()
        for one in told.get("parameters", ())
        if not one.get("description")
    ]
    assert bare == []


def properties(part, where=""):
    """The properties of all schemas in a part of the document, and where they are."""
    if isinstance(part, list):
        part = dict(enumerate(part))
    if isinstance(part, dict):
        found = part.get("properties", {})
        yield from ((f"{where}.{name}", told) for name, told in found.items())
        for name, one in part.items():
            if name not in ("example", "default"):
                yield from properties(one, f"{where}/{name}")


def test_every_event_has_a_schema():
    """The stream's messages are told apart by their names; another name is none of them."""
    (content,) = OPERATIONS["events"][2]["responses"]["200"]["content"].items()
    assert content == ("text/event-stream", {"schema": {"$ref": MESSAGE}})
    messages = SCHEMAS["StreamMessage"]["oneOf"]
    names = [one["properties"]["event"]["const"] for one in messages]
    assert sorted(names) == sorted({*events.__all__, "ready", "changes"} - {"Event"})
    happened = {"repo_id": "r", "at": "2026-03-02T09:00:00Z", "trace": None}
    gone = happened | {"node_ids": ["semantic-1"]}
    assert faults_of_message({"event": "NodesDeleted", "data": gone}) == []
    assert faults_of_message({"event": "NodesDeleted", "data": happened})
    assert faults_of_message({"event": "Another", "data": gone})


MESSAGE = "#/components/schemas/StreamMessage"


@pytest.mark.parametrize("name", OPERATIONS)
def test_refusals_are_problem_documents_with_their_reasons(name):
    """Each operation has its own enumeration, the same for both classes of status."""
    ((_, reasons),) = documented_reasons(OPERATIONS[name][2])
    assert {"invalid_argument", "token_missing", "internal_error"} <= {*reasons}
    assert ("not_ready" in reasons) == ("session" in name and name not in NO_SESSION)


NO_SESSION = ("sessions", "start_session", "resume_session")


async def test_every_example_is_carried_out(client):
    """With an answer as the document has it, where its ids stand for something."""
    said = {"content": "Ada plays the cello.", "key": "id"}
    memory = (await client.post("/v1/memories", json={"text": "Ada plays the cello."})).json()
    await client.post("/v1/remember", json=said)
    node = {"id": memory["id"]}
    goal = {"goal": "Know Ada", "session_id": "session"}
    await client.post("/v1/sessions", json=goal)
    note = {"body": "- sings", "description": "Ada"}
    await client.put("/v1/note?topic=ada", json=note)
    for name, one in sorted(OPERATIONS.items(), key=reads_first):
        if name in ENDLESS or name in OTHER_STATE:
            continue
        method, path, params, body = called(one[2])
        if "id" in params and name != "view":
            params = params.merge(node)
        answer = await client.request(method, path, params=params, json=body)
        assert answer.is_success, (name, answer.text)
        told = one[2]["responses"][str(answer.status_code)].get("content", {})
        if schema := told.get("application/json", {}).get("schema"):
            assert faults_of(answer.json(), schema) == [], name


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_command_of_an_operation_has_its_examples(name):
    """Each is a call with curl: method, path, what a request must have, and the token."""
    method, path, told = OPERATIONS[name]
    needed = [one for one in told.get("parameters", ()) if one["required"]]
    examples = {one["name"]: one["example"] for one in needed if one["in"] == "query"}
    path = path.format_map({one["name"]: one["example"] for one in needed})
    body = told.get("requestBody", {}).get("content", {}).get("application/json", {})
    assert called(told) == (method, path, httpx.QueryParams(examples), body.get("example"))


def called(told):
    """Method, path, query and body of the command in an operation's description."""
    curl, *words, url = shlex.split(re.search("```sh\n(.*)\n```", told["description"])[1])
    assert curl == "curl"
    given = dict(zip(words[::2], words[1::2], strict=True))
    assert ("--oauth2-bearer" in given) == (told.get("security") != [])
    body = json.loads(given["--json"]) if "--json" in given else None
    method = given.get("-X", "GET" if body is None else "POST")
    path, _, query = url.removeprefix("$MNEMO_URL").partition("?")
    return method, path, httpx.QueryParams(query), body


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
    *("memory.import_repo", "backup.keep", "job", "job.cancel", "job.events"),
)
"""Calls of what is not, after the others, in the state that they need, or of a model."""
