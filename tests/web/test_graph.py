"""Pictures of the graph: communities, a bounded part, what lies around a node."""

import numpy as np
import pytest

from mnemo import Changeset, Edge, EdgeKind, Semantic, Tag
from mnemo.runtime.validation import MOST_AT_ONCE
from mnemo.web.routes.graph import communities_of


def test_two_clusters_with_one_bridge_are_two_communities():
    """Nodes that are tied to each other get one number, the larger cluster's is 0."""
    left = [(a, b) for a in range(6) for b in range(a)]
    right = [(a, b) for a in range(6, 10) for b in range(6, a)]
    found = communities_of(11, np.array([*left, *right, (0, 9)]))
    assert found[:6].tolist() == [0] * 6
    assert found[6:10].tolist() == [1] * 4
    assert found[10] == 2


def test_a_tag_is_in_one_community_with_its_facts():
    """Ten tags with two hundred facts each: ten communities, each with its tag."""
    tags = np.arange(2_000) % 10
    found = communities_of(2_010, np.stack([tags, np.arange(10, 2_010)], axis=1))
    assert np.bincount(found).tolist() == [201] * 10
    assert (found[10:] == found[tags]).all()


def test_a_graph_without_edges_or_nodes_has_communities_of_one():
    """Nothing is divided by zero, and what is alone is a community."""
    none = np.empty((0, 2), np.int64)
    assert communities_of(3, none).tolist() == [0, 1, 2]
    assert communities_of(0, none).tolist() == []


async def test_a_picture_is_bounded_and_follows_the_graph(client):
    """At most so many marks, best connected first; a new fact is in the next picture."""
    for text in ("Ada likes tea.", "Ada likes trains.", "Bob sings."):
        await client.post("/v1/memories", json={"text": text, "tags": [text.split()[0]]})
    whole = (await client.get("/v1/graph")).json()
    assert (whole["total"], len(whole["nodes"])) == (5, 5)
    assert [whole["nodes"][a]["type"] for a, _, _ in whole["edges"]] == ["tag"] * 3
    assert [(c["label"], c["nodes"]) for c in whole["communities"]] == [("Ada", 3), ("Bob", 2)]
    bounded = (await client.get("/v1/graph?limit=1")).json()
    assert [mark["text"] for mark in bounded["nodes"]] == ["Ada"]
    bob = (await client.get("/v1/graph?community=1")).json()["nodes"]
    assert {mark["text"] for mark in bob} == {"Bob", "Bob sings."}
    fact = next(mark["id"] for mark in bob if mark["type"] == "semantic")
    near = await client.get("/v1/graph", params={"around": fact, "limit": 2})
    assert [mark["text"] for mark in near.json()["nodes"]] == ["Bob sings.", "Bob"]
    node = (await client.get("/v1/graph/node", params={"id": fact})).json()
    assert node["proposition"] == "Bob sings."
    await client.post("/v1/memories", json={"text": "Bob dances."})
    assert (await client.get("/v1/graph")).json()["total"] == 6
    assert (await client.get("/v1/graph?around=nobody")).status_code == 404


@pytest.mark.slow
async def test_a_graph_of_thousands_is_drawn_with_its_edges_once(client, memory):
    """It is read in parts; an edge between two of them is one edge."""
    repo = await memory.open_repo()
    tag, last = Tag("Ada", id="t"), MOST_AT_ONCE + 5
    facts = [Semantic(f"Ada counts {n}.", id=f"f{n:04}") for n in range(last + 1)]
    edges = [Edge("t", fact.id, EdgeKind.MEMBERSHIP) for fact in facts]
    edges.append(Edge("f0000", facts[last].id, EdgeKind.SIBLING))
    await repo.apply(Changeset((tag, *facts), tuple(edges)))
    found = (await client.get("/v1/graph?limit=10000")).json()
    assert found["total"] == len(facts) + 1
    assert len(found["edges"]) == len(edges)


async def test_an_empty_graph_is_drawn(client):
    """A repository without facts has an empty picture."""
    await client.post("/v1/conversation/messages?thread=t", json={"messages": []})
    await client.post("/v1/remember", json={"content": "Hm."})
    found = (await client.get("/v1/graph")).json()
    assert (found["nodes"], found["edges"], found["communities"]) == ([], [], [])
