"""``scripts/audit_facts`` prints facts with their sources, and counts labelled faults."""

import json
from functools import partial
from pathlib import Path

import pytest
from helpers import ran

pytestmark = [pytest.mark.slow, pytest.mark.long]

PERSON = {
    "id": "ana",
    "start": "2026-01-05",
    "step_days": 3,
    "messages": ["I work as a nurse in Bremen.", "My cat is called Miso."],
    "questions": [],
}
DIALOGUE = {
    "id": "talk",
    "turns": [
        {"id": "1", "session": "1", "at": "2026-01-05T10:00", "speaker": "Bo", "text": "Hi Ana!"},
        {"id": "2", "session": "1", "at": "2026-01-05T10:01", "speaker": "Ana",
         "text": "We moved to Lund yesterday."},
    ],
    "questions": [],
}  # fmt: skip


audit = partial(ran, Path(__file__).parents[2] / "scripts" / "audit_facts.py")


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Messages of a person, and a dialogue of two."""
    paths = [tmp_path / "people.json", tmp_path / "talks.json"]
    for path, content in zip(paths, (PERSON, DIALOGUE), strict=True):
        path.write_text(json.dumps([content]), "utf-8")
    return paths


def test_a_sample_has_facts_with_their_sources(files):
    """Of each file as many, the same for the same seed."""
    done = audit(*files, "--sample", 3, "--seed", 7)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("3 of 3 facts, seed 7")
    assert "Ana: We moved to Lund yesterday [2026-01-04]." in done.stdout
    assert "from Ana (2026-01-05): We moved to Lund yesterday." in done.stdout
    assert "from User (2026-01-08): My cat is called Miso." in done.stdout
    assert audit(*files, "--sample", 3, "--seed", 7).stdout == done.stdout


def test_labelled_faults_are_counted_by_kind(files, tmp_path):
    """A fact without a line is good; one may have several faults."""
    labels = tmp_path / "labels"
    labels.write_text("2 unclear whose cat\n2 worthless\n", "utf-8")
    done = audit(files[0], "--labels", labels)
    assert "true           100.0%  (2 of 2)" in done.stdout
    assert "clear alone     50.0%  (1 of 2)" in done.stdout
    assert "   1  unclear: whose cat" in done.stdout


def test_a_label_of_no_fact_is_refused(files, tmp_path):
    """The line is named."""
    labels = tmp_path / "labels"
    labels.write_text("9 unclear\n", "utf-8")
    done = audit(files[0], "--labels", labels)
    assert done.returncode == 1
    assert "'9 unclear'" in done.stderr
