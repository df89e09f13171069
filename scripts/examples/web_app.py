"""
A web application with a memory for each of its users, over FastAPI.

A user is a repository: what one says is never recalled for another, and deleting the user is
deleting the repository. A message is durable when its request is answered; facts are extracted
behind it.

    USERS='{"ada-token": "ada", "bo-token": "bo"}' python scripts/examples/web_app.py --port 8000
    curl -H 'Authorization: Bearer ada-token' -d '{"text": "I live in Oslo."}' \
        -H 'Content-Type: application/json' http://127.0.0.1:8000/messages

A request with the same `Idempotency-Key` again stores nothing twice. Settings are read from
`MNEMO_*`.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, Header, HTTPException, Query, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, Field

from mnemo import Config, Mnemo, NotFound, Repository


class Said(BaseModel):
    """A message of the user."""

    text: str = Field(min_length=1, max_length=20_000, pattern=r"\S")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Keep one service open for all requests; leaving it finishes what is on its way."""
    app.state.users = json.loads(os.environ["USERS"])
    store = os.environ.get("STORE", "web.db")
    async with Mnemo(store, config=Config.from_env()) as app.state.memory:
        yield


app = FastAPI(lifespan=lifespan)


async def memory_of(
    request: Request, token: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())]
) -> Repository:
    """The repository of the user whose token it is."""
    user = request.app.state.users.get(token.credentials)
    if user is None:
        raise HTTPException(401, "unknown token")
    memory: Mnemo = request.app.state.memory
    return await memory.open_repo(user, exist_ok=True)


Own = Annotated[Repository, Depends(memory_of)]


@app.post("/messages", status_code=201)
async def remember(
    said: Said, own: Own, idempotency_key: Annotated[str | None, Header()] = None
) -> dict[str, Any]:
    """Remember what the user says."""
    remembered = await own.remember(said.text, key=idempotency_key)
    return {"ids": [message.id for message in remembered.messages]}


@app.get("/recall")
async def recall(own: Own, q: Annotated[str, Query(pattern=r"\S")]) -> dict[str, Any]:
    """What is known about a question, and where it comes from."""
    found = await own.recall(q)
    return {"text": found.as_text(), "sources": [source.text for source in found.sources]}


@app.get("/memories")
async def memories(own: Own, after: str | None = None) -> dict[str, Any]:
    """A page of what is known about the user."""
    page = await own.memories(after=after)
    listed = [{"id": one.id, "text": one.text} for one in page.items]
    return {"memories": listed, "next": page.next}


@app.delete("/memories/{id}", status_code=204)
async def forget(id: str, own: Own) -> None:
    """Erase a memory and what it was learnt from."""
    try:
        await own.forget(memory_ids=[id])
    except NotFound as error:
        raise HTTPException(404, "no such memory") from error


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--port", type=int, default=8000)
    uvicorn.run(app, host="127.0.0.1", port=parser.parse_args().port)
