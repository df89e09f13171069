"""Names over HTTP: who speaks, what facts name, and what stands beside it."""

from datetime import UTC, datetime

from mnemo import Changeset, Edge, Semantic, Tag


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
    tent = (await client.get("/v1/name", params={"repo": "r", "name": "a tent"})).json()
    assert [fact["text"] for fact in tent["facts"]] == ["Camping needs a tent."]


async def test_facts_without_tags_and_speakers_have_no_names(memory, client):
    """Imported facts: none is a name, and how many facts there are is told."""
    repo = await memory.open_repo("r")
    await repo.apply(Changeset((Semantic("Lanterns hang here."), Semantic("Lanterns burn."))))
    found = (await client.get("/v1/names", params={"repo": "r"})).json()
    assert (found["facts"], found["tags"], found["names"]) == (2, 0, [])


async def test_words_are_looked_for_among_all_memories_a_page_at_a_time(memory, client):
    """Matches far behind the newest are found; the pages together have each once."""
    repo = await memory.open_repo("r")
    facts = [Semantic(f"Lantern {n} hangs in room {n % 7}.") for n in range(2_500)]
    await repo.apply(Changeset(tuple(facts)))

    async def listed(**body):
        answer = await client.post("/v1/memories/words", params={"repo": "r"}, json=body)
        return answer.json()

    found = await listed(words="lantern 17 ROOM", limit=1_000)
    assert all("17" in one["text"] for one in found["items"])
    assert "Lantern 17 hangs in room 3." in [one["text"] for one in found["items"]]
    assert found["next"] is None
    pages, after = [], None
    while True:
        page = await listed(words="room 3", limit=10, after=after)
        pages += [one["id"] for one in page["items"]]
        after = page["next"]
        if after is None:
            break
    assert len(pages) == len(set(pages)) == sum("3" in fact.text for fact in facts)
    assert (await listed(words="no such word"))["items"] == []
