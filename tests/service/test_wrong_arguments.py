"""Arguments that would pass for others are refused, so that nothing is done in silence."""

import pytest

from mnemo import Changeset, Mnemo, Semantic


async def test_one_id_in_place_of_a_list_is_refused():
    """Its letters are no ids: the node stays, and the caller hears of it."""
    async with Mnemo("memory:", embedder="static") as memory:
        repo = await memory.open_repo()
        await repo.apply(Changeset((Semantic("Mara grows pears."),)))
        (node,) = await repo.get_nodes(("semantic",))
        with pytest.raises(ValueError, match="must be a list of ids, not one text"):
            await repo.delete_nodes(node.id)
        assert await repo.get_node(node.id) is not None
        assert await repo.delete_nodes([node.id]) == 1
