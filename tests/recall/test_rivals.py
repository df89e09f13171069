"""Which of two statements holds, and which is outdated."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from mnemo.recall import rivals
from mnemo.recall.rivals import Ranking, Rivals, asked_moment, asks_the_past, outdated

DAY = 86_400.0
START = 1_704_067_200.0  # 1 January 2024

NURSE = "I work as a nurse at St James hospital"
TEACHER = "I quit the hospital, my work is teaching biology at a college now"
CAT = "Our cat sleeps on the piano"


def candidates(*texts: str, near: float = 0.7, cosine: float = 0.6, days: str = "") -> Rivals:
    """*texts*, best first, said one a day in the order of the digits in *days*."""
    n = len(texts)
    told = [int(day) for day in days] or list(range(n))
    return Rivals(
        texts=texts,
        times=[START + DAY * day for day in told],
        numbers=[0] * n,
        speakers=["user"] * n,
        scores=[1.6 - 0.05 * i for i in range(n)],
        near=np.where(np.eye(n) > 0, 1.0, near),
        cosines=np.full(n, cosine),
    )


def test_the_newer_of_two_rivals_stands_first_and_the_older_is_marked():
    """The example of the guide: a job that was left for another."""
    found = outdated("What is her work now?", candidates(NURSE, TEACHER))
    assert found == Ranking([1, 0], [1, None])


def test_a_newer_statement_that_replaces_nothing_stays_where_it_is():
    """Recency alone lifts nothing."""
    given = replace(candidates(NURSE, CAT, near=0.1), cosines=np.array([0.6, 0.1]))
    assert outdated("What is her work now?", given) == Ranking([0, 1], [None, None])


def test_a_statement_that_is_said_again_has_replaced_nothing():
    """It was true before; an example that is run twice says so."""
    found = outdated("What is her work now?", candidates(NURSE, NURSE, near=1.0))
    assert found == Ranking([0, 1], [None, None])


def test_equal_scores_keep_their_order_between_what_are_no_rivals():
    """Recency decides between rivals alone, whatever the scores."""
    given = replace(candidates(CAT, NURSE, near=0.1, cosine=0.1), scores=[1.0, 1.0])
    assert outdated("What is her work now?", given).order == [0, 1]


@pytest.mark.parametrize(
    ("question", "older", "newer"),
    [
        ("Who bakes in Faro?", "My friend in Faro bakes bread.", "My friend in Evora bakes bread."),
        (
            "What should be done when the linker runs out of memory?",
            "When the linker runs out of memory, set LINK_JOBS=2 before building.",
            "Always clear the build cache after changing compiler flags.",
        ),
        ("What does the cat eat?", "Our cat Minka eats tuna.", "Our dog Bo eats beef."),
        ("When is my maths exam?", "My maths exam is on Monday.", "My art exam is on Friday."),
        ("Where is the spare key?", "The spare key is in the pot.", "The shed key is on a hook."),
    ],
)
def test_a_newer_without_the_words_that_are_asked_about_is_no_rival(question, older, newer):
    """The older names what the question names, the newer another: both stay as they are."""
    found = outdated(question, candidates(older, newer, near=0.8))
    assert found == Ranking([0, 1], [None, None])


def test_a_word_of_change_links_no_two_statements():
    """Both things moved, and the one has nothing to do with the other."""
    tom, flight = "My brother Tom moved to Lisbon last spring.", "The flight got moved to Saturday."
    given = replace(
        candidates(tom, flight, CAT, near=0.22),
        scores=[0.38, 0.23, 0.2],
        cosines=np.array([0.4, 0.13, 0.1]),
    )
    assert outdated("Where does her sibling live?", given).order == [0, 1, 2]
    moved = "My brother moved again, to Porto."
    found = outdated("Where does her brother live?", candidates(tom, moved, CAT, near=0.6))
    assert found.order[:2] == [1, 0]


@pytest.mark.parametrize(
    ("question", "older", "newer"),
    [
        ("Is Rex still with us?", "We buried poor old Rex.", "We adopted a pug called Ruby."),
        ("How much is the parking?", "Parking is 9 euros now.", "We park by the river now."),
        ("Where is order 4711?", "Order 4711 lies in bay 3.", "Order 4803 lies in bay 5."),
    ],
)
def test_a_newer_of_another_name_or_without_the_value_asked_for_is_no_rival(question, older, newer):
    """The older answers by a name, a number or a sum that the newer has nothing in place of."""
    found = outdated(question, candidates(older, newer, near=0.8))
    assert found == Ranking([0, 1], [None, None])


SIBLINGS = [
    (
        "What sport does the elder boy do?",
        "My older son plays chess.",
        "My younger son plays golf.",
    ),
    ("Which version is in production?", "Prod runs Postgres 15.", "Staging runs Postgres 16."),
    ("Which drug is taken at night?", "My morning pill is zinc.", "My evening pill is a statin."),
    ("What does Birch pay?", "Client Birch pays 75 an hour.", "Client Acme pays 90 an hour."),
    ("How old is my grandma?", "My grandma in Bonn is 91.", "My grandma in Kiel is 86."),
    (
        "What is Ahmed allergic to?",
        "My colleague Ahmed is allergic to nuts.",
        "I'm allergic to soy.",
    ),
    ("What is the user allergic to?", "I'm allergic to soy.", "My wife is allergic to nuts."),
    ("Is the old car sold?", "The old car is red.", "The new van is sold."),
    ("How much is the shed rent?", "The shed rent is 40.", "The barn rent rose to 60."),
    ("Who has my road bike?", "I lent my road bike to Sam.", "I sold my mountain bike."),
    ("When does Jenny begin?", "Jenny starts at 7.", "I start at 10."),
    ("What is Mats's phone number?", "My phone number is 711.", "Lotta's phone number is 722."),
    ("Where does Erik work?", "Erik works at Volvo.", "Erik's birthday is 3 May."),
    ("What does Jenny do?", "Jenny from support handles refunds.", "Jenny has two sons."),
]


@pytest.mark.parametrize(
    ("newer", "cosine", "turned"),
    [
        ("Mia left the choir.", 0.5, False),
        ("Mia bought a new boat.", 0.5, False),
        ("Mia left for Porto.", 0.6, True),
    ],
)
def test_what_only_the_name_in_the_question_ties_is_as_near_to_it(newer, cosine, turned):
    """Any two of one person are near each other, and near a question that names that one."""
    given = replace(candidates("Mia lives in Bonn.", newer), cosines=np.array([0.7, cosine]))
    assert outdated("Where does Mia live?", given).order == ([1, 0] if turned else [0, 1])


def test_what_ends_another_thing_of_the_older_leaves_what_is_asked():
    """The boat is sold; where Tom lives is as it was."""
    given = candidates("Tom lives in Ulm. He has a boat.", "Tom sold his boat.")
    assert outdated("Where does Tom live?", given) == Ranking([0, 1], [None, None])
    assert outdated("Does Tom have a boat?", given).order == [1, 0]


def test_what_names_no_place_answers_no_question_for_one():
    """Unless it tells that something changed: upstairs is where she sits now."""
    told = "I run a bakery in Porto."
    hours = candidates(told, "The bakery opens at 7.", near=0.8)
    assert outdated("Where is the bakery?", hours) == Ranking([0, 1], [None, None])
    for newer in ("The bakery is upstairs now.", "The bakery is in the old mill."):
        assert outdated("Where is the bakery?", candidates(told, newer)).order == [1, 0]


def test_two_rates_are_not_of_one_thing():
    """That both are paid by the month links phone and gas as little as a stop word."""
    phone = "I pay 30 a month for the phone."
    assert rivals.pair_numbers(phone, "Gas is 45 a month now.", 0.4)["linked"] == 0
    assert rivals.pair_numbers(phone, "The phone is 45 a month now.", 0.4)["linked"] == 1


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("question", "one", "other"), SIBLINGS)
def test_a_sibling_said_in_the_same_way_is_no_rival(question, one, other, turned):
    """Alike but for what they speak of: neither replaces the other, whichever was said later."""
    told = candidates(*((other, one) if turned else (one, other)), near=0.8)
    assert outdated(question, told) == Ranking([0, 1], [None, None])


@pytest.mark.parametrize(
    ("question", "older", "newer"),
    [
        ("What version is it?", "Prod runs Postgres 15.", "Prod runs Postgres 16."),
        ("Who is her boss?", "My boss is Mr Harding.", "My boss Elena is very kind."),
        ("How full is db1?", "Disk usage on db1 is 60%.", "Disk usage on db1 is 91%."),
        ("Where does she work?", "I work at a bank.", "My boss moved me to the mill."),
        ("What is the rent?", "The rent is 820.", "My landlord raised the rent to 905."),
        ("Where does Erik work?", "Erik works at Volvo.", "Erik works at Scania."),
        ("Where does Erik work?", "Erik works at Volvo.", "Erik was moved to the Malmo plant."),
        ("Where does Ann work?", "I work at a bank.", "I now work at a mill."),
    ],
)
def test_what_is_said_of_one_subject_stays_a_rival(question, older, newer):
    """More words for one subject, or the speaker in another's sentence, make no sibling."""
    assert outdated(question, candidates(older, newer, near=0.9)).order == [1, 0]


