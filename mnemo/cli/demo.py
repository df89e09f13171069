"""
``mnemo demo`` and ``mnemo guide``: record, kill a process midway, resume, recall; and how to.

No key, no network, no server. What it says is what it does: every line comes from a
call of the public API that has returned.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream
from rich.console import Console
from rich.markdown import Markdown

from mnemo import Mnemo, Repository, Session, SourceRef, UsageError
from mnemo.cli.output import answer, recall_data, without_password
from mnemo.runtime.text import counted, one_line

REPO = "demo"
"""The repository that the demo writes to."""

_LONGEST = 1_000
"""Bytes of a line that the process says, at most."""
BEGIN = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
"""When the demo's sessions take place, so that what is recalled is the same every time."""

Exchange = tuple[str, str]
Say = Callable[[str], None]
"""Tells a line."""

TRIP: tuple[Exchange, ...] = (
    ("I want to visit Tokyo and Kyoto in April, for two weeks.", "Asked about budget and food."),
    (
        "My budget is 3,000 euros, and I am allergic to peanuts.",
        "Noted the budget and the allergy.",
    ),
    (
        "My sister Mara lives in Osaka. I will stay with her for the last three days.",
        "Proposed ten days in Tokyo and Kyoto, then Osaka.",
    ),
)

BUILD: tuple[Exchange, ...] = (
    (
        "The nightly build of the atlas project fails: the linker runs out of memory.",
        "Looked at the build log.",
    ),
    (
        "When the linker runs out of memory, set LINK_JOBS=2 before building.",
        "Set LINK_JOBS=2 and started the build again.",
    ),
    ("Always clear the build cache after changing compiler flags.", "Cleared the cache."),
)

AFTER: Exchange = (
    "The build is green again. Leon prefers the release on Thursday.",
    "Told the team.",
)

QUESTIONS = (
    "What is the user allergic to?",
    "Where does the user's sister live?",
    "What should be done when the linker runs out of memory?",
)


async def demo(store: str | None, say: Say) -> dict[str, Any]:
    """Run it over the file *store*, or a temporary one; tell every line to *say*, and give data."""
    if store == "memory:":
        raise UsageError("the demo shows two processes on one store: give it a file")
    began = perf_counter()
    with ExitStack() as stack:
        if store is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mnemo-demo-"))
            store = str(Path(folder) / "demo.db")
        shown = without_password(store)
        say(f"Store: {shown}")
        async with Mnemo(store) as memory:
            repo = await memory.open_repo(REPO)
            committed = await _whole_session(repo, say)
            killed = await _killed_session(store, repo, say)
            numbered = enumerate(QUESTIONS, 3)
            recalls = [await _asked(repo, number, question, say) for number, question in numbered]
    seconds = round(perf_counter() - began, 2)
    say(f"\nDone in {seconds} s.")
    return {
        "store": shown,
        "repo": REPO,
        "sessions": [committed, killed],
        "recalls": recalls,
        "seconds": seconds,
    }


# ── A session from start to commit ───────────────────────────────────────────────────


async def _whole_session(repo: Repository, say: Say) -> dict[str, Any]:
    say("\n1. A session: start, append, close, commit")
    session = await repo.start_session("Help plan a trip to Japan")
    for number, exchange in enumerate(TRIP):
        await _append(session, number, exchange)
        say(f"   durable: {exchange[0]}")
    return await _committed(session, say)


async def _append(session: Session, number: int, exchange: Exchange) -> None:
    at = BEGIN + timedelta(minutes=number)
    await session.append(*exchange, at=at, actor="User", key=f"step-{number}")


async def _committed(session: Session, say: Say) -> dict[str, Any]:
    receipt = await session.close_and_commit()
    await session.aclose()
    facts = sum(id.startswith(("semantic-", "procedural-")) for id in receipt.node_ids)
    made = counted(facts, "fact or instruction", "facts and instructions")
    say(f"   committed: {made}, {len(receipt.node_ids)} nodes in all, revision {receipt.revision}")
    return {
        "id": session.id,
        "goal": session.goal,
        "state": str(session.state),
        "facts": facts,
        "nodes": len(receipt.node_ids),
        "revision": receipt.revision,
    }


