"""Wrong calls of every command: one line on stderr, exit code 2, and nothing is made or lost."""

import json
import shlex
import shutil
import sqlite3
from contextlib import closing

import pytest

from mnemo.cli.app import run

FILES = {
    "chat.jsonl": [
        {"role": "user", "content": "When does the ferry leave?", "at": "2026-01-02T10:00:00Z"},
        {"role": "assistant", "content": "At ten past nine."},
    ],
    "task.jsonl": [
        {"role": "user", "content": "Please remember that Rex is my dog.", "id": "m1"},
        {"role": "assistant", "content": "Noted.", "id": "m2"},
    ],
}


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A folder whose mnemo.db holds a thread and a note."""
    folder = tmp_path_factory.mktemp("template")
    for name, lines in FILES.items():
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("MNEMO_STORE", raising=False)
        patch.setenv("XDG_CONFIG_HOME", str(folder / "settings"))
        assert run(["import", "chat.jsonl", "--thread", "t"]) == 0
        assert run(["notes", "update", "task.jsonl"]) == 0
    return folder


@pytest.fixture
def filled(cli, template, tmp_path):
    """The command line in a copy of that folder."""
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return cli


def rows_of(folder):
    """How many rows each table of the folder's store has."""
    # The index of words shows what a function of the library makes of the rows of ``texts``.
    named = "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'text_words'"
    with closing(sqlite3.connect(folder / "mnemo.db")) as db:
        tables = [name for (name,) in db.execute(named)]
        return {name: db.execute(f"SELECT count(*) FROM {name}").fetchone() for name in tables}


@pytest.mark.parametrize(
    ("call", "wrong"),
    [
        ("recal", "No such command 'recal'"),
        ("stats --loud", "No such option"),
        ("stats --repo ' '", "repo_id must be"),
        ("stats --store .", "is a directory"),
        ("recall", "Missing argument"),
        ("recall ' '", "Query cannot be blank"),
        ("recall x --mode odd", "mode must be one of"),
        ("recall x -k 0", "k must be"),
        ("recall x -k many", "Invalid value"),
        ("recall x --min-confidence 2", "min_confidence must be from 0 to 1"),
        ("recall x --use-model", "--use-model needs --model-url and --model"),
        ("recall x --use-model --model m", "both --model-url and --model"),
        ("recall x --since May", "an ISO 8601 time such as '2026-03-01', not 'May'"),
        ("history typo", "there is no thread 'typo' in repository 'default'"),
        ("history t --from-seq -1", "at least 0"),
        ("history t --from-seq 3 --to-seq 1", "turned round"),
        ("history ' '", "blank"),
        ("window typo", "there is no thread 'typo'"),
        ("window t --budget 0", "at least 1 token"),
        ("search ' '", "Query cannot be blank"),
        ("search x --limit 0", "limit must be a whole number, at least 1"),
        ("view typo", "not found"),
        ("view chat#1 --before -1", "before must be"),
        ("view chat#1 --budget 1", "at least 100"),
        ("notes show typo", "not found"),
        ("notes history typo", "not found"),
        ("notes delete typo", "not found"),
        ("notes undo typo", "not found"),
        ("notes restore typo 1", "not found"),
        ("notes import typo", "there is no such folder"),
        ("notes write 'Not A Topic' task.jsonl --description x", "topic"),
        ("notes write tea none.md --description x", "none.md: there is no such file"),
        ("notes list --limit 0", "limit must be"),
        ("notes update none.jsonl", "there is no such file"),
        ("notes update task.jsonl --model m", "both --model-url and --model"),
        ("notes typo", "No such command"),
        ("edit nope x", "not found"),
        ("memories --where project", "KEY=VALUE"),
        ("forget --yes", "say what to forget"),
        ("forget --yes --before 'last week'", "ISO 8601"),
        ("export - --json", "leave --json away"),
        ("import none", "none: there is no such file"),
        ("import .", "is a directory"),
        ("worker mnemo.db --kinds paint", "paint"),
    ],
)
def test_a_wrong_call_is_one_line_and_changes_nothing(filled, template, tmp_path, call, wrong):
    """Without a traceback; stdout stays empty."""
    failed = filled(*shlex.split(call))
    assert (failed.code, failed.out) == (2, "")
    assert failed.err.startswith("mnemo: ")
    assert failed.err.count("\n") == 1
    assert wrong in failed.err
    assert rows_of(tmp_path) == rows_of(template)


COMMANDS = [
    "recall x", "sessions", "stats", "maintain", "threads", "history t", "window t", "search x",
    "view x", "notes list", "notes show x", "notes history x", "notes undo x", "notes delete x",
    "notes export f", "forget --thread t --yes", "export a.jsonl", "reembed",
]  # fmt: skip


@pytest.mark.parametrize("command", [*COMMANDS, "doctor", "worker", "migrate"])
def test_a_mistyped_store_is_told_and_not_made(cli, tmp_path, command):
    """Nor is an empty file taken for one."""
    (tmp_path / "empty.db").touch()
    for store in ("typo.db", "empty.db"):
        named = [store] if command in ("worker", "migrate") else ["--store", store]
        failed = cli(*shlex.split(command), *named)
        assert (failed.code, failed.out) == (2, "")
        assert f"there is no store at {store}" in failed.err
    assert [(path.name, path.stat().st_size) for path in tmp_path.iterdir()] == [("empty.db", 0)]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_mistyped_repository_is_told_and_not_made(filled, template, tmp_path, command):
    """A repository that holds nothing is an error that asks for the name."""
    failed = filled(*shlex.split(command), "--repo", "typo")
    assert (failed.code, failed.out) == (2, "")
    assert "repository 'typo' in mnemo.db holds nothing: is --repo right?" in failed.err
    assert {path.name for path in tmp_path.iterdir()} == {"mnemo.db", *FILES}
    assert rows_of(tmp_path) == rows_of(template)


@pytest.mark.parametrize(
    "command", ["recall Ada", "forget --thread t --yes", "export a", "reembed"]
)
def test_a_mistyped_repository_names_those_that_exist(filled, command):
    """Given or left out, where there are several."""
    assert filled("remember", "I play the cello.", "--repo", "music").code == 0
    failed = filled(*shlex.split(command), "--repo", "typo")
    assert (failed.code, failed.out) == (2, "")
    assert "repository 'typo' in mnemo.db holds nothing" in failed.err
    assert "there is 'default', 'music'" in failed.err


@pytest.mark.parametrize("command", ["remember x", "import x.jsonl", "mcp"])
def test_a_store_is_not_made_for_an_embedder_that_there_is_not(cli, tmp_path, command):
    """The mistake is told first."""
    (tmp_path / "x.jsonl").write_text(json.dumps(FILES["chat.jsonl"][0]))
    failed = cli(*shlex.split(command), "--embedder", "wrong")
    assert (failed.code, failed.out) == (2, "")
    assert "there is no embedder 'wrong'" in failed.err
    assert [path.name for path in tmp_path.iterdir()] == ["x.jsonl"]
