"""mnemo export and mnemo import: files, the standard streams, and what is refused."""

import io
import json
import sys

import pytest

from mnemo.cli.output import without_password

LOG = [
    {"role": "user", "content": "My name is Ada and I live in Bern.", "at": "2026-01-02T10:00:00Z"},
    {"role": "assistant", "content": "Nice to meet you, Ada. お茶?", "at": "2026-01-02T10:01:00Z"},
]


@pytest.fixture
def filled(cli, write):
    """The command line in a folder whose mnemo.db holds LOG in repository a."""
    assert cli("import", str(write("log.jsonl", LOG)), "--repo", "a").code == 0
    return cli


@pytest.mark.slow
def test_a_repository_goes_into_another_store_and_comes_out_the_same(filled, tmp_path):
    """Export, import under another name, export again: identical bytes."""
    out = filled("export", "a.jsonl", "--repo", "a")
    assert (out.code, out.err) == (0, "")
    assert "1 session, 1 episode, 2 steps" in out.out
    into = filled("import", "a.jsonl", "--repo", "b", "--store", "other.db")
    assert (into.code, into.err) == (0, "")
    assert "Repository b: 1 session" in into.out
    again = filled("export", "b.jsonl", "--repo", "b", "--store", "other.db", "--json")
    assert again.data["counts"]["step"] == 2
    assert again.data["file"] == "b.jsonl"
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    found = filled("recall", "Where does Ada live?", "--repo", "b", "--store", "other.db")
    assert "Bern" in found.out
    assert filled("doctor", "--store", "other.db").code == 0


def test_a_dash_is_the_standard_stream(filled, tmp_path, monkeypatch):
    """Nothing but the archive on stdout; read back from stdin."""
    out = filled("export", "-", "--repo", "a")
    assert (out.code, out.err) == (0, "")
    assert all(json.loads(line) for line in out.out.splitlines())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(out.out.encode())))
    into = filled("import", "-", "--repo", "b", "--store", "other.db", "--json")
    assert (into.code, into.data["counts"]["step"]) == (0, 2)
    assert filled("export", "-", "--repo", "b", "--store", "other.db").out == out.out


def test_a_backup_is_a_store_with_the_same_repositories(filled, tmp_path):
    """Listed by id; a file that is there is not overwritten."""
    assert filled("backup", "copy.db").code == 0
    repos = filled("repos", "--json").data["repos"]
    assert [repo["id"] for repo in repos] == ["a"]
    assert filled("repos", "--store", "copy.db", "--json").data["repos"] == repos
    assert "a " in filled("repos").out
    again = filled("backup", "copy.db")
    assert (again.code, again.out, again.err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize(
    ("broken", "wrong"),
    [
        (lambda lines: lines[:4], b"line 5: the archive ends before it"),
        (lambda lines: [*lines, lines[-1]], b"no further line"),
        (lambda lines: [lines[0], b"{]\n", *lines[2:]], b"line 2: not JSON"),
        (lambda lines: [lines[0], b"\xff" + lines[1], *lines[2:]], b"line 2: not JSON"),
        (lambda lines: [lines[0].replace(b'"version":1', b'"version":9')], b"format version 9"),
    ],
)
def test_a_broken_archive_is_told_by_file_and_line(filled, tmp_path, broken, wrong):
    """Exit code 2, one line on stderr, nothing imported."""
    assert filled("export", "a.jsonl", "--repo", "a").code == 0
    lines = (tmp_path / "a.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "broken.jsonl").write_bytes(b"".join(broken(lines)))
    ran = filled("import", "broken.jsonl", "--repo", "b", "--store", "other.db")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "broken.jsonl: line" in ran.err
    assert wrong.decode() in ran.err
    assert "nothing was imported" in ran.err
    assert filled("import", "a.jsonl", "--repo", "b", "--store", "other.db").code == 0


def test_a_mistyped_name_makes_and_overwrites_nothing(filled, tmp_path):
    """No store, no repository, no file: told, and what was there stays."""
    (tmp_path / "kept.jsonl").write_text("an earlier backup")
    assert "no store at" in filled("export", "kept.jsonl", "--force", "--store", "nope.db").err
    assert "'nope' in mnemo.db holds nothing" in (
        filled("export", "kept.jsonl", "--force", "--repo", "nope").err
    )
    ran = filled("import", "nope.jsonl", "--repo", "b", "--store", "new.db")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert (tmp_path / "kept.jsonl").read_text() == "an earlier backup"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "kept.jsonl",
        "log.jsonl",
        "mnemo.db",
    ]


@pytest.mark.long
def test_a_filled_repository_is_refused_and_a_copy_stands_beside_it(filled):
    """Nothing is mixed; session ids are a repository's own."""
    assert filled("export", "a.jsonl", "--repo", "a").code == 0
    assert "is not empty" in filled("import", "a.jsonl", "--repo", "a").err
    assert filled("import", "a.jsonl", "--repo", "b").code == 0


@pytest.mark.slow
def test_repositories_are_copied_into_another_store(filled):
    """Once; run again, they are compared; another pattern, or another store, is one line."""
    told = filled("copy", "mnemo.db", "other.db", "--json").data
    assert [(one["repo_id"], one["fresh"]) for one in told["repos"]] == [("a", True)]
    assert "a: was there already" in filled("copy", "mnemo.db", "other.db").out
    for wrong in (("mnemo.db", "other.db", "--repo", "x*"), ("nothing.db", "other.db")):
        ran = filled("copy", *wrong)
        assert (ran.code, ran.err.count("\n")) == (2, 1)


@pytest.mark.slow
@pytest.mark.postgres
def test_the_tables_of_a_database_are_made_before_it_is_used(cli, postgres_url):
    """``migrate`` makes them, and finds nothing to do the next time."""
    for _ in range(2):
        assert "its tables are those of mnemo" in cli("migrate", postgres_url).out
    assert cli("repos", "--store", postgres_url, "--json").data["repos"] == []


@pytest.mark.slow
def test_the_tables_of_a_file_are_brought_to_this_version(filled):
    """One of this version is as it was."""
    assert "its tables are those of mnemo" in filled("migrate", "mnemo.db").out
    assert len(filled("repos", "--json").data["repos"]) > 0


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (
            "postgresql://ada:s3cret@host:5432/db?schema=m",
            "postgresql://ada:***@host:5432/db?schema=m",
        ),
        (
            "postgresql://ada@host/db?password=s3cret&schema=m",
            "postgresql://ada@host/db?password=***&schema=m",
        ),
        ("postgresql://ada:s3@cret@host/db", "postgresql://ada:***@host/db"),
        ("postgres://ada:s3%40cret@host/db?user=ada", "postgres://ada:***@host/db?user=ada"),
        (
            "postgresql://host/db?password=s3cret&sslmode=require&sslpassword=s3cret",
            "postgresql://host/db?password=***&sslmode=require&sslpassword=***",
        ),
        ("postgresql://ada@host:5432/db", "postgresql://ada@host:5432/db"),
        ("sqlite:///a:b/c@d.db", "sqlite:///a:b/c@d.db"),
        ("mnemo.db", "mnemo.db"),
    ],
)
def test_a_password_in_an_url_is_not_shown(url, shown):
    """Commands print the URL of a store for logs, too."""
    assert without_password(url) == shown
