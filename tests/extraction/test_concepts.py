"""What facts are found by, where nobody gave their concepts."""

import pytest

from mnemo.extraction.facts import concepts_of


@pytest.mark.parametrize(
    ("fact", "concepts"),
    [
        ("Ana: I paid 250 euros to Hofmann GmbH for `billing.py`.",
         ("Ana", "billing.py", "Hofmann GmbH")),
        ("Frau Brandt is promoted.", ("Frau Brandt",)),
        ("User's exam in pharmacology is on 18 March.", ("User", "exam")),
        ("User: We painted the kitchen yellow and white.", ("User",)),
        ("User: Loads of people came on the 18th.", ("User",)),
        ("Last Friday Bo moved to New York with v2.5 of it.", ("Bo", "New York")),
        ("The heat pump runs since 9 May.", ("heat pump",)),
    ],
)  # fmt: skip
def test_a_concept_is_a_name_or_what_the_fact_is_about(fact, concepts):
    """Names, identifiers and the subject; no colour, number, day or quantity."""
    assert concepts_of([fact]) == [concepts]


def test_another_noun_is_a_concept_where_two_facts_share_it():
    """Once it may be anything; twice it is a topic."""
    once = "Ana: I gave the cat a bath."
    again = "Ana: We walked home with the cat."
    assert concepts_of([once]) == [("Ana",)]
    assert concepts_of([once, again]) == [("Ana", "cat"), ("Ana", "cat")]


def test_a_fact_of_no_known_language_has_its_names():
    """Rules are English; what they do not know gives nothing and fails nothing."""
    assert concepts_of(["我昨天搬到了上海。", ""]) == [(), ()]
