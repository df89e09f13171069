"""The configuration file of the command line: found, overruled, refused."""

from pathlib import Path

import pytest

STEP = '{"observation": "Ada keeps bees", "action": "noted", "id": "1"}\n'


@pytest.fixture
def settings(cli, tmp_path) -> Path:
    """The file's path, in a folder of the test's own."""
    path = tmp_path / "settings" / "mnemo" / "mnemo.toml"
    path.parent.mkdir(parents=True)
    return path


@pytest.fixture
def filled(cli, write, tmp_path):
    """A store ``bees.db`` with a step in the repository ``ada``."""
    file = str(write("steps.jsonl", STEP))
    assert cli("import", file, "--repo", "ada", "--store", str(tmp_path / "bees.db")).code == 0
    return cli


def test_the_file_gives_the_defaults_of_options(filled, settings, tmp_path):
    """Of commands and of commands within commands."""
    settings.write_text(f'store = "{tmp_path / "bees.db"}"\nrepo = "ada"\n')
    assert filled("stats", "--json").data["repo"] == "ada"
    assert filled("notes", "list", "--json").code == 0


def test_the_only_repository_is_not_taken_for_the_one_that_the_file_names(filled, settings):
    """A name is a name: nothing is erased from another repository."""
    settings.write_text('store = "bees.db"\nrepo = "work"\n')
    refused = filled("forget", "--before", "2100-01-01", "--yes")
    assert (refused.code, "there is 'ada'" in refused.err) == (2, True)
    assert filled("stats", "--repo", "ada", "--json").data["steps"] == 1


def test_a_variable_goes_before_the_file_and_an_option_before_both(filled, settings, monkeypatch):
    """The store of the option is there, that of the variable and that of the file are not."""
    settings.write_text('store = "file.db"\nrepo = "ada"\n')
    assert "no store at file.db" in filled("stats").err
    monkeypatch.setenv("MNEMO_STORE", "variable.db")
    assert "no store at variable.db" in filled("stats").err
    assert filled("stats", "--store", "bees.db").code == 0


def test_sections_of_the_configuration_hold_unless_a_variable_says_otherwise(
    filled, settings, monkeypatch
):
    """A recall finds at most as many as the section says."""
    settings.write_text('store = "bees.db"\nrepo = "ada"\n[store_]\n')
    refused = filled("stats")
    assert (refused.code, "store_" in refused.err) == (2, True)
    settings.write_text('store = "bees.db"\nrepo = "ada"\n[session]\nmax_pending = 0\n')
    refused = filled("stats")
    assert (refused.code, "max_pending" in refused.err) == (2, True)
    settings.write_text('store = "bees.db"\nrepo = "ada"\n[session]\nmax_pending = 2\n')
    assert filled("stats").code == 0
    monkeypatch.setenv("MNEMO_SESSION__MAX_PENDING", "0")
    assert "max_pending" in filled("stats").err


@pytest.mark.parametrize("wrong", ["store = ", "repo = 3\n", "colour = 'red'\n", "\udcff"])
def test_a_file_that_is_wrong_is_told_with_its_name(cli, settings, wrong):
    """Exit code 2, one line, nothing done."""
    settings.write_bytes(wrong.encode(errors="surrogateescape"))
    ran = cli("stats")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "mnemo.toml" in ran.err
