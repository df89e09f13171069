"""Words of a clause that only something outside it explains."""

import pytest

from mnemo.english.canonical import refers_outside


@pytest.mark.parametrize(
    "clause",
    [
        "She teaches chemistry",
        "I told her about the move",
        "It was made in 1920",
        "I went there last summer",
        "I worked on one with my group",
        "That is why I moved",
        "I dug deep into those topics",
        "My sister likes this band",
        "they live in Rome",
        "Only Bo knows it",
        "Yes I am a fan of her songs",
        "My friends and I should consider it",
        "Does that happen with your sport too",
        "I heard of ways to handle such scenarios",
        "I started volunteering here a year ago",
        "I never had a chance to visit it",
    ],
)
def test_a_reference_that_nothing_before_it_explains_points_outside(clause):
    """Pronouns, pointing words, "there" and a bare "one"."""
    assert refers_outside(clause)


@pytest.mark.parametrize(
    "clause",
    [
        "My sister said she is ill",
        "I sold the bike because it was old",
        "I adopted a cat this week",
        "It is important to me that we vote",
        "There is a bakery on our street",
        "I think that Bo moved",
        "I have one dog",
        "Bo and Ana love their garden",
        "I bought a violin and sold it",
    ],
)
def test_a_reference_that_the_clause_explains_stays_inside(clause):
    """A noun before it, a time, an "it" that stands for what follows, a number."""
    assert not refers_outside(clause)
