"""``mnemo forget`` asks before it erases; ``mnemo reembed`` moves to the embedded embedder."""

import anyio
import pytest
import typer
from helpers import committed, repository

from mnemo.testing import HashingEmbedder

LINES = [
    {"content": "The cello is old.", "role": "Ada", "at": "2024-03-01", "session": "s1"},
    {"content": "The harp is new.", "role": "Ada", "at": "2024-03-02", "session": "s2"},
]


@pytest.fixture
def filled(cli, write):
    """Commands over a store with two sessions."""
    assert cli("import", str(write("talk.jsonl", LINES)), "--repo", "r").code == 0
    return cli


def ids(cli):
    """The sessions that are there."""
    return [s["id"] for s in cli("sessions", "--repo", "r", "--json").data["sessions"]]


def test_without_a_terminal_nothing_is_erased_unasked(filled):
    """It refuses unless --yes says that nobody need be asked."""
    first = ids(filled)
    ran = filled("forget", "--repo", "r", "--session", first[0])
    assert (ran.code, ran.out) == (2, "")
    assert "--yes" in ran.err
    assert ids(filled) == first


def test_a_session_is_forgotten(filled, tmp_path):
    """The report is JSON, the second one counts nothing, the words are gone from the file."""
    (cello,) = [
        s for s in ids(filled) if filled("recall", "cello", "--repo", "r").out and "s1" in s
    ]
    ran = filled("forget", "--repo", "r", "--session", cello, "--yes", "--json")
    assert (ran.data["steps"], ran.data["sessions"], ran.data["scrubbed"]) == (1, 1, True)
    assert b"cello" not in (tmp_path / "mnemo.db").read_bytes().lower()
    again = filled("forget", "--repo", "r", "--session", cello, "--yes")
    assert again.out.strip() == "Nothing was there to forget."


def test_what_is_older_is_forgotten(filled):
    """--before is a time, exclusive; the line says how much went."""
    ran = filled("forget", "--repo", "r", "--before", "2024-03-02", "--yes")
    assert ran.out.startswith("Erased 1 step,")
    assert len(ids(filled)) == 1


@pytest.mark.parametrize("answer", [True, False])
def test_a_terminal_is_asked(filled, monkeypatch, answer):
    """No is no; yes erases."""
    asked = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)

    def confirm(question, abort, err):
        asked.append(question)
        if not answer:
            raise typer.Abort

    monkeypatch.setattr("typer.confirm", confirm)
    first = ids(filled)
    filled("forget", "--repo", "r", "--session", first[0])
    assert first[0] in asked[0]
    assert ids(filled) == (first[1:] if answer else first)


def test_a_repository_of_another_embedder_is_moved(filled, caplog):
    """After that the command line can recall from it; once more says so."""

    async def made() -> None:
        async with repository("mnemo.db", "other", embedder=HashingEmbedder(32)) as repo:
            await committed(repo, "Omar plays the violin.", "")

    anyio.run(made)
    assert "violin" in filled("recall", "violin", "--repo", "other").out
    assert "mnemo reembed" in caplog.text
    moved = filled("reembed", "--repo", "other", "--json").data
    assert moved["before"].startswith("hashing-32")
    assert moved["vectors"] == moved["embedded"] > 0
    assert "violin" in filled("recall", "violin", "--repo", "other").out
    assert "already" in filled("reembed", "--repo", "other").out
