"""Where a memory stands that was expected, and what left it out."""

from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from helpers import repository
from segments_kit import few, learn, opened, seal, tell

from mnemo import Changeset, Config, Expected, Repository, Semantic
from mnemo.index.large import LargeView
from mnemo.recall import grouped
from mnemo.testing import ManualClock

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
PLAIN = Config(scoring={"episodic": {"top_k": 12}}, recall={"max_candidates": 9})


@pytest.fixture
async def repo() -> AsyncIterator[Repository]:
    """What Ada and Bo have said, a day apart, in threads of theirs."""
    async with repository("memory:", "r", clock=ManualClock(NOON), config=PLAIN) as opened:
        for day, (who, text) in enumerate(SAID):
            at = NOON + timedelta(days=day)
            more = {"key": f"m{day}", "at": at, "metadata": {"n": day}}
            await opened.remember(text, actor=who, thread_id=who.lower(), **more)
        yield opened


SAID = [
    ("Ada", "I sail to the pier."),
    ("Bo", "The kettle is in the kitchen."),
    ("Ada", "My sister plays the violin."),
    ("Bo", "I paint the boat green."),
]


async def expected(repo: Repository, id: str, query: str = "Who sails?", **more: Any) -> Expected:
    """What a recall says of the memory."""
    found = await repo.recall(query, expect=id, **more)
    assert found.expected is not None
    assert found.expected.id == id
    assert (found.expected.rank is None) is (found.expected.left_out_by is not None)
    return found.expected


async def test_a_message_that_answers_has_its_rank_and_score(repo):
    """By its id, and by that of the candidate."""
    found = await repo.recall("Who sails?", expect="m0")
    best = found.candidates[0]
    told = found.expected
    assert (told.type, told.rank, told.place, told.left_out_by) == ("episodic", 1, 1, None)
    assert (told.score, told.relevance) == (best.score, best.relevance)
    assert (await expected(repo, best.node.id)).rank == 1
    assert (await repo.recall("Who sails?")).expected is None


@pytest.mark.parametrize(
    ("more", "by", "detail"),
    [
        ({"types": ["semantic"]}, "type", "types has no episodic"),
        ({"actor": "Bo"}, "filter", "actor"),
        ({"thread_id": "bo"}, "filter", "thread_id"),
        ({"session_id": "bo"}, "filter", "session_id"),
        ({"since": NOON + timedelta(hours=1)}, "filter", "since"),
        ({"until": NOON - timedelta(hours=1)}, "filter", "until"),
        ({"where": {"n": 3}, "actor": "Bo"}, "filter", "where, actor"),
        ({"min_score": 1.0}, "min_score", "1.0 of relevance is asked for"),
        ({"query": "kettle in the kitchen?", "k": 1}, "k", "1 candidates are asked for"),
        ({"query": "xq zzkw vbrt"}, "abstained", "the question is no language"),
    ],
)
async def test_it_is_told_which_filter_or_bound_left_it_out(repo, more, by, detail):
    """Where it matches none of several filters, all of those."""
    told = await expected(repo, "m0", **more)
    assert (told.left_out_by, told.detail) == (by, detail)
    assert told.rank is None


async def test_confidence_that_is_wanting_is_told_with_its_bound(repo):
    """The memory would have been the first; without the bound it is."""
    told = await expected(repo, "m0", min_confidence=1.0)
    assert (told.left_out_by, told.place) == ("min_confidence", 1)
    assert told.detail.endswith(" of 1.0")


async def test_an_unknown_or_erased_memory_is_told(repo):
    """Also where nothing was searched at all."""
    assert (await expected(repo, "nobody")).left_out_by == "unknown"
    await repo.forget(message_ids=["m0"])
    told = await expected(repo, "m0")
    assert (told.type, told.left_out_by) == (None, "unknown")
    async with repository() as empty:
        assert (await expected(empty, "m0")).left_out_by == "unknown"


async def test_bounds_on_candidates_are_told_with_the_place(repo):
    """Those of the type, then those of all; a far one is cut."""
    for number in range(20):
        await repo.remember(f"Sails of boat {number} are white.", thread_id="boats")
    query = "Which boats have white sails?"
    far = await expected(repo, "m2", query)
    assert (far.left_out_by, far.detail) == ("top_k", "12 of type episodic go on")
    assert far.place is not None
    assert far.place > 12
    told = await expected(repo, "m2", query, k=100)
    assert (told.left_out_by, told.detail) == ("max_candidates", "9 candidates go on")