@pytest.mark.parametrize(
    ("question", "older", "newer"),
    [
        (
            "Where does the user's father-in-law live?",
            "My father-in-law Aldo lives with us.",
            "Aldo has moved to a home by the sea.",
        ),
        ("What does the parking cost?", "Parking costs 9 euros.", "The parking lot has closed."),
        ("Is my rent still 900?", "My rent is 900 euros.", "My rent went up to 950 euros."),
    ],
)
def test_a_newer_in_other_words_than_are_asked_is_a_rival(question, older, newer):
    """It goes on about the name that the older has, or says that the thing has ended."""
    found = outdated(question, candidates(older, newer, near=0.7, cosine=0.5))
    assert found.order == [1, 0]


def test_the_older_is_never_placed_before_the_newer():
    """Where the newer is the better match anyway, the order is kept and the older marked."""
    found = outdated("What is her work now?", candidates(TEACHER, NURSE, days="10"))
    assert found == Ranking([0, 1], [None, 0])


@pytest.mark.parametrize(
    "question", ["What was her work before?", "What did she originally work as?"]
)
def test_a_question_about_the_past_is_answered_by_what_held_then(question):
    """The older stands first, and nothing is marked."""
    found = outdated(question, candidates(TEACHER, NURSE, days="10"))
    assert found == Ranking([1, 0], [None, None])


