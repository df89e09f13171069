"""Keyword search over the steps of every store: who is found, in which order, as what."""

import logging
import unicodedata
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from mnemo.config import Config, RecallConfig
from mnemo.recall.keyword import search
from mnemo.values.records import RecordQuery


def decaying(decay: float) -> Config:
    """A configuration under which a year weighs so much."""
    return Config(recall=RecallConfig(recency_decay=decay))


FINDS = [
    ("signal and noise", "The signal and the noise"),
    ("sub-agents", "Two sub-agents were started"),
    ("user:42", "seen user:42 again"),
    ("test*", "a literal test* here"),
    ("don't", "I don't know"),
    ("{x}", "the set {x} is small"),
    ("When did the user visit Kyoto", "The user will visit Kyoto in May"),
    ("the who", "The Who played"),
    ("tests", "testing went well"),
    ("cafe", "we met at the café"),
    ("привет", "ПРИВЕТ, мир"),
    ("kyoto @@@", "Kyoto in spring"),
    ("foo OR OR bar", "only bar here"),
    ('"green tea"', "a pot of green tea"),
    ("kyoto", "off to Kyoto\U0001f642"),
    ("kyoto", "\U0001f914Kyoto\U0001faf6again"),
    ("lira", "100 lira\u20ba"),
    ("\ud55c\uad6d\uc5b4", unicodedata.normalize("NFD", "\ud55c\uad6d\uc5b4 \ubb38\uc11c")),
    ("\u30d1", unicodedata.normalize("NFD", "\u30d1\u30fc\u30c6\u30a3\u30fc")),
]

MISSES = [
    ('"green tea"', "tea that is green"),
    ("kyoto osaka", "Kyoto in spring"),
    ("cats NOT dogs birds", "cats, dogs and birds"),
    ("@@@", "something @@@ else"),
    ("AND OR NOT", "and or not"),
]


@pytest.mark.parametrize("query", [None, "", "  ", "\u00a0", "\u3000\n"])
async def test_a_blank_query_is_refused(talk, query):
    """Nothing to look for is an error, not an empty answer."""
    with pytest.raises(ValueError, match=r"^Query cannot be blank$"):
        await talk.search(query)


@pytest.mark.parametrize("limit", [0, -1, 101])
async def test_a_limit_out_of_range_is_refused(talk, limit):
    """One to a hundred hits."""
    with pytest.raises(ValueError, match="limit"):
        await talk.search("tea", limit=limit)


@pytest.mark.parametrize(("query", "text"), FINDS)
async def test_a_query_finds_its_text(talk, query, text):
    """As soon as the step is durable."""
    step = await talk.say(text)
    assert await talk.found(query) == [f"{step}/observation"]


@pytest.mark.parametrize(("query", "text"), MISSES)
async def test_a_query_does_not_find_other_texts(talk, query, text):
    """All words, none of the excluded, phrases in order."""
    await talk.say(text)
    assert await talk.found(query) == []


async def test_a_session_is_a_filter(talk):
    """Hits of that session only; of an unknown one none."""
    await talk.say("tea", session="s1")
    other = await talk.say("tea", session="s2")
    assert await talk.found("tea", session_id="s2") == [f"{other}/observation"]
    assert await talk.found("tea", session_id="nobody") == []


async def test_a_year_lowers_a_score_by_the_decay(talk):
    """Equal texts a year apart differ by 1.3, without decay by nothing."""
    await talk.say("tea", days_ago=365)
    await talk.say("tea", days_ago=0)
    newer, older = await talk.search("tea")
    assert newer.at > older.at
    assert newer.score / older.score == pytest.approx(1.3)
    flat = await talk.search("tea", config=decaying(0.0))
    assert flat[0].score == flat[1].score
    assert flat[0].at > flat[1].at


async def test_a_time_in_the_future_is_no_bonus(talk):
    """Age is never below zero."""
    await talk.say("tea", days_ago=-400)
    await talk.say("tea", days_ago=0)
    first, second = await talk.search("tea")
    assert first.score == second.score
    assert first.at - second.at == timedelta(days=400)


async def test_a_refused_expression_falls_back_to_its_words(talk, caplog):
    """Should an index refuse an expression, its words are looked for, and it is logged."""
    step = await talk.say("tea or milk")

    class Picky:
        def __init__(self, accepts: str | None) -> None:
            self.accepts = accepts

        async def search(self, wanted: RecordQuery) -> Any:
            if wanted.query.expression != self.accepts:
                raise ValueError("not understood")
            return await talk.records().search(wanted)

    asked = partial(search, query="tea OR milk", clock=talk.clock, config=Config())
    with caplog.at_level(logging.WARNING):
        hits = await asked(Picky('"tea" AND "milk"'))  # type: ignore[arg-type]
        none = await asked(Picky(None))  # type: ignore[arg-type]
    assert [hit.message_id for hit in hits] == [f"{step}/observation"]
    assert none == []
    assert "not understood" in caplog.text
