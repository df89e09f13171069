"""Names and words of memories: found by the index, also where it lies in large segments."""

from datetime import UTC, datetime, timedelta

from segments_kit import few, index_of, opened, seal, tell

from mnemo import Changeset, Edge, Semantic, Tag
from mnemo.index.large import LargeView
from mnemo.repository import names

NOON, HOUR = datetime(2026, 3, 1, 12, tzinfo=UTC), timedelta(hours=1)


async def said(repo):
    """What a repository says of names and words, without what differs from index to index."""
    listed = await repo.inspection.names()
    named = [await repo.inspection.named(one) for one in ("honey", "Honey pots", "zoë", "nobody")]
    words = [
        {one.text for one in await repo.memories(words=asked, limit=1_000)}
        for asked in ("honey", "hon* 1*", "zo* river", "Kept in jar", "x*")
    ]
    return listed.names, [(one.total, one.facts, one.neighbours) for one in named], words


async def test_a_large_repository_says_the_same_of_names_and_words(tmp_path):
    """Segments that lie on the disk are asked like what is held in memory."""
    place = tmp_path / "r.db"
    tags = [Tag("honey"), Tag("river")]
    facts = [
        Semantic(f"{('Honey', 'Zoë by the river', 'A jar of honeys')[n % 3]} kept in jar {n}.")
        for n in range(150)
    ]
    edges = [Edge(tags[n % 2].id, fact.id, "membership") for n, fact in enumerate(facts)]
    async with opened(place) as (_, repo):
        await repo.apply(Changeset((*tags, *facts), tuple(edges)))
        await tell(repo, 0, 200)
        whole = await said(repo)
    with few():
        async with opened(place) as (memory, repo):
            await seal(memory)
            corpus = await index_of(memory, kept=True).corpus()
            assert isinstance(corpus, LargeView)
            assert corpus.claims["semantic"]
            assert await said(repo) == whole
    names, named, words = whole
    assert [(one.name, one.kind) for one in names] == [("honey", "tag"), ("river", "tag")]
    assert [total for total, *_ in named] == [125, 0, 50, 0]
    honeyed = [n for n in range(150) if n % 3 != 1 or n % 2 == 0]
    assert len(words[0]) == len(honeyed)
    assert len(words[1]) == sum(str(n).startswith("1") for n in honeyed)
    assert words[4] == set()


async def test_a_large_repository_tells_the_same_changes(tmp_path):
    """Facts in segments that hold no longer are told like those in memory, a page at a time."""
    place = tmp_path / "r.db"
    ended = [
        Semantic(f"The kettle {n} is red.", valid_to=NOON + n * HOUR, superseded_by=f"new{n}")
        for n in range(120)
    ]
    now = [Semantic(f"The kettle {n} is blue.", id=f"new{n}") for n in range(120)]

    async def told(repo):
        page = await repo.changes(limit=7, since=NOON + HOUR, until=NOON + 100 * HOUR)
        later = await repo.changes(
            limit=200, since=NOON + HOUR, until=NOON + 100 * HOUR, after=page.next
        )
        one = await repo.changes(subject="kettle 17")
        return [
            (change.old.text, change.new and change.new.text) for change in (*page, *later, *one)
        ]

    async with opened(place) as (_, repo):
        await repo.apply(Changeset((*ended, *now)))
        await tell(repo, 0, 200)
        whole = await told(repo)
    with few():
        async with opened(place) as (memory, repo):
            await seal(memory)
            corpus = await index_of(memory, kept=True).corpus()
            assert isinstance(corpus, LargeView)
            assert corpus.claims["semantic"]
            assert await told(repo) == whole
    assert len(whole) == 101
    assert whole[0] == ("The kettle 100 is red.", "The kettle 100 is blue.")


async def test_names_and_facts_are_given_up_to_their_bounds(tmp_path, monkeypatch):
    """The names of most facts, the latest facts of one, the first speakers; counts are whole."""
    monkeypatch.setattr(names, "MOST_NAMES", 2)
    monkeypatch.setattr(names, "MOST_FACTS", 3)
    monkeypatch.setattr(names, "MOST_SPEAKERS", 1)
    tags = [Tag("honey"), Tag("river"), Tag("kettle")]
    facts = [Semantic(f"Jar {n} is kept.", valid_from=NOON + n * HOUR) for n in range(9)]
    named = [
        (tag, fact) for most, tag in zip((5, 9, 7), tags, strict=True) for fact in facts[:most]
    ]
    edges = [Edge(tag.id, fact.id, "membership") for tag, fact in named]
    async with opened(tmp_path / "r.db", background=True) as (_, repo):
        await repo.apply(Changeset((*tags, *facts), tuple(edges)))
        listed = await repo.inspection.names()
        assert [(one.name, one.facts) for one in listed.names] == [("river", 9), ("kettle", 7)]
        assert (listed.facts, listed.tags) == (9, 3)
        found = await repo.inspection.named("river")
        assert [fact.text for fact in found.facts] == [f"Jar {n} is kept." for n in (8, 7, 6)]
        assert found.total == 9
        for actor, town in (("Ada", "Bern"), ("Bo", "Lund")):
            await repo.remember(f"I live in {town}.", actor=actor, wait=True)
        speakers = [one for one in (await repo.inspection.names()).names if one.kind == "speaker"]
    assert [one.name for one in speakers] == ["Ada"]
