"""Which stored facts a model is shown."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from mnemo.extraction.by_model import StoredFacts
from mnemo.values.graph import Node, Semantic

CLOSED = datetime(2024, 1, 1, tzinfo=UTC)


class Shelf:
    """A graph and an index in one, with facts in the order of their nearness."""

    def __init__(self, facts: Sequence[Semantic]) -> None:
        self.facts = {fact.id: fact for fact in facts}
        self.caught_up = False

    async def catch_up(self) -> int:
        self.caught_up = True
        return 1

    async def nearest(
        self, vectors: Any, *, type: str, threshold: float, limit: int = 12
    ) -> list[list[tuple[str, float]]]:
        assert self.caught_up
        assert (type, len(vectors)) == ("semantic", 1)
        return [[(id, 0.9) for id in list(self.facts)[:limit]]]

    async def nodes(self, ids: Sequence[str] | None = None, **_: Any) -> list[Node]:
        return [self.facts[id] for id in ids or ()]


async def shown(facts: Sequence[Semantic], embedder: Any, limit: int) -> list[str]:
    shelf: Any = Shelf(facts)
    nearby = StoredFacts(graph=shelf, index=shelf, embedder=embedder)
    return [fact.proposition for fact in await nearby("tea", limit)]


async def test_the_nearest_facts_are_shown_best_first(embedder):
    """No more than asked for."""
    facts = [Semantic(proposition=word, id=f"semantic-{word}") for word in "abcd"]
    assert await shown(facts, embedder, 3) == ["a", "b", "c"]


async def test_a_fact_that_no_longer_holds_is_not_shown(embedder):
    """It cannot be replaced again; the next one takes its place."""
    facts = [
        Semantic(proposition=word, id=f"semantic-{word}", valid_to=CLOSED if word == "a" else None)
        for word in "abc"
    ]
    assert await shown(facts, embedder, 2) == ["b", "c"]


async def test_an_empty_repository_shows_nothing(embedder):
    """And that is no error."""
    assert await shown([], embedder, 12) == []
