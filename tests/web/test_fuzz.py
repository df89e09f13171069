"""Requests made from the service's own OpenAPI document, which is valid: none fails inside."""

import httpx
import pytest
from helpers import examples
from hypothesis import HealthCheck, given, settings
from inspector_kit import LIMIT_S

schemathesis = pytest.importorskip("schemathesis")
schemas = pytest.importorskip("openapi_spec_validator.schemas")

ENDLESS = ("/v1/events",)
"""Paths whose answers do not end."""


@pytest.mark.slow
@pytest.mark.long
def test_no_request_of_the_document_fails_inside(serve, monkeypatch):
    """Valid by the schema or not, each is answered, never with 500, and the server lives on."""
    # Else a call that is remembered alone, with `wait`, waits three minutes for its result.
    monkeypatch.setenv("MNEMO_CONVERSATION__TOOL_DEADLINE_S", "0.01")
    server = serve()
    document = httpx.get(f"{server.url}/openapi.json").json()
    assert document["openapi"].startswith("3.1.")
    assert list(schemas.openapi_v31_schema_validator.iter_errors(document)) == []
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
    assert httpx.get(f"{server.url}/readyz").status_code == 200
