"""``mnemo maintain``: what it runs, what it tells."""

import anyio
import pytest
from helpers import repository

from mnemo import Changeset, Config, Episodic, Semantic

TALK = [{"role": "user", "content": "I keep bees in Bern.", "at": "2020-01-02T10:00:00Z"}]


@pytest.fixture
def filled(cli, write):
    """A folder whose mnemo.db holds a talk, and an old fact that nothing supports."""
    assert cli("import", str(write("talk.jsonl", TALK))).code == 0

    async def add() -> None:
        async with repository("mnemo.db", config=Config(), embedder="static") as repo:
            (step,) = await repo.get_nodes(["episodic"])
            assert isinstance(step, Episodic)
            await repo.apply(Changeset((Semantic("Cy runs", id="old", created_at=step.at),)))

    anyio.run(add)
    return cli


def test_all_three_operations_run_unless_some_are_chosen(filled):
    """In an order in which penalties weigh in the scores; one line for each."""
    ran = filled("maintain")
    assert ran.code == 0
    names = [line.split(":")[0] for line in ran.out.splitlines()]
    assert names == ["validate", "consolidate", "decay"]
    assert "1 without evidence" in ran.out
    assert "1 deleted" in ran.out


def test_chosen_operations_run_alone(filled):
    """``--validate`` deletes nothing."""
    ran = filled("maintain", "--validate")
    assert [line.split(":")[0] for line in ran.out.splitlines()] == ["validate"]
    again = filled("maintain", "--decay", "--consolidate")
    names = [line.split(":")[0] for line in again.out.splitlines()]
    assert names == ["consolidate", "decay"]


def test_reports_as_json(filled):
    """The whole report of each operation, and nothing else on stdout."""
    ran = filled("maintain", "--json")
    assert ran.data["repo"] == "default"
    validated, consolidated, decayed = ran.data["reports"]
    assert (validated["operation"], validated["orphaned"]) == ("validate", 1)
    assert consolidated["merged"] == {}
    assert "old" in decayed["deleted_ids"]
    assert filled("maintain", "--decay", "--json").data["reports"][0]["deleted"] == 0
