"""The script that fits the weights by which recall tells what is outdated."""

import json
from functools import partial
from pathlib import Path

import pytest
from helpers import ran

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "mnemo" / "recall" / "rivals.json"

PERSON = {
    "id": "ana",
    "start": "2024-01-01",
    "step_days": 5,
    "messages": ["I work as a nurse", "our cat is called Tom", "I quit nursing, I teach now"],
    "questions": [["What is her work?", [2], [0]], ["What is the cat's name?", [1], []]],
    "nothing": [],
}
PAIRS = [
    {"older": "Rent is 700.", "newer": "Rent went up to 750.", "changed": True},
    {"older": "I like tea.", "newer": "I like cake too.", "changed": False},
]


fit = partial(ran, ROOT / "scripts" / "fit_rivals.py")


@pytest.mark.long
@pytest.mark.slow
def test_each_file_is_judged_by_weights_fitted_without_it(tmp_path):
    """The fit prints every file before and after, and changes nothing unless told."""
    pairs, *files = (tmp_path / name for name in ("pairs.json", "a.json", "b.json"))
    pairs.write_text(json.dumps(PAIRS), "utf-8")
    for file in files:
        file.write_text(json.dumps([PERSON]), "utf-8")
    before = TABLE.read_bytes()
    done = fit(*files, "--pairs", pairs, "--check", pairs)
    assert done.returncode == 0, done.stderr
    for days in ("with", "without"):
        assert f"texts {days} their day" in done.stdout
    assert done.stdout.count("b.json, before") == 2
    assert "area under the curve" in done.stdout
    assert TABLE.read_bytes() == before


@pytest.mark.slow
def test_a_missing_file_is_named(tmp_path):
    """It ends with 2 before anything is embedded."""
    done = fit(tmp_path / "none.json")
    assert done.returncode == 2
    assert "none.json" in done.stderr
