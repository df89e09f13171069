"""Consolidation: facts that say the same become one, and nothing of them is lost."""

from datetime import timedelta

import anyio
import numpy as np
import pytest
from maintenance_kit import at_angle_to_all, at_cosine

from mnemo import Changeset, MaintenanceReport, Semantic
from mnemo.events import (
    ChangesetApplied,
    ConsolidationCompleted,
    DecayCompleted,
    NodesDeleted,
    ValidationCompleted,
    WriteFailed,
)
from mnemo.index.corpus_writer import Corpus
from mnemo.index.documents import node_document
from mnemo.maintenance.consolidate import _Facts
from mnemo.protocols import GraphWrite
from mnemo.runtime.clock import Breather


async def test_two_facts_above_the_threshold_become_one(memory):
    """At a cosine of 0.9 one is left, and the report names both."""
    await memory.twins()
    report = await memory.repo.consolidate()
    assert await memory.ids("semantic") == {"a"}
    assert (report.operation, report.checked, report.deleted) == ("consolidate", 2, 1)
    assert report.deleted_ids == ("b",)
    assert dict(report.merged) == {"b": "a"}
    assert report.revision == (await memory.repo.statistics()).revision
    assert report.duration_s > 0


async def test_maintenance_words_nothing_anew(memory):
    """A survivor keeps its wording: its history has one version, by extraction."""
    await memory.twins()
    before = await memory.repo.memory("a")
    for operation in (memory.repo.consolidate, memory.repo.validate, memory.repo.decay):
        await operation()
    (version,) = await memory.repo.history("a")
    assert (version.by, version.text, version.version) == ("extraction", before.text, 1)
    assert (await memory.repo.memory("a")).version == 1


@pytest.mark.parametrize("cosine", [0.84, 0.85])
async def test_facts_up_to_the_threshold_both_stay(memory, cosine):
    """At 0.84, and at the threshold itself, which must be exceeded."""
    await memory.fact("Ana likes green tea", "a", vector=at_cosine(1.0))
    await memory.fact("Ana likes green tea very much", "b", vector=at_cosine(cosine))
    assert (await memory.repo.consolidate()).deleted == 0
    assert await memory.ids("semantic") == {"a", "b"}


async def test_the_threshold_is_the_callers(memory):
    """A lower one merges what the default leaves."""
    await memory.fact("Ana likes green tea", "a", vector=at_cosine(1.0))
    await memory.fact("Ana likes green tea very much", "b", vector=at_cosine(0.84))
    assert (await memory.repo.consolidate(threshold=0.8)).deleted == 1


@pytest.mark.parametrize("threshold", [1.1, -1.1, float("nan")])
async def test_a_threshold_that_is_no_cosine_is_refused(memory, threshold):
    """ValueError, and no event."""
    with pytest.raises(ValueError, match="cosine"):
        await memory.repo.consolidate(threshold=threshold)
    assert memory.kit.seen.of(ConsolidationCompleted) == []


async def test_recalls_count_before_it_is_decided_who_survives(memory):
    """Accesses that are still in memory are written first."""
    await memory.twins()
    memory.repo._access.note(["b"] * 5)
    report = await memory.repo.consolidate()
    assert dict(report.merged) == {"a": "b"}
    assert (await memory.repo.get_metadata(["b"]))["b"].access_count == 5


async def test_duplicates_without_a_common_tag_are_merged(memory):
    """They are found by their vectors, wherever they are in the graph."""
    await memory.fact("Ana likes green tea", "a", vector=at_cosine(1.0), tags=["tea"])
    await memory.fact("Ana likes green tea very much", "b", vector=at_cosine(0.9), tags=["x"])
    report = await memory.repo.consolidate()
    assert report.deleted_ids == ("b",)
    assert {tag.text for tag in await memory.repo.get_nodes(["tag"])} == {"tea", "x"}


async def test_three_mutual_duplicates_leave_one(memory):
    """One survivor, two deleted, no id twice."""
    for number, end in enumerate(("", " a lot", " very much")):
        vector = at_angle_to_all(number)
        await memory.fact(f"Ana likes green tea{end}", f"f{number}", vector=vector)
    report = await memory.repo.consolidate()
    assert len(await memory.ids("semantic")) == 1
    assert (report.deleted, len(set(report.deleted_ids))) == (2, 2)
    assert len(set(report.merged.values())) == 1


async def test_a_chain_of_losses_ends_at_one_survivor(memory):
    """Its two ends are below the threshold: they meet only through the fact between them."""
    await memory.fact("Ana likes green tea", "a", vector=at_cosine(1.0), days=3)
    await memory.fact("Ana likes green tea very much", "b", vector=at_cosine(0.9), days=2)
    await memory.fact("Ana likes green tea so much", "c", vector=at_cosine(0.62), days=1)
    for id, count in (("a", 9), ("b", 5), ("c", 1)):
        await memory.accessed(id, count)
    report = await memory.repo.consolidate()
    assert dict(report.merged) == {"b": "a", "c": "a"}


