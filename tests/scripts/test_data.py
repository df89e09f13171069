"""The people and dialogues of ``tests/data`` are well-formed, and counted rightly."""

import json
from datetime import date, datetime
from pathlib import Path

import pytest

EVERYDAY = Path(__file__).parents[1] / "data" / "everyday"
FILES = sorted(EVERYDAY.glob("*.json"))
DIALOGUES = sorted((EVERYDAY.parent / "dialogues").glob("*.json"))
KEYS = {"id", "start", "step_days", "messages", "questions", "nothing"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_person_has_messages_and_questions_about_them(path):
    """Dates are dates, texts are no blanks, and no file is too small to say anything."""
    for person in json.loads(path.read_text("utf-8")):
        assert set(person) == KEYS
        assert date.fromisoformat(person["start"]).isoformat() == person["start"]
        assert person["step_days"] > 0
        questions = [question for question, _, _ in person["questions"]] + person["nothing"]
        assert all(text.strip() for text in person["messages"] + questions)
        assert len(set(questions)) == len(questions)
        assert len(person["messages"]) >= 28
        assert len(person["questions"]) >= 22
        assert person["nothing"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_labels_name_messages_of_the_person(path):
    """Every question has a message that holds the answer, and none both holds and is outdated."""
    for person in json.loads(path.read_text("utf-8")):
        numbers = range(len(person["messages"]))
        for question, holding, outdated in person["questions"]:
            assert holding, question
            assert all(number in numbers for number in holding + outdated), question
            assert len({*holding, *outdated}) == len(holding) + len(outdated), question


def test_the_readme_counts_the_files():
    """One row a file, with the numbers of messages, questions, changes and unanswerable ones."""
    lines = (EVERYDAY / "README.md").read_text("utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| `")]
    stated = {row[0].split("`")[1]: [int(count) for count in row[3:]] for row in rows}
    counted = {}
    for path in FILES:
        people = json.loads(path.read_text("utf-8"))
        questions = [question for person in people for question in person["questions"]]
        counted[path.name] = [
            sum(len(person["messages"]) for person in people),
            len(questions),
            sum(1 for _, _, outdated in questions if outdated),
            sum(len(person["nothing"]) for person in people),
        ]
    assert stated == counted


@pytest.mark.parametrize("path", DIALOGUES, ids=lambda path: path.stem)
def test_evidence_names_turns_of_the_dialogue(path):
    """Turns are in the order of time, ids are used once, and every question has evidence."""
    for dialogue in json.loads(path.read_text("utf-8")):
        turns = [turn["id"] for turn in dialogue["turns"]]
        times = [datetime.fromisoformat(turn["at"]) for turn in dialogue["turns"]]
        assert len(set(turns)) == len(turns)
        assert times == sorted(times)
        for question in dialogue["questions"]:
            assert question["evidence"], question["question"]
            assert set(question["evidence"]) <= set(turns), question["question"]
