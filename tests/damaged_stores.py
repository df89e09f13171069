"""A store with a row in every table, ways to damage it, and every public call on it."""

import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from contracts.archive import filled
from contracts.archive_notes import noted
from contracts.archive_talk import talk
from contracts.checkpoints import checkpointed
from helpers import committed
from world import NOON, SPACE, Kit, opened

from mnemo import Mnemo
from mnemo.items.item_rows import ItemWriter
from mnemo.log.transcript import TranscriptWriter
from mnemo.recall.recall_log import Logged
from mnemo.repository.repository import Repository
from mnemo.testing import ManualClock
from mnemo.values.checkpoints import CheckpointHead
from mnemo.values.graph import Edge, EdgeKind, Episodic, Semantic
from mnemo.values.items import Item
from mnemo.values.jobs import Job, JobState
from mnemo.values.recalls import RecallRecord

TEXTS = {
    "blob": "x'ff00fe'",
    "no UTF-8": "CAST(x'c328ff' AS TEXT)",
    "other text": "'garbage'",
    "cut JSON": "'{\"a\": [1'",
    "other JSON": "'[null, 5]'",
}
NUMBERS = {"text": "'seven'", "blob": "x'00'"}
BLOBS = {"short": "x'00'", "cut": "substr({column}, 1, length({column}) / 2)", "text": "'seven'"}
KINDS = {"TEXT": TEXTS, "INTEGER": NUMBERS, "REAL": NUMBERS, "FLOAT": NUMBERS, "BLOB": BLOBS}
"""Declared type of a column → kind of damage → the SQL of the damaged value."""


class ContractEmbedder:
    """Vectors of the space of the contracts."""

    space = SPACE

    async def embed(self, texts: Sequence[str], *, kind: str = "document") -> Any:
        """Vectors that depend on the length of each text alone."""
        rows = np.array([[len(t) + 1, 1, 2, 3] for t in texts], np.float32).reshape(-1, 4)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def service(place: Path | str) -> Mnemo:
    """A service that is not open yet, of the contracts' time and space."""
    return Mnemo(place, embedder=ContractEmbedder(), clock=ManualClock(NOON))


async def make_store(path: Path) -> None:
    """A store in a file, as ``fill`` makes it, with owners that are elsewhere."""
    async with opened(path, ManualClock(NOON)) as kit:
        await fill(kit)
        await kit.store.release(kit.owner)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO owners VALUES ('gone', 'elsewhere', 1, 1, 0.0)")
        connection.execute("INSERT INTO owners VALUES ('alive', 'elsewhere', 1, 1, 1e12)")
        connection.execute("UPDATE sessions SET owner = 'gone' WHERE id = 'w'")
        connection.commit()


async def fill(kit: Kit) -> None:
    """Repository ``r`` with a row in every table, and an independent session in it and in ``q``."""
    store = kit.store
    await filled(kit)
    await store.transcript("r").writing(talk)
    await store.notes("r").writing(noted)
    await store.checkpoints("r").writing(checkpointed)
    await store.items("r").writing(keep_item)
    await store.recalls("r").add([Logged(ASKED, 0, 2**60)], 10)
    await store.overhaul("r").begin_move(SPACE)
    key = {"f1": (b"d", np.ones(4, np.float32) / 2)}
    await store.overhaul("r").stage(SPACE, key)
    for repo in ("r", "q"):
        await independent(kit, repo)
    await store.transcript("r").writing(put_jobs)


ASKED = RecallRecord(
    at=NOON,
    query="Who plays?",
    arguments={"k": 3},
    candidates=({"id": "nobody", "type": "semantic", "score": 0.5, "text": "The violin plays"},),
    text="- The violin plays [1]",
    milliseconds=1.5,
    caller="a token",
)
"""A recall that nothing erased here is in."""


def keep_item(tx: ItemWriter) -> None:
    """An item with a vector, which expires long after anything here."""
    item = Item(
        namespace=("plans",),
        key="next",
        texts=(("text", "sail to the pier"),),
        created_at=NOON,
        updated_at=NOON,
        ttl_s=9e8,
        expires_at=NOON + timedelta(seconds=9e8),
        value={"text": "sail to the pier"},
    )
    tx.put(item, [np.ones(4, np.float32) / 2], SPACE)


def put_jobs(tx: TranscriptWriter) -> None:
    """A job in every state, none of which is claimed here: due later, or claimed elsewhere."""
    later = NOON + timedelta(days=9_000)
    for subject, state in zip(("t", "T", "far", "past"), JobState, strict=True):
        owner = "alive" if state is JobState.RUNNING else None
        tx.put_job(
            Job(
                kind="extract",
                subject=subject,
                due_at=later,
                state=state,
                tries=1,
                token=2,
                owner=owner,
                error="the model was away",
            )
        )


