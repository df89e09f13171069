"""The OpenAPI document of the HTTP service, and the check that refusals keep to it."""

from functools import cache
from typing import Any

import httpx

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
