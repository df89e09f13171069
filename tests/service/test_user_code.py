"""User code that raises anything at all: the service goes on, and closes."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import pytest
from helpers import repository

from mnemo import (
    Changeset,
    CommitFailed,
    Config,
    ExtractionFailed,
    InvalidOperation,
    Memory,
    Mnemo,
    ModelError,
    Repository,
    Semantic,
    Session,
)
from mnemo.events import StepAppended
from mnemo.testing import HashingEmbedder, ScriptedChatModel


class Unexpected(BaseException):
    """No ``Exception``, and known to nobody."""


async def wait_for_what_is_cancelled() -> None:
    """A ``CancelledError`` of something else than the running task."""
    waited = asyncio.get_running_loop().create_future()
    waited.cancel()
    await waited


def raising(error: BaseException) -> Callable[..., None]:
    """A function that raises *error*."""

    def function(*_: Any, **__: Any) -> None:
        raise error

    return function


def waiting(*_: Any, **__: Any) -> Awaitable[None]:
    """What gives something to wait for that was cancelled, whatever it is called with."""
    return wait_for_what_is_cancelled()


async def cut_off(*_: Any, **__: Any) -> None:
    """A coroutine function that ends in a foreign ``CancelledError``."""
    await wait_for_what_is_cancelled()


async def ending(*_: Any, **__: Any) -> None:
    """A coroutine function that raises what nobody expects."""
    raise Unexpected


HOSTILE = [raising(asyncio.CancelledError()), raising(Unexpected()), cut_off, ending]


@pytest.mark.parametrize("observer", HOSTILE)
async def test_an_observer_that_raises_anything_stops_nothing(kit, observer):
    """Appends return, sessions start and commit, and the service closes."""
    kit.memory.subscribe(observer)
    with anyio.fail_after(120):
        session = await kit.repo.start_session("g")
        for number in range(3):
            await session.append(f"Ada lives in town {number}.", "noted")
        assert (await session.close_and_commit()).status == "committed"
        await kit.repo.start_session("h")
        await kit.memory.aclose()


@pytest.mark.parametrize("callback", [*HOSTILE, waiting])
async def test_a_callback_that_raises_anything_stops_nothing(kit, callback):
    """Each operation ends as it should, and the callbacks behind it run."""
    session = await kit.repo.start_session("g")
    heard = []
    with anyio.fail_after(120):
        first = session.append_async("Ada lives in Lund.", "noted", callback)
        second = session.close_async(callback)
        third = session.commit_async(heard.append)
        assert [await first, await second, await third] == ["appended", "closed", "committed"]
        await kit.memory.aclose()
    assert len(heard) == 1


class HostileEmbedder(HashingEmbedder):
    """Embeds as ordered, until it is told to be *hostile*."""

    hostile: Callable[..., Any] | None = None

    async def embed(self, texts: Sequence[str], *, kind: Any = "document") -> Any:
        if self.hostile is None:
            return await super().embed(texts, kind=kind)
        told = self.hostile(texts)
        return await told if told is not None else None


@pytest.mark.parametrize("hostile", [*HOSTILE, waiting])
async def test_an_embedder_that_raises_anything_only_fails(db, hostile):
    """Recall answers by words meanwhile; what was appended is there, and found later."""
    embedder = HostileEmbedder()
    with anyio.fail_after(120):
        async with repository(
            db, "r", embedder=embedder, config=Config(shutdown_grace_s=0.05)
        ) as repo:
            session = await repo.start_session("g", embedder=HostileEmbedder())
            embedder.hostile = hostile
            await session.append("Ada lives in Lund.", "noted")
            found = await repo.recall("Where does Ada live?")
            assert "Ada lives in Lund." in found.as_text()
            assert [why.partition(":")[0] for why in found.trace.degraded] == ["embedder"]
            await repo.conversation("t").append({"role": "user", "content": "hello"})
            embedder.hostile = None
            assert (await session.close_and_commit()).status == "committed"


@pytest.mark.parametrize("hostile", HOSTILE)
async def test_a_chat_model_that_raises_anything_only_fails(open_kit, hostile):
    """The embedded stages step in, and the commit is made."""

    class Model(ScriptedChatModel):
        async def complete(self, request):
            told = hostile(request)
            return await told if told is not None else None

    kit = await open_kit(model=Model())
    session = await kit.repo.start_session("g")
    with anyio.fail_after(120):
        await session.append("Ada lives in Lund.", "noted")
        await session.close()
        await session.wait_for("ready", "failed")
        await kit.memory.aclose()


@pytest.mark.parametrize("error", [asyncio.CancelledError(), Unexpected(), GeneratorExit()])
async def test_functions_of_a_config_that_raise_anything_only_fail(db, error):
    """A token counter is passed over, a value function fails one recall."""
    config = Config(
        conversation={"token_counter": raising(error)},
        scoring={"value_function": raising(error)},
        shutdown_grace_s=0.05,
    )
    with anyio.fail_after(120):
        async with repository(db, "r", config=config) as repo:
            await repo.conversation("t").append({"role": "user", "content": "hello"})
            (message,) = await repo.conversation("t").load()
            assert message.content == "hello"
            session = await repo.start_session("g")
            await session.append("Ada lives in Lund.", "noted")
            with pytest.raises(Exception, match="recall could not answer"):
                await repo.recall("Where does Ada live?")
            await session.append("Ada lives in Rome.", "noted")


class HostileModel(ScriptedChatModel):
    """Fails as it is told to; answers nothing."""

    hostile: Callable[..., Any]

    async def complete(self, request):
        told = self.hostile(request)
        return await told if told is not None else None


COMMIT_FAILED, MODEL_FAILED = (CommitFailed, InvalidOperation), (ModelError,)


def calls_that_reach_user_code(
    memory: Mnemo, repo: Repository, known: Memory, session: Session, ready: Session
) -> dict[str, tuple[Callable[[], Awaitable[Any]], tuple[type[Exception], ...]]]:
    """By name: a call of the public surface, and the errors that its documentation names."""
    chat, notes, items = repo.conversation("t"), repo.notes, repo.items
    turns = [
        {"role": "user", "content": f"Ada lives in town {number}.", "id": f"m{number}"}
        for number in range(6)
    ]

    return {
        "append": (lambda: session.append("Ada sails.", "noted"), ()),
        "close_and_commit": (session.close_and_commit, (ExtractionFailed,)),
        "commit": (ready.commit, COMMIT_FAILED),
        "remember": (lambda: repo.remember("Bo plays the cello."), ()),
        "settle": (lambda: repo.settle(0.1), (TimeoutError,)),
        "recall": (lambda: repo.recall("Where does Ada live?", use_model=True), ()),
        "search": (lambda: repo.search("Lund"), ()),
        "memories": (repo.memories, ()),
        "add_memory": (lambda: repo.add_memory("Bo lives in Rome."), COMMIT_FAILED),
        "update_memory": (lambda: repo.update_memory(known.id, "Cy has a dog."), COMMIT_FAILED),
        "apply": (lambda: repo.apply(Changeset((Semantic("Dee sings."),))), COMMIT_FAILED),
        "consolidate": (repo.consolidate, COMMIT_FAILED),
        "decay": (repo.decay, COMMIT_FAILED),
        "validate": (repo.validate, COMMIT_FAILED),
        "conversation.append": (lambda: chat.append(turns), ()),
        "conversation.load": (lambda: chat.load(query="Where does Ada live?"), ()),
        "conversation.compress": (chat.compress, ()),
        "viewport.render": (lambda: chat.viewport(1_000).render(), ()),
        "viewport.evict": (lambda: chat.viewport(1_000).evict(), ()),
        "notes.write": (lambda: notes.write("boat", "- Heron", "A boat"), ()),
        "notes.list": (lambda: notes.list(query="boat"), ()),
        "notes.recall": (lambda: notes.recall("boat"), ()),
        "notes.restore": (lambda: notes.restore("boat", 1), ()),
        "notes.update": (lambda: notes.update_after_task(turns, iterations=10), ()),
        "items.put": (
            lambda: items.put(("a",), "k", {"text": "tea"}, texts={"text": "tea"}),
            MODEL_FAILED,
        ),
        "items.search": (lambda: items.search(query="tea"), MODEL_FAILED),
        "items.embed_owed": (items.embed_owed, MODEL_FAILED),
        "close_repo": (lambda: memory.close_repo("r"), ()),
        "reembed": (lambda: memory.reembed("r", embedder=HostileEmbedder(64)), MODEL_FAILED),
    }


@pytest.mark.slow
@pytest.mark.parametrize("hostile", [*HOSTILE, raising(OSError("no weights"))])
async def test_no_call_lets_out_what_user_code_raises(db, hostile, monkeypatch):
    """Embedder, chat model, observer and token counter fail at once: documented errors alone."""
    embedder, model = HostileEmbedder(), HostileModel()
    model.hostile = hostile
    config = Config(conversation={"token_counter": raising(Unexpected())}, shutdown_grace_s=0.05)
    undocumented = {}
    with anyio.fail_after(60):
        async with Mnemo(db, embedder=embedder, chat_model=model, config=config) as memory:
            repo = await memory.open_repo("r")
            session = await repo.start_session("g")
            ready = await repo.start_session("g", chat_model=ScriptedChatModel.answering())
            for one in (session, ready):
                await one.append("Ada lives in Lund.", "noted")
            await ready.close()
            await ready.wait_for("ready")
            known = await repo.add_memory("Cy has a cat.")
            memory.subscribe(hostile)
            monkeypatch.setattr(HostileEmbedder, "hostile", staticmethod(hostile))
            calls = calls_that_reach_user_code(memory, repo, known, session, ready)
            for name, (call, documented) in calls.items():
                try:
                    await call()
                except documented:
                    pass
                except Exception as error:
                    undocumented[name] = repr(error)
    assert undocumented == {}


async def test_a_cancelled_caller_is_not_taken_for_foreign_code(open_kit):
    """While the embedder is asked, a cancellation of the caller passes, outright or by scope."""
    asked = anyio.Event()

    class Endless(HashingEmbedder):
        async def embed(self, texts, *, kind="document"):
            asked.set()
            await anyio.sleep_forever()

    kit = await open_kit()
    repo = await kit.memory.open_repo("endless", embedder=Endless())
    session = await repo.start_session("g")
    await session.append("Ada lives in Lund.", "noted")
    recalling = asyncio.ensure_future(repo.recall("Where does Ada live?"))
    await asked.wait()
    recalling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await recalling
    with anyio.move_on_after(0.05) as scope:
        await repo.recall("Where does Ada live?")
    assert scope.cancelled_caught


async def test_foreign_code_is_told_apart_while_its_caller_cleans_up(kit):
    """Whoever was cancelled and goes on is not cancelled again by a model's own affair."""
    repo = await kit.memory.open_repo("hostile", embedder=(embedder := HostileEmbedder()))
    session = await repo.start_session("g")
    await session.append("Ada lives in Lund.", "noted")
    embedder.hostile = cut_off
    begun, found = anyio.Event(), []

    async def cancelled_once() -> None:
        try:
            begun.set()
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            found.append(await repo.recall("Where does Ada live?"))

    task = asyncio.ensure_future(cancelled_once())
    await begun.wait()
    task.cancel()
    await task
    assert "Ada lives in Lund." in found[0].as_text()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("is_async", [False, True])
def test_an_interrupt_of_an_observer_leaves_the_loop_with_the_state_settled(db, error, is_async):
    """The step is durable and the service closes on the way out; nothing is left hanging."""

    told = []

    def observer(event):
        told.append(event)
        if [type(one) for one in told].count(StepAppended) == 1:
            raise error("enough")

    async def observing(event):
        observer(event)

    async def main() -> None:
        memory = Mnemo(db, embedder=HashingEmbedder(), config=Config(shutdown_grace_s=0.05))
        async with memory:
            repo = await memory.open_repo("r")
            session = await repo.start_session("g", session_id="s")
            memory.subscribe(observing if is_async else observer)
            try:
                await session.append("Ada lives in Lund.", "noted")
                await anyio.sleep_forever()
            finally:
                await session.append("Ada lives in Rome.", "noted")

    with pytest.raises(error, match="enough"):
        asyncio.run(main())
    assert _steps(db) == 2


def _steps(db: Any) -> int:
    async def count() -> int:
        async with repository(db, "r") as repo:
            return (await repo.statistics()).steps

    return asyncio.run(count())