async def test_facts_are_not_grouped_by_closure(memory):
    """A fact between two that both outrank it loses once; the two do not meet."""
    await memory.fact("Ana likes green tea", "a", vector=at_cosine(1.0))
    await memory.fact("Ana likes green tea very much", "b", vector=at_cosine(0.9))
    await memory.fact("Ana likes green tea so much", "c", vector=at_cosine(0.6))
    for id, count in (("a", 9), ("c", 5)):
        await memory.accessed(id, count)
    report = await memory.repo.consolidate()
    assert dict(report.merged) == {"b": "a"}
    assert await memory.ids("semantic") == {"a", "c"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The order ships in 3 days", "The order ships in 5 days"),
        ("Ana likes green tea", "Ana does not like green tea"),
        ("Ana likes green tea", "Bo likes green tea"),
        ("Ana visits on Friday", "Ana visits on Monday"),
    ],
)
async def test_the_guard_keeps_different_claims_apart(memory, one, other):
    """Equal vectors, but other numbers, dates, subjects or a negation."""
    await memory.fact(one, "a", vector=at_cosine(1.0))
    await memory.fact(other, "b", vector=at_cosine(1.0))
    assert (await memory.repo.consolidate()).deleted == 0
    assert await memory.ids("semantic") == {"a", "b"}


async def test_a_second_run_changes_nothing(memory):
    """Zeros, the same revision, and still an event."""
    await memory.twins()
    first = await memory.repo.consolidate()
    again = await memory.repo.consolidate()
    assert (again.deleted, again.deleted_ids, dict(again.merged)) == (0, (), {})
    assert (again.penalized, again.orphaned, again.grounded) == (0, 0, 0)
    assert again.revision == first.revision == (await memory.repo.statistics()).revision
    assert [e.report for e in memory.kit.seen.of(ConsolidationCompleted)] == [first, again]


async def test_two_at_once_run_one_after_the_other(memory):
    """Each caller gets a report of its own; the second finds nothing to do."""
    await memory.twins()
    reports: list[MaintenanceReport] = []

    async def run() -> None:
        reports.append(await memory.repo.consolidate())

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        group.start_soon(run)
    assert sorted(report.deleted for report in reports) == [0, 1]
    assert len(memory.kit.seen.of(ConsolidationCompleted)) == 2


@pytest.mark.parametrize(
    ("operation", "told"),
    [
        ("consolidate", ConsolidationCompleted),
        ("decay", DecayCompleted),
        ("validate", ValidationCompleted),
    ],
)
async def test_an_empty_repository_gives_zeros(memory, operation, told):
    """Nothing to do is no error: no revision, but the event."""
    report = await getattr(memory.repo, operation)()
    assert report == MaintenanceReport(operation=operation, duration_s=report.duration_s)
    (event,) = memory.kit.seen.of(told)
    assert (event.report, event.repo_id, event.at) == (report, "r", memory.kit.clock.now())
    assert memory.kit.seen.of(WriteFailed) == []


async def test_the_higher_decay_score_survives_then_the_older_then_the_smaller_id(
    memory,
):
    """Of equal scores the older; of equal age the smaller id."""
    await memory.twins("z", "y")
    assert (await memory.repo.consolidate()).deleted_ids == ("z",)
    await memory.accessed("y", 1)
    await memory.fact("Ana likes green tea a lot", "x", vector=at_cosine(1.0), days=2)
    await memory.accessed("x", 1)
    report = await memory.repo.consolidate()
    assert dict(report.merged) == {"y": "x"}


async def test_confidence_grows_up_to_a_bound_and_validity_begins_earlier(memory):
    """1 - (1 - a)(1 - b) up to 0.99; valid from the earliest; text and id the survivor's."""
    early = memory.ago(9)
    await memory.twins(confidence=0.8)
    await memory.fact(
        "Ana likes green tea so much", "c", vector=at_cosine(0.91), confidence=0.5, valid_from=early
    )
    await memory.repo.consolidate()
    kept = await memory.repo.get_node("a")
    assert (kept.proposition, kept.valid_from) == ("Ana likes green tea", early)
    assert kept.confidence == pytest.approx(0.98)
    await memory.fact("Ana likes green tea ever so much", "d", vector=at_cosine(0.9))
    await memory.accessed("a", 1)
    await memory.repo.consolidate()
    assert (await memory.repo.get_node("a")).confidence == 0.99


async def test_support_counts_the_episodes_behind_the_union(memory):
    """Two facts of one episode and one of another: two episodes stated it."""
    for id, episode in (("s1", "e1"), ("s2", "e1"), ("s3", "e2")):
        await memory.step(id, episode=episode)
    await memory.fact("Ana likes green tea", "a", vector=at_cosine(1.0), steps=["s1"])
    await memory.fact(
        "Ana likes green tea very much", "b", vector=at_cosine(0.9), steps=["s2", "s3"]
    )
    await memory.repo.consolidate()
    assert (await memory.repo.get_metadata(["a"]))["a"].support_count == 2


