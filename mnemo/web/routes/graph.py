"""The graph, for a page that draws it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from mnemo import Node, NotFound
from mnemo.exchange import NodeShape
from mnemo.web.access import Id, Readable
from mnemo.web.pictures import Picture

router = APIRouter(prefix="/v1", tags=["graph"])


@router.get("/graph", response_model=Picture)
async def graph(
    request: Request,
    repo: Readable,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 500,
    community: Annotated[int | None, Query(ge=0)] = None,
    around: Annotated[str | None, Query(min_length=1, max_length=512)] = None,
) -> Any:
    """
    Give the best connected nodes with their edges, and the communities of the whole graph.

    *community* narrows the nodes to one of these, *around* to what is at most two edges away
    from a node. Raw steps are not in it.
    """
    graphs = request.app.state.graphs
    return await graphs.picture(repo, limit=limit, community=community, around=around)


@router.get("/graph/node", response_model=NodeShape)
async def node(repo: Readable, id: Id) -> Node:
    """Give one node of any type, whole."""
    found = await repo.get_node(id)
    if found is None:
        raise NotFound("node", id)
    return found
