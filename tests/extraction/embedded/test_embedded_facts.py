"""Facts from speech and from tool output, without a model."""

from __future__ import annotations

from typing import Any

import pytest


async def test_a_first_person_event_names_actor_and_date(step: Any, facts_of: Any) -> None:
    """ "yesterday" of Ana on 2024-03-01 gives a fact with her name and 2024-02-29."""
    (fact,) = await facts_of(step(0, "I adopted a cat yesterday.", actor="Ana"))

    assert fact.proposition == "Ana adopted a cat yesterday [2024-02-29]."
    assert fact.steps == (0,)
    assert fact.concepts[0] == "Ana"


async def test_small_talk_gives_no_fact(step: Any, facts_of: Any) -> None:
    """Greetings, questions and thanks are not worth keeping."""
    assert await facts_of(step(0, "Hi! How are you? Thanks, that's great!")) == []


async def test_points_inside_names_and_versions_do_not_split(step: Any, facts_of: Any) -> None:
    """An abbreviation, a version and a host name make one sentence and one fact."""
    (fact,) = await facts_of(step(0, "Dr. Lee uses v2.1.3 at example.org."))

    assert "Dr. Lee uses v2.1.3 at example.org" in fact.proposition


@pytest.mark.parametrize(
    "text",
    [
        '{"api_key": "sk-…", "region": "eu-west"}',
        '{"api_key": "sk-4f9a8b7c6d5e4f3a2b1c", "region": "eu-west"}',
        "export DB_PASSWORD=hunter22",
        "My password is hunter22 and my dentist is in Bremen.",
    ],
)
async def test_a_secret_enters_no_fact(step: Any, facts_of: Any, text: Any) -> None:
    """What looks like a key or password is in no proposition and no concept."""
    facts = await facts_of(step(0, text))

    told = " ".join(f"{f.proposition} {f.concepts}" for f in facts)
    assert not any(s in told for s in ("sk-", "hunter22", "4f9a8b"))


async def test_equal_input_gives_equal_facts(step: Any, facts_of: Any) -> None:
    """The same steps give the same facts, in the same order."""
    steps = [step(0, "I moved to Porto last week. My sister Eva lives in Braga.", actor="Ana")]

    assert await facts_of(*steps) == await facts_of(*steps) != []


# ── Speech ───────────────────────────────────────────────────────────────────────────


async def propositions(facts_of: Any, *steps: Any, **settings: Any) -> list[str]:
    return [fact.proposition for fact in await facts_of(*steps, **settings)]


@pytest.mark.parametrize(
    ("said", "facts"),
    [
        ("I work as a nurse in Bremen.", ["Ana works as a nurse in Bremen."]),
        ("Hey! I'm learning to weld; my uncle owns a forge.",
         ["Ana is learning to weld.", "Ana's uncle owns a forge."]),
        ("I moved to Porto and I found a flat near the river.",
         ["Ana moved to Porto.", "Ana found a flat near the river."]),
        ("I've moved and my dog loves it.", ["Ana has moved and Ana's dog loves it."]),
        ("Started a pottery course last week.",
         ["Ana started a pottery course last week [week of 2024-02-19]."]),
        ("Can you find me a vegan place?", ["Ana asked to find a vegan place."]),
        ("Please book a table at Lido.", ["Ana asked to book a table at Lido."]),
        ("I have a dog.", ["Ana has a dog."]),
        ("I love pizza.", ["Ana loves pizza."]),
        ("I'm so excited!", []),
        ("What is the capital of Peru?", []),
        ("I'm planning a trip to Peru, can you recommend a guide book?",
         ["Ana is planning a trip to Peru.", "Ana asked to recommend a guide book."]),
        ("We adopted two kittens.", ["Ana and others adopted two kittens."]),
        ("The server runs on port 8080.", ["The server runs on port 8080."]),
        ("My sister Eva lives in Lyon. She teaches chemistry.",
         ["Ana's sister Eva lives in Lyon.", "Ana's sister Eva teaches chemistry."]),
        ("I bought a violin. It was made in 1920.",
         ["Ana bought a violin. It was made in 1920."]),
        ("He likes tea.", []),
        ("Thanks a lot, you are a great help!", []),
        ("[shares a photo of a red canoe]", ["Ana shares a photo of a red canoe."]),
        ("My deploys:\n- api runs in Frankfurt\n- web runs in Dublin",
         ["Api runs in Frankfurt.", "Web runs in Dublin."]),
    ],
)  # fmt: skip
async def test_speech_becomes_self_contained_facts(
    step: Any, facts_of: Any, said: Any, facts: Any
) -> None:
    """Said by Ana to an agent on Friday 2024-03-01: names, dates, one claim each."""
    assert await propositions(facts_of, step(0, said, actor="Ana")) == facts


