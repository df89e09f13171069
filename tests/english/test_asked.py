"""What a question asks for: an attribute, a kind of value, the person itself."""

import pytest

from mnemo.english.asked import (
    about_the_user,
    asked_in,
    asks_of_one,
    differ_in_person,
    gives_name,
    in_own_words,
    tell_of_two,
)


@pytest.mark.parametrize(
    ("question", "answer", "other"),
    [
        ("How much does she earn per hour?", "starting in June, 12.20/h", "bev retired, same day"),
        ("What did fixing the display cost?", "repaired the phone, 95 quid", "the screen cracked"),
        ("How old is she?", "hi, it's mel, 19, new in Cardiff", "I can have gran's old car"),
        ("When is the exam?", "it was moved to March 10", "the lecturer is ill"),
        ("What time does the bus leave?", "the coach goes at 9:15", "dad picks me up"),
        ("Who covers for Lars?", "cover: Ivana from platform", "the backend is done"),
        ("Was kostet die Wohnung?", "die Miete ist 900 Euro", "die Wohnung ist laut"),
        ("Cuando es el examen?", "el examen es el 2026-03-10", "el profesor esta enfermo"),
    ],
)
def test_an_answer_has_a_value_of_the_kind_that_is_asked_for(question, answer, other):
    """An amount, a number, a day, a time or a name."""
    assert asked_in(question).is_of_a_kind(answer)
    assert not asked_in(question).is_of_a_kind(other)


def test_a_question_without_a_kind_asks_for_none():
    """A yes-or-no question is answered by any text."""
    assert not asked_in("Is she in a relationship?").is_of_a_kind("we split on 3 May, 2 years in")


def test_a_statement_of_another_person_passes_by_a_question_about_the_speaker():
    """Unless the question names such a person, or asks who."""
    said = "My sister Ana lives in Porto"
    assert asked_in("Where does she live?").is_past_by(said)
    assert not asked_in("Where does her sister live?").is_past_by(said)
    assert not asked_in("Who lives in Porto?").is_past_by(said)
    assert not asked_in("Where does she live?").is_past_by("I live in Porto with my sister")


@pytest.mark.parametrize(
    ("question", "said", "is_past"),
    [
        ("What does the child eat?", "I can't eat shellfish myself", True),
        ("Can her husband's brother drive?", "I've never had a licence", True),
        ("What does the child eat?", "I give her oats in the morning", False),
        ("What does the child eat?", "I cook rice for Tilda", False),
        ("Who is the boss?", "I report to the board itself", False),
        ("What does the family car cost?", "I paid 9,000 for the car", False),
        ("Does the user have children?", "I live alone", False),
    ],
)
def test_what_tells_of_the_speaker_alone_passes_by_a_question_about_another(
    question, said, is_past
):
    """A pronoun or a name may be who is asked about."""
    assert asked_in(question).is_past_by(said) == is_past


@pytest.mark.parametrize(
    ("question", "own"),
    [
        ("What is the user's job?", "What is my job?"),
        ("Which drugs must the user avoid?", "Which drugs must I avoid?"),
        ("Where does the user live now?", "Where do I live now?"),
        ("Is the user married?", "am I married?"),
        ("Who is the user’s boss?", "Who is my boss?"),
        ("What did Bo give the user?", "What did Bo give me?"),
        ("Can I serve the user's sister shrimp?", "Can I serve my sister shrimp?"),
        ("What is in the user table?", "What is in the user table?"),
        ("Is the user interface dark?", "Is the user interface dark?"),
        ("Who uses it?", "Who uses it?"),
    ],
)
def test_the_user_of_a_question_is_who_speaks(question, own):
    """Things of users in general are left alone."""
    assert in_own_words(question) == own


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Our cat Minka eats tuna.", "Our dog Bo eats beef."),
        ("Anna's birthday is in May.", "Peter's birthday is in August."),
        ("The kitchen walls are yellow.", "The bedroom walls are blue."),
        ("I quit smoking.", "My wife smokes on the balcony."),
    ],
)
def test_two_things_said_alike_are_two(one, other):
    """In both orders."""
    assert tell_of_two(one, other)
    assert tell_of_two(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The rent is 820.", "The landlord raised the rent to 905."),
        ("The well water failed the test.", "An iron filter is in, the second test was fine."),
        ("I live in Lyon.", "My flat in Ghent is lovely."),
        ("My boss is Mr Harding.", "My boss Elena is off today."),
        ("I'm single.", "My wife and I live in Rome."),
        ("Grandma is 88.", "Mum says grandma is actually 89."),
    ],
)
def test_one_thing_said_twice_or_in_another_way_is_no_two(one, other):
    """A subject that the other sentence names, or another verb: they may be of one thing."""
    assert not tell_of_two(one, other)
    assert not tell_of_two(other, one)


