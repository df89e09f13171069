"""Short answers joined to their questions, and notes written as in minutes."""

from typing import Any

import pytest

ALLERGIES = "Do you have any allergies?"
MEAT = "Do you eat meat?"


async def propositions(facts_of: Any, *steps: Any) -> list[str]:
    return [fact.proposition for fact in await facts_of(*steps)]


@pytest.mark.parametrize("by_agent", [True, False])
@pytest.mark.parametrize(
    ("question", "reply", "answer"),
    [
        (ALLERGIES, "Yes, peanuts.", "Yes, peanuts"),
        (ALLERGIES, "yes peanuts and shellfish", "yes peanuts and shellfish"),
        (ALLERGIES, "Peanuts.", "Peanuts"),
        (ALLERGIES, "Yes. Peanuts.", "Yes. Peanuts"),
        (ALLERGIES, "Not really", "Not really"),
        (MEAT, "No.", "No"),
        (MEAT, "nope", "nope"),
        (MEAT, "no", "no"),
        (MEAT, "I don't.", "I don't"),
        (MEAT, "i dont", "i dont"),
        (MEAT, "Only fish.", "Only fish"),
        (MEAT, "Never!", "Never"),
        ("do you smoke", "nah", "nah"),
        ("Great, are you married?", "Yep", "Yep"),
        ("Thanks! Do you own a car?", "Yes, a red Saab", "Yes, a red Saab"),
        ("Have you ever been to Peru?", "Not yet", "Not yet"),
        ("Is your daughter vegetarian?", "Yes she is", "Yes she is"),
        ("When is your appointment?", "Tuesday at nine", "Tuesday at nine"),
    ],
)
async def test_an_answer_stands_with_its_question(
    step, facts_of, question, reply, answer, by_agent
):
    """Whoever asked, with or without capitals and marks: the question gives it its meaning."""
    asked = step(0, "Hello", question) if by_agent else step(0, question, actor="Bo")

    facts = await facts_of(asked, step(1, reply, actor="Ana"))

    assert [f.steps for f in facts] == [(0, 1)]
    asker, told = "Agent" if by_agent else "Bo", question.removeprefix("Thanks! ").rstrip("?")
    assert facts[0].proposition == f"{asker}: {told}? Ana: {answer}."


@pytest.mark.parametrize(
    ("question", "reply"),
    [
        (ALLERGIES, "Never mind."),
        (ALLERGIES, "No problem!"),
        (ALLERGIES, "Why do you ask?"),
        ("You live in Oslo, right?", "Hm, let me think"),
        ("Are you a nurse?", "ha who knows"),
        ("You like jazz, don't you?", "maybe"),
        ("Can I help you with anything else?", "No."),
        ("Are you sure?", "Yes."),
        ("Anything else?", "No, thanks."),
        ("How are you?", "Good, thanks!"),
        ("Does that help?", "Yes!"),
    ],
)
async def test_an_answer_about_the_talk_is_no_fact(step, facts_of, question, reply):
    """Yes and no to a question that is about nothing say nothing."""
    assert await facts_of(step(0, "Hello", question), step(1, reply, actor="Ana")) == []


async def test_an_answer_behind_a_greeting_is_heard(step, facts_of):
    """A party's name in front only addresses it."""
    steps = [step(0, MEAT, actor="Bo"), step(1, "Hello Bo, no I don't", actor="Ana")]

    assert await propositions(facts_of, *steps) == ["Bo: Do you eat meat? Ana: no I don't."]


async def test_an_answer_with_a_sentence_behind_it_gives_both(step, facts_of):
    """The answer joins its question, and the sentence stands for itself."""
    steps = [step(0, "Hello", MEAT), step(1, "No. I became a vegetarian in May.", actor="Ana")]

    assert await propositions(facts_of, *steps) == [
        "Agent: Do you eat meat? Ana: No.",
        "Ana became a vegetarian in May.",
    ]


@pytest.mark.parametrize(
    ("said", "fact"),
    [
        ("Decision: we drop Firefox ESR 102", "Ana: Decision: we drop Firefox ESR 102."),
        ("decision: we drop firefox esr 102", "Ana: decision: we drop firefox esr 102."),
        ("Decision - keep Postgres 16.", "Decision - keep Postgres 16."),
        ("Decided: the API goes public in May", "Decided: the API goes public in May."),
        ("Agreed: no deploys on Fridays", "Agreed: no deploys on Fridays."),
        ("Action item: Chen to update the runbook", "Action item: Chen to update the runbook."),
        ("TODO: rotate the signing keys", "TODO: rotate the signing keys."),
        ("Next step: I call the landlord", "Ana: Next step: I call the landlord."),
        ("Chen to update the runbook", "Chen to update the runbook."),
        ("- Priya and Chen to book the venue", "Priya and Chen to book the venue."),
        ("Maria Lopez to review the contract", "Maria Lopez to review the contract."),
        ("Deadline: March 10", "Deadline: March 10."),
        ("deadline: 10 March", "deadline: 10 March."),
        ("My address: 12 Elm Street", "Ana: My address: 12 Elm Street."),
        ("Owner: Priya", "Owner: Priya."),
        ("My new address is 12 Elm Street.", "Ana's new address is 12 Elm Street."),
        ("The deadline is March 10", "The deadline is March 10."),
        ("I'm a paramedic now", "Ana is a paramedic now."),
        ("im a paramedic now", "Ana is a paramedic now."),
    ],
)  # fmt: skip
async def test_a_note_is_a_fact(step, facts_of, said, fact):
    """Decisions, tasks of somebody and labelled values, as people write them down."""
    assert await propositions(facts_of, step(0, said, "Noted.", actor="Ana")) == [fact]


@pytest.mark.parametrize(
    "said",
    [
        "Nice to meet the team",
        "Time to update the runbook",
        "Ready to review the contract",
        "Something to think about",
        "Happy to help the team",
        "Welcome to the team",
        "Attempt to fix the build",
        "Decision: ?",
        "Question: who owns the runbook?",
        "Note: thanks!",
        "PS: thank you",
        "Me: haha",
    ],
)
async def test_a_fragment_with_to_or_a_label_is_no_note(step, facts_of, said):
    """Nobody is named who is to do it, or the label stands before nothing."""
    assert await propositions(facts_of, step(0, said, "Ok.", actor="Ana")) == []


async def test_each_line_of_minutes_is_a_fact(step, facts_of):
    """Labelled lines that a person writes are no tool's output, and do not run together."""
    minutes = (
        "Weekly sync\nDecision: we drop Firefox ESR 102\nOwner: Priya\nDeadline: March 10\n"
        "Chen to update the runbook"
    )

    facts = await propositions(facts_of, step(0, minutes, actor="Ana"))

    assert facts == [
        "Ana: Decision: we drop Firefox ESR 102.",
        "Owner: Priya.",
        "Deadline: March 10.",
        "Chen to update the runbook.",
    ]


async def test_the_same_lines_behind_a_call_are_its_output(step, facts_of):
    """What a call printed stays keys and values."""
    steps = [step(0, "Look", "status()"), step(1, "State: green\nOwner: Priya", actor="tool")]

    assert await propositions(facts_of, *steps) == [
        "`status` returned State = green.",
        "`status` returned Owner = Priya.",
    ]
