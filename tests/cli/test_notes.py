"""Notes on the command line: what an update keeps, and what becomes of it."""

import io
import sys

import pytest
from rich.console import Console
from scripted_server import ScriptedServer

from mnemo.protocols import ChatReply

TASK = [
    {"role": "user", "content": "Please remember that Rex is my dog.", "id": "m1"},
    {"role": "assistant", "content": "Noted.", "id": "m2"},
]
TOPIC = "rex-dog"


@pytest.fixture
def noted(cli, write):
    """The command line in a folder whose mnemo.db holds one note, made by rule."""
    ran = cli("notes", "update", str(write("task.jsonl", TASK)), "--json")
    assert (ran.code, ran.data["wrote"]) == (0, True)
    return cli


def topics(cli):
    """Of the notes that are listed."""
    return [note["topic"] for note in cli("notes", "list", "--json").data["notes"]]


# ── update ───────────────────────────────────────────────────────────────────────────


def test_without_a_model_an_explicit_request_is_kept(cli, write):
    """By rule, and it is said that no model was there; as JSON without a word besides."""
    file = str(write("task.jsonl", TASK))
    told = cli("notes", "update", file)
    assert told.code == 0
    assert ": created, version 1, by rule" in told.out
    assert told.err == (
        "mnemo: no model was named (--model-url, --model): only explicit requests are kept\n"
    )
    again = cli("notes", "update", file, "--json")
    assert (again.code, again.err) == (0, "")
    assert (again.data["ran"], again.data["skipped_because"]) == (False, "too_few_iterations")
    (topic,) = topics(cli)
    assert "Rex is my dog" in cli("notes", "show", topic).out


def test_what_is_no_request_needs_a_model(cli, write):
    """The reason is told in words and in JSON; twenty passes of a loop do not help."""
    file = str(write("task.jsonl", [{"role": "user", "content": "Actually, it is green."}]))
    told = cli("notes", "update", file, "--iterations", "20")
    assert (told.code, told.out) == (0, "Nothing was done: no model.\n")
    assert topics_of_nothing(cli)


def topics_of_nothing(cli):
    """Whether the repository is still one that holds nothing."""
    return "holds nothing" in cli("notes", "list").err


def test_a_task_that_failed_is_not_looked_back_over(cli, write):
    """--outcome is passed on; one that there is not is an error."""
    file = str(write("task.jsonl", TASK))
    failed = cli("notes", "update", file, "--outcome", "failed", "--json")
    assert failed.data["skipped_because"] == "task_failed"
    wrong = cli("notes", "update", file, "--outcome", "lost")
    assert wrong.code == 2
    assert "outcome must be one of" in wrong.err


