"""What request bodies and parameters have in common."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from fastapi import Query
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, NaiveDatetime

from mnemo.runtime.validation import MOST_AT_ONCE

Id: TypeAlias = Annotated[str, Query(min_length=1, max_length=512)]
Time: TypeAlias = AwareDatetime | NaiveDatetime
JsonObject: TypeAlias = dict[str, JsonValue]
Types: TypeAlias = Annotated[list[str], Field(max_length=MOST_AT_ONCE)]


class Body(BaseModel):
    """The base of request bodies: an unknown key is refused."""

    model_config = ConfigDict(extra="forbid")


def given(body: BaseModel) -> dict[str, Any]:
    """The arguments of the call that *body* describes."""
    return {name: getattr(body, name) for name in type(body).model_fields}
