"""Requests made from the service's own OpenAPI document, which is valid: none fails inside."""

import json
import typing

import httpx
import pytest
from fastapi.routing import APIRoute
from helpers import examples
from hypothesis import HealthCheck, given, settings
from inspector_kit import LIMIT_S
from pydantic import BaseModel

from mnemo.web.routes import ROUTERS

schemathesis = pytest.importorskip("schemathesis")
schemas = pytest.importorskip("openapi_spec_validator.schemas")

ENDLESS = ("/v1/events",)
"""Paths whose answers do not end."""
LINES = "application/x-ndjson"


@pytest.mark.slow
@pytest.mark.long
def test_no_request_of_the_document_fails_inside(serve, monkeypatch):
    """Valid by the schema or not, each is answered, never with 500, and the server lives on."""
    # Else a call that is remembered alone, with `wait`, waits three minutes for its result.
    monkeypatch.setenv("MNEMO_CONVERSATION__TOOL_DEADLINE_S", "0.01")
    server = serve()
    document = httpx.get(f"{server.url}/openapi.json", timeout=LIMIT_S).json()
    assert document["openapi"].startswith("3.1.")
    assert list(schemas.openapi_v31_schema_validator.iter_errors(document)) == []
    schemathesis.serializer(LINES)(lambda context, value: str(value).encode())
    schema = schemathesis.openapi.from_dict(document)
    failed: list[str] = []

    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path in ENDLESS:
            continue

        @settings(
            max_examples=examples(40),
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def send(case):
            answer = case.call(base_url=server.url, headers=server.headers, timeout=LIMIT_S)
            if answer.status_code >= 500 and answer.status_code not in (503, 504):
                failed.append(f"{case.as_curl_command()}: {answer.text}")

        send()
    assert failed == []
    assert httpx.get(f"{server.url}/readyz", timeout=LIMIT_S).status_code == 200


# Hostile JSON in every field of every body: an answer or a problem, never a failure inside.


MANY = [str(number) for number in range(40_000)]
DEEP = "[" * 400 + "1" + "]" * 400
HOSTILE = (
    "1" + "0" * 400, "-" + "9" * 400, str(2**63), str(-(2**63) - 1), "1e999", "NaN", "-1", "1.5",
    '"9999-12-31T23:59:59+00:00"', '"9999-12-31"', '"0001-01-01T00:00:00+14:00"', '"\\ud800"',
    '"\\u0000"', '""', f'"{"x" * 600}"', "null", "true", "[]", "{}", "[null]", "[[]]", DEEP,
    '{"a": {"gt": 1' + "0" * 400 + "}}", '{"a": ' + json.dumps(MANY) + "}",
    '{"a": 1e999}', f'{{"a": {DEEP}}}', '{"role": "user", "content": 1e999}',
    '[{"role": "user", "content": "x", "at": "9999-12-31T23:59:59"}]',
)  # fmt: skip
"""As they are sent, for JSON knows no bounds of numbers."""
GIVEN = {
    "query": "what",
    "content": "Ada swims.",
    "text": "Ada swims.",
    "goal": "g",
    "timeout_s": 0,
}


def _bodies() -> list[tuple[str, str, list[str]]]:
    """Method, path and the fields of the body of each call that takes one."""
    found = []
    for router in ROUTERS:
        for route in router.routes:
            kind = typing.get_type_hints(route.endpoint).get("body")  # type: ignore[attr-defined]
            if (
                isinstance(route, APIRoute)
                and isinstance(kind, type)
                and issubclass(kind, BaseModel)
            ):
                method = next(iter(route.methods or ()))
                found.append((method, route.path, list(kind.model_fields)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path", "fields"), _bodies())
async def test_no_body_fails_inside(client, method, path, fields):
    """With the other fields as they should be; an error of ours would be raised here."""
    params = {"repo": "r", "thread": "t", "topic": "a", "session": "s", "id": "x"}
    await client.post("/v1/remember", params={"repo": "r"}, json={"content": "Ada swims."})
    for field in fields:
        for value in HOSTILE:
            others = {name: text for name, text in GIVEN.items() if name in fields}
            body = json.dumps({**others, field: "HERE"}).replace('"HERE"', value)
            answer = await client.request(
                method, path, params=params, content=body,
                headers={"content-type": "application/json"},
            )  # fmt: skip
            assert answer.status_code not in (500, 502), (field, value[:80], answer.text)
            assert answer.status_code < 500 or answer.status_code in (503, 504)


@pytest.mark.parametrize("query", ["limit=1" + "0" * 400, "after=%ff%00", "limit=1e999", "repo=%"])
async def test_no_query_fails_inside(client, query):
    """Numbers beyond 64 bits, and what is no UTF-8."""
    await client.post("/v1/remember?repo=default", json={"content": "Ada swims."})
    for path in ("/v1/jobs", "/v1/notes", "/v1/sessions", "/metrics"):
        answer = await client.get(f"{path}?{query}")
        assert answer.status_code < 500
