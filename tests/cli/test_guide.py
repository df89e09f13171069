"""``mnemo guide``: the pages of the guide, listed and shown."""

from importlib.resources import files

import pytest


def test_pages_are_listed_with_their_titles(cli):
    """For a person as a table, for a program as one document."""
    assert "recall" in cli("guide").out
    topics = cli("guide", "--json").data["topics"]
    assert topics["tutorial"] == "Tutorial: a first memory"
    assert {"configuration", "errors", "events", "states", "figures"} <= set(topics)


@pytest.mark.parametrize("topic", ["tutorial", "configuration"])
def test_a_page_is_shown_whole(cli, topic):
    """As it is in the package, where the output is no terminal."""
    text = files("mnemo").joinpath(f"guide/{topic}.md").read_text("utf-8")
    assert cli("guide", topic).out.rstrip("\n") == text.rstrip("\n")
    assert cli("guide", topic, "--json").data == {"topic": topic, "text": text}


def test_an_unknown_page_is_refused_with_the_names_of_all(cli):
    """One line on stderr, and the exit code of a mistake."""
    wrong = cli("guide", "../README")
    assert wrong.code == 2
    assert all(page in wrong.err for page in ("agent-loop", "commands", "tutorial"))