# ── A session whose process is killed ────────────────────────────────────────────────


async def _killed_session(path: str, repo: Repository, say: Say) -> dict[str, Any]:
    say("\n2. Another process appends, and is killed without a chance to close anything")
    id = await _kill_after_appends(path, say)
    (found,) = [record for record in await repo.unfinished_sessions() if record.id == id]
    say(f"   found: {found.steps} of {len(BUILD)} steps, {found.state}: {found.goal!r}")
    session = await repo.resume_session(id)
    await _append(session, len(BUILD), AFTER)
    say(f"   resumed, durable: {AFTER[0]}")
    return await _committed(session, say) | {
        "killed_after_steps": len(BUILD),
        "found_steps": found.steps,
    }


async def _kill_after_appends(path: str, say: Say) -> str:
    """Start the victim, wait until its steps are acknowledged, kill it. Returns the session."""
    command = [sys.executable, "-m", "mnemo.cli.demo", path]
    async with await anyio.open_process(command, stderr=None) as victim:
        assert victim.stdout is not None
        lines = BufferedByteReceiveStream(victim.stdout)
        try:
            said = [json.loads(await lines.receive_until(b"\n", _LONGEST)) for _ in (0, *BUILD)]
        except anyio.IncompleteRead as error:
            what = "the demo's other process ended before it was killed; see its error above"
            raise UsageError(what) from error
        finally:
            victim.kill()
    for text in said[1:]:
        say(f"   durable: {text}")
    say(f"   killed: process {victim.pid}")
    return str(said[0])


async def _be_killed(path: str) -> None:
    """The other process: append, say so, and wait for the end."""
    async with Mnemo(path) as memory:
        repo = await memory.open_repo(REPO)
        session = await repo.start_session("Repair the nightly build")
        _acknowledge(session.id)
        for number, exchange in enumerate(BUILD):
            await _append(session, number, exchange)
            _acknowledge(exchange[0])
        await anyio.sleep_forever()


def _acknowledge(text: str) -> None:
    sys.stdout.write(json.dumps(text) + "\n")
    sys.stdout.flush()


# ── Recall ───────────────────────────────────────────────────────────────────────────


async def _asked(repo: Repository, number: int, question: str, say: Say) -> dict[str, Any]:
    found = await repo.recall(question, k=3)
    say(f"\n{number}. Recall: {question}")
    for candidate in found.candidates:
        source = candidate.sources[0]
        say(f"   {candidate.score:.2f}  {candidate.node.type}: {one_line(candidate.node.text)}")
        say(f"         from {source.session_id}#{source.step_index}, {_told(source)}")
    return recall_data(question, found)


def _told(source: SourceRef) -> str:
    when = f"{source.at:%Y-%m-%d %H:%M}" if source.at else "at an unknown time"
    return f"told by {source.actor}, {when}, key {source.key}"


if __name__ == "__main__":
    anyio.run(_be_killed, sys.argv[1])

# ── The guide ───────────────────────────────────────────────────────────────────────────


def guide(topic: str | None = None, *, as_json: bool = False) -> None:
    """
    Show a page of the guide, or list the pages.

    Args:
        topic: A page; left out: list them.
    """
    pages = _pages()
    if topic is None:
        titles = {name: text.partition("\n")[0].lstrip("# ") for name, text in pages.items()}
        answer({"topics": titles}, (("topic", "page"), list(titles.items())), as_json=as_json)
        return
    if topic not in pages:
        raise UsageError(f"there is no page {topic!r}; pages: {', '.join(pages)}")
    text = pages[topic]
    if sys.stdout.isatty() and not as_json:
        Console().print(Markdown(text))
    else:
        answer({"topic": topic, "text": text}, text.rstrip("\n"), as_json=as_json)


def _pages() -> dict[str, str]:
    """Topic → text of its page, by topic."""
    found = {
        page.name.removesuffix(".md"): page.read_text(encoding="utf-8")
        for page in files("mnemo").joinpath("guide").iterdir()
        if page.name.endswith(".md")
    }
    return dict(sorted(found.items()))
