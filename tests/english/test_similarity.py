"""When two texts may make the same claim."""

import pytest

from mnemo.english.entities import subject
from mnemo.english.similarity import equal_text, same_claim_guard

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

# Who did what to whom, from whom, before whom.
TURNED_ROUND = [
    ("Bo hired Eve as an engineer.", "Eve hired Bo as an engineer."),
    ("Bo paid Eve for the lamp", "Eve paid Bo for the lamp"),
    ("Bo lent Eve the bike", "Eve lent Bo the bike"),
    ("Bo lent the bike to Eve", "Eve lent the bike to Bo"),
    ("Bo married Eve in May", "Eve married Bo in May"),
    ("Bo manages Eve at Acme", "Eve manages Bo at Acme"),
    ("Bo sold the boat to Eve", "Eve sold the boat to Bo"),
    ("Ana prefers tea to coffee", "Ana prefers coffee to tea"),
    ("Ana prefers tea to coffee", "Ana prefers tea and coffee"),
    ("Ana prefers coffee to tea", "Ana prefers coffee and tea"),
    ("bo hired eve as an engineer", "eve hired bo as an engineer"),
    ("Bo was hired by Eve", "Bo hired Eve"),
    ("Eve was hired by Bo", "Eve hired Bo"),
    ("Eve was hired as an engineer by Bo", "Bo was hired as an engineer by Eve"),
    ("Bo is Eve's manager", "Eve is Bo's manager"),
    ("Bo's manager is Eve", "Eve's manager is Bo"),
    ("Ana's cat chased the dog", "The dog chased Ana's cat"),
    ("the cat chased the dog", "the dog chased the cat"),
    ("Ana flew from Rome to Oslo", "Ana flew from Oslo to Rome"),
    ("Ana said that Bo owes Eve money", "Ana said that Eve owes Bo money"),
    ("Bo told Eve that Eve hired Bo", "Bo told Eve that Bo hired Eve"),
    ("Ana Silva and Bo Berg married", "Ana Berg and Bo Silva married"),
    ("Ana paid Bo and Eve", "Ana and Eve paid Bo"),
    ("Ana moved to Oslo", "Ana moved from Oslo"),
    ("Bo borrowed the bike from Eve", "Bo lent the bike to Eve"),
    ("The cat kvells the lanterns", "The dog kvells the lanterns"),
    ("Ana introduced Bo to Eve", "Ana introduced Eve to Bo"),
    ("Bo taught Eve chess", "Eve taught Bo chess"),
    ("Bo's company acquired Eve's company", "Eve's company acquired Bo's company"),
    ("Eve, whom Bo hired, is an engineer", "Bo, whom Eve hired, is an engineer"),
    ("It was Bo who hired Eve", "It was Eve who hired Bo"),
    ("Bo beats Eve at chess", "Eve beats Bo at chess"),
    ("Acme acquired Globex", "Globex acquired Acme"),
    ("Service A calls service B", "Service B calls service A"),
    ("The api depends on the worker", "The worker depends on the api"),
    ("Bo trusts Eve more than Cy", "Bo trusts Cy more than Eve"),
    ("Bo and Eve paid Cy and Dan", "Cy and Dan paid Bo and Eve"),
    ("Ana works for Bo", "Bo works for Ana"),
    ("Rex bit Tom", "Tom bit Rex"),
]

# What "and" joins has no order; the passive and an adverb change none.
SAME_ORDER = [
    ("Ana and Bo paid Eve", "Bo and Ana paid Eve"),
    ("Ana, Bo and Eve moved to Rome", "Eve, Ana and Bo moved to Rome"),
    ("Ana likes tea and coffee", "Ana likes coffee and tea"),
    ("Eve was hired by Bo", "Bo hired Eve"),
    ("Eve was hired by Bo as an engineer", "Bo hired Eve as an engineer."),
    ("Ana often visits Oslo", "Ana visits Oslo often"),
    ("Ana met Bo on Monday", "On Monday Ana met Bo"),
    ("Ana has moved to Porto", "Ana moved to Porto"),
    ("Bo hired Eve as an engineer.", "Bo has hired Eve as an engineer"),
    ("Ana Silva and Bo Berg married", "Bo Berg and Ana Silva married"),
]


@pytest.mark.parametrize(("a", "b"), TURNED_ROUND)
def test_the_same_words_about_others_are_another_fact(a, b):
    """Facts that differ in the order of the parties are kept apart."""
    assert not same_claim_guard(a, b)
    assert not same_claim_guard(b, a)


@pytest.mark.parametrize(("a", "b"), SAME_ORDER)
def test_a_set_the_passive_and_adverbs_leave_the_order_as_it_is(a, b):
    """Wordings that keep who did it to whom are not separated."""
    assert same_claim_guard(a, b)
    assert same_claim_guard(b, a)


@pytest.mark.parametrize(("a", "b"), SAME)
def test_what_says_the_same_in_other_words_passes_the_guard(a, b):
    """The guard does not separate wordings of one fact, in either order."""
    assert same_claim_guard(a, b)
    assert same_claim_guard(b, a)


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_what_differs_in_number_date_negation_or_subject_is_separated(a, b):
    """Facts whose vectors are close are kept apart by what they say."""
    assert not same_claim_guard(a, b)
    assert not same_claim_guard(b, a)


def test_case_blanks_and_the_final_point_do_not_make_another_text():
    """Equal text is told regardless of spelling that carries no meaning."""
    assert equal_text("Ana  lives in PORTO.", " ana lives in porto")
    assert not equal_text("Ana lives in Porto", "Ana lives in Porto now")


def test_a_lone_point_is_a_text_of_its_own():
    """Removing the final point never leaves nothing."""
    assert not equal_text(".", "!")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ana has moved", ("ana",)),
        ("Ana's dog is old", ("ana", "'s", "dog")),
        ("In March 2024, Ana moved to Porto", ("ana",)),
        ("The staging server is slow", ("the", "stage", "server")),
        ("Zorb glorfs wibble", ("zorb",)),
        ("Eve was hired by Bo", ("bo",)),
        ("Bo hired Eve", ("bo",)),
        ("A long wibble", ()),
    ],
)
def test_the_subject_is_what_stands_before_the_verb(text, expected):
    """The subject of a fact is found, or admitted to be unknown."""
    assert subject(text) == expected


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("Ana: We adopted two kittens.", "Ana adopted two kittens.", True),
        ("Ana: I work at the harbour, as ever.", "Ana works at the harbour.", True),
        ("Ana: I work at the harbour.", "Bo: I work at the harbour.", False),
        ("Ana: I work at the harbour.", "Bo works at the harbour.", False),
        ("Ana: I don't work at the harbour.", "Ana works at the harbour.", False),
    ],
)
def test_words_of_a_speaker_are_compared_in_the_third_person(a, b, same):
    """ "I" of Ana is Ana, and never Bo."""
    assert same_claim_guard(a, b) is same
