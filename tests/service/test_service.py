"""The service: in and out, repositories, isolation, the graph's queries."""

import asyncio
import gc
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
from engines import rows_of
from helpers import committed, repository

from mnemo import (
    Changeset,
    Config,
    ConfigError,
    Edge,
    EdgeKind,
    EmbeddingSpaceMismatch,
    Mnemo,
    NotFound,
    RepositoryAlreadyOpen,
    Semantic,
    Tag,
    UsageError,
)
from mnemo.events import NodesDeleted
from mnemo.testing import HashingEmbedder, ManualClock, ScriptedChatModel


def fact(text: str, label: str, **fields) -> Changeset:
    tag, node = Tag(label), Semantic(text, **fields)
    return Changeset(nodes=(tag, node), edges=(Edge(tag.id, node.id, EdgeKind.MEMBERSHIP),))


async def test_a_constructor_touches_nothing(db):
    """Making a service makes no file; opening it does."""
    memory = Mnemo(db, embedder=HashingEmbedder())
    assert not db.exists()
    async with memory:
        assert db.exists()


@pytest.mark.parametrize("store", ["", "  "])
def test_a_store_that_cannot_be_is_refused(store):
    """Blank, or a kind that this version does not keep things in, is ConfigError."""
    with pytest.raises(ConfigError):
        Mnemo(store)


@pytest.mark.parametrize("store", ["mysql://ada:secret@host/memory", "sqlite://m.db", "file:///m"])
def test_a_url_of_another_kind_is_refused_with_those_that_are_known(store):
    """By its kind alone, since the rest may hold a password; no folder of that name is sought."""
    with pytest.raises(ConfigError, match="give a path, memory:") as refused:
        Mnemo(store)
    assert "secret" not in str(refused.value)


NOTED = """
import sys, threading, anyio
from importlib.abc import MetaPathFinder
from mnemo import Mnemo

class Noting(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if threading.current_thread() is threading.main_thread():
            found.append(name)

async def main():
    async with Mnemo("memory:") as memory:
        sys.meta_path.insert(0, Noting())
        await memory.open_repo()
        sys.meta_path.pop(0)

found = []
anyio.run(main)
assert "mnemo.notes.notes" in sys.modules
sys.exit(", ".join(name for name in found if name.startswith("mnemo")) or 0)
"""


@pytest.mark.slow
def test_the_first_repository_is_imported_off_the_event_loop():
    """Its modules take a quarter of a second, for which nothing else would run."""
    ran = subprocess.run([sys.executable, "-c", NOTED], capture_output=True, text=True, check=False)
    assert (ran.stderr.strip(), ran.returncode) == ("", 0)


async def test_a_service_works_only_while_it_is_open(db):
    """Before open and after aclose every call is UsageError; opening twice too."""
    memory = Mnemo(db, embedder=HashingEmbedder())
    with pytest.raises(UsageError, match="async with"):
        await memory.open_repo("r")
    await memory.aclose()
    memory = Mnemo(f"sqlite:///{db}", embedder=HashingEmbedder())
    async with memory:
        with pytest.raises(UsageError):
            await memory.open()
    with pytest.raises(UsageError):
        memory.list_repos()


async def test_a_service_may_be_closed_by_another_task(db):
    """open and aclose in different tasks, as test fixtures and web frameworks do."""
    memory = Mnemo(db, embedder=HashingEmbedder())
    async with anyio.create_task_group() as group:
        group.start_soon(memory.open)
    repo = await memory.open_repo("r")
    session = await repo.start_session("g")
    await session.append("seen", "")
    async with anyio.create_task_group() as group:
        group.start_soon(memory.aclose)


async def test_repositories_are_opened_once_and_found_by_id(kit):
    """RepositoryAlreadyOpen, NotFound, sorted ids, and reopening after close_repo."""
    await kit.memory.open_repo("a%' --/")
    assert kit.memory.list_repos() == ["a%' --/", "r"]
    with pytest.raises(RepositoryAlreadyOpen, match=r"use memory\.repo\('r'\) or exist_ok=True"):
        await kit.memory.open_repo("r")
    await kit.memory.close_repo("r")
    with pytest.raises(NotFound):
        kit.memory.repo("r")
    with pytest.raises(NotFound):
        await kit.memory.close_repo("r")
    assert (await kit.memory.open_repo("r")).id == "r"


@pytest.mark.parametrize("repo_id", ["", " ", "x" * 201])
async def test_a_bad_repository_id_is_refused(kit, repo_id):
    """An id is any text of 1 to 200 characters that is not blank."""
    with pytest.raises(ValueError, match="repo_id"):
        await kit.memory.open_repo(repo_id)


