"""Names over HTTP: who speaks, what facts name, and what stands beside it."""

from datetime import UTC, datetime

from mnemo import Changeset, Edge, NodeChange, Semantic, Tag


async def test_names_are_speakers_and_tags_of_two_facts_counted_by_words_too(memory, client):
    """A tag counts the facts that say it without having it; one of a single fact is no name."""
    repo = await memory.open_repo("r")
    tags = [Tag("camping"), Tag("Oslo")]
    facts = [
        Semantic("Melanie loves camping.", valid_from=datetime(2026, 3, 1, tzinfo=UTC)),
        Semantic("Camping needs a tent.", valid_from=datetime(2026, 3, 2, tzinfo=UTC)),
        Semantic("Melanie is in Oslo."),
        Semantic("Decamping is another word."),
    ]
    edges = [
        Edge(tags[0].id, facts[0].id, "membership"),
        Edge(tags[1].id, facts[2].id, "membership"),
    ]
    await repo.apply(Changeset((*tags, *facts), tuple(edges)))
    await repo.remember("I have a cat.", actor="Melanie", wait=True)
    found = (await client.get("/v1/names", params={"repo": "r"})).json()
    names = {one["name"]: (one["kind"], one["facts"]) for one in found["names"]}
    assert names["camping"] == ("tag", 2)
    assert names["Melanie"][0] == "speaker"
    assert names["Melanie"][1] >= 3
    assert "Oslo" not in names
    assert found["names"][0]["name"] == "Melanie"
    camping = (await client.get("/v1/name", params={"repo": "r", "name": "camping"})).json()
    assert [fact["text"] for fact in camping["facts"]] == [
        "Camping needs a tent.",
        "Melanie loves camping.",
    ]
    assert camping["neighbours"] == [["Melanie", 1]]
    same = (await client.get("/v1/name", params={"repo": "r", "name": "Camping"})).json()
    assert (same["total"], same["neighbours"]) == (2, [["Melanie", 1]])
    tent = (await client.get("/v1/name", params={"repo": "r", "name": "a tent"})).json()
    assert [fact["text"] for fact in tent["facts"]] == ["Camping needs a tent."]


async def test_facts_without_tags_and_speakers_have_no_names(memory, client):
    """Imported facts: none is a name, and how many facts there are is told."""
    repo = await memory.open_repo("r")
    await repo.apply(Changeset((Semantic("Lanterns hang here."), Semantic("Lanterns burn."))))
    found = (await client.get("/v1/names", params={"repo": "r"})).json()
    assert (found["facts"], found["tags"], found["names"]) == (2, 0, [])


async def test_a_speaker_has_what_was_said_and_what_replaced_it(memory, client):
    """Facts that do not name the speaker are theirs, too; one that was replaced says by what."""
    repo = await memory.open_repo("r")
    ids = []
    for place in ("Lund", "Malmö"):
        await repo.remember(f"I live in {place}.", actor="Eva", wait=True)
        (fact, *_) = await repo.memories()
        await repo.update_memory(fact.id, f"Lives in {place}.")
        ids.append(fact.id)
    ended = {"superseded_by": ids[1], "valid_to": datetime(2026, 6, 1, tzinfo=UTC)}
    await repo.apply(Changeset(changes=(NodeChange(ids[0], ended),)))
    found = (await client.get("/v1/names", params={"repo": "r"})).json()["names"]
    assert found == [{"name": "Eva", "kind": "speaker", "facts": 1, "before": 1}]
    eva = (await client.get("/v1/name", params={"repo": "r", "name": "eva"})).json()
    assert (eva["kind"], eva["total"]) == ("speaker", 2)
    assert {one["text"]: one["newer"] for one in eva["facts"]} == {
        "Lives in Lund.": "Lives in Malmö.",
        "Lives in Malmö.": None,
    }


async def test_words_are_looked_for_among_all_memories_a_page_at_a_time(memory, client):
    """Matches far behind the newest are found; the pages together have each once."""
    repo = await memory.open_repo("r")
    facts = [Semantic(f"Lantern {n} hangs in room {n % 7}.") for n in range(2_500)]
    await repo.apply(Changeset(tuple(facts)))

    async def listed(**body):
        answer = await client.post("/v1/memories/list", params={"repo": "r"}, json=body)
        return answer.json()

    found = await listed(words="lanterns 17 in ROOM", limit=1_000)
    assert [one["text"] for one in found["items"]] == ["Lantern 17 hangs in room 3."]
    assert found["next"] is None
    pages, after = [], None
    while True:
        page = await listed(words="room 3", limit=60, after=after)
        pages += page["items"]
        after = page["next"]
        if after is None:
            break
    ids = {one["id"] for one in pages}
    assert len(pages) == len(ids) == sum("3" in fact.text.rstrip(".").split() for fact in facts)
    assert [one["created_at"] for one in pages] == sorted(
        (one["created_at"] for one in pages), reverse=True
    )
    begun = await listed(words="lant* 17*", limit=1_000)
    assert len(begun["items"]) == sum(f" {n}".startswith(" 17") for n in range(2_500))
    for nothing in ("no such word", "the", "?", "*", "x*"):
        assert (await listed(words=nothing))["items"] == []
    other = await listed(
        words="room 4",
        limit=10,
        after=page["next"] or (await listed(words="room 3", limit=1))["next"],
    )
    assert other["reason"] == "invalid_argument"
