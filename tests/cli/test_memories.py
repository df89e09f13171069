"""The commands about memories: listed, filtered, corrected."""

import anyio
import pytest

from mnemo import ExtractionFailed, Mnemo, ModelUnavailable
from mnemo.testing import HashingEmbedder, ScriptedChatModel

STEPS = [
    {"observation": "I live in Rome.", "action": "", "actor": "Ada", "id": "1"},
    {"observation": "I keep bees on the roof.", "action": "", "actor": "Ada", "id": "2"},
]


@pytest.fixture
def filled(cli, write):
    """A store whose repository knows two facts."""
    assert cli("import", str(write("steps.jsonl", STEPS))).code == 0
    return cli


def listed(cli, *arguments: str) -> dict[str, str]:
    """Text of each listed memory by its id."""
    found = cli("memories", *arguments, "--json").data["memories"]
    return {memory["id"]: memory["text"] for memory in found}


def test_memories_are_listed_and_found_by_words(filled):
    """All of them in a table and as JSON; the best one of a query first."""
    found = listed(filled)
    assert len(found) == 2
    assert all(id in filled("memories").out for id in found)
    best = next(iter(listed(filled, "Where does Ada live?").values()))
    assert "Rome" in best


DATED = [
    {"observation": "I live in Rome.", "action": "", "actor": "Ada", "at": "2025-01-03T10:00:00Z"},
    {"observation": "I own a boat.", "action": "", "actor": "Ada", "at": "2025-03-01T10:00:00Z"},
    {"observation": "I moved to Oslo.", "action": "", "actor": "Ada", "at": "2025-02-02T10:00:00Z"},
]


def test_memories_are_listed_by_their_own_dates(cli, write):
    """The newest first, whenever they were stored; what was replaced is marked."""
    assert cli("import", str(write("steps.jsonl", DATED))).code == 0
    _, *rows = [line.split(maxsplit=3) for line in cli("memories").out.splitlines()]
    assert [(row[2], row[3].split()[-1]) for row in rows] == [
        ("2025-03-01", "boat."),
        ("2025-02-02", "Oslo."),
    ]
    found = cli("memories", "--limit", "1", "--json").data["memories"]
    assert [memory["text"][-5:] for memory in found] == ["boat."]
    marked = [line for line in cli("memories", "--superseded").out.splitlines() if "Rome" in line]
    assert [line.split()[2:5] for line in marked] == [["2025-01-03", "2025-02-02", "(replaced)"]]
    refused = cli("memories", "boat", "--superseded")
    assert (refused.code, "a query finds what holds" in refused.err) == (2, True)
    assert cli("memories", "--limit", "0").code == 2


def test_of_very_many_memories_those_stored_last_are_listed(cli, write, monkeypatch):
    """They are read to be put in order: no more than a bound, and that is told."""
    monkeypatch.setattr("mnemo.cli.memories._AT_ONCE", 1)
    for step in DATED:
        assert cli("import", str(write("step.jsonl", [step | {"id": step["at"]}]))).code == 0
    everything = cli("memories", "--superseded", "--json")
    assert (len(everything.data["memories"]), everything.err) == (3, "")
    monkeypatch.setattr("mnemo.cli.memories._MOST_READ", 2)
    found = cli("memories", "--superseded", "--json")
    assert [memory["text"] for memory in found.data["memories"]] == [
        memory["text"] for memory in everything.data["memories"] if "Rome" not in memory["text"]
    ]
    assert found.err.startswith("mnemo: all but the 2 stored last are left out")


def test_one_of_a_kind_is_told_in_the_singular(cli, write):
    """One step, message or memory; several are several."""
    one = cli("import", str(write("one.jsonl", DATED[:1])))
    assert "1 step added, 0 were there; 1 new session," in one.out
    assert "1 was there" in cli("import", str(write("one.jsonl", DATED[:1]))).out
    assert "2 steps added" in cli("import", str(write("two.jsonl", DATED[1:]))).out
    assert "; 1 memory is new." in cli("remember", "I play the cello.", "--actor", "Ada").out
    assert "1 message from 0 on" in cli("window", "default").out
    assert " 1 message of 1 thread." in cli("export", "a.md", "--to", "markdown").out
    assert "1 repo," in cli("doctor").out