async def test_she_is_never_one_of_those_who_talk(step: Any, facts_of: Any) -> None:
    """Whoever talks is "I" or "you", so "she" means someone else, or is explained."""
    steps = [
        step(0, "Any news?", actor="Bo"),
        step(1, "The new novel by J.K. Rowling fills 900 pages. She writes slowly.", actor="Ana"),
    ]

    assert not any("Ana writes" in told for told in await propositions(facts_of, *steps))


async def test_we_and_you_are_the_two_who_talk(step: Any, facts_of: Any) -> None:
    """In a talk of two, "we" is both and "you" the other."""
    steps = [
        step(0, "Good to see you!", actor="Bo"),
        step(1, "We visited the lighthouse and I showed you the old lamp.", actor="Ana"),
    ]

    assert await propositions(facts_of, *steps) == [
        "Ana and Bo visited the lighthouse.",
        "Ana showed Bo the old lamp.",
    ]


async def test_we_leaves_out_who_asks(step: Any, facts_of: Any) -> None:
    """Whoever asks what "you" did was not there, and own people were meant."""
    steps = [
        step(0, "How did you spend the weekend?", actor="Bo"),
        step(1, "We painted the fence of the garden together.", actor="Ana"),
    ]

    assert await propositions(facts_of, *steps) == [
        "Ana and others painted the fence of the garden together."
    ]


async def test_a_short_answer_joins_its_question(step: Any, facts_of: Any) -> None:
    """The question gives the answer its meaning; both steps are its sources."""
    steps = [
        step(0, "where do you work?", actor="Ana"),
        step(1, "At the harbour.", actor="Bo"),
    ]

    (fact,) = await facts_of(*steps)

    assert fact.proposition == 'Asked "where do you work?", Bo answered "At the harbour".'
    assert fact.steps == (0, 1)


async def test_an_answer_to_a_question_in_the_context_names_its_own_step(
    step: Any, facts_of: Any
) -> None:
    """A question before the trajectory explains, but is no source in it."""
    steps = [step(0, "Hi", "Where do you work?"), step(1, "At the harbour.", "Noted")]

    (fact,) = await facts_of(*steps, context=1)

    assert fact.proposition == 'Asked "Where do you work?", User answered "At the harbour".'
    assert fact.steps == (1,)


async def test_an_answer_to_a_told_question_joins_it(step: Any, facts_of: Any) -> None:
    """An action that says what it asked explains the reply."""
    steps = [
        step(0, "User wants to visit Tokyo", "Asked for the dates"),
        step(1, "March, two weeks", "Suggested an itinerary"),
    ]

    assert await propositions(facts_of, *steps) == [
        "User wants to visit Tokyo.",
        'Asked for the dates, User answered "March, two weeks".',
        "Agent suggested an itinerary.",
    ]


async def test_two_people_are_quoted_as_saying(step: Any, facts_of: Any) -> None:
    """What one of two says about the world is attributed."""
    steps = [
        step(0, "Nice weather!", actor="Bo"),
        step(1, "The old bakery closed its doors for the winter.", actor="Ana"),
    ]

    assert await propositions(facts_of, *steps) == [
        "Ana said that the old bakery closed its doors for the winter."
    ]


@pytest.mark.parametrize(
    ("said", "confidence"),
    [
        ("I sold the boat.", 0.8),
        ("Maybe I will sell the boat.", 0.5),
        ("I think the boat needs a new engine.", 0.5),
        ("My neighbour said the boat needs a new engine.", 0.6),
        ("I heard the boat needs a new engine.", 0.6),
    ],
)
async def test_confidence_follows_the_words(
    step: Any, facts_of: Any, said: Any, confidence: Any
) -> None:
    """Plain 0.8, hearsay 0.6, hedged 0.5."""
    if "neighbour" in said:
        said = "She said the boat needs a new engine and a mast. " + said
    facts = await facts_of(step(0, said))

    assert facts[-1].confidence == confidence


async def test_a_correction_replaces_what_it_corrects(step: Any, facts_of: Any) -> None:
    """ "Actually" gives the slot its later value; the earlier one is no fact."""
    steps = [
        step(0, "My budget is 2000 euros.", actor="Bo"),
        step(1, "Actually, my budget is 3000 euros.", actor="Bo"),
    ]

    assert await propositions(facts_of, *steps) == ["Bo's budget is 3000 euros."]


async def test_the_agent_tells_only_what_is_done(step: Any, facts_of: Any) -> None:
    """Advice and pleasantries of the acting side are no facts; deeds are."""
    action = (
        "Happy to help! I booked the table at Lido for eight. You should bring cash. "
        "Let me know if you need more."
    )

    assert await propositions(facts_of, step(0, "ok", action)) == [
        "Agent booked the table at Lido for eight."
    ]