async def independent(kit: Kit, repo: str) -> None:
    """A session that shares nothing with the others, and the fact that stems from it."""
    session = f"other-{repo}"
    await kit.start(session, repo=repo)
    await kit.append("the harbour light", "looked", session=session, node_id=f"e-{repo}", repo=repo)
    await kit.close(session, repo=repo)
    await kit.discard(session, repo=repo)
    place = {"session_id": session, "episode_id": f"{session}-1"}
    await kit.apply(
        Episodic("the harbour light", "looked", id=f"e-{repo}", at=NOON, created_at=NOON, **place),
        Semantic("The light is green", id=f"f-{repo}", created_at=NOON),
        id=f"of {session}",
        edges=[Edge(f"f-{repo}", f"e-{repo}", EdgeKind.PROVENANCE)],
        repo=repo,
    )


def damage(path: Path, table: str, column: str, value: str, *, every: bool = False) -> bool:
    """Put *value* into a column of the table's first row, or of all; whether it could be done."""
    value = value.format(column=column) if "{column}" in value else value
    condition = "" if every else f" AND {_first(path, table, column)}"
    with closing(sqlite3.connect(path)) as connection:
        statement = f"UPDATE {table} SET {column} = {value} WHERE {column} IS NOT NULL{condition}"
        try:
            changed = connection.execute(statement).rowcount
        except sqlite3.IntegrityError:
            return False
        connection.commit()
    return changed > 0


def _first(path: Path, table: str, column: str) -> str:
    with closing(sqlite3.connect(path)) as connection:
        keys = connection.execute(
            "SELECT name FROM pragma_table_info(?) WHERE pk ORDER BY pk", (table,)
        )
        names = ", ".join(name for (name,) in keys)
    return (
        f"({names}) = (SELECT {names} FROM {table} WHERE {column} IS NOT NULL "
        f"ORDER BY {names} LIMIT 1)"
    )


Call = tuple[str, Callable[[], Awaitable[Any]]]


def reads(repo: Repository) -> Iterator[Call]:
    """Every public read of a repository."""
    types = ("episodic", "semantic", "procedural", "subgoal", "intent", "tag", "source")
    ids = ["f1", "f2", "n1", "p", "g", "i", "t", "o", "f-r"]
    for type in types:
        yield f"get_nodes {type}", lambda type=type: repo.get_nodes([type])
    yield "get_metadata", lambda: repo.get_metadata(ids)
    yield "get_edges", lambda: repo.get_edges(ids)
    yield "get_linked_nodes", lambda: repo.get_linked_nodes(["f1", "n1"])
    yield "latest", lambda: repo.latest(5)
    yield "statistics", repo.statistics
    yield "search", lambda: repo.search("tea")
    yield "search three", lambda: repo.search("お茶")
    yield "recall", lambda: repo.recall("who likes tea?")
    yield "recall_in_context", lambda: repo.recall_in_context("s", "who likes tea?")
    for id in ("n1/action", "m0", "m1", "s1"):
        yield f"view {id}", lambda id=id: repo.view(id)
    yield "sessions", repo.sessions
    yield "unfinished_sessions", repo.unfinished_sessions
    yield "threads", repo.threads
    for thread in ("t", "T"):
        talk = repo.conversation(thread)
        yield f"load {thread}", talk.load
        yield f"look {thread}", lambda talk=talk: talk.look(500)
        yield f"goals {thread}", lambda talk=talk: talk.goals.list()
        yield f"pins {thread}", lambda talk=talk: talk.pins.list()
        yield f"snapshots {thread}", lambda talk=talk: talk.snapshots.list()
    notes = repo.notes
    yield "notes list", notes.list
    yield "notes read", lambda: notes.read("trips")
    yield "notes history", lambda: notes.history("trips")
    yield "notes recall", lambda: notes.recall("ramen")
    yield "notes overview", notes.overview
    yield "notes statistics", notes.statistics
    checkpoints = repo.checkpoints
    yield "checkpoints get", lambda: checkpoints.get("t", "", "2")
    yield "checkpoints list", lambda: checkpoints.list(metadata={"step": 1})
    yield "checkpoints history", lambda: checkpoints.history("t", channels=["log"])