@pytest.mark.slow
def test_a_model_over_http_writes(cli, write, monkeypatch):
    """Server and model by option or variable, the key by a variable alone; progress ends."""
    calls = [
        {
            "id": "c1",
            "name": "write_note",
            "arguments": {
                "topic": "pets",
                "description": "The user's animals",
                "body": "- Rex is a dog",
                "evidence": "Rex is my dog",
            },
        }
    ]
    replies = [ChatReply(tool_calls=calls), ChatReply(text="Done.")]
    with ScriptedServer({"update_notes": lambda request: replies.pop(0)}) as server:
        server.keys = {"sesame"}
        monkeypatch.setenv("MNEMO_MODEL_KEY", "sesame")
        monkeypatch.setenv("MNEMO_MODEL", "scripted")
        file = str(write("task.jsonl", TASK))
        ran = cli("notes", "update", file, "--model-url", f"{server.url}/v1", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert (ran.data["model"], ran.data["error"], ran.data["wrote"]) == ("scripted", None, True)
    assert {"topic": "pets", "action": "created", "version": 1, "by": "model"} in ran.data["notes"]
    assert ran.data["usage"]["input_tokens"] > 0
    assert "sesame" not in ran.out


@pytest.mark.long
@pytest.mark.slow
def test_a_model_that_is_not_there_is_an_error_and_the_request_is_kept(cli, write):
    """Exit code 2 and one line; what the rule could keep is kept."""
    with ScriptedServer() as server:
        url = f"{server.url}/nowhere"
    file = str(write("task.jsonl", TASK))
    ran = cli("notes", "update", file, "--model-url", url, "--model", "m")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert ran.err.startswith("mnemo: the update failed: ")
    assert "by rule" in ran.out
    assert len(topics(cli)) == 1


@pytest.fixture
def shown(monkeypatch):
    """What is written to a terminal on stderr."""
    written = io.StringIO()

    def console(**_options):
        return Console(file=written, force_terminal=True, width=100, color_system=None)

    monkeypatch.setattr("mnemo.cli.output.Console", console)
    return written


def test_an_update_that_is_not_due_leaves_no_line_of_progress(cli, write, shown):
    """A spinner that nothing followed is wiped away."""
    assert cli("notes", "update", str(write("task.jsonl", TASK)), "--outcome", "failed").code == 0
    assert shown.getvalue().endswith("\r\x1b[2K\x1b[?25h")


def test_progress_is_shown_on_a_terminal_and_ends(cli, write, shown):
    """A line that follows the update, the end of which is the last thing in it."""
    assert cli("notes", "update", str(write("task.jsonl", TASK)), "--json").code == 0
    line, end = shown.getvalue().split("\n")
    assert line.rsplit("\r", 1)[-1].startswith(f"\x1b[2K  Memory updated: {TOPIC} ")
    assert end == "\x1b[?25h"


# ── What becomes of a note ───────────────────────────────────────────────────────────


def test_a_note_is_listed_shown_and_traced(noted):
    """Its history names who made it, on which words of which message."""
    (topic,) = topics(noted)
    assert topic in noted("notes", "list").out
    note = noted("notes", "show", topic, "--json").data["note"]
    assert (note["version"], note["trust"]) == (1, "stated")
    (version,) = noted("notes", "history", topic, "--json").data["versions"]
    assert (version["by"], version["message_ids"]) == ("rule", ["m1"])
    assert version["update_id"] in noted("notes", "history", topic).out
    assert noted("stats", "--json").data["notes"] == 1


def test_an_update_is_undone_and_a_note_restored(noted):
    """By the id that update and history tell."""
    (topic,) = topics(noted)
    (version,) = noted("notes", "history", topic, "--json").data["versions"]
    undone = noted("notes", "undo", version["update_id"])
    assert (undone.code, undone.out) == (0, f"{topic}: deleted, version 2, by undo\n")
    assert topics(noted) == []
    assert noted("notes", "restore", topic, "1").out == f"{topic}: version 3.\n"
    assert topics(noted) == [topic]
    again = noted("notes", "undo", version["update_id"])
    assert again.code == 2
    assert "changed since" in again.err


def test_notes_are_written_and_deleted_by_hand(cli, write, monkeypatch):
    """From a file or standard input; --query finds the best first."""
    body = str(write("body.md", "- four sugars\n"))
    written = cli("notes", "write", "tea", body, "--description", "How tea is drunk")
    assert (written.code, written.out) == (0, "tea: version 1.\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("- black"))
    assert cli("notes", "write", "coffee", "-", "--description", "How coffee is drunk").code == 0
    found = cli("notes", "list", "--query", "tea", "--limit", "1", "--json").data["notes"]
    assert [note["topic"] for note in found] == ["tea"]
    assert cli("notes", "delete", "tea", "--json").data["deleted"] == "tea"
    assert topics(cli) == ["coffee"]


def test_a_folder_goes_out_and_comes_in(noted, tmp_path):
    """One file per note; an edit comes in, a conflict and a refusal are told."""
    (topic,) = topics(noted)
    out = noted("notes", "export", "folder")
    assert out.out.startswith("folder: 1 written, 0 unchanged, 0 removed.")
    file = tmp_path / "folder" / f"{topic}.md"
    file.write_text(file.read_text() + "- and he barks\n")
    (tmp_path / "folder" / "README.txt").write_text("no note")
    into = noted("notes", "import", "folder")
    assert into.code == 0
    assert "folder: 1 written" in into.out
    assert "refused: README.txt: is no .md file" in into.out
    assert "barks" in noted("notes", "show", topic).out
    other = noted("notes", "import", "folder", "--repo", "other", "--json")
    assert other.data["report"]["written"] == [topic]


def test_what_a_note_says_does_not_steer_the_terminal(cli, write):
    """Escape sequences are shown as marks, in every command."""
    body = str(write("body.md", "plain \x9b31m red \x1b[2J"))
    cli("notes", "write", "lamp", body, "--description", "A \x1b[5m lamp")
    for command in (("show", "lamp"), ("list",), ("history", "lamp")):
        ran = cli("notes", *command)
        assert ran.code == 0
        assert not {"\x1b", "\x9b"} & set(ran.out)


# ── What goes wrong ──────────────────────────────────────────────────────────────────


def test_a_number_of_iterations_that_is_none_is_refused(noted):
    """Exit code 2; no note is made or lost."""
    failed = noted("notes", "update", "task.jsonl", "--iterations", "-1")
    assert failed.code == 2
    assert failed.err.splitlines()[-1].startswith("mnemo: ")
    assert "iterations must be" in failed.err
    assert len(topics(noted)) == 1


def test_half_a_history_is_not_looked_back_over(cli, write, tmp_path):
    """A mistake in the file: nothing is kept, no store is made."""
    failed = cli("notes", "update", str(write("x.jsonl", '{"role": "user", "content": "a"}\n{')))
    assert (failed.code, failed.err.count("\n")) == (2, 1)
    assert "line 2" in failed.err
    assert not (tmp_path / "mnemo.db").exists()


def test_the_doctor_counts_notes(cli, write):
    """A store that holds only notes does not look empty."""
    cli("notes", "update", str(write("task.jsonl", TASK)))
    counts = cli("doctor", "--json").data["counts"]
    assert (counts["notes"], counts["note_versions"]) == (1, 1)
