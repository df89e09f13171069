"""Where a sentence ends."""

import pytest

from mnemo.english.clauses import split_clauses, without_lead
from mnemo.english.sentences import sentences


@pytest.mark.parametrize(
    "text",
    [
        "Dr. Lee uses v2.1.3 at example.org.",
        "It weighs 3.5 kg, e.g. with a box.",
        "J.K. Rowling lives in the U.K. now.",
        "See main.py and https://example.org/a.b?c=d for it.",
        "Well... that took long.",
        'He said "Go. Now." and left.',
        "She asked “Why? Who?” twice.",
        "No. 7 is Mr. Brown's house.",
    ],
)
def test_what_only_looks_like_an_end_does_not_split(text):
    """Abbreviations, decimals, versions, URLs, file names, ellipses, quotations."""
    assert sentences(text) == [text]


def test_marks_before_a_capital_split():
    """Points, question marks and exclamation marks end a sentence."""
    assert sentences("I moved. Did you? Yes! At 5 p.m. we left.") == [
        "I moved.",
        "Did you?",
        "Yes!",
        "At 5 p.m. we left.",
    ]


def test_list_items_are_sentences():
    """Each item of a list is one, without its mark."""
    assert sentences("To buy:\n- bread\n2. two eggs\n* salt") == [
        "To buy:",
        "bread",
        "two eggs",
        "salt",
    ]


def test_wrapped_lines_are_one_sentence():
    """A line break inside a paragraph ends nothing."""
    assert sentences("The flight\nleaves at nine.\n\nBring shoes") == [
        "The flight leaves at nine.",
        "Bring shoes",
    ]


def test_stage_directions_and_wide_marks_split():
    """A bracketed act and full-width marks stand for sentences of their own."""
    assert sentences("Look! [shares a photo of a lake] 你好。再见！") == [
        "Look!",
        "[shares a photo of a lake] 你好。",
        "再见！",
    ]


@pytest.mark.parametrize(
    ("sentence", "clauses"),
    [
        (
            "I'm Ana, I work as a nurse in Bath, and I have a dog, Rex.",
            ["I'm Ana", "I work as a nurse in Bath", "I have a dog, Rex."],
        ),
        ("I'm a cook, my wife is a vet.", ["I'm a cook", "my wife is a vet."]),
        ("I'm vegan but my son eats meat.", ["I'm vegan", "my son eats meat."]),
        ("I met Tom, my boss, in Rome.", ["I met Tom, my boss, in Rome."]),
        ("As I grew older, my knees hurt.", ["As I grew older, my knees hurt."]),
        ("Since May, my phone is broken.", ["Since May, my phone is broken."]),
    ],
)
def test_who_tells_of_oneself_says_several_things_in_a_sentence(sentence, clauses):
    """Each may end alone; what hangs on another or only names somebody is no clause."""
    assert split_clauses(sentence) == clauses


@pytest.mark.parametrize(
    ("sentence", "parts"),
    [
        ("The cache caused lock errors; replaced by Redis.", 1),
        ("CI runs on GitHub; about 14 minutes.", 1),
        ("The cache caused lock errors; we replaced it.", 2),
    ],
)
def test_what_has_no_subject_behind_a_semicolon_stays(sentence: str, parts: int) -> None:
    """Alone it would be no fact, and nothing that was said may be lost."""
    assert len(split_clauses(sentence)) == parts


@pytest.mark.parametrize(
    "sentence",
    [
        "Well-known recipes are in the blue folder.",
        "No-code tools are banned at my work.",
        "So-called smart meters cost more.",
        "Right-handed people sit there.",
    ],
)
def test_a_word_with_a_hyphen_is_no_interjection(sentence: str) -> None:
    """Without its first part it says another thing, or the contrary."""
    assert without_lead(sentence) == sentence


@pytest.mark.parametrize("lead", ["Well, ", "Well - ", "Well – ", "No -- ", "Oh... ", "So: "])
def test_an_interjection_goes_with_its_mark(lead: str) -> None:
    """Whatever mark it is."""
    assert without_lead(f"{lead}I moved to Leeds.") == "I moved to Leeds."