def writes(repo: Repository) -> Iterator[Call]:
    """Public writes of a repository that others' damage must not stop."""
    yield "consolidate", repo.consolidate
    yield "decay", lambda: repo.decay(threshold=0.5)
    yield "validate", repo.validate
    yield "append", lambda: repo.conversation("new").append({"role": "user", "content": "hi"})
    yield "append old", lambda: repo.conversation("t").append({"role": "user", "content": "hi"})
    yield "remember", lambda: repo.remember("I sail.", thread_id="fresh", wait=True)
    yield "remember old", lambda: repo.remember("I sail.", thread_id="t")
    yield "write note", lambda: repo.notes.write("fresh", "- a line", description="d")
    new = CheckpointHead(thread_id="new", id="1", type="json", data=b"{}")
    yield "put checkpoint", lambda: repo.checkpoints.put(new, {})
    child = replace(new, thread_id="t", id="9", parent_id="2")
    yield "put child", lambda: repo.checkpoints.put(child, {})
    yield "delete runs", lambda: repo.checkpoints.delete_runs(["run"])
    yield "prune", lambda: repo.checkpoints.prune(["t"])
    yield "new session", lambda: whole_session(repo)
    for id in ("s", "t", "u", "v", "w"):
        yield f"resume {id}", lambda id=id: resumed(repo, id)


async def whole_session(repo: Repository) -> None:
    """An episode from start to commit."""
    session = await committed(repo, "I live in Porto.", "", goal="plan the journey")
    await session.aclose()


async def resumed(repo: Repository, id: str) -> None:
    session = await repo.resume_session(id)
    await session.aclose()


def erasures(repo: Repository) -> Iterator[Call]:
    """Forgetting, narrow to broad."""
    yield "forget other", lambda: repo.forget(session_id="other-r")
    yield "forget before", lambda: repo.forget(before=NOON)
    yield "forget s", lambda: repo.forget(session_id="s")
    yield "forget thread", lambda: repo.forget(thread_id="t")


def more_reads(repo: Repository) -> Iterator[Call]:
    """What else is read of a repository."""
    yield "memories", repo.memories
    yield "history", lambda: repo.history("f1")
    yield "memories within", lambda: repo.memories(thread_id="t", actor="Ana", since=NOON)
    yield "memories of words", lambda: repo.memories(words="green tea")
    yield "memory", lambda: repo.memory("f1")
    yield "would be forgotten", lambda: repo.forget(session_id="s", dry_run=True)
    yield "changes", repo.changes
    yield "search within", lambda: repo.search("tea", thread_id="t", actor="Ana")
    yield "recall within", lambda: repo.recall("who likes tea?", thread_id="t", since=NOON)
    yield "is idle", repo.is_idle
    yield "recalls", repo.recalls
    talk = repo.conversation("t")
    yield "history", talk.history
    yield "recent", lambda: talk.recent(3)
    yield "compactions", lambda: talk.compactions(include_superseded=True)
    yield "outcomes", talk.snapshots.outcomes
    yield "items", lambda: repo.items.search(("plans",))
    yield "items near", lambda: repo.items.search(query="the pier")
    yield "item", lambda: repo.items.get(("plans",), "next")
    yield "namespaces", repo.items.list_namespaces
    inspection = repo.inspection
    yield "written", inspection.changes
    yield "session", lambda: inspection.session("s")
    yield "jobs", inspection.jobs
    yield "names", inspection.names
    yield "named", lambda: inspection.named("Ana")


def more_writes(repo: Repository) -> Iterator[Call]:
    """What else is written to a repository."""
    yield "add memory", lambda: repo.add_memory("Ana likes green tea.", tags=["tea"])
    yield "delete nodes", lambda: repo.delete_nodes(["f2"])
    yield "compact", lambda: repo.conversation("T").compact(3, 3, "They met.")
    yield "withdraw", repo.conversation("T").withdraw
    yield "clear", repo.conversation("T").clear
    yield "put item", lambda: repo.items.put(("plans",), "other", {"text": "row back"})
    yield "delete item", lambda: repo.items.delete(("plans",), "next")
    yield "sweep items", repo.items.sweep
    yield "delete note", lambda: repo.notes.delete("fresh")
    yield "purge note", lambda: repo.notes.purge("fresh")
    yield "copy checkpoints", lambda: repo.checkpoints.copy("t", "other")
    yield "restore note", lambda: repo.notes.restore("trips", 1)
    yield "delete checkpoints", lambda: repo.checkpoints.delete(["t"])
    yield "retry", repo.retry_jobs
    yield "cancel", lambda: repo.cancel_jobs(["t"])
    yield "settle", lambda: repo.settle(60)
