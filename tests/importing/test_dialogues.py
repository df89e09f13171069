"""Files that can be imported, and every way in which they cannot."""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from mnemo.importing import dialogues
from mnemo.importing.dialogues import stream_talks
from mnemo.importing.json_stream import ImportFileError
from mnemo.importing.records import Talk

DIALOGUE = {
    "id": "d",
    "turns": [
        {"id": "t1", "session": 1, "at": "2025-05-08T13:56:00", "speaker": "Mel", "text": "Hi!"},
        {"id": "t2", "session": 2, "speaker": "Ada", "text": "Hello."},
    ],
}


@dataclass
class Reading:
    """What was read before the first mistake, and that mistake."""

    talks: list[Talk] = field(default_factory=list)
    problem: ImportFileError | None = None

    @property
    def turns(self) -> int:
        return sum(len(talk.turns) for talk in self.talks)


def read_talks(file: Path) -> Reading:
    reading = Reading()
    try:
        for talk in stream_talks(file):
            reading.talks.append(talk)
    except ImportFileError as problem:
        reading.problem = problem
    return reading


def test_a_dialogue_gives_a_talk_per_session_and_a_turn_per_turn(write):
    """Ids become keys, speakers actors, texts observations."""
    first, second = read_talks(write("a.json", json.dumps([DIALOGUE], indent=1))).talks
    (turn,) = first.turns
    assert (turn.key, turn.actor, turn.observation, turn.action) == ("t1", "Mel", "Hi!", "")
    assert turn.at is not None
    assert turn.at.isoformat() == "2025-05-08T13:56:00"
    assert [turn.key for turn in second.turns] == ["t2"]
    assert first.goal == "d, session 1"


@pytest.mark.parametrize("text", [json.dumps(DIALOGUE), json.dumps(DIALOGUE, indent=2)])
def test_one_dialogue_without_a_list_is_read_alike(write, text):
    """A list of one, and the one: the same talks."""
    alone = read_talks(write("alone.json", text))
    listed = read_talks(write("listed.json", f"[{text}]"))
    assert alone == listed
    assert len(alone.talks) == 2


def test_dialogues_one_per_line_are_read_too(write):
    """JSON Lines whose values are dialogues."""
    other = DIALOGUE | {"id": "e"}
    assert len(read_talks(write("a.jsonl", [DIALOGUE, other])).talks) == 4


def test_messages_are_keyed_by_id_or_line(write):
    """Both spellings of a message; blank lines count as lines and are left out."""
    lines = (
        '{"role": "user", "content": "one"}\n\n'
        '{"speaker": "Ada", "text": "two", "id": 9, "session": "s"}\n'
        '{"speaker": "Ada", "text": "three"}'
    )
    first, second = read_talks(write("log.jsonl", lines)).talks
    assert [(t.key, t.actor, t.observation) for t in first.turns] == [
        ("1", "user", "one"),
        ("4", "Ada", "three"),
    ]
    assert [(t.key, t.observation) for t in second.turns] == [("9", "two")]


def test_steps_keep_their_action(write):
    """{observation, action}, one of them may be missing."""
    steps = [{"observation": "it rains", "action": "took a coat", "actor": "Eye"}, {"action": "go"}]
    (talk,) = read_talks(write("steps.jsonl", steps)).talks
    assert [(t.observation, t.action, t.actor) for t in talk.turns] == [
        ("it rains", "took a coat", "Eye"),
        ("", "go", None),
    ]


def test_a_talk_keeps_its_name_when_it_grows(write):
    """The name is that of its beginning, and tells apart files of one name."""
    line = '{"role": "user", "content": "one"}\n'
    (short,) = read_talks(write("log.jsonl", line)).talks
    (grown,) = read_talks(write("log.jsonl", line + line.replace("one", "two"))).talks
    (other,) = read_talks(write("log.jsonl", line.replace("one", "two"))).talks
    assert short.name == grown.name
    assert short.name != other.name


def test_long_sessions_of_lines_are_given_in_parts(write, monkeypatch):
    """Each part goes on where the one before ended; what is held at once is bounded."""
    monkeypatch.setattr(dialogues, "HELD", 40)
    lines = [{"role": "user", "content": f"message {n}", "session": n % 2} for n in range(20)]
    talks = read_talks(write("log.jsonl", lines)).talks
    names = {talk.name for talk in talks}
    assert (len(names), len(talks) > 6) == (2, True)
    assert Counter(talk.name for talk in talks if not talk.continues) == dict.fromkeys(names, 1)
    for name in names:
        parts = [talk for talk in talks if talk.name == name]
        keys = [int(turn.key) for talk in parts for turn in talk.turns]
        assert (parts[0].continues, keys) == (False, list(range(keys[0], 21, 2)))
        assert all(sum(turn.size for turn in talk.turns) <= 50 for talk in parts)


