"""First and second person made third."""

from __future__ import annotations

from typing import Any

import pytest

from mnemo.english.persons import Voice, third_person

ANA = Voice("Ana", "Ana and Bo", "Bo")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("I've moved and my dog loves it", "Ana has moved and Ana's dog loves it"),
        ("I work at the harbour", "Ana works at the harbour"),
        (
            "I really study a lot and I watch birds",
            "Ana really studies a lot and Ana watches birds",
        ),
        ("I moved, I'm happy and I don't smoke", "Ana moved, Ana is happy and Ana doesn't smoke"),
        ("I'll go and I can swim", "Ana will go and Ana can swim"),
        ("I'd love tea", "Ana would love tea"),
        ("I'd been there", "Ana had been there"),
        ("I was there and I have two cats", "Ana was there and Ana has two cats"),
        ("My wife and I are in Rome", "Ana's wife and Ana are in Rome"),
        ("We've bought our house", "Ana and Bo have bought Ana and Bo's house"),
        ("He gave me a book of mine", "He gave Ana a book of Ana's"),
        ("I told you about your cat", "Ana told Bo about Bo's cat"),
        ("You're early and you have time", "Bo is early and Bo has time"),
        ("I wanna rest", "Ana wants to rest"),
        ('He said "I am late" to me', 'He said "I am late" to Ana'),
        ("She wrote “my dear” and I laughed", "She wrote “my dear” and Ana laughed"),
        ("The US office of ours", "The US office of Ana and Bo's"),
    ],
)
def test_the_speaker_is_named_and_verbs_agree(said: Any, told: Any) -> None:
    """Pronouns become names, verbs agree, quotations stay."""
    assert third_person(said, ANA) == told


def test_without_one_other_party_you_stays() -> None:
    """Among several, nobody knows who "you" is."""
    assert third_person("I told you", Voice("Ana", "Ana and others", None)) == "Ana told you"
