"""What somebody new to mnemo gets wrong, and what they are told then."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from helpers import committed

from mnemo import Config, ConfigError, Mnemo, Repository, StoreError, Subscription, UsageError
from mnemo.testing import RecordingObserver


@pytest.fixture
async def memory() -> AsyncIterator[Mnemo]:
    async with Mnemo("memory:") as opened:
        yield opened


@pytest.fixture
async def repo(memory: Mnemo) -> Repository:
    return await memory.open_repo()


# ── Wrong kinds of arguments ─────────────────────────────────────────────────────────


@pytest.mark.parametrize("callback", ["the actor, one place too early", 7])
async def test_a_callback_that_cannot_be_called_is_refused_at_once(repo, callback):
    """It would otherwise be accepted and only logged, when the operation has long ended."""
    session = await repo.start_session("g")
    with pytest.raises(ValueError, match="callback must be a function or None"):
        session.append_async("I like figs.", "", callback)
    with pytest.raises(ValueError, match="callback must be a function or None"):
        session.close_async(callback)
    assert (session.state, session.statistics().steps) == ("collecting", 0)


async def test_an_observer_that_cannot_be_called_is_refused(memory):
    """A subscription that would log an error per event is no subscription."""
    wrong: Any = "print"
    with pytest.raises(ValueError, match="observer must be a function, not str"):
        memory.subscribe(wrong)
    assert isinstance(memory.subscribe(RecordingObserver()), Subscription)


async def test_a_stream_without_a_buffer_is_refused(memory):
    """There would be no oldest event to lose, and the publisher would pay for it."""
    with pytest.raises(ValueError, match="buffer must be a whole number, at least 1, not 0"):
        memory.events(buffer=0)


async def test_a_negative_timeout_is_a_plain_value_error(repo):
    """Not a group of errors from inside the waiting; nothing was started."""
    session = await repo.start_session("g")
    await session.append("I like figs.", "")
    for seconds in (-1, float("nan")):
        with pytest.raises(ValueError, match="timeout_s must"):
            await session.close_and_commit(timeout_s=seconds)
    with pytest.raises(ValueError, match="timeout_s must"):
        await session.wait_for("ready", timeout_s=-1)
    assert session.state == "collecting"


async def test_a_query_or_time_of_another_type_is_named(repo):
    """The message names the argument, as everywhere else."""
    wrong: Any = 5
    for ask in (repo.recall, repo.search):
        with pytest.raises(ValueError, match="query must be text, not int"):
            await ask(wrong)
    day: Any = "some day"
    with pytest.raises(ValueError, match="since must be a datetime or an ISO 8601 time"):
        await repo.recall("figs", since=day)
    with pytest.raises(ValueError, match="until must be a datetime or an ISO 8601 time"):
        await repo.recall("figs", since=datetime.now(UTC), until=day)


async def test_a_negative_budget_is_refused(repo):
    """0 prints nothing on purpose; less than that is a mistake."""
    found = await repo.recall("figs")
    assert found.as_text(budget_tokens=0) == ""
    with pytest.raises(ValueError, match="budget_tokens must be a whole number, at least 0"):
        found.as_text(budget_tokens=-1)


# ── Configuration ────────────────────────────────────────────────────────────────────


async def test_a_config_that_is_a_dict_is_refused_by_name(repo):
    """The sections may be dicts, the whole may not; the message says so."""
    plain: Any = {"session": {"auto_commit": True}}
    with pytest.raises(ConfigError, match="config must be a Config, not dict"):
        Mnemo("memory:", config=plain)
    with pytest.raises(ConfigError, match="config must be a Config, not dict"):
        await repo.start_session("g", config=plain)
    assert Config(**plain).session.auto_commit


def test_a_wrong_setting_is_named_by_its_whole_path(monkeypatch):
    """Section and field, as they are written in Python and, in capitals, in the environment."""
    with pytest.raises(ConfigError, match=r"^session\.max_pending: "):
        Config(session={"max_pending": 0})
    with pytest.raises(ConfigError, match=r"^scoring\.semantic\.top_k: "):
        Config(scoring={"semantic": {"top_k": 0}})
    monkeypatch.setenv("MNEMO_SESSION__MAX_PENDING", "many")
    with pytest.raises(ConfigError, match=r"^session\.max_pending: "):
        Config.from_env()


def test_a_store_that_is_no_store_is_refused():
    """At once, not when it is opened."""
    wrong: Any = 5
    with pytest.raises(ConfigError, match="store must be a path, 'memory:' or a Store, not int"):
        Mnemo(wrong)


@pytest.mark.long
@pytest.mark.slow
def test_a_program_as_in_the_readme_passes_a_strict_type_checker(tmp_path):
    """Sections given as dicts, and what the public calls return, are typed."""
    program = tmp_path / "program.py"
    program.write_text(
        "from mnemo import Config, Mnemo, RecallResult, Subscription\n"
        "from mnemo.events import Event\n"
        "def seen(event: Event) -> None: ...\n"
        "async def main() -> RecallResult:\n"
        "    config = Config(session={'auto_commit': True}, shutdown_grace_s=1.0)\n"
        "    async with Mnemo('memory:', config=config) as memory:\n"
        "        watching: Subscription = memory.subscribe(seen)\n"
        "        watching.cancel()\n"
        "        return await (await memory.open_repo()).recall('figs')\n"
    )
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), str(program)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


# ── Lifetimes ────────────────────────────────────────────────────────────────────────


async def test_a_service_that_was_closed_before_it_was_opened_stays_closed(tmp_path):
    """It would otherwise open a file that no call can use."""
    memory = Mnemo(tmp_path / "m.db")
    await memory.aclose()
    with pytest.raises(UsageError, match="make a new Mnemo"):
        await memory.open()
    assert list(tmp_path.iterdir()) == []


async def test_a_call_from_a_plain_thread_is_a_usage_error(memory, repo):
    """The functions that return at once say what is wrong, outside of any loop too."""
    session = await repo.start_session("g")
    refused: list[str] = []

    def elsewhere() -> None:
        for call in (memory.list_repos, lambda: session.append_async("I like figs.", "")):
            try:
                call()
            except UsageError as error:
                refused.append(str(error))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert [text.count("belongs to another event loop") for text in refused] == [1, 1]
    assert session.statistics().steps == 0


async def test_a_store_that_may_only_be_read_is_read_and_closed_without_an_error(
    tmp_path, monkeypatch
):
    """Recall and notes work; only what would write is refused, and closing writes nothing."""
    path = tmp_path / "m.db"
    async with Mnemo(path) as memory:
        repo = await memory.open_repo()
        await committed(repo, "I like figs.", "")
        await repo.notes.write("figs", "- ripe in August", "Figs")
    before = path.read_bytes()
    monkeypatch.setattr("mnemo.store.sqlite.connection._writable", lambda _: False)
    async with Mnemo(path) as memory:
        repo = await memory.open_repo()
        assert (await repo.recall("figs")).candidates
        note = await repo.notes.read("figs")
        assert (note.body, note.last_read_at) == ("- ripe in August", None)
        assert [hit.note for hit in (await repo.notes.recall("figs")).hits] == [note]
        with pytest.raises(StoreError, match="cannot be written to"):
            await repo.start_session("g")
        assert (await memory.check()).problems == ()
    assert path.read_bytes() == before


# ── The command line ─────────────────────────────────────────────────────────────────
