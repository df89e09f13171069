"""Who speaks decides how a text is read: a person, the agent, or a tool."""

from typing import Any

import pytest

from mnemo import Config
from mnemo.extraction.annotator import EmbeddedAnnotator
from mnemo.protocols import AnnotationRequest


async def propositions(facts_of: Any, *steps: Any) -> list[str]:
    return [fact.proposition for fact in await facts_of(*steps)]


# ── Tools ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("actor", ["tool", "Tool", "function", "environment", "deploy"])
@pytest.mark.parametrize(
    "wish",
    [
        "You must not run migrations.",
        "you mustn't touch the config",
        "Never push to main without a review.",
        "dont ever delete the backups",
        "Whenever you deploy, tell the on-call first.",
        "Reply in French from now on.",
        "I don't want you to open port 22.",
    ],
)
async def test_a_tool_beside_a_person_takes_no_wish_away(
    step, instructions_of, facts_of, actor, wish
):
    """A tool is no second person: the wish stays the person's, and "you" is not the tool."""
    steps = [
        step(0, wish, 'deploy(target="staging")', actor="Ana"),
        step(1, "12 files copied", "", actor=actor),
    ]

    instructions = await instructions_of(*steps)
    facts = await propositions(facts_of, *steps)

    assert ("When assisting Ana", (0,)) in [(i.condition, i.steps) for i in instructions]
    assert not any(fact.lower().startswith((f"{actor.lower()} ", "ana and")) for fact in facts)
    assert "`deploy` returned 12 files copied." in facts


@pytest.mark.parametrize(
    "said",
    [
        "Thanks, always a pleasure.",
        "You must be kidding.",
        "You should not have worried.",
        "I never drink coffee.",
        "Do you always run the tests?",
    ],
)
async def test_talk_beside_a_tool_is_no_wish(step, instructions_of, said):
    """Only what is asked for all time becomes an instruction."""
    steps = [step(0, said, "search(q='x')"), step(1, "three rows", "", actor="tool")]

    assert [i for i in await instructions_of(*steps) if "assisting" in i.condition] == []


@pytest.mark.parametrize(
    ("action", "actor", "output", "fact"),
    [
        ('find(what="ferry")', "find", "Pier 3", "`find` returned Pier 3."),
        ('I look it up.\nfind(what="ferry")', "find", "Pier 3", "`find` returned Pier 3."),
        ('I look it up.\nfind(what="ferry")', "tool", "Pier 3", "`find` returned Pier 3."),
        ("make deploy", "tool", "Deploy to staging done.",
         "`make deploy` returned Deploy to staging done."),
        ("get_weather(city='Oslo')", "tool", "It is raining in Oslo",
         "`get_weather` returned It is raining in Oslo."),
        ("get_weather(city='Oslo')", "User", "12 degrees and rain",
         "`get_weather` returned 12 degrees and rain."),
        ("edit_file(path='a.py')", "User", "Updated a.py", "`edit_file` updated a.py."),
    ],
)  # fmt: skip
async def test_a_tools_words_are_what_its_call_returned(
    step, facts_of, action, actor, output, fact
):
    """By its role, by the name of the call, or, unmarked, because the text is no sentence."""
    steps = [step(0, "", action, actor="assistant"), step(1, output, "", actor=actor)]

    facts = await facts_of(*steps)

    assert [(f.proposition, f.confidence) for f in facts if 1 in f.steps] == [(fact, 0.9)]


async def test_results_of_several_calls_name_their_own_tool(step, facts_of):
    """Parallel results carry their tool's name; one without a name is of "the tool"."""
    steps = [
        step(0, "", 'I look.\nfind(what="ferry")\nprice(of="ferry")', actor="assistant"),
        step(1, "Pier 3", actor="find"),
        step(2, "12 euros", actor="price"),
        step(3, "open daily", actor="tool"),
    ]

    assert await propositions(facts_of, *steps) == [
        "`find` returned Pier 3.",
        "`price` returned 12 euros.",
        "The tool returned open daily.",
    ]