@pytest.mark.parametrize(
    ("question", "one", "other"),
    [
        ("How much is the gas bill?", "I paid 40 for the gas bill.", "The water bill fell to 30."),
        ("Who has my road bikes?", "I lent Sam my road bike.", "I sold my mountain bike."),
        ("What is the guest wifi key?", "Guest wifi key: rose.", "We changed the staff wifi key."),
    ],
)
def test_a_question_of_one_thing_is_of_no_other_of_its_kind(question, one, other):
    """In both orders, whatever else they say; a question that names neither may be of both."""
    assert asks_of_one(question, one, other)
    assert asks_of_one(question, other, one)
    assert not asks_of_one("What did we pay?", one, other)


@pytest.mark.parametrize(
    ("question", "one", "other"),
    [
        ("How much is the gas bill?", "The gas bill is 40.", "The gas bill rose to 52."),
        ("Who is our family doctor?", "Our family doctor is Ann.", "Our new doctor is Bob."),
        ("When is the art exam?", "The art exam is in May.", "They moved the exam to June."),
        ("Do I like green tea?", "I like green tea.", "I hate tea."),
        ("How many rooms has it?", "It is a two room flat.", "It is a three room flat."),
    ],
)
def test_the_same_thing_in_other_words_is_no_other_of_its_kind(question, one, other):
    """A word of change, a verb or a number calls nothing by another name."""
    assert not asks_of_one(question, one, other)
    assert not asks_of_one(question, other, one)


@pytest.mark.parametrize(
    ("question", "own", "other"),
    [
        ("What does Tom do for a living?", "My brother Tom is a baker.", "I work as a nurse."),
        ("Where does Ana live?", "Ana lives in Lisbon.", "I live in Porto."),
        ("Where did Bo work?", "Bo works at Acme.", "I work at Siemens."),
    ],
)
def test_who_is_its_subject_is_asked_about_and_no_other(question, own, other):
    """Nor is the speaker, who is asked about where nobody is named."""
    asked = asked_in(question)
    assert asked.is_told_by(own, "User")
    assert not asked.is_told_by(other, "User")


@pytest.mark.parametrize("question", ["Where does she work?", "Where does the user work?"])
def test_the_speaker_is_asked_about_where_nobody_is_named(question):
    """Whatever stands in that place."""
    assert asked_in(question).is_told_by("I work at Siemens.", "User")


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("User is Ana.", True),
        ("User's name is Ana Bell.", True),
        ("Hi, I'm Ana from Porto", True),
        ("hey, ana here, second year", True),
        ("hiii its ana, 19", True),
        ("my name's Ana, im 16", True),
        ("Call me Ana.", True),
        ("User is a friend of Ana.", False),
        ("I'm Ana's sister.", False),
        ("I'm not Ana.", False),
        ("User's boss is Ana.", False),
        ("Tom is Ana.", False),
        ("User is no longer Ana.", False),
        ("Das sind 100 Euro im Ana.", False),
    ],
)
def test_a_speaker_gives_the_own_name(text, given):
    """In the words of either; who has to do with one of that name is not called so."""
    assert gives_name(text, "ana", "User") is given


def test_who_speaks_is_asked_about_without_the_name():
    """With a surname behind it and as an owner."""
    assert about_the_user("When is Ana's birthday?", "ana") == "When is the user's birthday?"
    assert about_the_user("Where does Ana Bell work?", "ana") == "Where does the user work?"


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        ("My birthday is 9 June.", "Erik's birthday is 3 May.", True),
        ("My birthday is 9 June.", "I was born on 3 May.", False),
        ("I save for a bike.", "Forget the bike, I want a sofa.", False),
        ("Erik's birthday is 3 May.", "Everything is in Adobe.", False),
    ],
)
def test_of_the_user_is_what_begins_with_the_speaker(one, other, differ):
    """Beside it what is of another person is not."""
    assert differ_in_person(None, (one, "User"), (other, "User")) is differ
    assert differ_in_person(None, (other, "User"), (one, "User")) is differ