def test_a_date_in_the_question_is_its_moment():
    """What was said after it comes behind its rivals."""
    given = replace(candidates(TEACHER, NURSE, days="10"), times=[START + 60 * DAY, START])
    found = outdated("What was her work in January 2024?", given)
    assert found.order == [1, 0]
    assert found.outdated_by == [None, None]


def test_along_a_chain_the_newest_takes_the_best_place():
    """Each statement that was replaced stands behind what replaced it."""
    second = "I quit the college, my work at the hospital is teaching nurses now"
    found = outdated("What is her work now?", candidates(NURSE, TEACHER, second))
    assert found.order == [2, 1, 0]
    assert found.outdated_by[2] is None


MOVED = "The failover is done, db-5 is the main database now"
MAIN = "The main database is db-3"
UPGRADED = "Upgraded the main database from 14 to 16"
ENDED = "Quit the gym, no more classes"


def test_of_two_newer_ones_the_likelier_takes_the_place_whichever_is_later(monkeypatch):
    """An upgrade does not stand before the new main database for being later."""
    chances = {(0, 1): 0.9, (0, 2): 0.5}
    found = _judged(monkeypatch, chances, MAIN, MOVED, UPGRADED)
    assert found == Ranking([1, 2, 0], [1, None, None])


@pytest.mark.parametrize(("chance", "order"), [(0.3, [1, 0, 2]), (0.5, [2, 1, 0])])
def test_what_replaced_another_gives_its_place_only_to_what_is_marked_as_its_newer(
    monkeypatch, chance, order
):
    """A weak rival of the new statement does not push it from the place it has just taken."""
    found = _judged(monkeypatch, {(0, 1): 0.9, (1, 2): chance}, MAIN, MOVED, ENDED)
    assert found.order == order


