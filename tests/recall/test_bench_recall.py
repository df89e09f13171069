"""The bench of recall, on a dialogue small enough for a test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "bench_recall.py"

TURNS = [
    ("Ana", "I planted roses behind the shed"),
    ("Bo", "My boat needs new paint"),
    ("Ana", "The kettle broke this morning"),
    ("Bo", "Lunch was soup again"),
]
DIALOGUE = {
    "id": "d1",
    "turns": [
        {"id": f"t{n}", "session": n // 2, "at": f"2024-03-0{n + 1}T10:00:00"}
        | {"speaker": speaker, "text": text}
        for n, (speaker, text) in enumerate(TURNS)
    ],
    "questions": [
        {"question": "Where are the roses?", "category": "single", "evidence": ["t0"]},
        {"question": "What does Bo's boat need?", "category": "single", "evidence": ["t1"]},
        {
            "question": "What broke, and what was lunch?",
            "category": "two",
            "evidence": ["t2", "t3"],
        },
    ],
}


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_every_turn_is_found_and_counted(tmp_path: Path) -> None:
    """Questions that share words with their turns are answered, by BM25 and by mnemo."""
    file = tmp_path / "dialogues.json"
    file.write_text(json.dumps([DIALOGUE]), "utf-8")
    done = bench(str(file), "--json")
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert (report["questions"], report["turns"]) == (3, 4)
    assert set(report["methods"]) == {"BM25", "mnemo, role prior on", "mnemo, role prior off"}
    for method in report["methods"].values():
        assert method["overall"]["recall@5"] == 1.0
        assert 0 < method["overall"]["mrr"] <= 1
        assert set(method["categories"]) == {"single", "two"}
    assert report["methods"]["mnemo, role prior on"]["overall"]["tokens"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("content", ["{", '{"id": 1}', '[{"id": "d", "turns": [{}]}]'])
def test_a_file_that_is_no_dialogue_is_refused(tmp_path: Path, content: str) -> None:
    """One clear line and exit code 2, no traceback."""
    file = tmp_path / "broken.json"
    file.write_text(content, "utf-8")
    done = bench(str(file))
    assert done.returncode == 2
    assert done.stderr.startswith("bench_recall: ")
    assert len(done.stderr.splitlines()) == 1
