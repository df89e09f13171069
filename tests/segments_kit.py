"""A repository whose index is kept as segments, and what tells two indexes apart."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import numpy as np
import pytest
from engines import rows_of

from mnemo import Config, Mnemo
from mnemo.config import JobsConfig
from mnemo.index import at_rest, keeper
from mnemo.index.corpus_writer import Lexicon
from mnemo.index.follower import RepositoryIndex
from mnemo.index.segments import NAMED, unpacked
from mnemo.recall import gather
from mnemo.testing import HashingEmbedder
from mnemo.values.feed import FeedCursor

WORDS = ("bees", "honey", "river", "Zoë", "東京都", "café", "swarm", "hive", "winter", "moss")


@contextmanager
def few(*, large: int = 72, exact: int = 100, least: int | None = None) -> Iterator[None]:
    """A few documents are many; *least* of them make a large segment, all *large* by default."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in ((at_rest, "LARGE", large), (at_rest, "EXACT", exact)):
            patch.setattr(module, name, value)
        patch.setattr(gather, "EXACT", exact)
        patch.setattr(keeper, "LARGE_FROM", large if least is None else least)
        yield


@asynccontextmanager
async def opened(place: Any, *, background: bool = False) -> AsyncIterator[tuple[Any, Any]]:
    """A service, and its repository."""
    config = Config(jobs=JobsConfig(background=background))
    async with Mnemo(place, embedder=HashingEmbedder(), config=config) as memory:
        yield memory, await memory.open_repo("r")


async def seal(memory: Any) -> None:
    """Keep the columns of all that there is, if it is enough."""
    index = index_of(memory, kept=True)
    await index.catch_up()
    await index.seal()


def holding(place: Any, word: bytes) -> bool:
    """Whether a segment holds *word*."""
    return any(word in bytes(row[0]) for row in rows_of(place, "SELECT bytes FROM segments"))


def text(number: int) -> str:
    return " ".join(WORDS[(number * step) % len(WORDS)] for step in (1, 3, 5)) + f" {number}?"


def message(number: int, **more: Any) -> dict[str, Any]:
    role = "assistant" if number % 3 == 2 else "user"
    said = {"role": role, "content": text(number), "metadata": {"n": number % 4}}
    return said | {"at": f"2024-03-01T12:{number % 60:02}:00Z", "id": f"m{number}"} | more


async def tell(repo: Any, first: int, last: int, thread: str = "t", **more: Any) -> None:
    """Append messages to a thread."""
    said = [message(number, **more) for number in range(first, last)]
    await repo.conversation(thread).append(said)


async def collect(repo: Any, session: str, steps: int) -> None:
    """A session with steps of its own, of both sides."""
    opened = await repo.start_session("look after bees", session_id=session)
    for number in range(steps):
        await opened.append(text(number), f"did {text(number + 1)}", metadata={"s": session})


async def learn(repo: Any, word: str, **named: str) -> None:
    """A session whose episode becomes facts and instructions."""
    session = await repo.start_session(f"look after {word}", **named)
    await session.append(f"I keep {word} at home and Ana keeps {word}", f"I will feed {word}")
    await session.append(f"Feed {word} at noon", "fed them")
    await session.close_and_commit()


def segments_in(place: Any) -> list[tuple[Any, ...]]:
    """Number and documents of the segments."""
    query = "SELECT no, documents, length(bytes) FROM segments WHERE part = 0 ORDER BY no"
    return rows_of(place, query)