async def test_the_configured_agent_is_named(step: Any, facts_of: Any) -> None:
    """``config.extraction.agent_name`` is who acts."""
    assert await propositions(
        facts_of, step(0, "ok", "I booked the table at Lido."), agent_name="Robin"
    ) == ["Robin booked the table at Lido."]


async def test_the_same_fact_twice_is_one_with_both_steps(step: Any, facts_of: Any) -> None:
    """Equal texts are united with their steps."""
    steps = [step(0, "My dog is called Rex."), step(1, "My dog is called Rex!")]

    (fact,) = await facts_of(*steps)

    assert fact.steps == (0, 1)


async def test_at_most_max_facts_remain_those_of_highest_confidence(
    step: Any, facts_of: Any
) -> None:
    """The limit keeps the surest, in the order in which they were said."""
    said = ["Maybe I will sell the canoe.", "I own a red kayak.", "I own a blue raft."]

    kept = await propositions(facts_of, *[step(i, s) for i, s in enumerate(said)], max_facts=2)

    assert kept == ["User owns a red kayak.", "User owns a blue raft."]


async def test_concepts_are_words_of_the_fact(step: Any, facts_of: Any) -> None:
    """Names, numbers with units and identifiers first, the speaker before all."""
    (fact,) = await facts_of(
        step(0, "I paid 250 euros to Hofmann GmbH for `billing.py`.", actor="Ana")
    )

    assert fact.concepts[0] == "Ana"
    assert {"Hofmann GmbH", "250 euros", "billing.py"} <= set(fact.concepts)


async def test_code_in_fences_is_not_prose(step: Any, facts_of: Any) -> None:
    """Only the words around a code block are read."""
    text = "I use Flask for the shop.\n```python\nshop = 'I am code'\nimport flask\n```\n"

    assert await propositions(facts_of, step(0, text)) == ["User uses Flask for the shop."]


# ── Tool output ──────────────────────────────────────────────────────────────────────

PYTEST = """\
============================= test session starts ==============================
collected 42 items

    def test_total():
>       assert total(cart) == 12
E       AssertionError: assert 10 == 12

tests/test_cart.py:23: AssertionError
=========================== short test summary info ============================
FAILED test_cart.py::test_total - AssertionError: assert 10 == 12
1 failed, 41 passed in 3.21s"""


async def test_a_test_run_gives_its_error_and_result(step: Any, facts_of: Any) -> None:
    """Error type and message, the failing test, the result; each names the call."""
    facts = await facts_of(step(0, "go", "pytest -q"), step(1, PYTEST, ""))

    assert [f.proposition for f in facts] == [
        "`pytest -q` gave AssertionError: assert 10 == 12.",
        "`pytest -q` reported FAILED test_cart.py::test_total - AssertionError: assert 10 == 12.",
        "`pytest -q` reported 1 failed, 41 passed in 3.21s.",
    ]
    assert {f.confidence for f in facts} == {0.9}


async def test_a_repeated_error_is_said_once_with_its_count(step: Any, facts_of: Any) -> None:
    """Numbers aside, equal lines are one error."""
    log = "\n".join(f"2024-03-01 10:00:0{i} ERROR: timeout after {i} s" for i in range(1, 4))

    (said,) = await propositions(facts_of, step(0, log))

    assert said == "The tool gave ERROR: timeout after 1 s (3 times)."


async def test_small_json_gives_its_leaves(step: Any, facts_of: Any) -> None:
    """Leaves of depth two as key and value, never a secret one."""
    value = '{"status": "ok", "replicas": {"ready": 3, "deep": {"x": 1}}, "token": "abcd1234"}'

    assert await propositions(
        facts_of, step(0, "check", "get_status(name='api')"), step(1, value)
    ) == [
        "`get_status` returned status = ok.",
        "`get_status` returned replicas.ready = 3.",
    ]


async def test_changed_paths_and_versions_are_facts(step: Any, facts_of: Any) -> None:
    """What was created, and which version is there."""
    log = "INFO: starting\ncreated src/app.py\nUsing ruff 0.6.9\n"

    assert await propositions(facts_of, step(0, log)) == [
        "The tool created src/app.py.",
        "The tool reported ruff version 0.6.9.",
    ]


async def test_a_line_after_a_call_is_its_output(step: Any, facts_of: Any) -> None:
    """What addresses nobody and follows a call was returned by it."""
    steps = [step(0, "Do it", "edit_file(path='a.py')"), step(1, "Updated a.py", "")]

    assert "`edit_file` updated a.py." in await propositions(facts_of, *steps)
