"""What a recall finds."""

from datetime import UTC, datetime

import pytest

from mnemo.models.local import WordLlamaEmbedder
from mnemo.values.graph import Edge, EdgeKind, Intent, Procedural, Semantic, Tag


@pytest.mark.parametrize(
    "wrong",
    [
        {"query": "  "},
        {"k": 0},
        {"max_hops": -1},
        {"reason": "no"},
        {"use_model": "false"},
        {"explain": 1},
        {"notes": "no"},
        {"mode": "x"},
        {"types": ("x",)},
        {"types": ()},
        {"types": "semantic"},
        {"since": datetime(2024, 2, 1), "until": datetime(2024, 1, 1)},
    ],
)
async def test_arguments_out_of_range_are_refused(world, wrong):
    """A blank query and every impossible argument is a ``ValueError``."""
    with pytest.raises(ValueError, match=r"Query|must be|lies after"):
        await world.recall.recall(**{"query": "boats", **wrong})


@pytest.mark.parametrize("with_vectors", [True, False])
async def test_the_step_that_answers_is_first(world, with_vectors):
    """The trip's month is found without any model, with and without vectors."""
    await world.begin("s1", goal="Help plan a trip to Japan")
    await world.say("User wants to visit Tokyo", "Asked for the dates")
    await world.say("March, two weeks of travel", "Suggested an itinerary")
    if with_vectors:
        await world.embedded()
    result = await world.recall.recall("When does the user travel?")
    assert "March" in result.candidates[0].sources[0].text
    assert "March" in result.as_text()


async def test_one_stored_fact_is_found_by_two_of_its_words(world):
    """Even alone in its repository, a fact answers a question that shares its words."""
    await world.commit(Semantic("Ana keeps bees behind the old mill."))
    result = await world.recall.recall("Who keeps bees?")
    assert [c.node.text for c in result.candidates] == ["Ana keeps bees behind the old mill."]
    assert 0 < result.candidates[0].relevance <= 1


async def test_who_and_when_belong_to_the_text(world):
    """Of the same words, those of the named actor and month come first."""
    said = "The budget is two thousand euros."
    await world.say(said, actor="Ana", at=datetime(2024, 5, 6, tzinfo=UTC))
    await world.say(said, actor="Bo", at=datetime(2024, 6, 3, tzinfo=UTC))
    await world.embedded()
    result = await world.recall.recall("What did Bo say in June?")
    assert result.sources[0].actor == "Bo"


@pytest.mark.parametrize(
    ("asked", "found", "other"),
    [
        ("runs", "she was running along the river", "the kettle is on"),
        ("旅館", "来週は京都の旅館に泊まります", "昨日は雨でした"),
    ],
)
async def test_words_are_found_when_the_embedder_fails(deaf, asked, found, other):
    """By another form of a word, or two characters from the middle of a Japanese sentence."""
    await deaf.say(found)
    await deaf.say(other)
    result = await deaf.recall.recall(asked)
    assert result.sources[0].text == found
    assert [c.relevance > 0 for c in result.candidates] == [True, False]
    assert result.trace.degraded == ("embedder: ModelTimeout",)


@pytest.mark.parametrize("query", ['"NOT (', "a AND", "C++ 20.04", "*", "'; DROP", "?!", "\ud800"])
async def test_a_query_is_words_never_syntax(world, query):
    """Operators, quotes and brackets are text and cannot cause an error."""
    await world.say("We moved to C++ on Ubuntu 20.04")
    result = await world.recall.recall(query)
    assert (query == "C++ 20.04") <= bool(result.candidates)


@pytest.mark.parametrize("mode", ["semantic", "procedural", "episodic", "mixed"])
async def test_raw_steps_are_found_in_every_mode(world, mode):
    """What no fact says is found in the step that said it."""
    await world.say("My passport number ends with 88", actor="Ana")
    await world.commit(Semantic("Ana likes tea."), Procedural("brew tea", condition="guests come"))
    result = await world.recall.recall("passport number", mode=mode)
    assert "passport" in result.sources[0].text
    assert result.mode == mode
    assert result.trace.mode_chosen_by == "caller"


async def test_types_are_a_wall(world):
    """Only procedural candidates where only those were asked for."""
    await world.say("How do I brew tea? Please brew tea.")
    brew = Procedural("brew the tea for four minutes", condition="guests ask for tea")
    await world.commit(brew, Semantic("Ana likes tea."))
    result = await world.recall.recall("brew tea", types=("procedural",))
    assert [c.node.id for c in result.candidates] == [brew.id]


