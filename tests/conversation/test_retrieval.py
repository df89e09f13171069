"""Retrieval by meaning, and what happens where meaning cannot be told."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from contracts.talk import save_vectors
from numpy.typing import NDArray
from talk_kit import Talk, assistant, result, texts, user

import mnemo
from mnemo.config import Config
from mnemo.conversation.scope import settings_of
from mnemo.errors import ModelUnavailable
from mnemo.events import RecallFailed
from mnemo.testing import HashingEmbedder
from mnemo.values.chat import EmbeddingSpace
from mnemo.values.messages import Message
from mnemo.values.strategies import Composite, Nearest, Recent, ToolOutputPruner

SAID = [
    "the ferry to Naxos leaves at noon",
    "sourdough needs a warm kitchen",
    "tickets for the ferry cost ten euros",
    "the cat sleeps on the piano",
    "tomorrow it will rain",
]


class Unwilling(HashingEmbedder):
    """An embedder whose queries fail."""

    async def embed(self, texts: Sequence[str], *, kind: Any = "document") -> NDArray[np.float32]:
        """Fail for a query."""
        if kind == "query":
            raise ModelUnavailable("the embedder is away")
        return await super().embed(texts, kind=kind)


async def filled(talk: Talk) -> None:
    """Append what was said, and give it vectors."""
    await talk.log().append([user(text) for text in SAID])
    await talk.embed()


async def test_the_nearest_units_are_given_in_order(talk):
    """The two nearest to the query, in seq order."""
    await filled(talk)
    loaded = await talk.log(retrieval=Nearest(2)).load(query="ferry tickets")
    assert texts(loaded) == [SAID[0], SAID[2]]


async def test_nearest_is_a_strategy_of_the_public_surface():
    """A repository's conversation takes ``mnemo.Nearest``, alone or in a ``Composite``."""
    async with mnemo.Mnemo("memory:", embedder="static") as memory:
        repo = await memory.open_repo("r")
        for strategy in (mnemo.Nearest(2), mnemo.Composite(mnemo.Recent(1), mnemo.Nearest())):
            talk = repo.conversation("t", retrieval=strategy)
            await talk.append({"id": "1", "role": "user", "content": "hello"})
            assert texts(await talk.load(query="hello")) == ["hello"]
        with pytest.raises(ValueError, match="retrieval must be"):
            repo.conversation("t", retrieval=mnemo.Semantic("hello"))


def test_a_strategy_out_of_range_is_refused():
    """``k`` is at least 1."""
    with pytest.raises(ValueError, match="k must be"):
        mnemo.Nearest(0)


@pytest.mark.parametrize("query", [None, "", " \n"])
async def test_without_a_query_the_last_units_are_given(talk, query):
    """A blank query is none: the last ``k`` units, a turn counting as one each."""
    await filled(talk)
    loaded = await talk.log(retrieval=Nearest(2)).load(query=query)
    assert texts(loaded) == SAID[3:]


async def test_another_threads_nearer_vectors_take_nothing_away(talk):
    """The search is within the thread, however near what others said may be."""
    await filled(talk)
    await talk.log("other").append([user("ferry tickets")] * 50)
    await talk.embed()
    loaded = await talk.log(retrieval=Nearest(1)).load(query="ferry tickets")
    assert texts(loaded) == [SAID[2]]


async def test_what_has_no_vector_yet_fills_up(talk):
    """The index may lag; the newest of what it does not know come after what it knows."""
    await filled(talk)
    await talk.log().append([user("not yet indexed"), user("nor this")])
    loaded = await talk.log(retrieval=Nearest(6)).load(query="ferry")
    assert texts(loaded) == [*SAID, "nor this"]


async def test_a_hit_brings_its_whole_group(talk):
    """A spoken call is given with its results, a reply with its call and the others' results."""
    log = talk.log(retrieval=Nearest(1))
    await log.append([assistant("asking about ferries", "a", "b"), user("meanwhile")])
    await log.append([result("b", "B"), result("a", "boats to Paros", kind="reply")])
    await log.append([user(text) for text in SAID[3:]])
    await talk.embed()
    for query in ("asking ferries", "boats Paros"):
        assert texts(await log.load(query=query)) == ["asking about ferries", "boats to Paros", "B"]


async def test_nothing_is_given_twice_beside_what_was_withdrawn(talk):
    """What reasoning leads is whole with it, also where a message between them was taken back."""
    log = talk.log(retrieval=Composite(Recent(2), Nearest(2)))
    item = '{"format": "responses", "item": {}}'
    await log.append([user(SAID[4]), assistant("hm", kind="thought", extra=item), user(SAID[1])])
    assert texts(await log.withdraw()) == [SAID[1]]
    await log.append([user(SAID[0]), user(SAID[3])])
    await talk.embed()
    for strategy in (log, talk.log(retrieval=Nearest(3))):
        loaded = await strategy.load(query="ferry to Naxos")
        assert texts(loaded) == [SAID[4], "hm", SAID[0], SAID[3]]
    with pytest.raises(ValueError, match=r"nearest whole ranges are 4\.\.4 and 1\.\.4"):
        await log.compact(3, 4, "s")