async def told(index: RepositoryIndex, *, origins: bool = True) -> Any:
    """Everything that an answer can depend on, whatever numbers it has; maybe of no changeset."""
    await index.embed_waiting()
    view = await index.corpus()
    steps = view.steps
    chains, terms = list(steps.chains), dict[str, Any]()
    for term in steps.postings._numbers:
        read = steps.postings.read(term, steps.count)
        holding = zip(*(part.tolist() for part in read), strict=True) if read else ()
        kept = sorted((steps.ids[d], bool(steps.acted[d]), n) for d, n in holding if steps.alive[d])
        terms |= {term: kept} if kept else {}
    known = np.flatnonzero(steps.alive).tolist()
    rows = [
        (
            *(steps.ids[d], chains[steps.session[d]]),
            *(chains[steps.thread[d]] if steps.thread[d] >= 0 else None,),
            *(steps.actors[steps.actor[d]], steps.actors[steps.told_by[d]]),
            *(bool(steps.acted[d]), bool(steps.asks[d]), int(steps.form[d])),
            *(float(steps.first[d]), float(steps.last[d]), float(steps.valid_to[d])),
            *(float(steps.lengths[d]), float(steps.log_words[d]), int(steps.passages[d])),
            *(int(steps.born[d]), bool(steps.by_hand[d])),
            steps.facets.texts[steps.metadata[d]],
            steps.vectors[steps.rows[d]].tobytes(),
        )
        for d in known
    ]
    order: dict[str, list[Any]] = {}
    for row in rows:
        order.setdefault(row[1], []).append(row)
    joined = sorted((chains[s], steps.ids[d]) for s, d in steps.joined.tolist() if s >= 0)
    nodes = {
        type: sorted(
            (
                *(
                    part.ids[d],
                    repr(part.nodes[d]),
                    part.origins.get(d) if origins else None,
                    terms_of(part, d),
                ),
                *(float(part.first[d]), float(part.last[d]), float(part.valid_to[d])),
                *(float(part.lengths[d]), float(part.log_words[d]), bool(part.by_hand[d])),
                *(part.facets.texts[part.metadata[d]], int(part.passages[d])),
                part.vectors[part.rows[d]].tobytes(),
            )
            for d in np.flatnonzero(part.alive).tolist()
        )
        for type, part in view.nodes.items()
    }
    wordings = [
        id for id, alive in zip(view.wordings.ids, view.wordings.alive, strict=True) if alive
    ]
    behind = {
        type: sorted(
            (view.nodes[type].ids[n], steps.ids[d])
            for n, d in pairs.tolist()
            if view.nodes[type].alive[n] and steps.alive[d]
        )
        for type, pairs in view.behind.items()
    }
    return (
        *(
            order,
            terms,
            joined,
            dict(steps.aliases),
            {id: steps_of for id, steps_of in steps.repeats.items() if steps_of},
            nodes,
            behind,
            sorted(wordings),
        ),
        *(steps.centre.tobytes(), view.owed, view.damaged),
    )


def terms_of(part: Any, document: int) -> list[str]:
    """The terms of a document."""
    read = ((term, part.postings.read(term, part.count)) for term in part.postings._numbers)
    return sorted(term for term, found in read if found and document in found[0])


def index_of(memory: Mnemo, *, kept: bool) -> RepositoryIndex:
    """An index that knows nothing yet; not *kept*: and that reads everything anew."""
    store: Any = memory._store
    rest = store.segments("r") if kept else None
    return RepositoryIndex(
        feed=store.feed("r"), embedder=HashingEmbedder(), agent_name="Agent", segments=rest
    )


async def same_as_anew(memory: Mnemo) -> None:
    """Check that an index made of columns at rest is what reading everything gives."""
    assert await told(index_of(memory, kept=True)) == await told(index_of(memory, kept=False))


async def stored_ids(memory: Any) -> set[str]:
    """The ids of the nodes, messages and steps that recall may find or rest on."""
    changes = await memory._store.feed("r").changes(FeedCursor(), limit=100_000)
    nodes = {node.id for node in changes.nodes}
    return nodes.union(changes.messages, (step.node_id for step in changes.steps))


async def check_segments(memory: Any) -> None:
    """Check that segments name nothing that is gone, and no more than they use."""
    known, chains = await stored_ids(memory), (await memory._store.segments("r").read()).small
    assert {"steps", "nodes"} == {*chains}
    for chain, kept in chains.items():
        end = FeedCursor()
        rows = {row.no: row for row in await memory._store.segments("r").kept(chain)}
        for no, stored in kept.items():
            head, batches = unpacked(stored)
            assert (head.after, head.documents) == (end, sum(map(len, batches.values())))
            assert (rows[no].until, rows[no].documents) == (head.until, head.documents)
            end = head.until
            for batch in batches.values():
                names, columns = batch.names, batch.columns
                named = [*names["ids"], *names.get("behind", ())]
                assert known.issuperset(named + [id for one in batch.repeats for id in one[:2]])
                for kind in NAMED.keys() & names:
                    used = np.unique(np.concatenate([columns[name] for name in NAMED[kind]]))
                    assert used[used > 0].tolist() == [*range(1, len(names[kind]) + 1)]


class Tokenised:
    """Counts the texts that are made terms."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.texts = 0
        read = Lexicon.read

        def counted(lexicon: Any, text: str, breather: Any) -> Any:
            self.texts += 1
            return read(lexicon, text, breather)

        monkeypatch.setattr(Lexicon, "read", counted)