async def test_an_instruction_never_accessed_is_found_at_once(world):
    """Nothing must have been used before it can be found."""
    fixed = Procedural(
        "restart the payment worker after clearing its lock file",
        condition="the payment worker hangs",
        expected_outcome="payments flow again",
    )
    await world.commit(fixed)
    await world.embedded()
    result = await world.recall.recall("What to do when the payment worker hangs?")
    assert [(c.node.id, c.phase, c.hop) for c in result.candidates] == [(fixed.id, "initial", 0)]


async def test_tags_and_intents_are_never_candidates_unasked(world):
    """Routing nodes are returned only for ``types`` that name them."""
    tag, intent = Tag("bees"), Intent("keep bees healthy")
    fact, how = Semantic("Ana keeps bees."), Procedural("feed the bees", condition="winter")
    edges = [
        Edge(tag.id, fact.id, EdgeKind.MEMBERSHIP),
        Edge(intent.id, how.id, EdgeKind.HIERARCHICAL),
    ]
    await world.commit(tag, intent, fact, how, edges=edges)
    plain = await world.recall.recall("bees")
    assert {c.node.id for c in plain.candidates} == {fact.id, how.id}
    asked = await world.recall.recall("bees", types=("tag", "intent"))
    assert {c.node.id for c in asked.candidates} == {tag.id, intent.id}


async def test_a_removed_node_is_found_no_more(world):
    """What is deleted from the store disappears with the next recall."""
    fact = Semantic("Ana keeps bees.")
    await world.commit(fact)
    assert (await world.recall.recall("bees")).candidates
    await world.graph.delete([fact.id])
    assert (await world.recall.recall("bees")).candidates == []


async def test_what_does_not_match_stays_with_a_relevance_of_0(deaf):
    """Nothing matched: the answer is not empty, and says how far it is from the question."""
    await deaf.say("the kettle is on")
    (candidate,) = (await deaf.recall.recall("submarine")).candidates
    assert (candidate.node.observation, candidate.relevance) == ("the kettle is on", 0)
    assert (await deaf.recall.recall("submarine", min_score=0.01)).candidates == []


async def test_equal_steps_are_found_although_none_stands_out(world):
    """Thirty sessions that say the same match alike."""
    for n in range(30):
        await world.say("the heron came", session=f"s{n}")
    await world.embedded()
    found = await world.recall.recall("heron", k=5)
    assert len({c.relevance for c in found.candidates}) == 1
    assert found.candidates[0].relevance > 0


async def test_a_tag_does_not_make_sense_of_random_letters(make_world):
    """These letters have a cosine of 0.53 with one word, and mean nothing."""
    world = await make_world(embedder=WordLlamaEmbedder())
    for number in range(25):
        await world.say(f"I keep bees in orchard {number} behind the house.", actor="Ana")
    fact, tag = Semantic("Ana walks in the hills."), Tag("hiking")
    await world.commit(tag, fact, edges=[Edge(tag.id, fact.id, EdgeKind.MEMBERSHIP)])
    await world.embedded()
    silent = await world.recall.recall("hhjors gowikpsd cbazap")
    assert (silent.candidates, silent.trace.abstained) == ([], True)


async def test_of_few_documents_one_may_answer_from_afar(make_world):
    """A new memory answers although no word is shared: silence is for larger ones."""
    world = await make_world(embedder=WordLlamaEmbedder())
    await world.say("I am allergic to peanuts.", actor="Ada")
    await world.embedded()
    found = await world.recall.recall("What must she not eat?")
    assert (len(found.candidates), found.trace.abstained) == (1, False)


async def test_candidates_below_the_least_relevance_are_dropped(world):
    """``min_score`` is a bound on relevance, 0 to 1."""
    await world.say("the red boat sank")
    await world.say("a boat")
    every = (await world.recall.recall("the red boat sank")).candidates
    best = max(candidate.relevance for candidate in every)
    kept = (await world.recall.recall("the red boat sank", min_score=best)).candidates
    assert len(every) == 2
    assert [candidate.relevance for candidate in kept] == [best]
    for wrong in (-0.1, 1.1, float("nan"), "high"):
        with pytest.raises(ValueError, match="min_score"):
            await world.recall.recall("boat", min_score=wrong)