# ── Mistakes ─────────────────────────────────────────────────────────────────────────


def test_bytes_that_are_not_utf8_are_placed_and_what_is_before_them_is_read(write):
    """The line and the byte in it; lines before are whole, the line itself is not read."""
    content = b'{"role": "user", "content": "one"}\n{"role": "user", "content": "caf\xe9"}\n'
    reading = read_talks(write("log.jsonl", content))
    assert reading.turns == 1
    assert reading.problem is not None
    assert (reading.problem.line, reading.problem.column) == (2, 33)
    assert "not UTF-8 (byte 0xe9)" in str(reading.problem)


def test_a_mistake_before_the_bad_bytes_is_told_first(write):
    """The first thing that is wrong, not the last."""
    content = b'{"role": "user"}\n{"role": "user", "content": "caf\xe9"}\n'
    problem = read_talks(write("log.jsonl", content)).problem
    assert problem is not None
    assert problem.line == 1
    assert 'no "text" or "content"' in str(problem)


@pytest.mark.parametrize(
    ("turn", "wrong"),
    [
        ({"id": 1, "speaker": "a"}, 'turn 2 has no "text" or "content"'),
        ({"id": 1, "text": "x"}, 'turn 2 has no "speaker" or "role"'),
        ({"speaker": "a", "text": "x"}, 'turn 2 has no "id"'),
        ({"id": "t1", "speaker": "a", "text": "x", "session": 1}, "turn 2 has the id 't1'"),
        ({"id": 1, "speaker": "a", "text": " "}, "turn 2 is blank"),
        ({"id": 1, "speaker": " ", "text": "x"}, "turn 2 has a blank speaker"),
        ({"id": 1, "speaker": "a", "text": 5}, 'turn 2 has a "text" that is no text'),
        ({"id": [], "speaker": "a", "text": "x"}, 'turn 2 has a "id" that is neither'),
        ({"id": 1, "speaker": "a", "text": "x", "at": "May"}, 'turn 2 has an "at"'),
        ({"id": 1, "speaker": "a", "text": "x", "at": 5}, 'turn 2 has an "at"'),
        ("x", "turn 2 is no JSON object"),
    ],
)
def test_a_wrong_turn_is_named(write, turn, wrong):
    """Which dialogue, which turn, what it lacks; the dialogue is not read in part."""
    bad = {"id": "e", "turns": [DIALOGUE["turns"][0], turn]}
    reading = read_talks(write("a.json", json.dumps([DIALOGUE, bad])))
    assert reading.turns == 2
    assert reading.problem is not None
    assert f"dialogue 2: {wrong}" in str(reading.problem)


@pytest.mark.parametrize(
    ("dialogue", "wrong"),
    [
        (5, "dialogue 2 has no list of turns"),
        ({"id": "e"}, "dialogue 2 has no list of turns"),
        ({"turns": []}, 'dialogue 2: has no "id"'),
        (DIALOGUE, "dialogue 2: the id 'd' is that of an earlier dialogue"),
    ],
)
def test_a_wrong_dialogue_is_named(write, dialogue, wrong):
    """Its number and what is wrong with it."""
    problem = read_talks(write("a.json", json.dumps([DIALOGUE, dialogue]))).problem
    assert problem is not None
    assert wrong in str(problem)


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("5", "is no JSON object"),
        ('{"role": "user"}', 'has no "text" or "content"'),
        ('{"observation": 5}', 'has a "observation" that is no text'),
        ('{"observation": ""}', "is blank"),
        ('{"role": "user", "content": "x", "id": 1}', "has the id '1' of an earlier one"),
        ("[" * 100_000, "not usable JSON"),
        ('{"role": "user", "content": ' + "9" * 5_000 + "}", "not usable JSON"),
    ],
)
def test_a_wrong_line_is_named(write, line, wrong):
    """The number of the line and what is wrong with it; the lines before it are read."""
    reading = read_talks(write("log.jsonl", '{"role": "user", "content": "one"}\n' + line))
    assert reading.turns == 1
    assert reading.problem is not None
    assert "line 2" in str(reading.problem)
    assert wrong in str(reading.problem)
