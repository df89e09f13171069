"""``mnemo.sync``: the same calls without asyncio, from any thread, whole even when interrupted."""

import builtins
import inspect
import os
import runpy
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import get_type_hints

import anyio
import pytest
from mypy import api as mypy

from mnemo import MnemoError, NotFound, UsageError, sync
from mnemo.events import Event, StepAppended
from mnemo.protocols import ChatReply, ChatRequest
from mnemo.recall.view import MessageView
from mnemo.testing import HashingEmbedder, ScriptedChatModel

ROOT = Path(__file__).parents[1]


@pytest.fixture
def memory() -> Iterator[sync.Mnemo]:
    with sync.Mnemo("memory:", embedder=HashingEmbedder()) as opened:
        yield opened


def test_a_session_is_collected_committed_and_recalled(memory: sync.Mnemo):
    """Handles lead to handles: service, repository, session, operation."""
    repo = memory.open_repo("ada")
    session = repo.start_session("Get to know Ada", session_id="x")
    session.append("I am allergic to peanuts.", "Noted")
    assert session.append_async("I play the cello.", "Noted").result() == "appended"
    assert session.close_and_commit().status == "committed"
    found = repo.recall_in_context(session, "What is Ada allergic to?")
    assert "peanuts" in found.as_text()
    assert (session.state, session.goal, session.statistics().steps) == (
        "idle",
        "Get to know Ada",
        0,
    )
    assert memory.session("x") == memory.session("x", repo_id="ada") == session
    memory.open_repo("eve").start_session("Get to know Eve", session_id="x")
    with pytest.raises(UsageError, match=r"'ada', 'eve'"):
        memory.session("x")
    assert memory.repo("ada") == repo
    assert repr(session) == "<blocking <Session 'x' idle, 0 steps>>"
    with pytest.raises(NotFound):
        memory.repo("bo")


def test_a_conversation_with_window_goals_tools_and_notes(memory: sync.Mnemo):
    """What a repository hands out is blocking too, lists of handles included."""
    repo = memory.open_repo()
    chat = repo.conversation("t")
    chat.append([{"id": "m1", "role": "user", "content": "Mara's boat is called Heron."}])
    goal = chat.goals.add("Find the boat")
    assert chat.pins.attach([0], [goal.id]) == 1
    shown = chat.viewport(1_000).render()
    assert "Heron" in shown.messages[-1].text
    search, view = repo.tools()
    assert "Heron" in search.call({"query": "heron"})
    assert view.name == "view_messages"
    session = repo.start_session("Listen")
    feed = chat.feed(session, from_seq=0)
    feed.caught_up()
    assert (feed.thread_id, feed.active, session.statistics().steps) == ("t", True, 1)
    repo.notes.write("boat", "- Heron", "Mara's boat")
    assert [note.topic for note in repo.notes.list()] == ["boat"]


def test_events_and_exports_are_plain_iterators(memory: sync.Mnemo):
    """An asynchronous context with a stream becomes a context with an iterator."""
    repo = memory.open_repo("r")
    seen: list[Event] = []
    subscription = memory.subscribe(seen.append)
    with memory.events() as stream:
        repo.start_session("goal", session_id="s").append("o", "a")
        assert isinstance(next(stream), StepAppended)
    subscription.cancel()
    with memory.export_repo("r") as lines:
        exported = list(lines)
    with sync.Mnemo("memory:", embedder=HashingEmbedder()) as other:
        assert other.import_repo("copy", exported).counts["step"] == 1
        assert [left.id for left in other.open_repo("copy").unfinished_sessions()] == ["s"]
    assert isinstance(seen[0], StepAppended)


def test_four_threads_share_one_service(memory: sync.Mnemo):
    """Every step of every thread is stored once, in the order of its thread."""
    repo = memory.open_repo()

    def talk(name: int) -> list[str]:
        session = repo.start_session(f"goal {name}", session_id=f"s{name}")
        steps = [session.append(f"word {name} {n}", "").observation for n in range(25)]
        assert repo.recall(f"word {name}").candidates
        return steps

    with ThreadPoolExecutor(4) as threads:
        told = list(threads.map(talk, range(4)))
    assert told == [[f"word {name} {n}" for n in range(25)] for name in range(4)]
    assert repo.statistics().steps == 100


def test_an_interrupted_call_leaves_nothing_running():
    """Ctrl-C in a recall that waits for a model ends the work first; the service goes on."""
    asked, ended = threading.Event(), threading.Event()

    async def hang(request: ChatRequest) -> ChatReply:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    model = ScriptedChatModel.answering({"plan": hang, "mode": hang})

    def interrupt() -> None:
        asked.wait()
        os.kill(os.getpid(), signal.SIGINT)

    with sync.Mnemo("memory:", chat_model=model, embedder=HashingEmbedder()) as memory:
        repo = memory.open_repo()
        repo.start_session("goal").append("The boat is called Heron.", "")
        helper = threading.Thread(target=interrupt)
        helper.start()
        with pytest.raises(KeyboardInterrupt):
            repo.recall("boat", use_model=True)
        helper.join()
        assert ended.is_set()
        assert repo.recall("boat").candidates


