"""What holds for any text: nothing invented, nothing crashes, nothing takes forever."""

import re
import time

import pytest
from helpers import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mnemo.english.words import NUMBER_WORDS, with_s

# Whatever a template, an agreement or a resolved date may add.
TEMPLATE_WORDS = frozenset(
    """
    asked answered said that to and others other is are was has have had does do will would wants
    want going not isn't hasn't doesn't themselves agent the tool returned gave reported version
    times updated created weekend week of user s
    """.split()  # noqa: SIM905
)

# The fixtures only build values, so sharing them between examples does no harm.
ANY_TEXT = settings(
    max_examples=examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
WORDS = st.sampled_from(
    """
    I I'm I've my me we our us you your he she it they this that Ana Bo yesterday today tomorrow
    last next Friday week month ago two 3 bought moved live work works to in at and but or because
    dog sister Lisbon harbour Dr. v2.1.3 example.org "fine" maybe actually always never please can
    could error failed passed fixed key: value , . ! ? ; - … gonna wanna gotta started feeling kids
    love the a an new old very really not don't won't is are was were been be have has had
    """.split()  # noqa: SIM905
)
DIALOGUE = st.lists(
    st.tuples(
        st.lists(WORDS, max_size=25).map(" ".join), st.lists(WORDS, max_size=8).map(" ".join)
    ),
    min_size=1,
    max_size=4,
)


def words_of(text: str) -> set[str]:
    """The words of *text*, folded, with possessives taken apart."""
    return set(re.findall(r"[^\W_]+(?:['’][^\W_]+)?", text.lower())) | set(
        re.findall(r"[^\W_]+", text.lower())
    )


def allowed(texts: list[str]) -> set[str]:
    """Words that a fact about *texts* may have."""
    said = set().union(*(words_of(text) for text in texts)) | {"ana", "bo"}
    agreed = {with_s(word) for word in said}
    possessive = {f"{name}'s" for name in ("ana", "bo", "agent")}
    return said | agreed | possessive | TEMPLATE_WORDS | set(NUMBER_WORDS)


@pytest.mark.slow
@given(DIALOGUE, st.booleans())
@ANY_TEXT
async def test_no_word_of_a_fact_is_invented(step, facts_of, dialogue, two_people):
    """Each word is the steps', an actor's name, a date's or a fixed template's."""
    steps = [
        step(i, said, done, actor="Bo" if two_people and i % 2 else "Ana")
        for i, (said, done) in enumerate(dialogue)
    ]

    for fact in await facts_of(*steps):
        bare = re.sub(r"\[(?:weekend of |week of )?\d{4}(?:-\d\d){0,2}\]", "", fact.proposition)
        invented = words_of(bare) - allowed([text for pair in dialogue for text in pair])
        assert not invented, fact.proposition
        assert set(fact.steps) <= {s.index for s in steps}
        assert fact.steps


@pytest.mark.slow
@given(st.lists(st.text(max_size=200), min_size=2, max_size=6))
@ANY_TEXT
async def test_any_text_is_taken(step, facts_of, instructions_of, texts):
    """Whatever characters a step has, extraction ends, twice with the same result."""
    steps = [step(i, text, text[::-1]) for i, text in enumerate(texts)]

    facts = await facts_of(*steps)

    assert facts == await facts_of(*steps)
    assert await instructions_of(*steps) == await instructions_of(*steps)
    assert all(fact.proposition.strip() and 0 <= fact.confidence <= 1 for fact in facts)
    assert all(len(fact.concepts) <= 6 for fact in facts)


@pytest.mark.parametrize(
    "text",
    [
        "\ufffd\ufffd broken \ufffd text",
        "👩‍💻🎉 I moved to Oslo 🎉",
        "我昨天搬到了上海。我的狗很喜欢。",
        "東京に引っ越しました！",
        "ฉันย้ายไปกรุงเทพเมื่อวาน",
        "\ud800 lone surrogate",
        "A=\u0591 a mark without a letter",
    ],
)
async def test_scripts_and_marks_of_any_kind_are_taken(step, facts_of, text):
    """Emoji, replacement characters, and scripts without blanks crash nothing."""
    await facts_of(step(0, text, text, actor="Ana"), step(1, text, actor="Bo"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "I am ",
        "(",
        '"',
        "1.",
        "- ",
        "= ",
        "key=",
        "error ",
        "last week ",
        "[shares ",
        "x@",
        "你好",
    ],
)
async def test_a_huge_observation_takes_bounded_time(step, facts_of, instructions_of, unit):
    """Of ten megabytes only head and tail are analysed, whatever they repeat."""
    text = unit * (10_000_000 // len(unit))
    steps = [step(0, text, text[:50_000]), step(1, text)]

    started = time.process_time()
    await facts_of(*steps)
    await instructions_of(*steps)

    assert time.process_time() - started < 2