async def test_what_is_far_below_the_best_is_cut(repo):
    """Behind the fifth candidate."""
    for number in range(6):
        await repo.remember(f"Ada sails {number} times.", thread_id="more")
    told = await expected(repo, "m1", "How many times does Ada sail?", k=100)
    assert told.left_out_by in ("cut", "max_candidates")
    assert told.relevance < 0.5


async def test_a_superseded_fact_is_told_with_what_is_newer(repo):
    """While the question asks for now."""
    ended = {"valid_to": NOON + timedelta(days=1), "superseded_by": "f1"}
    old = Semantic("Cleo lives in Porto", id="f0", created_at=NOON, **ended)
    new = Semantic("Cleo lives in Faro", id="f1", created_at=NOON + timedelta(days=1))
    await repo.apply(Changeset(id="c", nodes=(old, new)))
    query = "Where does Cleo live?"
    told = await expected(repo, "f0", query)
    assert (told.type, told.left_out_by, told.outdated_by) == ("semantic", "superseded", "f1")
    assert told.detail == "it held until 2024-03-02"
    assert (await expected(repo, "f0", query, until=NOON + timedelta(hours=1))).rank == 1
    assert (await expected(repo, "f1", query)).rank == 1


async def test_a_fact_and_its_message_share_a_rank(repo):
    """They are one candidate, whichever of them it shows."""
    said = {"actor": "Cleo", "thread_id": "cleo", "wait": True}
    await repo.remember("I live in Oslo.", key="oslo", **said)
    (fact,) = await repo.memories(actor="Cleo")
    told = [await expected(repo, id, "Where does Cleo live?") for id in (fact.id, "oslo")]
    assert [one.type for one in told] == ["semantic", "episodic"]
    assert [one.rank for one in told] == [1, 1]
    moved = await repo.remember("I live in Rome now, not in Oslo.", key="rome", **said)
    outdated = await expected(repo, "oslo", "Where does Cleo live?")
    found = await repo.recall("Where does Cleo live?")
    assert outdated.outdated_by == found.candidates[0].node.id
    assert outdated.rank is not None
    assert (await expected(repo, moved.messages[0].id, "Where does Cleo live?")).rank == 1


async def test_steps_of_the_session_that_asks_are_told(repo):
    """They are left out of every answer in context."""
    session = await repo.start_session("sail")
    step = await session.append("Saw the sails", "Waved")
    found = await repo.recall_in_context(session, "Who sails?", expect=step.node_id)
    assert found.expected.left_out_by == "context"


async def test_an_invalid_id_is_refused(repo):
    """It is no text."""
    with pytest.raises(ValueError, match="expect"):
        await repo.recall("Who sails?", expect=7)


async def test_what_a_large_repository_did_not_gather_is_told_with_its_score(tmp_path, monkeypatch):
    """It is gathered for that, and changes nothing that is found."""
    for name, few_of in (("BEST", 3), ("TALKS", 1), ("COARSE", 5), ("AROUND", 1)):
        monkeypatch.setattr(grouped, name, few_of)
    with few():
        async with opened(tmp_path / "m.db") as (memory, large):
            await tell(large, 0, 300)
            await learn(large, "moss", session_id="moss")
            (fact, *_) = await large.memories(types=["semantic"])
            await tell(large, 300, 400)
            await large._parts.index.embed_waiting()
            await seal(memory)
        async with opened(tmp_path / "m.db") as (memory, large):
            assert isinstance(await large._parts.index.corpus(), LargeView)
            plain = await large.recall("bees honey river", k=5)
            told = [
                await expected(large, f"m{n}", "bees honey river", k=5) for n in range(0, 300, 7)
            ]
            ways = Counter(one.left_out_by for one in told)
            assert ways["not_gathered"] > 10
            assert all(one.relevance is not None for one in told if not one.rank)
            again = await large.recall("bees honey river", k=5, expect="m7")
            assert [one.node.id for one in again.candidates] == [
                c.node.id for c in plain.candidates
            ]
            of_fact = await expected(large, fact.id, "bees honey river", k=5)
            assert of_fact.type == "semantic"
            assert of_fact.left_out_by not in ("unknown", "type", "filter")
            assert of_fact.relevance is not None
            about_it = await expected(large, fact.id, "Who keeps moss at home?", k=5)
            assert about_it.rank is not None
            filtered = await expected(large, "m7", "bees", k=5, actor="Nobody", where={"n": 3})
            assert (filtered.left_out_by, filtered.detail) == ("filter", "actor")
