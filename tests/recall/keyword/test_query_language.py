"""What a query means, and that no string is a syntax error."""

import sqlite3
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemo.recall.keyword import MOST_OPERANDS, parse

MEANINGS = {
    "kyoto": '"kyoto"',
    "kyoto hotel": '"kyoto" AND "hotel"',
    '"green tea" pot': '"green tea" AND "pot"',
    "cats NOT dogs birds": '"cats" AND "birds" NOT "dogs"',
    "NOT foo": '"foo"',
    "foo AND": '"foo"',
    "foo OR OR bar": '"foo" OR "bar"',
    "foo AND NOT bar": '"foo" NOT "bar"',
    "foo OR NOT bar": '"foo" NOT "bar"',
    "foo OR bar baz NOT qux": '"foo" OR "bar" AND "baz" NOT "qux"',
    "AND OR NOT": "",
    "@@@": "",
    "kyoto @@@": '"kyoto"',
    "kyoto AND @@@ OR osaka": '"kyoto" OR "osaka"',
    "fish and chips": '"fish" AND "chips"',
    "near and NEAR": '"near" AND "NEAR"',
    "When did the user visit Kyoto": '"user" AND "visit" AND "Kyoto"',
    "the who": '"the" AND "who"',
    '"the who" band': '"the who" AND "band"',
    "the NOT dogs": '"the" NOT "dogs"',
    "(cats OR dogs)": '"cats" OR "dogs"',
    "f(x) (y)": '"f(x" AND "y"',
    'say "hello': '"say" AND "hello"',
    "sub-agents user:42 test* {x}": '"sub-agents" AND "user:42" AND "test*" AND "{x}"',
    "don't": '"don\'t"',
    "a\u0000b\ud800c": '"b" AND "c"',
    "tea\u3000pot\u00a0lid": '"tea" AND "pot" AND "lid"',
    "cafe\u0301": '"caf\u00e9"',
    "東京都": '"東京都"',
}


@pytest.mark.parametrize("query", MEANINGS)
def test_a_query_means_quoted_operands(query):
    """Operators only between operands, all else is text."""
    assert parse(query).expression == MEANINGS[query]


def test_operands_beyond_the_bound_are_ignored():
    """A query of any length asks for at most 64 things."""
    query = parse(" ".join(f"word{i}" for i in range(1_000)))
    assert len(query.wanted) == MOST_OPERANDS
    assert query.wanted[-1] == "word63"


@pytest.fixture(scope="module")
def index() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE records USING fts5(text, tokenize='porter unicode61')")
    connection.execute("INSERT INTO records VALUES ('AND OR NOT near the sub-agents of user:42')")
    yield connection
    connection.close()


PIECES = [*"\"()*^-+:{}'\0\ud800", '""', "text:", "a", "the", "東京", "\u0e01", "ǅ"]
OPERATORS = ["AND", "OR", "NOT", "NEAR", "NEAR(a b, 2)"]
JOINED = st.lists(st.one_of(st.sampled_from(PIECES + OPERATORS), st.text(max_size=6)), max_size=12)
HOSTILE = st.one_of(JOINED.map(" ".join), JOINED.map("".join), st.text())


@given(query=HOSTILE)
def test_no_string_is_a_syntax_error(index, query):
    """Whatever is typed, the full-text engine understands the expression."""
    expression = parse(query).expression
    if expression:
        found = index.execute("SELECT count(*) FROM records WHERE records MATCH ?", (expression,))
        assert found.fetchone()[0] in (0, 1)


def test_a_word_said_many_times_is_looked_up_once():
    """A pasted text repeats its words; the index reads every place of each operand."""
    assert parse("kyoto temples " * 500).wanted == ("kyoto", "temples")
    assert parse('"old town" "old town" OR tea tea').wanted == ("old town", "tea")
