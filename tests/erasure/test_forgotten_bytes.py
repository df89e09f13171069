"""After ``forget`` no byte of the store's files holds a word of what was erased."""

import random
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from engines import rows_of as read
from helpers import Kit, OpenKit, repository

from mnemo import Changeset, Edge, Intent, Procedural, Repository, Semantic, Tag
from mnemo.prompts.annotate import NEW_STEPS
from mnemo.prompts.question import read_block
from mnemo.protocols import ChatRequest
from mnemo.store.sqlite import scrub
from mnemo.testing import ScriptedChatModel

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)


class Planted:
    """Words that occur nowhere else, by the kind of text that they were put into."""

    def __init__(self, seed: int = 0) -> None:
        self._chance = random.Random(seed)
        self.words: dict[str, str] = {}

    def __getitem__(self, kind: str) -> str:
        if kind not in self.words:
            letters = (self._chance.choice("bdfghjkmpqvwxz") for _ in range(14))
            self.words[kind] = "".join(letters)
        return self.words[kind]

    def found_in(self, folder: Path) -> dict[str, list[str]]:
        """Kind of text → the files that still hold its word, in whatever case."""
        raw = {path.name: path.read_bytes().lower() for path in folder.iterdir()}
        found = {
            kind: [name for name, content in raw.items() if word.encode() in content]
            for kind, word in self.words.items()
        }
        return {kind: names for kind, names in found.items() if names}


def annotating(planted: Planted) -> Any:
    """A script whose states and subgoals hold planted words for steps that hold one."""

    def answer(request: ChatRequest) -> dict[str, Any]:
        rows = read_block(request.messages[1].content, NEW_STEPS)
        theirs = [planted["observation"] in row["observation"] for row in rows]
        return {
            "steps": [
                {
                    "index": row["index"],
                    "state": f"seen {planted['state']}" if mine else "seen something",
                    "subgoal": f"look for {planted['subgoal']}" if mine else "look around",
                    "previous_reward": 0.5,
                }
                for row, mine in zip(rows, theirs, strict=True)
            ],
            "last_reward": 0.5,
        }

    return answer


async def plant(repo: Repository, planted: Planted, session_id: str, *, commit: bool) -> None:
    """A session with a planted word in every kind of text."""
    session = await repo.start_session(f"find {planted['goal']}", session_id=session_id)
    for number in range(3):
        await session.append(
            f"Saw the {planted['observation']} {number} times.",
            f"Counted the {planted['action']}",
            at=NOON + timedelta(minutes=number),
            actor=f"Ana {planted['actor']}",
            key=f"{planted['key']}-{number}",
            metadata={planted["metadata name"]: [planted["metadata"]]},
        )
    await session.close()
    await session.wait_for("ready")
    if commit:
        await session.commit()
        await apply_by_hand(repo, planted)


async def apply_by_hand(repo: Repository, planted: Planted) -> None:
    """Knowledge of every type that rests on the planted steps."""
    steps = [n.id for n in await repo.get_nodes(["episodic"]) if planted["action"] in n.text]
    fact = Semantic(f"There is a {planted['fact']}")
    rule = Procedural(
        f"Use the {planted['instruction']}",
        condition=f"At the {planted['condition']}",
        expected_outcome=f"It is {planted['outcome']}",
    )
    tag, intent = Tag(planted["tag"]), Intent(f"reach the {planted['intent']}")
    edges = [Edge(node.id, step, "provenance") for node in (fact, rule) for step in steps]
    edges += [Edge(tag.id, fact.id, "membership"), Edge(intent.id, rule.id, "hierarchical")]
    await repo.apply(Changeset(nodes=(fact, rule, tag, intent), edges=tuple(edges)))


def rows_of(path: Path, repo_id: str) -> dict[str, list[Any]]:
    """Every row that belongs to a repository, by table."""
    of_repo = {
        "repos": "SELECT * FROM repos WHERE no = ?",
        "texts": "SELECT * FROM texts WHERE repo = ?",
        "sessions": "SELECT * FROM sessions WHERE repo = ?",
        "steps": "SELECT * FROM steps WHERE repo = ?",
        "nodes": "SELECT * FROM nodes WHERE repo = ?",
        "node_keys": "SELECT * FROM node_keys WHERE repo = ?",
        "vectors": "SELECT * FROM vectors WHERE repo = ?",
        "removals": "SELECT * FROM removals WHERE repo = ?",
        "changesets": "SELECT * FROM changesets WHERE repo = ?",
        "episodes": "SELECT e.* FROM episodes e JOIN sessions s ON s.no = e.session "
        "WHERE s.repo = ?",
        "staged": "SELECT g.* FROM staged g JOIN episodes e ON e.no = g.episode "
        "JOIN sessions s ON s.no = e.session WHERE s.repo = ?",
        "edges": "SELECT e.* FROM edges e JOIN nodes n ON n.no = e.source WHERE n.repo = ?",
    }
    with closing(sqlite3.connect(path)) as file:
        (number,) = file.execute("SELECT no FROM repos WHERE id = ?", (repo_id,)).fetchone()
        return {table: sorted(file.execute(q, (number,)), key=repr) for table, q in of_repo.items()}


