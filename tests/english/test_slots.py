"""What contradicts: different values of one slot, and ends."""

import pytest
from helpers import contradict

from mnemo.english.slots import claim_keys, claims, rival_keys

CONTRADICTING = [
    ("Bo's budget is 2000 euros", "Bo's budget is 3000 euros"),
    ("Bo's budget is 2000 euros", "Bo has raised his budget to 3000 euros."),
    ("Bo has a budget of 2000 euros", "Bo's budget is now €3,000"),
    ("Bo's travel budget is 2000", "Bo's travel budget was raised from 2000 to 2500"),
    ("Ana lives in Lisbon", "Ana has moved to Porto [2024-02]."),
    ("Ana lives in Lisbon", "Ana moved from Lisbon to Porto last month [2024-02]"),
    ("Ana lives in Lisbon", "Ana no longer lives in Lisbon"),
    ("Ana is based in Rome", "Ana is living in New York"),
    ("Craig works at Acme", "Craig works at Bolt"),
    ("Craig works at Acme", "Craig quit his job"),
    ("Craig works at Acme", "Craig has left Acme"),
    ("Craig works for Acme Corp", "Craig started a new job at Bolt Ltd."),
    ("Bo works as a nurse", "Bo works as a teacher at Hill School"),
    ("Bo is a nurse", "Bo is now a teacher"),
    ("Ana is 29 years old", "Ana turned 30"),
    ("Ana is single", "Ana is married to Bo"),
    ("Ana is engaged to Bo", "Ana broke up with Bo"),
    ("Ana's favourite colour is blue", "Ana's favorite colour is green"),
    (
        "The deadline for the report is Friday [2024-03-08]",
        "The deadline for the report is Friday [2024-03-15]",
    ),
    ("The project deadline is 5 March", "The project's deadline was moved to 12 March"),
    ("The API's version is 2.1", "The API version is 3.0"),
    ("Ana drinks coffee", "Ana has stopped drinking coffee"),
    ("Ana smokes", "Ana no longer smokes"),
    ("Ana is vegetarian", "Ana is no longer vegetarian"),
    ("Ana likes green tea", "Ana doesn't like tea anymore"),
    ("Ana eats meat", "Ana never eats meat"),
    ("Ana eats meat", "Ana doesn't eat meat"),
    ("Ana eats meat", "Ana is not eating meat anymore"),
    ("Ana smokes", "Ana has never smoked"),
    ("Ana has a car", "Ana doesn't have a car"),
    ("Ana works at the harbour", "Ana is no longer working at the harbour"),
    ("Ana lives in Lund", "Ana is no longer living in Lund"),
    ("Bo's wife is Ana", "Bo's wife is Clara"),
    ("Bo's address is 12 Hill Street", "Bo's address is 7 Oak Road"),
    ("The staging server's status is open", "The staging server's status is closed"),
    ("Bo's project's status is blocked", "Bo's project's status is done"),
    ("User's email is a@x.org", "User's email is b@x.org"),
    ("Bo is working on the car", "Bo stopped working on the car"),
    ("Ana's job is nurse", "Ana works as a teacher"),
    ("Ana works as a nurse", "Ana is a paramedic now"),
    ("Ana is a nurse", "Ana is a welder these days"),
    ("Ana is a lifeguard at the moment", "Ana is currently a tutor"),
    ("Bo's address is 12 Hill Street", "Bo's new address is 7 Oak Road"),
    ("Bo's current phone number is 555 12", "Bo's phone number is now 555 77"),
    ("Ana and others' budget is 200", "Ana and others' new budget is 300"),
    ("The deadline is March 10", "The deadline is March 20"),
    ("The deadline is March 10", "The new deadline is 2 April"),
    ("The release date is 3 May", "The release date was moved to 9 May"),
]
COMPATIBLE = [
    ("Ana eats meat", "Ana doesn't eat meat on Fridays"),
    ("Ana likes tea", "Ana doesn't like coffee"),
    ("Ana likes to walk", "Ana never walks alone"),
    ("Ana likes tea", "Ana likes coffee"),
    ("Ana has a dog", "Ana has a cat"),
    ("Ana lives in Porto", "Bo lives in Lisbon"),
    ("Ana lives in Porto", "Ana lives in Porto, Portugal"),
    ("Ana lives in Lisbon", "Ana might move to Porto"),
    ("Ana lives in Lisbon", "Ana visited Porto"),
    ("Ana lives in Lisbon", "Ana lived in Porto in 2019"),
    ("Ana lives in Lisbon", "Ana moved to Porto in 2019"),
    ("Bo's budget is 3000 euros", "Bo's budget is tight"),
    ("Bo's travel budget is 2000", "Bo's food budget is 300"),
    ("Bo's budget is 3000", "Bo's budget is 3000 euros"),
    ("Bo's budget is 3,000 euros", "Bo's budget is 3000 euros."),
    ("Ana is a nurse", "Ana is a vegetarian"),
    ("Ana is a nurse", "Ana is a head nurse"),
    ("Ana works at Acme", "Ana works at night"),
    ("Ana works at Acme", "Ana stopped working on the car"),
    ("Ana drinks water", "Ana stopped drinking"),
    ("Ana no longer smokes", "Ana stopped smoking"),
    ("Ana's sister lives in Rome", "Ana lives in Porto"),
    ("Bo said that Ana lives in Rome", "Bo lives in Porto"),
    ('Asked "where do you live?", Bo answered "in Rome".', "Bo lives in Porto"),
    ("The server has 16 GB", "The server has 32 GB of disk"),
    ("User asked to find a vegan place", "User asked to find a hotel"),
    ("Ana is married", "Ana is married to Bo"),
    ("Bo's boss is Ana", "Bo's boss is strict"),
    ("Ana plays tennis", "Ana plays chess"),
    ("Ana moved to the next task", "Ana lives in Porto"),
    ("Ana's deadline is Friday", "Ana's deadline is 5 March"),
    ("Is Bo's budget 2000?", "Bo's budget is 3000"),
    ("Bo works for free", "Bo works at Acme"),
    ("Ana is 30", "Ana is 30 years old"),
    ("The deadline is March 10", "The project deadline is March 20"),
    ("Bo's former address is 12 Hill Street", "Bo's address is 7 Oak Road"),
    ("The port is 8080", "The port is 9090"),
    ("Ana is a paramedic now", "Ana is a vegetarian now"),
]