def test_an_edited_memory_says_the_new_wording_and_recall_knows_it(filled):
    """The version is told; the same wording again changes nothing."""
    id = next(id for id, text in listed(filled).items() if "Rome" in text)
    told = filled("edit", id, "Ada lives in Oslo.", "--reason", "she moved", "--json").data
    assert (told["changed"], told["version"], told["text"]) == (True, 2, "Ada lives in Oslo.")
    assert listed(filled)[id] == "Ada lives in Oslo."
    assert "says that already" in filled("edit", id, "Ada lives in Oslo.").out
    assert "Oslo" in filled("recall", "Where does Ada live?").out


def test_changes_are_told_with_what_took_their_place(filled):
    """In a table and as JSON; what only ended has nothing new, and no change is an error's line."""
    assert "no such changes" in filled("changes").err
    assert filled("remember", "I moved to Oslo.", "--actor", "Ada").code == 0
    assert filled("remember", "I no longer keep bees on the roof.", "--actor", "Ada").code == 0
    told = filled("changes").out
    assert "Oslo" in told
    assert "(ended)" in told
    (change,) = filled("changes", "Rome", "--since", "2024-01-01", "--json").data["changes"]
    assert "Oslo" in change["new"]["text"]
    assert change["old"]["valid_to"] == change["when"]
    assert filled("changes", "--until", "2024-01-01", "--json").data["changes"] == []


def test_without_a_wording_the_editor_is_opened(filled, monkeypatch, tmp_path):
    """It begins with the wording that holds; one that fails changes nothing."""
    id = next(id for id, text in listed(filled).items() if "Rome" in text)
    before = listed(filled)[id]
    assert "nobody is there to edit" in filled("edit", id).err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "sed -i s/Rome/Lund/")
    assert filled("edit", id).code == 0
    assert listed(filled)[id] == before.replace("Rome", "Lund")
    monkeypatch.setenv("EDITOR", "false")
    assert "nothing was changed" in filled("edit", id).err
    monkeypatch.setenv("EDITOR", str(tmp_path / "no-editor"))
    assert "cannot be started" in filled("edit", id).err


def test_a_forgotten_memory_goes_with_what_was_said(filled):
    """A dry run tells and keeps it; then no command finds it."""
    id = next(id for id, text in listed(filled).items() if "bees" in text)
    told = filled("forget", id, "--dry-run")
    assert "Would erase 1 step," in told.out
    assert "- I keep bees on the roof.\n" in told.out
    assert "bytes are left" not in told.out
    assert filled("forget", id, "--dry-run", "--json").data["texts"]
    assert id in listed(filled)
    assert "nobody is there" in filled("forget", id).err
    assert filled("forget", id, "--yes", "--json").data["steps"] == 1
    assert id not in listed(filled)
    assert "bees" not in filled("recall", "Who keeps bees?").out


def test_a_memory_alone_leaves_what_was_said(filled):
    """With ``--keep-sources`` the step is still found."""
    id = next(id for id, text in listed(filled).items() if "bees" in text)
    assert filled("forget", id, "--keep-sources", "--yes").code == 0
    assert id not in listed(filled)
    assert "bees" in filled("recall", "Who keeps bees?").out


def test_conditions_on_metadata_choose_memories(filled):
    """Nothing has that metadata, in a listing and for a query."""
    assert listed(filled, "--where", "project=atlas") == {}
    assert listed(filled, "Where does Ada live?", "--where", "year=2024") == {}
    assert "nothing found" in filled("recall", "bees", "--where", "project=atlas").err


def test_background_work_is_counted(cli):
    """What is remembered without waiting is owed until it is extracted."""
    assert cli("remember", "I play the cello.", "--no-wait").code == 0
    found = cli("jobs", "--json").data
    assert (found["waiting"] + found["running"], found["dead"]) == (1, 0)
    assert "0 dead" in cli("jobs").out