@pytest.mark.parametrize(
    "said",
    [
        "The reviewer says: always run ruff",
        "reviewer said never merge on fridays",
        "Please rebase first",
        "the boss told everyone to wait",
    ],
)
async def test_words_that_a_tool_passes_on_are_no_value(step, facts_of, instructions_of, said):
    """What somebody says or wants in a tool's output is no result and no wish."""
    steps = [step(0, "Commit it", "git commit -m x"), step(1, said, "", actor="tool")]

    assert [f for f in await facts_of(*steps) if 1 in f.steps] == []
    assert [i for i in await instructions_of(*steps) if 1 in i.steps] == []


# ── People ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("actor", ["Ana", "User"])
@pytest.mark.parametrize(
    "said",
    [
        "The reviewer says: always run ruff",
        "Peanuts make Lea sick.",
        "the launch is on friday",
        "Lea lives in Lund now",
        "My dentist moved to Bremen.",
        "We have three kids",
    ],
)
async def test_what_a_person_says_after_a_call_is_theirs(step, facts_of, actor, said):
    """A sentence behind a call is not what the call returned, nor as sure as that."""
    steps = [step(0, "Commit it", "git commit -m x", actor=actor), step(1, said, "", actor=actor)]

    facts = [f for f in await facts_of(*steps) if 1 in f.steps]

    assert not any("git commit" in f.proposition for f in facts)
    assert all(f.confidence < 0.9 for f in facts)


@pytest.mark.parametrize("said", ["peanuts and shellfish", "Lund, near the station", "3 cats"])
async def test_where_steps_say_who_speaks_an_unnamed_actor_is_a_person(step, facts_of, said):
    """In a run with tools by name a user's fragment is no output."""
    steps = [
        step(0, "Find a place", "search(q='food')"),
        step(1, "four places found", "", actor="tool"),
        step(2, said, "search(q='more')"),
        step(3, said, ""),
    ]

    assert not any(said in f.proposition for f in await facts_of(*steps) if 3 in f.steps)


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ("make deploy", "Deploy to staging done."),
        ("Ran the deploy", "Deploy to staging done."),
        ("Ran the deploy", "deploy to production finished"),
        ("Started the export", "Export of 12 orders completed."),
        ("Checked it", "Update of the index failed"),
    ],
)
async def test_a_report_is_no_request(step, facts_of, action, said):
    """A deed with its result behind it asks for nothing."""
    facts = await propositions(facts_of, step(0, "Go on", action), step(1, said))

    assert not any("asked to" in fact for fact in facts)


@pytest.mark.parametrize("said", ["Deploy the shop to staging.", "Get the billing report done."])
async def test_an_order_is_no_fact(step, facts_of, said):
    """What begins with its verb and names no result asks for a task, which is soon over."""
    assert await propositions(facts_of, step(0, said)) == []


# ── The agent ────────────────────────────────────────────────────────────────────────

GUESSES = [
    "You probably live in Oslo.",
    "I think you are a nurse.",
    "I noted that you are allergic to nuts.",
    "I guessed your age is 40.",
    "I figured you like jazz.",
    "I concluded that your team prefers Kotlin.",
    "Assumed you live in Lund.",
    "Maybe I booked the wrong train to Lund.",
    "I've gathered that you're vegetarian",
    "i believe you have two kids",
    "It sounds like you moved to Porto.",
    "So you work as a carpenter in Bremen.",
    "Got it, you live in Rome.",
    "Got it, Lisbon with Amir.",
    "Noted: your name is Clara",
    "The user seems to like tea.",
]


@pytest.mark.parametrize("guess", GUESSES)
async def test_a_guess_of_the_agent_is_no_fact(step, facts_of, guess):
    """What the agent supposes of the user is no fact, whichever side of a step says it."""
    acted = step(0, "Hi there", guess)
    observed = [step(0, "Hi there"), step(1, guess, actor="assistant"), step(2, "Hm, well.")]

    assert await facts_of(acted) == []
    assert await facts_of(*observed) == []


