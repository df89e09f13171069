"""When two texts may make the same claim."""

from __future__ import annotations

import pytest

from mnemo.graph.similarity import equal_text, same_claim_guard
from mnemo.graph.wording import subject

SAME = [
    ("Ana has moved to Porto.", "Ana moved to Porto"),
    ("Ana has moved to Porto [2024-02].", "Ana moved to Porto last month [2024-02]."),
    ("Bo's budget is 3000 euros", "Bo's budget is 3,000 euros."),
    ("Bo's budget is €3000", "Bo's budget is 3k euros"),
    ("Craig works at Acme", "Craig is working at Acme"),
    ("Craig does not eat meat", "Craig doesn't eat meat"),
    ("Craig has three cats", "Craig has 3 cats"),
    ("The deadline is 5 March 2024", "The deadline is 2024-03-05"),
    ("Ana Silva lives in Porto", "Ana lives in Porto"),
    ("Ana lives in Porto", "Ana lives in Porto, Portugal"),
    ("The staging server is slow", "The staging server is very slow"),
    ("Ana is left with one choice", "Ana is left with a choice"),
    ("Dana no longer smokes", "Dana stopped smoking"),
    ("Élodie aime le thé", "Elodie aime le thé"),
    ("Ana relocated to Porto", "Ana moved to Porto"),
    ("User prefers dark mode", "User likes dark mode"),
]

DIFFERENT = [
    ("Bo's budget is 2000", "Bo's budget is 3000"),
    ("Bo's budget is 2000 euros", "Bo's budget is 2000 dollars"),
    ("Ana adopted a cat [2024-02-29]", "Ana adopted a cat [2024-03-01]"),
    ("Ana visits Rome in March", "Ana visits Rome in April"),
    ("Ana met Bo on Monday", "Ana met Bo on Tuesday"),
    ("Ana likes tea", "Ana does not like tea"),
    ("Ana likes tea", "Ana dislikes tea"),
    ("Ana smokes", "Ana no longer smokes"),
    ("Ana works at Acme", "Ana quit Acme"),
    ("Ana lives in Porto", "Bo lives in Porto"),
    ("Ana lives in Porto", "Ana's sister lives in Porto"),
    ("Ana lives in Porto", "Ana and Bo have lived in Porto"),
    ("Ana lives in Porto", "Ana lives in Lisbon"),
    ("Bo's brother is tall", "Bo's sister is tall"),
    ("The staging server is slow", "The production server is slow"),
    ("The build uses v2.1.3", "The build uses v2.1.4"),
    ("The test passed", "The test failed"),
    ("The cache is enabled", "The cache is disabled"),
    ("Ana has two cats", "Ana has three cats"),
    ("The alarm rings before lunch", "The alarm rings after lunch"),
    ("The limit is 20 minutes", "The limit is 20 hours"),
    ("Ana can't swim", "Ana can swim"),
    ("Ana never eats fish", "Ana eats fish"),
    (
        "Dana shared Dana's own journey and the struggles Dana had since coming out",
        "Whenever Dana hears this song, Dana thinks about the paths Dana has taken",
    ),
    ("アナは3匹の猫を飼っている", "アナは4匹の猫を飼っている"),
]


@pytest.mark.parametrize(("a", "b"), SAME)
def test_what_says_the_same_in_other_words_passes_the_guard(a: str, b: str) -> None:
    """The guard does not separate wordings of one fact, in either order."""
    assert same_claim_guard(a, b)
    assert same_claim_guard(b, a)


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_what_differs_in_number_date_negation_or_subject_is_separated(a: str, b: str) -> None:
    """X16: facts whose vectors are close are kept apart by what they say."""
    assert not same_claim_guard(a, b)
    assert not same_claim_guard(b, a)


def test_case_blanks_and_the_final_point_do_not_make_another_text() -> None:
    """Equal text is told regardless of spelling that carries no meaning."""
    assert equal_text("Ana  lives in PORTO.", " ana lives in porto")
    assert not equal_text("Ana lives in Porto", "Ana lives in Porto now")


def test_a_lone_point_is_a_text_of_its_own() -> None:
    """Removing the final point never leaves nothing."""
    assert not equal_text(".", "!")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ana has moved", ("ana",)),
        ("Ana's dog is old", ("ana", "'s", "dog")),
        ("In March 2024, Ana moved to Porto", ("ana",)),
        ("The staging server is slow", ("the", "stage", "server")),
        ("Zorb glorfs wibble", ()),
    ],
)
def test_the_subject_is_what_stands_before_the_verb(text: str, expected: tuple[str, ...]) -> None:
    """The subject of a fact is found, or admitted to be unknown."""
    assert subject(text) == expected