def _judged(monkeypatch, chances: dict[tuple[int, int], float], *texts: str) -> Ranking:
    """The ranking where pairs have these probabilities, and all others none."""
    logits = np.array([math.log(p / (1 - p)) for p in chances.values()])
    monkeypatch.setattr(rivals, "_near_pairs", lambda given: list(chances))
    monkeypatch.setattr(rivals._Asking, "is_of", lambda asking, older, newer: True)
    monkeypatch.setattr(rivals, "_numbers_beside", lambda *given: {"logit": logits})
    return outdated("What is it now?", candidates(*texts), table={"": 0.0, "logit": 1.0})


def test_what_turns_away_from_the_question_is_no_rival():
    """The weights were fitted on no cosine below zero."""
    given = candidates(NURSE, TEACHER)
    assert rivals.candidate_pairs(given) == [(0, 1)]
    assert rivals.candidate_pairs(replace(given, cosines=np.array([0.6, -0.1]))) == []


def test_two_speakers_are_rivals_where_they_name_one_name():
    """What Bo says of himself says nothing about Ana; what both say of Priya does."""
    own = replace(candidates(NURSE, TEACHER), speakers=["ana", "bo"])
    assert rivals.candidate_pairs(own) == []
    shared = replace(own, texts=["the data team is led by Priya", "it's not Priya who leads it"])
    assert rivals.candidate_pairs(shared) == [(0, 1)]


def test_what_has_no_vector_or_the_same_time_has_no_rival():
    """Both are unknown order or unknown nearness, never a mark."""
    blind = replace(candidates(NURSE, TEACHER), near=np.full((2, 2), np.nan))
    assert outdated("What is her work now?", blind) == Ranking([0, 1], [None, None])
    at_once = candidates(NURSE, TEACHER, days="11")
    assert outdated("What is her work now?", at_once) == Ranking([0, 1], [None, None])


def test_of_one_time_the_later_stored_is_the_newer():
    """Two lines of one call have one time: their order is that of the call."""
    at_once = replace(candidates(NURSE, TEACHER, days="11"), numbers=[7, 8])
    assert outdated("What is her work now?", at_once) == Ranking([1, 0], [1, None])
    back = replace(candidates(TEACHER, NURSE, days="11"), numbers=[8, 7])
    assert outdated("What is her work now?", back) == Ranking([0, 1], [None, 0])
    before = outdated("What was her work before?", back)
    assert before == Ranking([1, 0], [None, None])


def test_a_pair_that_the_store_knows_is_judged_however_low_the_newer_stands():
    """What ended it stands before it, also where it has none of the question's words."""
    low = replace(candidates(NURSE, TEACHER), scores=[1.6, 0.1])
    assert outdated("What is her work now?", low) == Ranking([0, 1], [None, None])
    known = outdated("What is her work now?", low, known={(0, 1): 0.04})
    assert known == Ranking([1, 0], [1, None])
    other = replace(candidates(NURSE, CAT, near=0.1), cosines=np.array([0.6, 0.1]))
    assert outdated("What is her work now?", other, known={(0, 1): 0.9}).order == [0, 1]


def test_candidates_behind_the_best_are_kept_and_never_judged():
    """The twenty-first may be newer: it is out of reach."""
    given = candidates(*[CAT] * rivals.BEST, TEACHER, near=0.1)
    assert all(max(pair) < rivals.BEST for pair in rivals.candidate_pairs(given))
    assert sorted(outdated("What is her work?", given).order) == list(range(rivals.BEST + 1))