async def test_closing_a_repository_leaves_its_sessions_resumable(kit):
    """close_repo ends the sessions; reopened, they go on."""
    await kit.begun("seen", "", session_id="s")
    await kit.memory.close_repo("r")
    with pytest.raises(NotFound):
        kit.memory.session("s")
    repo = await kit.memory.open_repo("r")
    assert (await repo.resume_session("s")).context().steps == ("seen -> ",)


async def test_an_open_session_is_found_by_its_repository(kit):
    """Where several open repositories have one of the id, the error names them."""
    mine = await kit.started(session_id="s")
    other = await kit.memory.open_repo("other")
    assert kit.memory.session("s") is mine
    beside = await other.start_session("g", session_id="s")
    with pytest.raises(UsageError, match=r"'other', 'r'.*repo_id"):
        kit.memory.session("s")
    assert kit.memory.session("s", repo_id="r") is mine
    assert kit.memory.session("s", repo_id="other") is beside
    with pytest.raises(NotFound):
        kit.memory.session("t", repo_id="r")
    with pytest.raises(NotFound, match="elsewhere"):
        kit.memory.session("s", repo_id="elsewhere")
    await kit.memory.close_repo("r")
    assert kit.memory.session("s") is beside
    await beside.aclose()
    with pytest.raises(NotFound):
        kit.memory.session("s")


async def test_equal_session_ids_are_extracted_recalled_and_forgotten_apart(kit):
    """Two repositories, a session "s" in each: what is done to one leaves the other."""
    other = await kit.memory.open_repo("other")
    for repo, text in ((kit.repo, "Mara lives in Osaka."), (other, "Mara lives in Lisbon.")):
        await committed(repo, text, "Noted", key="k", goal="Talk", session_id="s")
    for repo, here, there in ((kit.repo, "Osaka", "Lisbon"), (other, "Lisbon", "Osaka")):
        found = await repo.recall("Where does Mara live?", session_id="s")
        assert here in found.as_text()
        assert there not in found.as_text()
        (hit,) = await repo.search("Mara", session_id="s")
        assert here in (await repo.view(hit.message_id, session_id="s")).as_text()
        look = await repo.inspection.session("s")
        assert (look.record.repo_id, look.record.state) == (repo.id, "idle")
    assert (await other.forget(session_id="s")).sessions == 1
    assert [hit.session_id for hit in await kit.repo.search("Mara")] == ["s"]
    assert await other.search("Mara") == []
    await kit.memory.session("s").start_episode("More")
    assert (await kit.memory.check()).problems == ()


async def test_a_session_of_another_repository_gives_no_context(kit):
    """Though one of the same id is open here: the recall is a plain one."""
    await kit.started("Talk of harbours", session_id="s")
    other = await kit.memory.open_repo("other")
    beside = await other.start_session("Talk of boats", session_id="s")
    assert kit.repo._sessions.context(beside) is None
    assert kit.repo._sessions.context("s").goal == "Talk of harbours"


async def test_another_embedding_space_is_refused(db):
    """Equal dimensions do not make two spaces equal; the error names both."""
    async with repository(db, "r") as repo:
        await repo.apply(fact("Ana lives in Porto", "Ana"))
    other = HashingEmbedder()
    other_space = type(other.space)("another", other.space.dimensions)

    class Other:
        space = other_space
        embed = staticmethod(other.embed)

    async with Mnemo(db, embedder=Other()) as memory:
        with pytest.raises(EmbeddingSpaceMismatch, match=r"hashing.*another"):
            await memory.open_repo("r")
        assert memory.list_repos() == []


async def test_a_bad_profile_is_refused_before_anything_is_recorded(kit):
    """A profile that does not exist is ConfigError, and no session is left behind."""
    with pytest.raises(ConfigError, match="profile"):
        await kit.started(config=Config(extraction={"profile": "poetry"}))
    assert await kit.repo.unfinished_sessions() == []


async def test_linked_nodes_are_the_neighbours(kit):
    """Get_linked_nodes gives the other ends, by kind; unknown ids give []."""
    changeset = fact("Ana lives in Porto", "Ana")
    await kit.repo.apply(changeset)
    tag, node = changeset.nodes
    (linked,) = await kit.repo.get_linked_nodes([node.id], edge_type="membership")
    assert linked.id == tag.id
    assert await kit.repo.get_linked_nodes([node.id], edge_type="sibling") == []
    assert await kit.repo.get_linked_nodes(["nobody"]) == []
    with pytest.raises(ValueError, match="friendship"):
        await kit.repo.get_linked_nodes([node.id], edge_type="friendship")


async def test_the_latest_come_first(kit):
    """Latest(2) gives the last two, newest first, with their metadata."""
    places = ["Porto", "Lagos", "Faro", "Braga", "Tavira"]
    for place in places:
        await kit.repo.apply(fact(f"The office in {place} has opened", place))
        await kit.clock.advance(1)
    found = await kit.repo.latest(2)
    assert [node.proposition.split()[3] for node, _ in found] == ["Tavira", "Braga"]
    assert found[0][1].created_at > found[1][1].created_at
    with pytest.raises(ValueError, match="top_k"):
        await kit.repo.latest(0)
    with pytest.raises(ValueError, match="unknown"):
        await kit.repo.get_nodes(["opinion"])