@pytest.mark.parametrize(
    ("said", "fact"),
    [
        ("I booked the table that you wanted.",
         "Agent to User: I booked the table that you wanted."),
        ("I emailed your landlord about the heating.",
         "Agent to User: I emailed your landlord about the heating."),
        ("I updated the travel profile: you live in Rome now.",
         "Agent updated the travel profile."),
        ("I found three flats in Lund.", "Agent found three flats in Lund."),
        ("Looked in room 7 and told Omar.", "Agent: Looked in room 7 and told Omar."),
    ],
)  # fmt: skip
async def test_a_deed_of_the_agent_is_a_fact(step, facts_of, said, fact):
    """What it did stays, also where the user is named in it."""
    assert await propositions(facts_of, step(0, "ok", said)) == [fact]


async def test_an_assistant_who_speaks_in_steps_is_the_agent(step, facts_of, instructions_of):
    """Turn by turn with an assistant: requests and wishes are addressed to it."""
    steps = [
        step(0, "Can you find a vegan place in Lund? Always reply in French.", actor="Ana"),
        step(1, "I found the Green Fork for you.", actor="assistant"),
    ]

    assert await propositions(facts_of, *steps) == [
        "Assistant to Ana: I found the Green Fork for you.",
    ]
    assert [i.condition for i in await instructions_of(*steps)] == ["When assisting Ana"]


async def test_two_people_who_share_an_agent_both_have_wishes(step, instructions_of):
    """Two people are a talk of two only where no agent acts."""
    steps = [
        step(0, "Always answer in metric units.", "Noted", actor="Ana"),
        step(1, "Never book a morning flight.", "Noted", actor="Bo"),
    ]

    assert [i.condition for i in await instructions_of(*steps)] == [
        "When assisting Ana",
        "When assisting Bo",
    ]


# ── Rewards ──────────────────────────────────────────────────────────────────────────


async def reward(step: Any, action: str, reply: str) -> float | None:
    steps = (step(0, "Hello", action), step(1, reply))
    request = AnnotationRequest(goal="help", before=(), fresh=steps, closing=False)
    annotated, _ = await EmbeddedAnnotator(Config()).annotate(request)
    return annotated[1].previous_reward


SMALL_TALK = [
    "My bike broke yesterday.",
    "The heating broke again, and my dad passed away.",
    "i broke my leg skiing",
    "We were done with dinner at nine",
    "She failed her driving test",
    "My sister passed her exam!",
    "they couldn't find a parking spot",
    "Our car crashed into a fence",
    "My boss is wrong about everything",
    "I've worked all day",
    "His phone's screen is broken",
    "Tuesday works better for Lea",
]


ACTIONS = ["Good morning! How are you today?", "How did it go?", "Booked a table at Lido."]


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("said", SMALL_TALK)
async def test_small_talk_is_no_reward(step, action, said):
    """What happened to people and to what is theirs does not judge the agent."""
    assert await reward(step, action, said) is None


@pytest.mark.parametrize(
    ("action", "said", "expected"),
    [
        ("Fixed the linker flags", "It works now, thanks!", 0.9),
        ("Fixed the linker flags", "still broken", 0.1),
        ("Fixed the linker flags", "That broke the login.", 0.1),
        ("Fixed the linker flags", "my tests fail with a TypeError", 0.1),
        ("Fixed the linker flags", "all tests passed", 0.9),
        ("Booked a table at Lido.", "The table at Lido was wrong.", 0.1),
        ("How can I help? Shall I explain it again?", "Thank you, perfect.", 0.9),
        ("make deploy", "The deploy failed", 0.1),
        ("Good morning! How are you today?", "I get an error when I log in", 0.1),
        ("Does it run now?", "it doesnt work", 0.1),
        ("I booked the flight.", "That's wrong, I said Tuesday", 0.1),
    ],
)
async def test_a_reply_about_the_deed_is_a_reward(step, action, said, expected):
    """A clause that points back, is about software, or shares the deed's topic judges it."""
    assert await reward(step, action, said) == expected


async def test_small_talk_teaches_no_fix(step, instructions_of):
    """A broken bike and a passed exam are no failure and success of the actions between."""
    steps = [
        step(0, "My bike broke yesterday.", "Suggested a walk in the park."),
        step(1, "My sister passed her exam.", "Offered to bake a cake."),
    ]

    assert await instructions_of(*steps) == []