def test_nothing_given_gives_nothing():
    """No candidate, no order."""
    assert outdated("What is her work?", candidates()) == Ranking([], [])


@drawn(st.permutations(range(4)), st.floats(0, 1), st.floats(0, 1))
def test_a_mark_always_names_a_newer_one_that_stands_before(days, near, cosine):
    """Whatever the times and cosines: an order of all, and marks that agree with it."""
    texts = (NURSE, TEACHER, CAT, "My work is nursing cats")
    given = candidates(*texts, near=near, cosine=cosine, days="".join(map(str, days)))
    found = outdated("What is her work now?", given)
    assert sorted(found.order) == [0, 1, 2, 3]
    for older, newer in enumerate(found.outdated_by):
        if newer is not None:
            assert given.times[newer] > given.times[older]
            assert found.order.index(newer) < found.order.index(older)


@pytest.mark.parametrize(
    ("question", "past"),
    [
        ("Where did she live before York?", True),
        ("What was the first release called?", True),
        ("Which bank did he use to have, previously?", True),
        ("Wo hat sie früher gewohnt?", True),
        ("¿Dónde vivía antes?", True),
        ("她以前住在哪里？", True),
        ("Where does she live?", False),
        ("How old was the cat?", False),
        ("What does he eat before breakfast?", False),
        ("Did she pass the exam?", False),
    ],
)
def test_questions_about_the_past_are_told_by_their_words(question, past):
    """ "before" and "first" count beside a verb in the past alone."""
    assert asks_the_past(question) is past
    assert asked_moment(question, [START]) == (-math.inf if past else math.inf)


def test_a_date_that_is_not_over_is_no_past():
    """Asked about a month that is still under way when the last candidate was said: now."""
    times = [START, START + 40 * DAY]
    assert asked_moment("Who is on call in January 2024?", times) == START + 31 * DAY
    assert asked_moment("Who is on call in February 2024?", times) == math.inf


def test_no_pair_is_likelier_than_it_can_be_without_its_texts():
    """So that of those that cannot reach a place no text needs be read."""
    given = candidates(NURSE, TEACHER, CAT, MAIN, MOVED, ENDED)
    pairs, table = [(a, b) for a in range(5) for b in range(a + 1, 6)], rivals.weights()
    question = "What is her work now?"
    rows = rivals.question_numbers(question, given, pairs)
    most = rivals._odds(table, rivals._numbers_beside(question, given, pairs), rivals._OF_TEXTS)
    for row, at_most in zip(rows, most, strict=True):
        of_terms = {name: row[name] for name in row if name not in rivals._OF_WORDING}
        assert rivals._odds(table, row) <= rivals._odds(table, of_terms, rivals._OF_WORDING)
        assert rivals._odds(table, of_terms, rivals._OF_WORDING) <= at_most
    far = candidates(NURSE, CAT, near=0.0, cosine=0.05)
    beside = rivals._numbers_beside("What is her work?", far, [(0, 1)])
    assert rivals._chance(rivals._odds(table, beside, rivals._OF_TEXTS)[0]) < rivals.ORDER


def test_the_table_has_a_weight_for_every_number():
    """The table that is shipped fits the code that reads it."""
    given = candidates(NURSE, TEACHER)
    (row,) = rivals.question_numbers("What is her work?", given, [(0, 1)])
    assert set(rivals.weights()) == {"", *row}


def test_the_pairs_by_hand_are_what_their_page_says():
    """``tests/data/rivals.json``: enough pairs and domains, and labels that fit kinds."""
    pairs = json.loads((Path(__file__).parents[1] / "data" / "rivals.json").read_text("utf-8"))
    changes = [pair for pair in pairs if pair["changed"]]
    assert len({pair["id"] for pair in pairs}) == len(pairs)
    assert all(pair["changed"] == (pair["kind"] == "change") for pair in pairs)
    assert len(changes) >= 110
    assert len(pairs) - len(changes) >= 260
    assert len({pair["domain"] for pair in pairs}) >= 15
