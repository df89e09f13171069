"""Whom "he" or "she" means, by what was said before."""

import pytest

from mnemo.english.antecedents import tells_change_of_one, with_antecedent


@pytest.mark.parametrize(
    ("before", "said", "read"),
    [
        (["My uncle Ned paints."], "He sculpts now.", "My uncle Ned sculpts now."),
        (["My mum knits."], "Now she sews instead.", "Now My mum sews instead."),
        (["I had tea with Ada."], "She moved to Rome.", "Ada moved to Rome."),
        (["Our vet, Dr Roe, is kind."], "She retired.", "Dr Roe retired."),
        (
            ["My mother-in-law lives in Bonn."],
            "She's in Ulm now.",
            "My mother-in-law's in Ulm now.",
        ),
        (["It rained.", "My pal Ned is in Bath."], "He moved to Ely.", "My pal Ned moved to Ely."),
        (["My wife Ida dates back pain to May."], "She left.", "My wife Ida left."),
        (["My aunt Eva sees Jim."], "She and Jim split.", "She and Jim split."),
        (["My aunt Eva sees Jim."], "She left Jim.", "My aunt Eva left Jim."),
    ],
)
def test_the_only_person_named_before_is_meant(before, said, read):
    """By a relation or a name; whom the message itself names is another."""
    assert with_antecedent(said, before, "") == read


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ([], "He sculpts now."),
        (["My uncle Ned paints."], "She sculpts now."),
        (["Ned and Jim paint."], "He sculpts now."),
        (["My uncle Ned met Jim."], "He sculpts now."),
        (["My sister's husband paints."], "He sculpts now."),
        (["Ned's flat is small."], "He moved."),
        (["I wrote to Ned."], "He moved."),
        (["The boss was ill.", "My uncle Ned paints."], "He sculpts now."),
        (["Her mother paints."], "She sculpts now."),
        (["My uncle Ned paints."], "Here he sculpts now."),
        (["My uncle Ned paints."], "I sculpt now."),
    ],
)
def test_where_it_may_be_somebody_else_the_text_stays(before, said):
    """Two people, an owner, a receiver, a nearer person, another sex."""
    assert with_antecedent(said, before, "") == said


def test_a_word_at_the_beginning_is_a_name_if_the_question_has_it():
    """Nothing else tells "Ned" from "Rain"; who is unknown hides whoever was named before."""
    before = ["Ned paints.", "My aunt Eva knits."]
    assert with_antecedent("He sculpts now.", before, "What does Ned do?") == "Ned sculpts now."
    assert with_antecedent("She sews now.", before, "What does Eva do?") == "She sews now."


@pytest.mark.parametrize(
    ("said", "tells"),
    [("He moved.", True), ("She quit.", True), ("He likes tea.", False), ("I moved.", False)],
)
def test_only_a_change_of_one_is_read_so(said, tells):
    """What adds to an older statement is judged as it was said."""
    assert tells_change_of_one(said) is tells
