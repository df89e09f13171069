"""``scripts/bench closings`` counts what commits close of labelled pairs."""

import json
from pathlib import Path

import pytest
from helpers import ran

pytestmark = [pytest.mark.slow, pytest.mark.long]

SCRIPT = Path(__file__).parents[2] / "scripts" / "bench.py"


def test_closings_of_labelled_pairs_are_counted(tmp_path):
    """One right, one wrong by its label, one change that is not seen."""
    pairs = [
        {"older": "I live in Leeds.", "newer": "I moved to York.", "changed": True},
        {"older": "I have a boat.", "newer": "I sold the boat.", "changed": False},
        {"older": "I adore the sea.", "newer": "The hills it is.", "changed": True},
        {"older": "I have a boat.", "newer": "I like tea.", "changed": False},
    ]
    file = tmp_path / "pairs.json"
    file.write_text(json.dumps(pairs), "utf-8")
    done = ran(SCRIPT, "closings", f"file={file}", "--json", check=True)
    (figures,) = json.loads(done.stdout)["phases"].values()
    assert {figure["name"]: figure["value"] for figure in figures} == {
        "pairs": 4,
        "changed": 2,
        "closed": 2,
        "right": 1,
        "precision": 0.5,
        "recall": 0.5,
    }
