"""A repository leaves as lines and comes back the same, through the public surface."""

import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from helpers import lines_of

from mnemo import (
    Changeset,
    Config,
    InvalidArchive,
    Mnemo,
    NotFound,
    Repository,
    RepositoryAlreadyOpen,
    Semantic,
    StoreError,
    UsageError,
)
from mnemo.testing import HashingEmbedder, ManualClock

SAID = [
    ("My sister Mara lives in Osaka.", "Noted it"),
    ("I am allergic to peanuts and drink green tea \u2028 お茶.", "Noted the allergy"),
    ("The linker runs out of memory.", "Set LINK_JOBS=2"),
    ("The build passes now, in 7 minutes.", "Told the team"),
    ("I moved to Bern last May.", "Changed the address"),
]
QUESTIONS = ["Where does the sister live?", "linker memory", "peanuts", "What changed?", "お茶"]
# What a recall returns must not change what the next one is compared with.
CONFIG = Config(recall={"record_access": False})


@asynccontextmanager
async def service(store: str | Path, clock: ManualClock) -> AsyncIterator[Mnemo]:
    """A service without a model, at a time of the test's own."""
    async with Mnemo(store, config=CONFIG, embedder=HashingEmbedder(), clock=clock) as memory:
        yield memory


async def fill(memory: Mnemo, repo_id: str = "r") -> None:
    """A committed session, one that is ready, one that collects; all vectors are made."""
    repo = await memory.open_repo(repo_id)
    session = await repo.start_session("Small talk", session_id=f"{repo_id}-done")
    for number, (observation, action) in enumerate(SAID):
        await session.append(observation, action, key=f"k{number}", metadata={"n": [number, 0.1]})
    await session.close_and_commit()
    ready = await repo.start_session("More talk", session_id=f"{repo_id}-ready")
    await ready.append("My brother Jan plays the cello.", "Asked for his age")
    await ready.close()
    await ready.wait_for("ready")
    collecting = await repo.start_session("Unfinished talk", session_id=f"{repo_id}-collecting")
    await collecting.append("The harbour is closed on Mondays.", "Wrote it down", key="harbour")
    await embedded(repo)
    await memory.close_repo(repo_id)


async def embedded(repo: Repository) -> None:
    """Wait until nothing waits for its vector."""
    with anyio.fail_after(120):
        while True:
            await repo.recall("x")
            if not (await repo.statistics()).index.waiting:
                return
            await anyio.sleep(0.001)


async def answers(repo: Repository) -> dict[str, Any]:
    """What recall, search and statistics say."""
    recalled = {
        question: [
            (c.node, c.score, c.relevance, c.phase, c.hop, c.sources)
            for c in (await repo.recall(question, k=20)).candidates
        ]
        for question in QUESTIONS
    }
    hits = [hit for words in ("peanuts", "linker OR sister") for hit in await repo.search(words)]
    found = await repo.statistics()
    return {
        "recall": recalled,
        # The two kinds of store add BM25 up in another order, which shows in the 16th digit.
        "search": [(hit.message_id, hit.snippet, round(hit.score, 9)) for hit in hits],
        "counts": (found.revision, found.nodes, found.edges, found.steps, found.vectors),
        "space": found.embedding_space,
        "documents": found.index.documents,
        "latest": await repo.latest(),
        "sessions": [(r.id, r.goal, r.state, r.steps, r.updated_at) for r in await repo.sessions()],
    }


@pytest.fixture
def places(tmp_path: Path) -> Callable[[str], Iterable[str | Path]]:
    """Two stores of the kinds named, such as ``file-memory``."""

    def made(kinds: str) -> Iterable[str | Path]:
        return [
            "memory:" if kind == "memory" else tmp_path / f"{number}.db"
            for number, kind in enumerate(kinds.split("-"))
        ]

    return made


@pytest.mark.slow
@pytest.mark.parametrize("kinds", ["file-file", "memory-memory", "file-memory", "memory-file"])
async def test_a_repository_comes_back_the_same(places, kinds):
    """Into another store under another id: the same lines, and the same answers."""
    first, second = places(kinds)
    clock = ManualClock()
    async with service(first, clock) as here, service(second, clock) as there:
        await fill(here)
        lines = await lines_of(here)
        head = await there.import_repo("copy", lines)
        assert await lines_of(there, "copy") == lines
        assert (head.revision, head.counts["step"], head.counts["session"]) == (1, 7, 3)
        ours, theirs = await here.open_repo("r"), await there.open_repo("copy")
        assert await answers(theirs) == await answers(ours)
        assert (await there.check()).problems == ()


