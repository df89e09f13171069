"""Facts from speech and from tool output, without a model."""

from typing import Any

import pytest


async def test_a_first_person_event_names_actor_and_date(step, facts_of):
    """ "yesterday" of Ana on 2024-03-01 gives a fact with her name and 2024-02-29."""
    (fact,) = await facts_of(step(0, "I adopted a cat yesterday.", actor="Ana"))

    assert fact.proposition == "Ana adopted a cat yesterday [2024-02-29]."
    assert fact.steps == (0,)


async def test_small_talk_gives_no_fact(step, facts_of):
    """Greetings, questions and thanks are not worth keeping."""
    assert await facts_of(step(0, "Hi! How are you? Thanks, that's great!")) == []


async def test_points_inside_names_and_versions_do_not_split(step, facts_of):
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
async def test_a_secret_enters_no_fact(step, facts_of, text):
    """What looks like a key or password is in no proposition and no concept."""
    facts = await facts_of(step(0, text))

    told = " ".join(f"{f.proposition} {f.concepts}" for f in facts)
    assert not any(s in told for s in ("sk-", "hunter22", "4f9a8b"))


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
        ("I've moved and my dog loves it.", ["Ana: I've moved and my dog loves it."]),
        ("Started a pottery course last week.",
         ["Ana started a pottery course last week [week of 2024-02-19]."]),
        ("Can you find me a vegan place?", []),
        ("Please book a table at Lido.", []),
        ("Deploy the shop to staging.", []),
        ("Could you remind me to call the dentist on Friday?", []),
        ("I have a dog.", ["Ana has a dog."]),
        ("I love pizza.", ["Ana loves pizza."]),
        ("I'm so excited!", []),
        ("What is the capital of Peru?", []),
        ("I'm planning a trip to Peru, can you recommend a guide book?",
         ["Ana is planning a trip to Peru."]),
        ("We adopted two kittens.", ["Ana: We adopted two kittens."]),
        ("We got the grant!", ["Ana: We got the grant."]),
        ("The server runs on port 8080.", ["The server runs on port 8080."]),
        ("My sister Eva lives in Lyon. She teaches chemistry.",
         ["Ana: My sister Eva lives in Lyon. She teaches chemistry."]),
        ("I bought a violin. It was made in 1920.",
         ["Ana: I bought a violin. It was made in 1920."]),
        ("He likes tea.", []),
        ("Thanks a lot, you are a great help!", []),
        ("[shares a photo of a red canoe]", []),
        ("I met Eva, she is my cousin.", ["Ana: I met Eva, she is my cousin."]),
        ("I told her about the lantern festival.", []),
        ("I dug deep into those topics.", []),
        ("Once I have the certificate set up.", []),
        ("The old red lantern in the hall.", []),
        ("I passed the exam. 48 of 50 points.", ["Ana: I passed the exam. 48 of 50 points."]),
        ("I'm not sure how to configure the proxy.", []),
        ("Import fails at row 418. Assigned to Bo.",
         ["Import fails at row 418. Assigned to Bo."]),
        ("PASSED my driving test with 3 minors", ["Ana: PASSED my driving test with 3 minors."]),
        ("My deploys:\n- api runs in Frankfurt\n- web runs in Dublin",
         ["Ana: api runs in Frankfurt.", "Ana: web runs in Dublin."]),
    ],
)  # fmt: skip
async def test_speech_becomes_self_contained_facts(step, facts_of, said, facts):
    """Said by Ana to an agent on Friday 2024-03-01: names, dates, one claim each."""
    assert await propositions(facts_of, step(0, said, actor="Ana")) == facts


async def test_what_is_pasted_is_not_the_speakers(step, facts_of):
    """Behind "I have written this" only what is the speaker's own is a fact; minutes stay."""
    lines = "\n".join(f"- Claim {n}: harbour {n} beats garden {n} in summer." for n in range(14))
    own = f"I wrote an outline for Bo on 3 May.\n{lines}"
    assert await propositions(facts_of, step(0, own)) == ["User wrote an outline for Bo on 3 May."]
    assert len(await facts_of(step(0, lines))) == 14


async def test_she_is_never_one_of_those_who_talk(step, facts_of):
    """Whoever talks is "I" or "you", so "she" means someone else, or is explained."""
    steps = [
        step(0, "Any news?", actor="Bo"),
        step(1, "The new novel by J.K. Rowling fills 900 pages. She writes slowly.", actor="Ana"),
    ]

    assert not any("Ana writes" in told for told in await propositions(facts_of, *steps))


async def test_we_and_you_are_the_two_who_talk(step, facts_of):
    """What one did to the other names both; "we" stays the speaker's word."""
    steps = [
        step(0, "Good to see you!", actor="Bo"),
        step(1, "We visited the lighthouse and I showed you the old lamp.", actor="Ana"),
    ]

    assert await propositions(facts_of, *steps) == [
        "Ana: We visited the lighthouse.",
        "Ana to Bo: I showed you the old lamp.",
    ]


