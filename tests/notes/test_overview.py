"""The overview of notes: what a prompt may begin with, because only notes change it."""


async def test_the_latest_change_comes_first_and_reading_changes_nothing(open_notes):
    """The same text for the same state, whatever was read, listed or recalled."""
    kit = await open_notes()
    for topic in ("bread", "travel", "music"):
        await kit.notes.write(topic, f"- about {topic}", f"All about {topic}")
        await kit.clock.advance(60)
    first = await kit.notes.overview()
    assert [line.split(":")[0] for line in first.splitlines()] == ["- music", "- travel", "- bread"]
    await kit.notes.read("bread")
    await kit.notes.recall("travel")
    assert [note.topic for note in await kit.notes.list()] != ["music", "travel", "bread"]
    assert await kit.notes.overview() == first
    await kit.notes.write("travel", "- by train", "All about travel")
    assert (await kit.notes.overview()).splitlines()[0].startswith("- travel:")


async def test_a_restored_note_counts_as_changed(open_notes):
    """It is dated anew, and so comes first; a deleted one is told of nowhere."""
    kit = await open_notes()
    await kit.notes.write("bread", "- rye", "What we bake")
    await kit.clock.advance(60)
    await kit.notes.write("music", "- jazz", "What we hear")
    await kit.notes.delete("bread")
    assert "bread" not in await kit.notes.overview()
    await kit.clock.advance(60)
    await kit.notes.restore("bread", 1)
    assert (await kit.notes.overview()).startswith("- bread:")