async def test_imported_sessions_go_on(places):
    """One that is ready commits its staged changeset, one that collects takes steps."""
    first, second = places("file-file")
    clock = ManualClock()
    async with service(first, clock) as here, service(second, clock) as there:
        await fill(here)
        await there.import_repo("r", await lines_of(here))
        repo = await there.open_repo("r")
        left = {record.id: record.state for record in await repo.unfinished_sessions()}
        assert left == {"r-ready": "ready", "r-collecting": "collecting"}
        ready = await repo.resume_session("r-ready")
        assert (await ready.commit()).status == "committed"
        collecting = await repo.resume_session("r-collecting")
        again = await collecting.append("The harbour is closed on Mondays.", "", key="harbour")
        assert again.index == 0
        assert (await collecting.append("It opens on Tuesdays.", "")).index == 1
        assert (await collecting.close_and_commit()).status == "committed"
        assert await repo.unfinished_sessions() == []
        found = await repo.recall("Who plays the cello?")
        assert "cello" in found.candidates[0].node.text


async def test_a_step_keeps_the_role_of_its_message(tmp_path):
    """Also of a message without an id; a step that was appended by hand has none."""
    clock = ManualClock()
    async with service(tmp_path / "a", clock) as here, service(tmp_path / "b", clock) as there:
        session = await (await here.open_repo("r")).start_session("talk", session_id="s")
        await session.append_messages([{"role": "user", "content": "Lea sails.", "name": "git"}])
        await session.append("Bo rows.", "")
        await here.close_repo("r")
        await there.import_repo("r", await lines_of(here))
        resumed = await (await there.open_repo("r")).resume_session("s")
        assert [step.role for step in resumed.recent_steps(2)] == ["user", None]


async def test_lines_are_ascii_json_after_a_head(tmp_path):
    """The head names format and version; nothing names the repository."""
    async with service(tmp_path / "a.db", ManualClock()) as memory:
        repo = await memory.open_repo("secret name")
        await repo.apply(Changeset(nodes=(Semantic("The pier is closed."),)))
        lines = await lines_of(memory, "secret name")
    head = json.loads(lines[0])
    assert (head["format"], head["version"]) == ("mnemo-archive", 1)
    assert all(line.isascii() and line.endswith("\n") and line.count("\n") == 1 for line in lines)
    assert {json.loads(line)["kind"] for line in lines[1:]} <= set(head["counts"])
    assert "secret name" not in "".join(lines)


@pytest.mark.parametrize("form", ["list", "generator", "file", "asynchronous"])
async def test_lines_come_in_many_forms(tmp_path, form):
    """Any iterable, asynchronous or not; an open file too."""
    clock = ManualClock()
    async with service("memory:", clock) as here, service("memory:", clock) as there:
        await fill(here)
        lines = await lines_of(here)

        async def one_by_one() -> AsyncIterator[str]:
            for line in lines:
                await anyio.lowlevel.checkpoint()
                yield line.removesuffix("\n")

        file = tmp_path / "r.jsonl"
        file.write_text("".join(lines), encoding="ascii")
        with file.open(encoding="ascii") as opened:
            forms = {
                "list": lines,
                "generator": (line for line in lines),
                "file": opened,
                "asynchronous": one_by_one(),
            }
            await there.import_repo("r", forms[form])
        assert await lines_of(there) == lines


async def test_one_text_is_no_lines(tmp_path):
    """Its characters would be taken for lines."""
    async with service("memory:", ManualClock()) as memory:
        with pytest.raises(ValueError, match="one line after the other"):
            await memory.import_repo("r", "{}\n{}\n")


async def test_an_unknown_repository_is_not_found():
    """A mistyped name must not give an empty backup; an open one may be empty."""
    async with service("memory:", ManualClock()) as memory:
        with pytest.raises(NotFound):
            await lines_of(memory, "nope")
        await memory.open_repo("new")
        assert len(await lines_of(memory, "new")) == 1
        with pytest.raises(ValueError, match="repo_id"):
            memory.export_repo(" ")


async def test_an_import_wants_a_closed_and_empty_repository(tmp_path):
    """Open: RepositoryAlreadyOpen; filled: UsageError. Another of the store takes the same ids."""
    async with service(tmp_path / "a.db", ManualClock()) as memory:
        await fill(memory)
        lines = await lines_of(memory)
        with pytest.raises(UsageError, match="not empty"):
            await memory.import_repo("r", lines)
        await memory.import_repo("copy", lines)
        assert await lines_of(memory, "copy") == lines
        await memory.open_repo("r")
        with pytest.raises(RepositoryAlreadyOpen):
            await memory.import_repo("r", lines)
        assert (await memory.check()).problems == ()


