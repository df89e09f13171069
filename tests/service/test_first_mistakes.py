"""What a newcomer does wrong in the first hour, and the words that say what to do instead."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from helpers import Kit, OpenKit, repository

import mnemo.sync
from mnemo import (
    Changeset,
    ConfigError,
    Mnemo,
    NotFound,
    Semantic,
    SessionBusy,
    SessionError,
    UsageError,
)
from mnemo.testing import HashingEmbedder, ManualClock, ScriptedChatModel


@pytest.fixture
async def kit(open_kit: OpenKit) -> Kit:
    """A service without a chat model."""
    return await open_kit(embedded=True)


@pytest.mark.parametrize("given", [":memory:", "sqlite://:memory:", "sqlite:///:memory:"])
def test_the_word_of_sqlite_for_memory_is_refused(given, tmp_path, monkeypatch):
    """It would make a file of that name; the error names ``memory:``."""
    monkeypatch.chdir(tmp_path)
    for kind in (Mnemo, mnemo.sync.Mnemo):
        with pytest.raises(ConfigError, match=r"'memory:'"):
            kind(given)
    assert list(tmp_path.iterdir()) == []


def test_a_plain_with_is_refused_with_what_to_write():
    """The asynchronous service wants ``async with``, the blocking one ``with``."""
    words = r"async with Mnemo\(…\).*mnemo\.sync\.Mnemo"
    with pytest.raises(UsageError, match=words), Mnemo("memory:"):
        pass


async def test_a_blocking_service_in_async_with_says_what_to_write():
    """The other way round as well."""
    with pytest.raises(UsageError, match=r"with mnemo\.sync\.Mnemo\(…\).*async with mnemo\.Mnemo"):
        async with mnemo.sync.Mnemo("memory:"):
            pass


async def test_to_remember_nothing_is_refused(kit):
    """An empty list is a mistake; the error says what is taken."""
    for nothing in ([], ()):
        with pytest.raises(
            ValueError, match="content is empty: give a text, a message, or several"
        ):
            await kit.repo.remember(nothing)


async def test_a_text_in_place_of_a_message_is_refused_with_a_message(kit):
    """``append`` takes messages; the error shows one."""
    text: Any = "Hello."
    with pytest.raises(ValueError, match=r"such as \{'role': 'user', 'content': 'Hello\.'\}, not"):
        await kit.repo.conversation("t").append(text)


async def test_a_repository_that_is_not_open_is_said_to_be(kit):
    """``repo`` gives the open ones; the error names the call that opens."""
    with pytest.raises(NotFound, match=r"repository 'bob' not found: it is not open, `await open_"):
        kit.memory.repo("bob")


async def test_while_it_is_extracted_a_session_says_what_to_await(open_kit):
    """The call that waits stands in the error."""
    kit = await open_kit()
    session = await kit.begun("I sail.", "")
    kit.model.block("semantic")
    await session.close()
    words = r"await session\.wait_for\('ready', 'failed'\) first"
    with pytest.raises(SessionBusy, match=words):
        await session.commit()
    kit.model.unblock("semantic")


async def test_after_closing_errors_say_that_the_service_is_closed(kit):
    """Repositories, conversations and sessions of a closed service name the service."""
    session, chat = await kit.started(), kit.repo.conversation("t")
    await kit.memory.aclose()
    message = {"role": "user", "content": "Hello."}
    calls: list[Any] = [
        lambda: kit.repo.remember("I live in Lund."),
        lambda: kit.repo.recall("Where?"),
        lambda: chat.append(message),
        lambda: chat.load(),
        lambda: kit.repo.notes.list(),
        lambda: session.append("I sail.", ""),
        lambda: session.commit(),
        lambda: kit.memory.open_repo("other"),
    ]
    for call in calls:
        with pytest.raises(UsageError, match="the service is closed"):
            await call()
    with pytest.raises(UsageError, match="the service is closed"):
        session.close_async()


def test_a_blocking_service_tells_closed_from_not_yet_open():
    """Before the block it is not open, behind it closed; its repositories say the same."""
    memory = mnemo.sync.Mnemo("memory:", embedder=HashingEmbedder())
    with pytest.raises(UsageError, match="the service is not open"):
        memory.open_repo()
    with memory:
        repo = memory.open_repo()
    for call in (memory.list_repos, lambda: repo.recall("Where?")):
        with pytest.raises(UsageError, match="the service is closed"):
            call()


async def test_a_closed_repository_of_an_open_service_is_named(kit):
    """It can be opened again, and the error says how."""
    session = await kit.started()
    await kit.memory.close_repo("r")
    with pytest.raises(UsageError, match=r"repository 'r' is closed; open it again"):
        await kit.repo.recall("Where?")
    with pytest.raises(UsageError, match=r"repository 'r' is closed.*resume_session"):
        await session.append("I sail.", "")


async def test_a_refused_queued_operation_names_the_projected_state(kit):
    """What is queued leads somewhere else than now; the error says where, and what comes first."""
    session = await kit.started()
    session.append_async("I sail.", "")
    session.close_async()
    session.commit_async()
    with pytest.raises(SessionError) as caught:
        session.commit_async()
    assert caught.value.reason == "invalid_queued_operation"
    assert (caught.value.state, caught.value.projected) == ("collecting", "idle")
    assert "the session will be idle" in str(caught.value)
    assert "queue start_episode_async and close_async first" in str(caught.value)
    session.start_episode_async("more")
    session.close_async()
    with pytest.raises(SessionError) as caught:
        session.append_async("I ski.", "")
    assert (caught.value.state, caught.value.projected) == ("collecting", "ready")
    assert "the session will be ready" in str(caught.value)
    assert "queue commit_async and start_episode_async first" in str(caught.value)


async def test_an_operation_refused_at_once_says_what_to_do(kit):
    """Nothing is ahead: the state is the present one."""
    session = await kit.started()
    with pytest.raises(SessionError, match=r"is collecting.*queue close_async first"):
        session.commit_async()


async def test_an_outcome_names_its_operation(kit):
    """One callback can serve all operations, also those that fail."""
    session = await kit.started()
    told: list[tuple[Any, Any, Any]] = []
    ended = anyio.Event()

    def note(outcome: Any) -> None:
        told.append((outcome.operation, outcome.value, type(outcome.error).__name__))
        if outcome.operation == "start_episode":
            ended.set()

    session.append_async("I sail.", "", note)
    session.close_async(note)
    session.commit_async(note)
    session.start_episode_async("more", note)
    with anyio.fail_after(10):
        await ended.wait()
    assert told == [
        ("append", "appended", "NoneType"),
        ("close", "closed", "NoneType"),
        ("commit", "committed", "NoneType"),
        ("start_episode", "started", "NoneType"),
    ]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, db: Path) -> str:
    """Where a service stores, on either engine."""
    return request.getfixturevalue("postgres_url") if request.param == "postgres" else str(db)


async def test_a_session_that_this_process_has_open_is_said_to_be_open_here(open_kit, store):
    """Another service of the same process is no other process: it says which, and since when."""
    since = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
    one = await open_kit(embedded=True, store=store, clock=ManualClock(since))
    session = await one.started()
    two = await open_kit(embedded=True, store=store, clock=ManualClock(since))
    with pytest.raises(SessionBusy) as caught:
        await two.repo.resume_session(session.id)
    assert caught.value.reason == "owned_elsewhere"
    place = re.escape(store) if "://" not in store else r"\S+ at \S+"
    words = rf"another Mnemo that this process has open \({place}, since 2026-05-04 03:02:01 UTC\)"
    assert re.search(words, str(caught.value))
    assert "live process" not in str(caught.value)


# Arguments that would pass for others are refused, so that nothing is done in silence.


async def test_one_id_in_place_of_a_list_is_refused():
    """Its letters are no ids: the node stays, and the caller hears of it."""
    async with repository(embedder="static") as repo:
        await repo.apply(Changeset((Semantic("Mara grows pears."),)))
        (node,) = await repo.get_nodes(("semantic",))
        with pytest.raises(ValueError, match="must be a list of ids, not one text"):
            await repo.delete_nodes(node.id)
        assert await repo.get_node(node.id) is not None
        assert await repo.delete_nodes([node.id]) == 1


# What is given where a model belongs, and is none, is refused before it would be asked.


WRONG = [
    ({"chat_model": "gpt-4o"}, "chat_model must be an object to ask, .* not a str"),
    ({"chat_model": ScriptedChatModel}, "not the class .*ScriptedChatModel"),
    ({"chat_model": HashingEmbedder()}, "chat_model must .* not a HashingEmbedder"),
    ({"embedder": "text-embedding-3-small"}, "there is no embedder .*, or an object to ask"),
    ({"embedder": HashingEmbedder}, "not the class .*HashingEmbedder"),
    ({"embedder": ScriptedChatModel()}, "embedder must .* not a ScriptedChatModel"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_a_service_refuses_what_is_no_model(arguments, message):
    """A name, a class and the other kind of model are told where they are given."""
    with pytest.raises(ConfigError, match=message):
        Mnemo("memory:", **arguments)


@pytest.mark.parametrize(("arguments", "message"), WRONG)
async def test_a_repository_refuses_what_is_no_model(arguments, message):
    """So they are for one repository, which can be opened rightly afterwards."""
    async with Mnemo("memory:") as memory:
        with pytest.raises(ConfigError, match=message):
            await memory.open_repo("trips", **arguments)
        await memory.open_repo("trips", embedder=HashingEmbedder())