def test_an_interrupted_append_is_whole_or_without_a_trace(memory: sync.Mnemo):
    """A step whose call was interrupted is found by its key, once, if it is there at all."""
    session = memory.open_repo().start_session("goal")

    def append_until_interrupted(n: int, timer: threading.Timer) -> None:
        timer.start()
        session.append(f"step {n}", "", key=str(n))
        threading.Event().wait(30)

    for n in range(20):
        timer = threading.Timer(0.0005 * n, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            append_until_interrupted(n, timer)
        timer.join()
    for n in range(20):
        session.append(f"step {n}", "", key=str(n))
    assert session.statistics().steps == 20


async def test_inside_a_running_loop_the_asynchronous_class_is_named():
    """It would block the loop of the caller; nothing was opened."""
    memory = sync.Mnemo("memory:", embedder="static")
    with pytest.raises(UsageError, match=r"use the asynchronous mnemo\.Mnemo here"):
        memory.open()
    assert repr(memory) == "<blocking <Mnemo not open>>"


async def test_in_a_notebook_it_works_with_a_warning(monkeypatch: pytest.MonkeyPatch):
    """A notebook runs its cells in a thread with a loop, and cannot do otherwise."""
    monkeypatch.setattr(builtins, "get_ipython", lambda: None, raising=False)
    memory = sync.Mnemo("memory:", embedder=HashingEmbedder())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        memory.open()
        assert memory.list_repos() == []
        memory.aclose()
    assert [warning.category for warning in caught] == [RuntimeWarning]  # once, not per call
    assert "blocks the notebook's event loop" in str(caught[0].message)


def test_an_observer_cannot_wait_for_its_own_loop(memory: sync.Mnemo):
    """It would wait for itself for ever."""
    repo = memory.open_repo()
    refused: list[MnemoError] = []

    def observer(event: Event) -> None:
        try:
            repo.statistics()
        except UsageError as error:
            refused.append(error)
            told.set()

    told = threading.Event()
    memory.subscribe(observer)
    repo.start_session("goal").append("The boat is called Heron.", "")
    assert told.wait(timeout=120)
    assert "cannot wait for it" in str(refused[0])


def test_a_service_that_is_not_open_says_so():
    """Before it is opened and after it was closed; closing twice is no mistake."""
    memory = sync.Mnemo("memory:", embedder=HashingEmbedder())
    with pytest.raises(UsageError, match="not open"):
        memory.list_repos()
    memory.open()
    memory.close()
    memory.close()
    with pytest.raises(UsageError, match="is closed"):
        memory.open_repo()


def test_a_service_that_is_open_is_not_opened_again(memory: sync.Mnemo):
    """The refusal leaves it open."""
    with pytest.raises(UsageError, match="is open"):
        memory.open()
    assert memory.list_repos() == []


def test_a_service_whose_loop_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch):
    """As where the process has too many files open; it can be opened later."""
    memory = sync.Mnemo("memory:", embedder=HashingEmbedder())

    def refuse(*_: object) -> None:
        raise OSError("too many open files")

    with monkeypatch.context() as patched:
        patched.setattr("anyio.run", refuse)
        with pytest.raises(OSError, match="too many"):
            memory.open()
    with memory:
        assert memory.list_repos() == []


def test_a_stream_that_nobody_leaves_does_not_keep_the_service_open():
    """Its next event is a refusal."""
    memory = sync.Mnemo("memory:", embedder=HashingEmbedder())
    memory.open()
    with ExitStack() as left:
        stream = left.enter_context(memory.events())
        memory.close()
        with pytest.raises(UsageError, match="is closed"):
            next(stream)
        left.pop_all()


def test_a_blocking_method_looks_like_a_written_one(memory: sync.Mnemo):
    """To frameworks that read its signature, and to a caller who gives it wrong arguments."""
    feed = sync.Conversation.feed
    assert str(inspect.signature(feed)) == (
        "(self, session: 'Session', *, from_seq: 'int | None' = None) -> 'Feed'"
    )
    assert inspect.signature(feed, eval_str=True).return_annotation is sync.Feed
    assert get_type_hints(sync.Repository.view)["return"] is MessageView
    assert (feed.__module__, feed.__qualname__) == ("mnemo.sync", "Conversation.feed")
    assert (
        feed.__doc__ == "Have every message become a step of *session*, as the conversation grows."
    )
    assert not inspect.iscoroutinefunction(feed)
    with pytest.raises(TypeError, match=r"Repository\.memory\(\) missing 1 .* 'id'"):
        memory.open_repo().memory()


PROGRAM = """
from mnemo import sync
from mnemo.values.steps import Step

def main() -> str:
    with sync.Mnemo("memory:", embedder="static") as memory:
        repo: sync.Repository = memory.open_repo("ada", exist_ok=True)
        session = repo.start_session("goal")
        step: Step = session.append("I play the cello.", "")
        names: list[str] = [tool.name for tool in repo.tools()]
        messages = repo.conversation("t").viewport(1_000).messages()
        wrong: int = step.observation
        return repo.recall("cello", k=len(names)).as_text() + messages[0].text
"""


@pytest.mark.slow
def test_a_strict_type_checker_knows_the_surface(tmp_path: Path):
    """The program has one mistake, and that alone is reported."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    runpy.run_path(str(ROOT / "scripts" / "sync_stub.py"))["write"]()  # as the build does
    limit = sys.getrecursionlimit()
    out, _, _ = mypy.run(["--strict", "--config-file", str(ROOT / "pyproject.toml"), str(program)])
    sys.setrecursionlimit(limit)  # mypy raises it, and other tests count on it
    errors = [line for line in out.splitlines() if "error:" in line]
    assert len(errors) == 1, out
    assert '"str", variable has type "int"' in errors[0]