async def test_what_was_given_by_hand_to_either_stays(memory):
    """The survivor has the metadata of both, and of one key its own."""
    await memory.fact("Ana likes tea", "a", vector=at_cosine(1.0), metadata={"by": 1, "of": 1})
    await memory.fact("Ana likes tea so", "b", vector=at_cosine(0.9), metadata={"by": 2, "x": 2})
    await memory.accessed("a", 1)
    assert (await memory.repo.consolidate()).merged == {"b": "a"}
    assert (await memory.repo.get_node("a")).metadata == {"by": 1, "of": 1, "x": 2}


async def test_superseded_facts_are_left_alone(memory):
    """What ceased to hold is not merged with what holds."""
    await memory.fact("Ana likes green tea", "a", vector=at_cosine(1.0))
    await memory.fact(
        "Ana likes green tea very much",
        "b",
        vector=at_cosine(0.9),
        valid_to=memory.kit.clock.now(),
        superseded_by="a",
    )
    report = await memory.repo.consolidate()
    assert (report.checked, report.deleted) == (1, 0)


async def test_what_a_loser_superseded_names_the_survivor(memory):
    """The chain of supersession stays whole."""
    await memory.twins()
    await memory.fact(
        "Ana likes black tea", "old", valid_to=memory.kit.clock.now(), superseded_by="b"
    )
    await memory.repo.consolidate()
    assert (await memory.repo.get_node("old")).superseded_by == "a"


async def test_facts_without_a_vector_are_left_alone(memory):
    """They are found again when their vector is there."""
    memory.repo._tasks.cancel()
    nodes = (Semantic("Ana likes tea", id="a"), Semantic("Ana likes tea.", id="b"))
    write = GraphWrite(changeset_id="c", expected_revision=0, nodes=nodes)
    await memory.graph.apply(write, memory.repo._parts.owner)
    assert (await memory.repo.consolidate()).deleted == 0


async def test_recall_finds_the_survivor_by_the_losers_tags(memory):
    """The index follows: the loser is gone, the survivor's document has its tags."""
    await memory.step("s")
    await memory.fact("Ana likes green tea", "a", vector=at_cosine(1.0), steps=["s"])
    await memory.fact(
        "Ana likes green tea very much", "b", vector=at_cosine(0.9), tags=["gyokuro"], steps=["s"]
    )
    await memory.repo.consolidate()
    found = await memory.repo.recall("gyokuro", types=["semantic"])
    assert [candidate.node.id for candidate in found.candidates] == ["a"]


async def test_a_fact_said_again_after_the_merge_reinforces_the_survivor(memory):
    """Look-up by text does not find the loser any more."""
    await memory.twins()
    await memory.repo.consolidate()
    await memory.repo.apply(
        Changeset((Semantic("Ana likes green tea", id="n", vector=at_cosine(1.0)),))
    )
    assert await memory.ids("semantic") == {"a"}


async def test_neither_deletion_nor_changeset_is_announced(memory):
    """Maintenance has events of its own."""
    await memory.twins()
    before = len(memory.kit.seen.of(ChangesetApplied))
    await memory.repo.consolidate()
    assert memory.kit.seen.of(NodesDeleted) == []
    assert len(memory.kit.seen.of(ChangesetApplied)) == before


async def test_other_repositories_stay_as_they_are(memory):
    """Maintenance in one leaves the others alone."""
    other = await memory.kit.memory.open_repo("q")
    await memory.twins()
    for node in await memory.repo.get_nodes(["semantic"]):
        await other.apply(Changeset((Semantic(node.text, id=f"q-{node.id}", vector=node.vector),)))
    await memory.repo.consolidate()
    assert len(await other.get_nodes(["semantic"])) == 2
    assert (await other.statistics()).revision == 2


async def test_time_only_orders_facts_that_score_alike(memory):
    """A newer fact has the higher score, if nobody asked for either."""
    await memory.fact("Ana likes green tea", "a", vector=at_cosine(1.0), days=30)
    await memory.fact("Ana likes green tea very much", "b", vector=at_cosine(0.9))
    report = await memory.repo.consolidate()
    assert dict(report.merged) == {"a": "b"}
    created = (await memory.repo.get_metadata(["b"]))["b"].created_at
    assert memory.kit.clock.now() - created == timedelta(days=30)


def test_of_a_long_fact_the_first_passage_is_compared():
    """As in recall: a later one says less of what the fact is about."""
    corpus, breather = Corpus(dimensions=3, passage_tokens=5), Breather()
    fact = Semantic("one two three four five six seven eight nine ten", id="long")
    texts = corpus.put(node_document(fact, {}), breather)
    corpus.add_vectors(dict(zip(texts, np.eye(3, dtype=np.float32), strict=True)))
    view = corpus.view(0, breather)
    facts = _Facts.of(view)
    assert facts.ids == ["long"]
    assert facts[np.array([0])].tolist() == [[1, 0, 0]]
