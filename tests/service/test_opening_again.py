"""``open_repo(exist_ok=True)``: the open repository, unless it is another than asked for."""

import anyio
import pytest

from mnemo import Config, Mnemo, Repository, RepositoryAlreadyOpen
from mnemo.testing import HashingEmbedder, ScriptedChatModel


async def test_the_open_repository_is_given():
    """The same object, however often; without ``exist_ok`` it is refused."""
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("ada", exist_ok=True)
        assert await memory.open_repo("ada", exist_ok=True) is repo
        with pytest.raises(RepositoryAlreadyOpen, match="use repo"):
            await memory.open_repo("ada")


async def test_many_tasks_open_one_repository_at_once(tmp_path):
    """All get the one that the first opens."""
    opened: list[Repository] = []
    async with Mnemo(tmp_path / "m.db", embedder=HashingEmbedder()) as memory:

        async def open_it() -> None:
            opened.append(await memory.open_repo("ada", exist_ok=True))

        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(open_it)
    assert len(opened) == 20
    assert len(set(map(id, opened))) == 1


async def test_another_configuration_is_refused():
    """A config, chat model or embedding space that the open one does not have; none is any."""
    same, other = Config(recall={"record_access": False}), Config(recall={"timeout_s": 5})
    model = ScriptedChatModel.answering()
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("ada", config=same, chat_model=model)
        again = await memory.open_repo("ada", exist_ok=True, config=same, chat_model=model)
        assert again is repo
        assert await memory.open_repo("ada", exist_ok=True, embedder=HashingEmbedder()) is repo
        with pytest.raises(RepositoryAlreadyOpen, match="another config"):
            await memory.open_repo("ada", exist_ok=True, config=other)
        with pytest.raises(RepositoryAlreadyOpen, match="another chat model"):
            await memory.open_repo("ada", exist_ok=True, chat_model=ScriptedChatModel.answering())
        with pytest.raises(RepositoryAlreadyOpen, match="another embedder"):
            await memory.open_repo("ada", exist_ok=True, embedder=HashingEmbedder(32))