async def test_what_a_record_covers_is_not_found_by_meaning(talk):
    """It is in its summary, and shown once."""
    await filled(talk)
    log = talk.log(retrieval=Nearest(1))
    await log.compact(1, 2, "s")
    loaded = await log.load(query="tickets for the ferry")
    assert texts(loaded)[0] == SAID[0]
    assert [m.kind for m in loaded] == ["user", "summary"]


async def test_only_the_newest_vectors_count_in_a_bounded_index(talk):
    """Beyond ``max_index_size`` the oldest are found no more."""
    await filled(talk)
    bounded = Nearest(1, max_index_size=3)
    assert texts(await talk.log(retrieval=bounded).load(query="Naxos ferry")) == [SAID[2]]


async def test_a_composite_is_the_union_of_its_parts(talk):
    """Each message once, in seq order; equal texts are not taken for one."""
    await filled(talk)
    await talk.log().append(user(SAID[0]))
    await talk.embed()
    both = Composite(Recent(1), Nearest(2))
    loaded = await talk.log(retrieval=both).load(query="ferry to Naxos leaves")
    assert texts(loaded) == [SAID[0], SAID[4], SAID[0]]


async def test_a_failing_embedder_gives_the_newest_messages(
    open_conversations,
):
    """What ``Recent(k)`` gives is loaded, and the failure is told."""
    talk = await open_conversations(embedder=Unwilling())
    await filled(talk)
    log = talk.log(retrieval=Nearest(1))
    assert texts(await log.load(query="ferry")) == SAID[3:]
    [told] = talk.seen.of(RecallFailed)
    assert (told.query, told.error) == ("ferry", "the embedder is away")
    assert texts(await log.load()) == SAID[4:]
    assert len(talk.seen.of(RecallFailed)) == 1


async def test_an_index_of_another_space_gives_the_newest_messages(talk):
    """Vectors that do not fit the query's are no reason to load nothing."""
    await talk.log().append([user(text) for text in SAID])
    vectors = {("t", seq): np.array([1, 0], np.float32) for seq in range(len(SAID))}
    narrow = EmbeddingSpace("narrow", 2)
    await talk.parts.store.writing(lambda tx: save_vectors(tx, vectors, narrow))
    assert texts(await talk.log(retrieval=Nearest(2)).load(query="ferry")) == SAID[1:]
    assert len(talk.seen.of(RecallFailed)) == 1


async def test_one_failing_part_leaves_the_others(open_conversations):
    """A composite without its semantic part is its other parts; of none, the newest."""
    talk = await open_conversations(embedder=Unwilling())
    await filled(talk)
    partly = Composite(Nearest(3), Recent(1))
    assert texts(await talk.log(retrieval=partly).load(query="ferry")) == SAID[3:]
    wholly = Composite(Nearest(1))
    assert texts(await talk.log(retrieval=wholly).load(query="ferry")) == SAID[3:]


async def test_nothing_is_embedded_but_a_query_under_semantic(
    open_conversations,
):
    """``Recent`` asks no embedder, whatever the query."""
    talk = await open_conversations(embedder=Unwilling())
    await filled(talk)
    assert len(await talk.log().load(query="ferry")) == 5
    assert talk.seen.events == []


async def test_system_messages_are_not_found_but_always_there(talk):
    """They are pinned beside what is found."""
    await talk.log().append(Message(role="system", content="ferry ferry ferry"))
    await filled(talk)
    loaded = await talk.log(retrieval=Nearest(1)).load(query="ferry tickets")
    assert texts(loaded) == ["ferry ferry ferry", SAID[2]]


@pytest.mark.parametrize("id", ["", "  ", None, 7])
def test_a_thread_needs_an_id(id):
    """A blank id is refused where the handle is made."""
    with pytest.raises(ValueError, match="id"):
        settings_of(id, Config())


@pytest.mark.parametrize(
    "keywords",
    [{"retrieval": None}, {"retrieval": 3}, {"compression": 3}, {"compression": [Recent()]}],
)
def test_a_strategy_is_one_of_the_known(keywords):
    """Anything else is refused where the handle is made."""
    with pytest.raises(ValueError, match="must be"):
        settings_of("t", Config(), **keywords)


def test_an_omitted_keyword_is_as_configured():
    """An explicit None turns compression off; one strategy or several are accepted."""
    config = Config(conversation={"compression": ToolOutputPruner(5), "retrieval": Recent(2)})
    omitted = settings_of("t", config)
    assert (omitted.retrieval, omitted.compressions) == (Recent(2), (ToolOutputPruner(5),))
    assert omitted.ttl_s is None
    off = settings_of("t", config, compression=None, ttl_s=None)
    assert (off.compressions, off.ttl_s) == ((), 0)
    one = settings_of("t", config, compression=ToolOutputPruner(1), ttl_s=3)
    assert (one.compressions, one.ttl_s) == ((ToolOutputPruner(1),), 3)