@pytest.fixture
def planted() -> Planted:
    """Nothing is planted yet."""
    return Planted()


@pytest.fixture
async def kit(open_kit: OpenKit, db: Path, planted: Planted) -> Kit:
    """A service over a file, whose model plants words in states and subgoals."""
    model = ScriptedChatModel.answering({"annotate": annotating(planted)})
    return await open_kit(store=db, model=model)


@pytest.mark.slow
@pytest.mark.parametrize("commit", [True, False], ids=["committed", "staged"])
async def test_no_byte_of_any_text_is_left(kit, planted, db, commit):
    """Every kind of text is gone from file and log, and still is after the close."""
    session = await kit.repo.start_session("something else", session_id="other")
    await session.append("The violin of Omar is in Leeds.", "Noted it")
    await session.close_and_commit()
    await plant(kit.repo, planted, "s", commit=commit)
    there = planted.found_in(db.parent)
    packed = set() if commit else {"fact", "tag", "instruction", "condition", "outcome", "intent"}
    assert there.keys() == planted.words.keys() - packed
    assert len(there) >= 9
    report = await kit.repo.forget(session_id="s")
    assert report.scrubbed
    assert planted.found_in(db.parent) == {}
    assert (await kit.memory.check()).problems == ()
    await kit.memory.aclose()
    assert planted.found_in(db.parent) == {}
    assert [path.name for path in db.parent.iterdir()] == [db.name]
    async with repository(db, "r") as repo:
        assert await repo.search("violin")
        assert not await repo.search(planted["observation"])


async def test_the_part_before_a_time_leaves_no_byte(kit, planted, db):
    """What remains of the episode keeps no state or subgoal that was worded by the rest."""
    session = await kit.started("look around", session_id="s")
    await session.append(f"A {planted['observation']} came by.", "Waved", at=NOON)
    await session.append("Then nothing.", "Waited", at=NOON + timedelta(days=1))
    await session.close_and_commit()
    assert planted.found_in(db.parent).keys() == planted.words.keys()
    report = await kit.repo.forget(before=NOON + timedelta(hours=1))
    assert report.steps == 1
    assert planted.found_in(db.parent) == {}
    assert await kit.repo.search("waited")


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))]
)
@pytest.mark.parametrize("how", ["idle", "asked", "closed"])
async def test_a_large_file_is_rewritten_when_it_is_idle_asked_for_or_closed(
    kit, db, seed, how, monkeypatch
):
    """Rows that grew were moved between pages; no copy of them outlives the rewriting."""
    monkeypatch.setattr(scrub, "REWRITTEN_AT_ONCE_BYTES", 0)
    planted, chance = Planted(seed + 10), random.Random(seed)
    for number in range(12):
        session = await kit.started(f"goal {planted[f'goal {number}']}", session_id=f"s{number}")
        for step in range(8):
            word = planted[f"step {number} {step}"]
            text = " ".join([word, *(["walks"] * chance.randint(1, 200)), word])
            await session.append(text, f"met {word}")
        await session.close_and_commit()
    for number in range(0, 12, 2):
        assert not (await kit.repo.forget(session_id=f"s{number}")).scrubbed
    await rewritten(kit, db, how)
    gone = {kind for kind in planted.words if int(kind.split()[1]) % 2 == 0}
    assert planted.found_in(db.parent).keys() == planted.words.keys() - gone


async def rewritten(kit: Kit, db: Path, how: str) -> None:
    """Let the file be rewritten in one of the ways that there are."""
    if how == "closed":
        await kit.memory.aclose()
    elif how == "asked":
        assert await kit.memory.scrub()
    else:
        with anyio.fail_after(120):
            while is_noted(db):
                await kit.clock.advance(scrub.IDLE_S)
                await anyio.sleep(0.02)


def is_noted(db: Path) -> bool:
    """Whether the file says that a scrub is due."""
    return bool(read(db, "SELECT 1 FROM meta WHERE name = 'scrub'"))


