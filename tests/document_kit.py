"""The OpenAPI document of the HTTP service, and the check that refusals keep to it."""

from functools import cache
from typing import Any

import httpx
from jsonschema import Draft202012Validator

from mnemo import Mnemo
from mnemo.web import token_of, web_app


async def has_a_declared_reason(answer: httpx.Response) -> None:
    """A refusal's reason is among those that the document lists for its operation."""
    path, method = answer.request.url.path, answer.request.method.lower()
    told = documented()["paths"].get(path, {}).get(method)
    if told is not None and answer.headers.get("content-type") == "application/problem+json":
        await answer.aread()
        ((_, listed),) = documented_reasons(told)
        assert answer.json()["reason"] in listed, (path, answer.text)


@cache
def documented() -> dict[str, Any]:
    """The OpenAPI document."""
    return web_app(Mnemo("memory:"), tokens=[token_of("x", "x")]).app.openapi()


def documented_reasons(told: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """The schemas of an operation's refusals, each with the reasons in it."""
    contents = [told["responses"][status]["content"] for status in ("4XX", "5XX")]
    names = {one["application/problem+json"]["schema"]["$ref"].rsplit("/")[-1] for one in contents}
    schemas = documented()["components"]["schemas"]
    return [(one, schemas[one]["allOf"][1]["properties"]["reason"]["enum"]) for one in names]


def faults_of(value: Any, schema: dict[str, Any]) -> list[str]:
    """What of *value* is not as a schema of the document says."""
    whole = schema | {"components": documented()["components"]}
    return [one.message for one in Draft202012Validator(whole).iter_errors(value)]


def faults_of_message(message: dict[str, Any]) -> list[str]:
    """What of a stream's message is not as the document says."""
    return faults_of(message, {"$ref": "#/components/schemas/StreamMessage"})