def test_background_work_is_cancelled_and_tried_again(cli):
    """A cancelled thread gives no fact, one that is tried again does."""
    for thread, text in (("a", "I play the cello."), ("b", "I own a boat.")):
        assert cli("remember", text, "--thread", thread, "--no-wait").code == 0
    assert "1 cancelled: a" in cli("jobs", "cancel", "a").out
    assert cli("jobs", "retry", "b", "--json").data["threads"] == ["b"]
    assert [text for text in listed(cli).values() if "boat" in text]
    assert not [text for text in listed(cli).values() if "cello" in text]
    assert "0 tried again" in cli("jobs", "retry", "--dead").out
    for wrong in (["retry"], ["cancel"], ["cancel", "--dead"], ["retry", "x"], ["list", "a"]):
        ran = cli("jobs", *wrong)
        assert (ran.code, ran.err.count("\n")) == (2, 1)


class Away(HashingEmbedder):
    """An embedder that cannot be reached."""

    async def embed(self, texts, *, kind="document"):
        """Fail."""
        raise ModelUnavailable("the embedder is away", retryable=False)


def test_work_that_failed_is_told_and_tried_again(cli, tmp_path):
    """While the model was away it waits; what another process alone can do is not waited for."""

    async def fill():
        model, embedder = ScriptedChatModel(), Away()
        async with Mnemo(tmp_path / "mnemo.db", chat_model=model, embedder=embedder) as memory:
            repo = await memory.open_repo("default")
            for thread in ("a", "b"):
                with pytest.raises(ExtractionFailed):
                    await repo.remember("I own a boat.", thread_id=thread, wait=True)

    anyio.run(fill)
    told = cli("jobs")
    assert told.out.startswith("2 waiting")
    assert "waiting: extract a: extraction of" in told.out
    assert [one["state"] for one in cli("jobs", "--json").data["errors"]] == ["waiting"] * 2
    assert "0 tried again" in cli("jobs", "retry", "--dead").out
    assert "1 tried again: a" in cli("jobs", "retry", "a").out
    assert cli("jobs", "--json").data["waiting"] == 1


def test_work_that_fails_again_is_an_error(cli, tmp_path):
    """Its reason is told; nothing is lost."""

    async def fill():
        async with Mnemo(tmp_path / "mnemo.db", embedder=HashingEmbedder(8)) as memory:
            repo = await memory.open_repo("default")
            await repo.remember("I own a boat.", thread_id="a", wait=True)
        async with Mnemo(tmp_path / "mnemo.db", embedder=HashingEmbedder(8), workers=0) as memory:
            repo = await memory.open_repo("default")
            await repo.remember("I own a bike.", thread_id="a")

    anyio.run(fill)
    failed = cli("jobs", "retry", "a")
    assert (failed.code, failed.out) == (2, "")
    assert "is at hand" in failed.err
    assert "bike" in cli("history", "a").out
    assert cli("jobs", "--json").data["waiting"] == 1


def test_a_remembered_text_is_found_and_listed(cli):
    """As a fact with ``--wait``, the default; at once without it."""
    told = cli("remember", "I am allergic to peanuts.", "--actor", "Ada", "--json").data
    assert any("peanuts" in text for text in listed(cli).values())
    assert set(listed(cli)) <= set(told["node_ids"])
    assert cli("remember", "I play the cello.", "--no-wait").code == 0
    assert "cello" in cli("recall", "cello").out


def test_a_file_of_messages_is_remembered_whole_or_not_at_all(cli, write, monkeypatch):
    """Its messages are in the thread; with a mistake in it none is."""
    said = [("user", "I live in Rome."), ("assistant", "Ah.")]
    lines = [{"role": role, "content": text} for role, text in said]
    told = cli("remember", str(write("a.jsonl", lines)), "--thread", "t", "--json").data
    assert len(told["messages"]) == 2
    assert cli("remember", str(write("b.jsonl", [*lines, 7])), "--thread", "u").code == 2
    assert [t["thread_id"] for t in cli("threads", "--json").data["threads"]] == ["t"]
    monkeypatch.setattr("sys.stdin.read", lambda: "I moved to Oslo.")
    assert cli("remember", "-", "--thread", "t").code == 0
    assert "Oslo" in cli("history", "t").out