@pytest.mark.parametrize("whose", ["own", "of another service"])
async def test_a_write_defers_the_rewriting_of_a_large_file(kit, planted, db, whose, monkeypatch):
    """The five seconds begin anew with each write, of any process: it would wait for long."""
    monkeypatch.setattr(scrub, "REWRITTEN_AT_ONCE_BYTES", 0)
    begun: list[float] = []
    monkeypatch.setattr(scrub, "_rewrite", lambda _: begun.append(kit.clock.monotonic()))
    await plant(kit.repo, planted, "s", commit=True)
    async with repository(db, "other") as other:
        await kit.repo.forget(session_id="s")
        start = kit.clock.monotonic()
        for _ in range(3):
            await kit.clock.advance(scrub.IDLE_S - 1)
            writer = kit.repo if whose == "own" else other
            await writer.conversation("t").append({"role": "user", "content": "hi"})
            await kit.clock.advance(1)
        assert not begun
        with anyio.fail_after(120):
            while not begun:
                await kit.clock.advance(scrub.IDLE_S)
                await anyio.sleep(0.02)
        assert begun[0] >= start + 4 * scrub.IDLE_S


async def test_a_backup_of_a_store_in_memory_holds_nothing_forgotten(open_kit, planted, tmp_path):
    """Also of texts that are in the index."""
    kit = await open_kit()
    session = await kit.started("look around", session_id="s")
    await session.append(f"A {planted['observation']} came by.", f"Met {planted['action']}")
    other = await kit.started("look on", session_id="other")
    for number in range(140):
        await other.append(f"Saw kettle {number}", "Waved")
    assert (await kit.repo.forget(session_id="s")).scrubbed
    await kit.memory.backup(tmp_path / "backup.db")
    assert planted.found_in(tmp_path) == {}


async def test_asking_for_a_scrub_of_a_clean_store_does_nothing(kit, monkeypatch):
    """Nothing was erased: nothing is left, and the file is not rewritten."""
    begun: list[object] = []
    monkeypatch.setattr(scrub, "_rewrite", begun.append)
    assert await kit.memory.scrub()
    assert not begun


async def test_a_reader_of_another_connection_delays_the_scrubbing(kit, planted, db, monkeypatch):
    """Nothing is found through mnemo, ``scrubbed`` is False, and the close does the rest."""
    monkeypatch.setattr(scrub, "_PAUSE_S", 0.0)
    monkeypatch.setattr(scrub, "_PATIENCE_MS", 1)
    await plant(kit.repo, planted, "s", commit=True)
    reader = sqlite3.connect(db, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM steps").fetchone()
    report = await kit.repo.forget(session_id="s")
    assert not report.scrubbed
    assert not await kit.repo.search(planted["observation"])
    assert planted.found_in(db.parent)
    reader.execute("ROLLBACK")
    reader.close()
    await kit.memory.aclose()
    assert planted.found_in(db.parent) == {}


async def test_a_later_call_finishes_what_a_reader_had_delayed(kit, planted, db, monkeypatch):
    """Forgetting the same again counts zeros, and scrubs."""
    monkeypatch.setattr(scrub, "_PAUSE_S", 0.0)
    monkeypatch.setattr(scrub, "_PATIENCE_MS", 1)
    await plant(kit.repo, planted, "s", commit=True)
    with closing(sqlite3.connect(db, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM steps").fetchone()
        assert not (await kit.repo.forget(session_id="s")).scrubbed
    again = await kit.repo.forget(session_id="s")
    assert (again.steps, again.scrubbed) == (0, True)
    assert planted.found_in(db.parent) == {}


async def test_a_copy_that_a_migration_made_goes_too(kit, planted, db):
    """It holds the text as well."""
    await plant(kit.repo, planted, "s", commit=True)
    copy = db.with_name(f"{db.name}.v5.bak")
    with closing(sqlite3.connect(db)) as file, closing(sqlite3.connect(copy)) as beside:
        file.backup(beside)
    assert (await kit.repo.forget(session_id="s")).scrubbed
    assert planted.found_in(db.parent) == {}
    assert not copy.exists()


async def test_other_repositories_stay_byte_for_byte(kit, planted, db):
    """The same words in two repositories of one file; forgetting in one is felt in one."""
    twin = await kit.memory.open_repo("twin")
    await plant(kit.repo, planted, "s", commit=True)
    await plant(twin, planted, "s of twin", commit=True)
    await plant(twin, Planted(7), "staged in twin", commit=False)
    await twin.recall("warm up")
    while (await twin.statistics()).index.waiting:
        await twin._parts.index.embed_waiting()  # type: ignore[attr-defined]
    before = rows_of(db, "twin")
    assert all(before[table] for table in before.keys() - {"removals", "staged"})
    await kit.repo.forget(session_id="s")
    await kit.repo.forget(before=NOON + timedelta(days=365))
    assert rows_of(db, "twin") == before
    assert await twin.search(planted["observation"])
    assert (await kit.repo.forget(session_id="s of twin")).is_empty