async def test_deleted_nodes_are_gone_with_their_edges(open_kit, db):
    """The number that existed; edges gone from the neighbours, also after reopening."""
    kit = await open_kit(store=db)
    changeset = fact("Ana lives in Porto", "Ana")
    await kit.repo.apply(changeset)
    tag, node = changeset.nodes
    assert await kit.repo.delete_nodes([node.id, "unknown"]) == 1
    assert await kit.repo.delete_nodes([node.id]) == 0
    assert [e.node_ids for e in kit.seen.of(NodesDeleted)] == [(node.id,)]
    await kit.memory.aclose()
    kit = await open_kit(store=db)
    assert await kit.repo.get_linked_nodes([tag.id]) == []
    assert await kit.repo.get_node(node.id) is None
    assert (await kit.memory.check()).problems == ()


async def test_statistics_show_the_levels(kit):
    """Counts, revision, queue depths, index state and space are all there."""
    kit.model.block()
    await kit.begun()
    await kit.repo.apply(fact("Ana lives in Porto", "Ana"))
    statistics = await kit.repo.statistics()
    assert statistics.revision == 1
    assert statistics.nodes == {"semantic": 1, "tag": 1}
    assert statistics.edges == {"membership": 1}
    assert statistics.steps == 1
    assert statistics.append_backlog == 1
    assert statistics.open_sessions == 1
    assert "hashing" in statistics.embedding_space
    kit.model.unblock()


async def test_a_settings_override_reaches_its_session_only(open_kit):
    """Session beats repository beats service, field by field."""
    kit = await open_kit(config=Config(session={"max_pending": 2}))
    kit.model.block("semantic")
    session = await kit.started(config=Config(session={"auto_commit": True}))
    await session.append("seen", "")
    await session.close()
    session.start_episode_async("next")
    session.close_async()
    with pytest.raises(UsageError):
        session.start_episode_async("third")
    kit.model.unblock("semantic")


def lease_of(db: Path) -> float:
    """Until when the file's only owner has it, in seconds."""
    ((until,),) = rows_of(db, "SELECT lease_until FROM owners")
    return float(until)


async def test_the_lease_is_renewed_while_the_service_lives(db):
    """An owner on another host is out of reach only after its lease; renewing prolongs it."""
    clock = ManualClock(datetime(2024, 1, 1, tzinfo=UTC))
    async with Mnemo(db, embedder=HashingEmbedder(), clock=clock) as memory:
        await memory.open_repo("r")
        for _ in range(6):
            await clock.advance(10)
            with anyio.fail_after(120):
                while lease_of(db) <= clock.now().timestamp() + 10:  # noqa: ASYNC110 - a row
                    await anyio.sleep(0.001)


def test_a_service_that_was_never_closed_says_so(db):
    """The loop ended without aclose: a ResourceWarning tells what to write instead."""

    async def forget_to_close() -> None:
        await Mnemo(db, embedder=HashingEmbedder()).open()

    def run_and_forget() -> None:
        asyncio.run(forget_to_close())
        gc.collect()

    with pytest.warns(ResourceWarning, match="async with"):
        run_and_forget()


async def test_an_id_is_resumed_only_once_it_is_open_here(kit):
    """start_session beside resume_session with one id gives one session, not two."""
    found = []

    async def start() -> None:
        found.append(await kit.repo.start_session("g", session_id="s"))

    async def resume() -> None:
        with suppress(NotFound):
            found.append(await kit.repo.resume_session("s"))

    async with anyio.create_task_group() as group:
        group.start_soon(start)
        for _ in range(5):
            group.start_soon(resume)
    assert len({id(session) for session in found}) == 1


class ClosableModel(ScriptedChatModel):
    """Counts how often it was closed; may refuse."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.closed = 0
        self._error = error

    async def aclose(self) -> None:
        self.closed += 1
        if self._error:
            raise self._error


async def test_models_are_closed_with_the_service(caplog):
    """Each once, also after another one failed; a session's own model is its caller's."""
    bad, good, lent = ClosableModel(OSError("stuck")), ClosableModel(), ClosableModel()
    async with Mnemo("memory:", chat_model=bad) as memory:
        repo = await memory.open_repo("a", chat_model=good)
        await memory.open_repo("b", chat_model=good)
        await repo.start_session("g", chat_model=lent)
        await memory.close_repo("b")
        assert good.closed == 0
    assert (bad.closed, good.closed, lent.closed) == (1, 1, 0)
    assert "ClosableModel could not be closed" in caplog.text
