"""Questions without the phrases that only ask."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemo.english.asked import without_scaffolding
from mnemo.english.words import index_terms

TOPICS = (
    "What pets does she have?",
    "Where do I keep the spare keys of the boat?",
    "Which book did Ada lend to Bo in May?",
    "What's on my shopping list?",
    "Who gave me the watch for my birthday?",
    "How much is the rent of the flat?",
)
BEFORE = (
    "Can you tell me",
    "I was wondering,",
    "Please remind me:",
    "As far as you know,",
    "Do you remember",
    "Quick question:",
    "I'd like to know",
    "Thanks!",
    "List them and let me know,",
)
BEHIND = (
    "please",
    "by the way",
    "Please list them all.",
    "Tell me, in order.",
    "Thanks a lot!",
    "I told you before.",
    "Mention only three items.",
    "Can you remember?",
)


def terms(text: str) -> Counter[str]:
    """The index terms of what is asked."""
    return Counter(index_terms(without_scaffolding(text)))


@pytest.mark.parametrize(
    ("asked", "topic"),
    [
        ("I was wondering, can you list the boats, according to Bo? Thanks!", "the boats, Bo?"),
        ("Tell me, according to Bo, and list them", "Bo, and them"),
        ("What did my sister say about the wedding?", "my sister the wedding?"),
        ("In Bo's opinion, which boat is best?", "Bo's, which boat is best?"),
        ("What was the book I told you about?", "What was the book?"),
        ("Give me a short summary of the meeting", "the meeting"),
        ("can you explain step by step how to deploy it", "how to deploy it"),
        ("Walk me through my plans, in order (mention 4 items in total)?", "my plans?"),
        ("Let me know if the build is green.", "the build is green."),
    ],
)
def test_what_is_asked_about_stays(asked, topic):
    """Names of speakers belong to it, as does the order of what is left."""
    assert without_scaffolding(asked) == topic


@pytest.mark.parametrize(
    "question",
    [
        *TOPICS,
        "What did Bo give me for my birthday?",
        "Does Ada know about the surprise?",
        "How do I list all open bugs?",
        "Is there a list of guests?",
        "What question did Bo ask?",
        "In what order did they arrive?",
        "Who told Ada about the boat?",
        "Wo wohnt sie jetzt?",
        "她现在在哪里工作?",
    ],
)
def test_a_question_without_any_stays_as_it_is(question):
    """The same words ask in one place and are asked about in another."""
    assert without_scaffolding(question) == question


@pytest.mark.parametrize(
    "question", ["Please", "tell me", "Can you list them, please?", "I was wondering …", "Explain!"]
)
def test_nothing_becomes_empty(question):
    """Where all is scaffolding, the words stay."""
    assert without_scaffolding(question) == question


@given(
    st.sampled_from(TOPICS),
    st.lists(st.sampled_from(BEFORE), max_size=3),
    st.lists(st.sampled_from(BEHIND), max_size=3),
)
def test_phrases_that_ask_change_no_term(topic, before, behind):
    """However many, in any order."""
    assert terms(" ".join([*before, topic, *behind])) == Counter(index_terms(topic))


@pytest.mark.slow
@given(st.text(), st.lists(st.sampled_from([*BEFORE, *BEHIND, "Bo", "boat", "and", "?"])))
def test_nothing_is_added_and_the_last_term_stays(noise, parts):
    """Of any text; a second time changes nothing."""
    text = " ".join([*parts, noise])
    left = without_scaffolding(text)
    assert Counter(index_terms(left)) <= Counter(index_terms(text))
    assert bool(list(index_terms(left))) == bool(list(index_terms(text)))
    assert without_scaffolding(left) == left
