"""``--embedder`` and MNEMO_EMBEDDER name the embedder of what has no vectors yet."""

import pytest

LINES = [{"content": f"The cello of Ada is {n} years old.", "role": "Ada"} for n in range(5)]


def space(cli) -> str:
    """What the default repository's vectors are of."""
    return cli("stats", "--json").data["embedding_space"]


@pytest.mark.slow
def test_a_new_repository_is_of_the_embedder_that_is_named(cli, write, monkeypatch):
    """By the option, else by the variable, else MiniLM; once made, it is opened as it is."""
    file = str(write("talk.jsonl", LINES))
    assert cli("import", file, "--embedder", "multilingual").code == 0
    assert space(cli).startswith("use-multilingual")
    assert cli("remember", "The harp is new.", "--embedder", "static").code == 0
    assert space(cli).startswith("use-multilingual")
    assert cli("import", file, "--store", "other.db").code == 0
    assert cli("stats", "--store", "other.db", "--json").data["embedding_space"].startswith("word")
    monkeypatch.delenv("MNEMO_EMBEDDER")
    assert cli("import", file, "--store", "third.db").code == 0
    found = cli("stats", "--store", "third.db", "--json").data
    assert found["embedding_space"].startswith("all-minilm")
    assert found["vectors"] >= len(LINES)


@pytest.mark.slow
def test_a_repository_moves_to_the_embedder_that_is_named(cli, write):
    """And is opened with that from then on."""
    assert cli("import", str(write("talk.jsonl", LINES))).code == 0
    moved = cli("reembed", "--embedder", "minilm", "--json").data
    assert (moved["before"][:9], moved["after"][:10]) == ("wordllama", "all-minilm")
    assert moved["vectors"] == moved["embedded"] > 0
    assert "cello" in cli("recall", "What instrument does Ada have?").out
    assert "already" in cli("reembed", "--embedder", "minilm").out


@pytest.mark.parametrize("command", ["import", "remember", "reembed"])
def test_an_unknown_name_is_one_line(cli, write, command):
    """With the names that there are."""
    file = str(write("talk.jsonl", LINES))
    assert cli("import", file).code == 0
    argument = {"import": [file], "remember": ["The harp is new."], "reembed": []}[command]
    ran = cli(command, *argument, "--embedder", "bert")
    assert (ran.code, ran.out) == (2, "")
    assert '"minilm", "multilingual", "static"' in ran.err
