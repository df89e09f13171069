"""Repositories of one store: each is as if it were alone, whatever is done to the others."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from engines import emptied
from helpers import examples, lines_of
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from mnemo import Changeset, Config, Edge, EdgeKind, Mnemo, NotFound, Repository, Semantic, Tag
from mnemo.events import Event
from mnemo.repository.conversation import Conversation
from mnemo.testing import HashingEmbedder, ManualClock, RecordingObserver
from mnemo.values.strategies import Recent

ODD_IDS = ("a", "a%' --/", "A", "a_", "%", "a\u0301 ", "a' OR '1'='1")
TEXTS = ("My sister lives in Osaka.", "I drink green tea.", "The pier is closed on Mondays.")
BY_HAND = {f"{kind}-{number}" for kind in ("tag", "fact") for number in range(len(TEXTS))}
"""Ids that changesets give in all repositories alike."""
QUERIES = ("Where does the sister live?", "tea", "pier Mondays")
# A recall must not change what the next one is compared with.
CONFIG = Config(recall={"record_access": False})

THREAD = "talk"
"""The one thread of every repository: its id says nothing of whose it is."""
WINDOW = 150
"""Tokens that a viewport shows; a few tellings are more."""

OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("say", "say", "commit", "apply", "delete", "forget", "maintain"),
                *(
                    "tell",
                    "tell",
                    "tell",
                    "tell",
                    "tell",
                    "watch",
                    "compact",
                    "compact",
                    "begin_anew",
                ),
            ]
        ),
        st.integers(0, 2),
        st.sampled_from(TEXTS),
    ),
    min_size=4,
    max_size=12,
)


@dataclass
class Tenant:
    """One repository, in company or alone, and what is done to it."""

    memory: Mnemo
    repo: Repository
    heard: RecordingObserver
    open_ids: list[str] = field(default_factory=list)
    started: int = 0
    done: Counter[str] = field(default_factory=Counter)

    async def act(self, operation: str, text: str) -> None:
        """Do it; the same to each of two tenants leads to the same."""
        self.done[operation] += 1
        await getattr(self, operation)(text)
        await self.at_rest()

    async def say(self, text: str) -> None:
        """In a session whose id every repository has, or will have, too."""
        if not self.open_ids:
            self.started += 1
            session = await self.repo.start_session("Small talk", session_id=f"s{self.started}")
            self.open_ids.append(session.id)
        session = self.memory.session(self.open_ids[-1], repo_id=self.repo.id)
        await session.append(text, "Noted", key=f"k{self.done['say']}")

    async def commit(self, text: str) -> None:
        if self.open_ids:
            session = self.memory.session(self.open_ids.pop(), repo_id=self.repo.id)
            await session.close_and_commit()

    async def apply(self, text: str) -> None:
        """The same changeset, with the same ids, wherever it is applied."""
        number = TEXTS.index(text)
        tag, fact = Tag("harbour", id=f"tag-{number}"), Semantic(text, id=f"fact-{number}")
        edge = Edge(tag.id, fact.id, EdgeKind.MEMBERSHIP)
        await self.repo.apply(Changeset((tag, fact), (edge,), id=f"by hand {number}"))

    async def delete(self, text: str) -> None:
        facts = await self.repo.get_nodes(["semantic", "tag"])
        await self.repo.delete_nodes(
            [node.id for node in facts if node.type == "tag" or node.text == text]
        )

    async def forget(self, text: str) -> None:
        records = await self.repo.sessions()
        for record in records[:1]:
            self.open_ids = [id for id in self.open_ids if id != record.id]
            await self.repo.forget(session_id=record.id)

    async def maintain(self, text: str) -> None:
        await self.repo.validate()
        await self.repo.decay()

    @property
    def talk(self) -> Conversation:
        return self.repo.conversation(THREAD, retrieval=Recent(2))

    async def tell(self, text: str) -> None:
        """Messages with and without an id of their own."""
        number = self.done["tell"]
        named = {"role": "user", "content": text, "id": f"m{number}"}
        other = {"role": "assistant", "content": f"{text} {'So it is. ' * 12}"}
        await self.talk.append([named, other])

    async def watch(self, text: str) -> None:
        """Show a window that is too small for long; what leaves it is summarised."""
        await self.talk.viewport(WINDOW).render()

    async def compact(self, text: str) -> None:
        records, last = await self.talk.compactions(), await self.talk.next_seq() - 1
        history = await self.talk.history()
        if history and last >= 0 and (not records or records[-1].end_seq < last):
            with suppress(ValueError):  # cleared: all of it lies in an earlier epoch
                await self.talk.compact(last, last, f"Once more: {text}")

    async def begin_anew(self, text: str) -> None:
        await (self.talk.clear() if TEXTS.index(text) else self.talk.purge())

    async def at_rest(self) -> None:
        """Wait until nothing is in flight and every text has its vector."""
        await self.talk.settle(timeout_s=10)
        with anyio.fail_after(120):
            while True:
                await self.repo._parts.index.catch_up()
                found = await self.repo.statistics()
                if not (found.append_backlog or found.index.waiting):
                    return
                await anyio.sleep(0.001)

    async def archive(self) -> list[str]:
        """Everything it holds."""
        return await lines_of(self.memory, self.repo.id)

    def events(self) -> list[Event]:
        """Those that name its repository."""
        return [event for event in self.heard.events if event.repo_id == self.repo.id]

    async def view(self) -> dict[str, Any]:
        """What it says of itself, by text: ids differ between any two."""
        # The window makes room as it is looked at; what comes of that is seen as well.
        await self.watch("")
        await self.at_rest()
        nodes = await self.repo.get_nodes(["semantic", "procedural", "episodic", "tag", "intent"])
        found = await self.repo.statistics()
        return {
            "nodes": sorted((node.type, node.text) for node in nodes),
            "latest": sorted(node.text for node, _ in await self.repo.latest(100)),
            "counts": (found.nodes, found.edges, found.steps, found.vectors, found.revision),
            "documents": found.index.documents,
            "sessions": [(r.id, r.goal, r.state, r.steps) for r in await self.repo.sessions()],
            "recall": [await self._recalled(query) for query in QUERIES],
            "search": [await self._searched(query) for query in ("sister", "tea", "pier")],
            "talk": await self._talked(),
            "events": Counter(type(event).__name__ for event in self.events()),
            "lines": Counter(json.loads(line).get("kind") for line in await self.archive()),
        }

    async def _recalled(self, query: str) -> Any:
        result = await self.repo.recall(query, k=50)
        found = [
            (c.node.type, c.node.text, round(c.score, 9), sorted(s.text for s in c.sources))
            for c in result.candidates
        ]
        return sorted(found), sorted(result.tags)

    async def _searched(self, query: str) -> Any:
        """Scores too: how rare a word is, is a matter of one repository alone."""
        hits = await self.repo.search(query, limit=100)
        return sorted((hit.kind, hit.snippet, round(hit.score, 9)) for hit in hits)

    async def _talked(self) -> Any:
        row = await self.repo._parts.transcript.reading(lambda tx: tx.thread(THREAD))
        window = await self.talk.viewport(WINDOW).render()
        return {
            "row": row,
            "loaded": [message.text for message in await self.talk.load()],
            "history": [(m.seq, m.text) for m in await self.talk.history()],
            "snapshots": [(s.from_seq, s.to_seq, s.text) for s in await self.talk.snapshots.list()],
            "window": [message.content for message in window.messages],
        }


async def tenant(memory: Mnemo, repo_id: str, heard: RecordingObserver) -> Tenant:
    """Moves in."""
    return Tenant(memory, await memory.open_repo(repo_id), heard)


async def lives(store: str | Path, ids: list[str], operations: list[Any]) -> None:
    """Three in one store, and each of them alone beside; the same is done to both."""
    async with AsyncExitStack() as stack:

        async def house(place: str | Path) -> tuple[Mnemo, RecordingObserver]:
            memory = Mnemo(place, config=CONFIG, embedder=HashingEmbedder(), clock=ManualClock())
            await stack.enter_async_context(memory)
            heard = RecordingObserver()
            memory.subscribe(heard)
            return memory, heard

        shared = await house(store)
        together = [await tenant(shared[0], id, shared[1]) for id in ids]
        houses = [await house("memory:") for _ in ids]
        alone = [await tenant(memory, "alone", heard) for memory, heard in houses]
        for operation, which, text in operations:
            others = [other for other in together if other is not together[which]]
            before = [await other.archive() for other in others]
            await together[which].act(operation, text)
            await alone[which].act(operation, text)
            assert [await other.archive() for other in others] == before
        for one, twin in zip(together, alone, strict=True):
            assert await one.view() == await twin.view()
        assert {event.repo_id for event in shared[1].events} <= set(ids)
        await strangers(together)
        assert (await shared[0].check()).problems == ()


async def strangers(together: list[Tenant]) -> None:
    """An id of another repository is unknown, in every call that takes one."""
    for one in together:
        mine = {node.id for node in await one.repo.get_nodes(["episodic", "semantic", "tag"])}
        for other in together:
            nodes = await other.repo.get_nodes(["episodic", "semantic", "tag"])
            ids = [node.id for node in nodes if node.id not in mine]
            if one is other or not ids:
                continue
            assert [await one.repo.get_node(id) for id in ids] == [None] * len(ids)
            assert await one.repo.get_metadata(ids) == {}
            assert await one.repo.get_edges(ids) == []
            assert await one.repo.get_linked_nodes(ids) == []
            assert await one.repo.delete_nodes(ids) == 0
            assert await other.repo.get_nodes(["episodic", "semantic", "tag"]) == nodes
            archive = "".join(await one.archive()).replace(r"\"", '"')
            given = [m.id for m in await other.talk.history() if m.role == "assistant"]
            assert not [id for id in given if f'"{id}"' in archive]
            assert not [id for id in ids if id not in BY_HAND and f'"{id}"' in archive]
            known = {record.id for record in await one.repo.sessions()}
            for record in await other.repo.sessions():
                if record.id in known:
                    continue
                assert f'"{record.id}"' not in archive
                assert await one.repo.search("sister", session_id=record.id) == []
                assert (await one.repo.forget(session_id=record.id)).is_empty
                with pytest.raises(NotFound):
                    await one.repo.resume_session(record.id)


# Examples are short as they are; each opens four services, too many to shrink one.
SETTINGS = settings(
    max_examples=examples(16),
    suppress_health_check=[HealthCheck.too_slow],
    phases=(Phase.explicit, Phase.generate),
)
PLACES = st.lists(st.sampled_from(ODD_IDS), min_size=3, max_size=3, unique=True)


@pytest.mark.slow
@SETTINGS
@given(ids=PLACES, operations=OPERATIONS)
@pytest.mark.long
def test_repositories_of_one_file_share_nothing_but_the_file(ids, operations):
    """The same texts, tags, keys and ids; each is as it would be alone."""
    with TemporaryDirectory() as folder:
        asyncio.run(lives(Path(folder) / "shared.db", ids, operations))


@pytest.mark.long
@pytest.mark.slow
@SETTINGS
@given(ids=PLACES, operations=OPERATIONS)
def test_repositories_of_one_memory_store_share_nothing(ids, operations):
    """As of a file."""
    asyncio.run(lives("memory:", ids, operations))


@pytest.mark.postgres
@pytest.mark.slow
@settings(
    SETTINGS,
    max_examples=2,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(ids=PLACES, operations=OPERATIONS)
def test_repositories_of_one_schema_share_nothing_but_the_schema(postgres_url, ids, operations):
    """As of a file."""
    asyncio.run(lives(emptied(postgres_url, ""), ids, operations))