async def test_a_short_answer_joins_its_question(step, facts_of):
    """The question gives the answer its meaning; both steps are its sources."""
    steps = [
        step(0, "where do you work?", actor="Ana"),
        step(1, "At the harbour.", actor="Bo"),
    ]

    (fact,) = await facts_of(*steps)

    assert fact.proposition == "Ana: where do you work? Bo: At the harbour."
    assert fact.steps == (0, 1)


async def test_an_answer_to_a_question_in_the_context_names_its_own_step(step, facts_of):
    """A question before the trajectory explains, but is no source in it."""
    steps = [step(0, "Hi", "Where do you work?"), step(1, "At the harbour.", "Noted")]

    (fact,) = await facts_of(*steps, context=1)

    assert fact.proposition == "Agent: Where do you work? User: At the harbour."
    assert fact.steps == (1,)


async def test_what_people_say_about_the_world_is_talk(step, facts_of):
    """Among people only what is of the speaker, or names or counts something, is a fact."""
    steps = [
        step(0, "Nice weather!", actor="Bo"),
        step(1, "Yoga brings peace to busy people. The bakery opens at 7.", actor="Ana"),
    ]

    assert await propositions(facts_of, *steps) == ["Ana: The bakery opens at 7."]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("What else helps you out?", "Thanks, Melanie!"),
        ("How's your week been?", "Ouch, bummer about the injury."),
        ("Do you have any hobbies?", "Yeah!"),
        ("Did you see that band?", "Yeah, that pic was from a show."),
    ],
)
async def test_a_reply_that_answers_nothing_is_no_fact(step, facts_of, asked, said):
    """Thanks, sympathy, a mere yes, and what only the talk explains."""
    steps = [step(0, asked, actor="Melanie"), step(1, said, actor="Caroline")]

    assert await facts_of(*steps) == []


@pytest.mark.parametrize(
    ("said", "confidence"),
    [
        ("I sold the boat.", 0.8),
        ("Maybe I will sell the boat for 900 euros.", 0.5),
        ("I think the boat needs 2 new engines.", 0.5),
        ("My neighbour said the boat needs a new engine.", 0.6),
        ("I heard the boat needs a new engine.", 0.6),
    ],
)
async def test_confidence_follows_the_words(step, facts_of, said, confidence):
    """Plain 0.8, hearsay 0.6, hedged 0.5."""
    if "neighbour" in said:
        said = "She said the boat needs a new engine and a mast. " + said
    facts = await facts_of(step(0, said))

    assert facts[-1].confidence == confidence


async def test_the_agent_tells_only_what_is_done(step, facts_of):
    """Advice and pleasantries of the acting side are no facts; deeds are."""
    action = (
        "Happy to help! I booked the table at Lido for eight. You should bring cash. "
        "Let me know if you need more."
    )

    assert await propositions(facts_of, step(0, "ok", action)) == [
        "Agent booked the table at Lido for eight."
    ]


async def test_the_configured_agent_is_named(step, facts_of):
    """``config.extraction.agent_name`` is who acts."""
    assert await propositions(
        facts_of, step(0, "ok", "I booked the table at Lido."), agent_name="Robin"
    ) == ["Robin booked the table at Lido."]


async def test_code_in_fences_is_not_prose(step, facts_of):
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


async def test_a_test_run_gives_its_error_and_result(step, facts_of):
    """Error type and message, the failing test, the result; each names the call."""
    facts = await facts_of(step(0, "go", "pytest -q"), step(1, PYTEST, ""))

    assert [f.proposition for f in facts] == [
        "`pytest -q` gave AssertionError: assert 10 == 12.",
        "`pytest -q` reported FAILED test_cart.py::test_total - AssertionError: assert 10 == 12.",
        "`pytest -q` reported 1 failed, 41 passed in 3.21s.",
    ]
    assert {f.confidence for f in facts} == {0.9}


async def test_a_repeated_error_is_said_once_with_its_count(step, facts_of):
    """Numbers aside, equal lines are one error."""
    log = "\n".join(f"2024-03-01 10:00:0{i} ERROR: timeout after {i} s" for i in range(1, 4))

    (said,) = await propositions(facts_of, step(0, log))

    assert said == "The tool gave ERROR: timeout after 1 s (3 times)."


async def test_small_json_gives_its_leaves(step, facts_of):
    """Leaves of depth two as key and value, never a secret one."""
    value = '{"status": "ok", "replicas": {"ready": 3, "deep": {"x": 1}}, "token": "abcd1234"}'

    assert await propositions(
        facts_of, step(0, "check", "get_status(name='api')"), step(1, value)
    ) == [
        "`get_status` returned status = ok.",
        "`get_status` returned replicas.ready = 3.",
    ]


async def test_changed_paths_and_versions_are_facts(step, facts_of):
    """What was created, and which version is there."""
    log = "INFO: starting\ncreated src/app.py\nUsing ruff 0.6.9\n"

    assert await propositions(facts_of, step(0, log)) == [
        "The tool created src/app.py.",
        "The tool reported ruff version 0.6.9.",
    ]


async def test_a_line_after_a_call_is_its_output(step, facts_of):
    """What addresses nobody and follows a call was returned by it."""
    steps = [step(0, "Do it", "edit_file(path='a.py')"), step(1, "Updated a.py", "")]

    assert "`edit_file` updated a.py." in await propositions(facts_of, *steps)