async def test_an_import_whose_answer_was_lost_is_made_again(tmp_path):
    """With *exist_ok* a repository that holds just that is left as it is; any other is refused."""
    async with service(tmp_path / "a.db", ManualClock()) as memory:
        await fill(memory)
        lines = await lines_of(memory)
        for _ in range(2):
            head = await memory.import_repo("copy", lines, exist_ok=True)
            assert (head.revision, head.counts["step"]) == (json.loads(lines[0])["revision"], 7)
        await memory.open_repo("copy")
        assert await memory.import_repo("copy", (line.rstrip() for line in lines), exist_ok=True)
        changed = lines[-1].replace('"', " ", 1)
        for other in (lines[:-1], [*lines, lines[-1]], [*lines[:-1], changed], [*lines[:-1], 1]):
            with pytest.raises(UsageError, match="not empty"):
                await memory.import_repo("copy", other, exist_ok=True)
        assert await lines_of(memory, "copy") == lines


@pytest.mark.parametrize("form", ["plain", "asynchronous"])
async def test_few_long_lines_are_held_at_once(form):
    """Pages are bounded by their size, too."""
    read = 0

    def endless() -> Iterable[str]:
        nonlocal read
        while True:
            read += 1
            yield " " * 2**20

    async def arriving() -> AsyncIterator[str]:
        for line in endless():
            yield line

    async with service("memory:", ManualClock()) as memory:
        with pytest.raises(InvalidArchive, match="line 1: not JSON"):
            await memory.import_repo("r", endless() if form == "plain" else arriving())
    assert read < 10


async def test_a_repository_is_not_opened_while_it_is_imported():
    """Whoever tries is told; afterwards it opens."""
    clock = ManualClock()
    async with service("memory:", clock) as here, service("memory:", clock) as there:
        await fill(here)
        lines = await lines_of(here)

        async def interrupted() -> AsyncIterator[str]:
            for number, line in enumerate(lines):
                if number == 3:
                    with pytest.raises(RepositoryAlreadyOpen):
                        await there.open_repo("r")
                yield line

        await there.import_repo("r", interrupted())
        await there.open_repo("r")


async def test_what_was_forgotten_is_not_exported(tmp_path):
    """Not one word of a forgotten session is in the lines."""
    async with service(tmp_path / "a.db", ManualClock()) as memory:
        await fill(memory)
        repo = await memory.open_repo("r")
        await repo.forget(session_id="r-ready")
        text = "".join(await lines_of(memory))
    assert "peanuts" in text
    assert "cello" not in text
    assert "r-ready" not in text


async def test_a_broken_line_leaves_the_store_as_it_was(tmp_path):
    """The error names the line and the reason; other repositories did not notice."""
    async with service(tmp_path / "a.db", ManualClock()) as memory:
        await fill(memory)
        lines = await lines_of(memory)
        broken = [*lines[:9], lines[9][:40] + "\n", *lines[10:]]
        with pytest.raises(InvalidArchive, match="line 10: not JSON") as raised:
            await memory.import_repo("copy", broken)
        assert (raised.value.line, raised.value.reason[:8]) == (10, "not JSON")
        with pytest.raises(NotFound):
            await lines_of(memory, "copy")
        assert await lines_of(memory) == lines
        assert (await memory.check()).problems == ()


async def test_lines_are_read_as_they_are_needed():
    """Of an endless source no more than some pages, until a line is broken."""
    clock, read = ManualClock(), 0
    async with service("memory:", clock) as here, service("memory:", clock) as there:
        await fill(here)
        lines = await lines_of(here)

        def endless() -> Iterable[str]:
            nonlocal read
            yield from lines
            while True:
                read += 1
                yield "once more"

        with pytest.raises(InvalidArchive) as raised:
            await there.import_repo("r", endless())
    assert raised.value.line == len(lines) + 1
    assert read < 2_000


@pytest.mark.parametrize("kind", ["memory", "file"])
async def test_closing_the_service_ends_an_import(places, kind):
    """StoreError, and nothing of it is there."""
    (store,) = places(kind)
    clock = ManualClock()
    async with service("memory:", clock) as here:
        await fill(here)
        lines = await lines_of(here)
    async with service(store, clock) as there:

        async def interrupted() -> AsyncIterator[str]:
            for line in lines[:5]:
                yield line
            await there.aclose()
            for line in lines[5:]:
                yield line

        with pytest.raises(StoreError, match=r"closed|not open"):
            await there.import_repo("r", interrupted())
    if kind == "file":
        async with service(store, clock) as again:
            await again.import_repo("r", lines)
            assert (await again.check()).problems == ()


async def test_a_closed_service_neither_exports_nor_imports():
    """UsageError, as of every other call."""
    memory = Mnemo("memory:", embedder=HashingEmbedder())
    await memory.open()
    await memory.aclose()
    with pytest.raises(UsageError, match="closed"):
        memory.export_repo("r")
    with pytest.raises(UsageError, match="closed"):
        await memory.import_repo("r", [])
