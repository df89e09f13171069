"""Remember, recall, search, and the memories of a repository."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from fastapi import APIRouter, Query
from pydantic import Field

from mnemo import Change, ErasureReport, Memory, MemoryVersion, Page, Remembered, SearchHit
from mnemo.exchange import RecallShape, ViewShape
from mnemo.runtime.validation import MOST_AT_ONCE
from mnemo.web.access import Body, Id, JsonObject, Readable, Time, Types, Writable, given

router = APIRouter(prefix="/v1", tags=["memories"])

Around: TypeAlias = Annotated[int, Query(ge=0, le=100)]
Budget: TypeAlias = Annotated[int | None, Query(ge=100, le=1_000_000)]


class Filters(Body):
    """Conditions on evidence, as of ``Repository.recall``."""

    where: JsonObject | None = None
    session_id: str | None = None
    thread_id: str | None = None
    actor: str | None = None
    since: Time | None = None
    until: Time | None = None


class Remember(Body):
    """A text, a message or several; arguments as of ``Repository.remember``."""

    content: str | JsonObject | Annotated[list[str | JsonObject], Field(max_length=MOST_AT_ONCE)]
    thread_id: str = "default"
    role: Literal["user", "assistant", "system", "tool"] = "user"
    actor: str | None = None
    at: Time | None = None
    key: str | None = None
    metadata: JsonObject | None = None
    wait: bool = False
    timeout_s: float | None = Field(default=None, ge=0, le=600)
    format: Literal["openai", "responses", "anthropic"] | None = None


class Recall(Filters):
    """A question; arguments as of ``Repository.recall``."""

    query: str
    k: int = Field(default=10, ge=1, le=1_000)
    mode: Literal["semantic", "procedural", "episodic", "mixed"] | None = None
    max_hops: int = Field(default=2, ge=0, le=10)
    reason: bool | None = None
    use_model: bool | None = None
    types: Types | None = None
    min_score: float = Field(default=0.0, ge=0, le=1)
    min_confidence: float = Field(default=0.0, ge=0, le=1)
    explain: bool = False
    notes: bool = False
    in_context: str | None = Field(
        default=None, description="A session whose goal and last steps augment the question."
    )


class Search(Filters):
    """Words; arguments as of ``Repository.search``."""

    query: str
    types: Types | None = None
    limit: int = Field(default=5, ge=1, le=100)
    not_visible_in: str | None = None


class Listing(Filters):
    """A page of memories; arguments as of ``Repository.memories``."""

    types: Types = Field(default=["semantic", "procedural"])
    superseded: bool = False
    order: Literal["newest", "oldest"] = "newest"
    limit: int = Field(default=100, ge=1, le=MOST_AT_ONCE)
    after: str | None = None


class ListedChanges(Body):
    """A page of changes; arguments as of ``Repository.changes``."""

    since: Time | None = None
    until: Time | None = None
    subject: str | None = None
    order: Literal["newest", "oldest"] = "newest"
    limit: int = Field(default=100, ge=1, le=MOST_AT_ONCE)
    after: str | None = None


class NewMemory(Body):
    """A fact or instruction; arguments as of ``Repository.add_memory``."""

    text: str
    type: Literal["semantic", "procedural"] = "semantic"
    tags: list[str] = Field(default=[], max_length=MOST_AT_ONCE)
    at: Time | None = None
    metadata: JsonObject | None = None


class Correction(Body):
    """A new wording; arguments as of ``Repository.update_memory``."""

    text: str
    reason: str | None = None
    expected_version: int | None = Field(default=None, ge=1)


class Forget(Body):
    """What is to go; arguments as of ``Repository.forget``. By default nothing is erased."""

    memory_ids: list[str] = Field(default=[], max_length=MOST_AT_ONCE)
    message_ids: list[str] = Field(default=[], max_length=MOST_AT_ONCE)
    steps: list[str] = Field(default=[], max_length=MOST_AT_ONCE)
    session_id: str | None = None
    thread_id: str | None = None
    before: Time | None = None
    sources: bool = True
    dry_run: bool = True


@router.post("/remember", response_model=Remembered)
async def remember(repo: Writable, body: Remember) -> Any:
    """Store what was said, and have its facts extracted in the background."""
    return await repo.remember(**given(body))


@router.post("/recall", response_model=RecallShape)
async def recall(repo: Readable, body: Recall) -> Any:
    """Find what the memory knows, with its sources."""
    arguments = given(body)
    session = arguments.pop("in_context")
    if session is None:
        return await repo.recall(**arguments)
    return await repo.recall_in_context(session, **arguments)


@router.post("/search", response_model=list[SearchHit])
async def search(repo: Readable, body: Search) -> Any:
    """Find words in everything ever said or observed."""
    return await repo.search(**given(body))


@router.get("/view", response_model=ViewShape)
async def view(
    repo: Readable,
    id: Id,
    session_id: str | None = None,
    before: Around = 10,
    after: Around = 10,
    budget_tokens: Budget = None,
) -> Any:
    """Open what lies around a hit of a search."""
    found = await repo.view(
        id, session_id=session_id, before=before, after=after, budget_tokens=budget_tokens
    )
    return ViewShape.model_validate(found).model_copy(update={"text": found.as_text()})


@router.post("/memories/list", response_model=Page[Memory])
async def listed(repo: Readable, body: Listing) -> Any:
    """List facts and instructions, a page at a time."""
    return await repo.memories(**given(body))


@router.post("/memories/changes", response_model=Page[Change])
async def changes(repo: Readable, body: ListedChanges) -> Any:
    """List what held and holds no longer, with what took its place, a page at a time."""
    return await repo.changes(**given(body))


@router.post("/memories", response_model=Memory)
async def add(repo: Writable, body: NewMemory) -> Any:
    """Add a fact or instruction by hand."""
    return await repo.add_memory(**given(body))


@router.get("/memory", response_model=Memory)
async def one(repo: Readable, id: Id) -> Any:
    """Give one fact or instruction."""
    return await repo.memory(id)


@router.patch("/memory", response_model=Memory)
async def update(repo: Writable, id: Id, body: Correction) -> Any:
    """Correct what one says."""
    return await repo.update_memory(id, **given(body))


@router.get("/memory/history", response_model=list[MemoryVersion])
async def history(repo: Readable, id: Id) -> Any:
    """List the wordings of one."""
    return await repo.history(id)


@router.post("/forget", response_model=ErasureReport)
async def forget(repo: Writable, body: Forget) -> Any:
    """Report what would be erased, and with ``dry_run: false`` erase it for good."""
    return await repo.forget(**given(body))
