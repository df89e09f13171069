"""Where the finite verb of a clause stands."""

import pytest

from mnemo.english.verbs import finite_verb, is_order, is_question, may_have_verb, tokens_of


@pytest.mark.parametrize(
    ("clause", "verb"),
    [
        ("I varnish the table", "varnish"),
        ("I no longer kind of like tea", "like"),
        ("Honestly I snore", "snore"),
        ("Emily kindles the lanterns", "kindles"),
        ("my sister mends old clocks", "mends"),
        ("Ada visits Oslo", "visits"),
        ("My parents decorate the house", "decorate"),
        ("Ada and Bo paint the fence", "paint"),
        ("The cake I baked was dry", "was"),
        ("People who love dogs", None),
        ("The cake I baked", None),
        ("Three times a week", None),
        ("The lanterns in the cellar", None),
        ("Things to do in Oslo", None),
        ("My dog barks at night", None),
    ],
)
def test_the_verb_is_found_by_its_place(clause, verb):
    """Pronouns, articles and endings tell it; a relative clause has none of its own to give."""
    words = tokens_of(clause)
    found = finite_verb(words)
    assert (None if found is None else words[found]) == verb


def test_a_doubtful_verb_is_found_when_asked_for():
    """A word that may as well be a plural counts only where doubt is allowed."""
    words = tokens_of("My dog barks at night")
    assert finite_verb(words, sure=False) == 2
    assert may_have_verb(words)
    assert not may_have_verb(tokens_of("My old songs of the sea"))


@pytest.mark.parametrize("text", ["does Ada mend it", "who is Eve", "is it me", "do cats purr"])
def test_the_order_of_a_question_is_known(text):
    """Without a question mark, too."""
    assert is_question(tokens_of(text))


@pytest.mark.parametrize("text", ["When Ada sings", "What I like", "Did my taxes", "Ada is here"])
def test_a_statement_is_no_question(text):
    """Subordinate clauses and elided subjects do not ask."""
    assert not is_question(tokens_of(text))


def test_an_order_begins_with_a_base_form():
    """Before an article any base form is an order; a name or a plural is none."""
    assert is_order(tokens_of("Varnish the table"))
    assert not is_order(tokens_of("Lanterns the size of a fist"))
    assert not is_order(tokens_of("Fanola No Yellow shampoo"))