@pytest.mark.parametrize(("a", "b"), CONTRADICTING)
def test_two_values_of_one_slot_contradict(a, b):
    """Whichever is said first, both cannot hold now."""
    assert contradict(a, b)
    assert contradict(b, a)


@pytest.mark.parametrize(("a", "b"), COMPATIBLE)
def test_in_doubt_both_facts_stay(a, b):
    """Different subjects, attributes with many values, hedges and vague words claim nothing."""
    assert not contradict(a, b)
    assert not contradict(b, a)


@pytest.mark.parametrize(("a", "b"), CONTRADICTING)
def test_a_contradiction_is_found_by_its_keys(a, b):
    """A stored fact is looked up by keys: whoever contradicts must share one."""
    assert set(rival_keys(b)) & set(claim_keys(a))
    assert set(rival_keys(a)) & set(claim_keys(b))


@pytest.mark.parametrize(
    "text", ["", " ", "?", "[2024]", "'s", "The", "ご飯を食べた", "is", "A " * 500]
)
def test_what_is_not_understood_claims_nothing(text):
    """No text makes the reader fail."""
    assert claims(text) == ()


def test_an_activity_is_looked_for_only_by_its_end():
    """Facts with a common verb are many; they must not be loaded at every commit."""
    assert not set(rival_keys("Ana drinks tea")) & set(claim_keys("Ana drinks coffee"))
