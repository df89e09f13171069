"""From a trajectory to its changeset through a scripted model."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from mnemo.config import Config, ExtractionConfig
from mnemo.errors import ConfigError, InvalidReply, ModelTimeout, ModelUnavailable
from mnemo.extraction.by_model import build_intent_merger
from mnemo.extraction.pipeline import build_extraction
from mnemo.prompts.profiles import Profile
from mnemo.prompts.question import read_block
from mnemo.prompts.semantic import StoredFact
from mnemo.testing import ScriptedChatModel
from mnemo.values.changeset import Changeset
from mnemo.values.graph import Node, Procedural, Semantic

NOTHING: dict[Any, Any] = {"semantic": {"facts": []}, "procedural": {"instructions": []}}


def fact(text: str, **more: Any) -> dict[str, Any]:
    return {"proposition": text, **more}


def told(text: str, **more: Any) -> dict[str, Any]:
    parts = {"intent": "travel", "condition": "when away", "expected_outcome": "it works"}
    return {**parts, "instruction": text, **more}


def of_type(changeset: Changeset, kind: type[Node]) -> list[Any]:
    return [node for node in changeset.nodes if isinstance(node, kind)]


def purposes(model: ScriptedChatModel) -> list[str]:
    return sorted(request.purpose for request in model.requests)


async def test_a_trajectory_takes_three_calls(make_trajectory, make_extraction):
    """Two facts and one instruction take exactly the calls semantic, procedural, returns."""
    model = ScriptedChatModel(
        {
            "semantic": {"facts": [fact("Bo likes tea"), fact("Ana owns a boat")]},
            "procedural": {"instructions": [told("pack light")]},
            "returns": {"scores": [{"index": 0, "score": 10}]},
        }
    )
    changeset = await make_extraction(model).extract(make_trajectory(2))
    changeset.validate(dimensions=64)
    assert purposes(model) == ["procedural", "returns", "semantic"]
    assert [node.proposition for node in of_type(changeset, Semantic)] == [
        "Bo likes tea",
        "Ana owns a boat",
    ]
    assert all(node.vector is not None for node in of_type(changeset, Semantic))


async def test_scores_become_returns(make_trajectory, make_extraction):
    """1, 10, 5 and 14 give 0, 1, 0.444 and 1; no score is no return."""
    scores = [{"index": i, "score": s} for i, s in enumerate((1, 10, 5, 14))]
    model = ScriptedChatModel(
        {
            "semantic": {"facts": []},
            "procedural": {"instructions": [told(f"do {word}") for word in "abcde"]},
            "returns": {"scores": [*scores, {"index": 99, "score": 3}]},
        }
    )
    changeset = await make_extraction(model).extract(make_trajectory(1))
    returns = [node.return_score for node in of_type(changeset, Procedural)]
    assert returns == [0.0, 1.0, pytest.approx(4 / 9), 1.0, None]


async def test_no_instruction_is_scored_beyond_the_limit(make_trajectory, make_extraction):
    """The first ``max_instructions`` are kept, before their returns are asked for."""
    model = ScriptedChatModel.answering(
        {"procedural": {"instructions": [told(f"do {word}") for word in "abcde"]}}
    )
    config = Config(extraction=ExtractionConfig(max_instructions=2))
    changeset = await make_extraction(model, config).extract(make_trajectory(1))
    assert [n.instruction for n in of_type(changeset, Procedural)] == ["do a", "do b"]
    assert "do c" not in model.calls("returns")[0].messages[1].content


async def test_nothing_to_learn_leaves_the_steps(make_trajectory, make_extraction):
    """Empty lists are valid; episodic, source and subgoal nodes are there."""
    model = ScriptedChatModel(NOTHING)
    changeset = await make_extraction(model).extract(make_trajectory(3))
    kinds = Counter(node.type for node in changeset.nodes)
    assert kinds == {"episodic": 3, "source": 3, "subgoal": 1}
    assert purposes(model) == ["procedural", "semantic"]


async def test_an_invalid_reply_is_corrected_once(make_trajectory, make_extraction):
    """A second call shows the bad reply and what was wrong with it."""
    model = ScriptedChatModel(
        {**NOTHING, "semantic": ["I would rather not", {"facts": [fact("Bo likes tea")]}]}
    )
    changeset = await make_extraction(model).extract(make_trajectory(1))
    assert len(of_type(changeset, Semantic)) == 1
    first, second = model.calls("semantic")
    assert second.messages[: len(first.messages)] == first.messages
    shown = "\n".join(message.content for message in second.messages[len(first.messages) :])
    assert "I would rather not" in shown
    assert "no complete JSON object" in shown
    assert second.response_schema == first.response_schema


async def test_a_fact_with_a_leading_pronoun_is_dropped_alone(
    make_trajectory,
    make_extraction,
    caplog,
):
    """The others are stored, and the log counts what was dropped."""
    facts = [fact("Bo sings"), fact("He likes tea"), fact("Ana owns a boat")]
    model = ScriptedChatModel({**NOTHING, "semantic": {"facts": facts}})
    with caplog.at_level("INFO", logger="mnemo"):
        changeset = await make_extraction(model).extract(make_trajectory(1))
    assert [n.proposition for n in of_type(changeset, Semantic)] == ["Bo sings", "Ana owns a boat"]
    assert "1 facts could not stand alone" in caplog.text


async def test_a_profile_reaches_the_requests_it_is_meant_for(
    make_trajectory,
    make_step,
    make_extraction,
):
    """An overlay is in its purpose only, the domain in four, neither in merge_intent."""
    profile = Profile(
        name="sea", domain_context="All at sea.", overlays={"semantic": "Mind the tides."}
    )
    config = Config(extraction=ExtractionConfig(profile=profile))
    model = ScriptedChatModel.answering({"procedural": {"instructions": [told("row")]}})
    extraction = make_extraction(model, config)
    await extraction.annotate(goal="g", known=(), fresh=[make_step(0)], closing=True)
    await extraction.extract(make_trajectory(1))
    merge = build_intent_merger(model, config)
    assert merge is not None
    assert await merge("row", "row a boat") == "row"

    def asked(words: str) -> set[str]:
        return {r.purpose for r in model.requests if any(words in m.content for m in r.messages)}

    assert asked("Mind the tides.") == {"semantic"}
    assert asked("All at sea.") == {"annotate", "semantic", "procedural", "returns"}
    assert len(model.calls("merge_intent")) == 1


async def test_a_profile_changes_no_schema(make_trajectory, make_extraction):
    """Every request carries the schema of its purpose, with or without a profile."""
    plain, coding = ScriptedChatModel.answering(), ScriptedChatModel.answering()
    config = Config(extraction=ExtractionConfig(profile="coding"))
    await make_extraction(plain).extract(make_trajectory(1))
    await make_extraction(coding, config).extract(make_trajectory(1))

    def schemas(model: ScriptedChatModel) -> dict[str, Any]:
        return {request.purpose: request.response_schema for request in model.requests}

    assert schemas(plain) == schemas(coding)
    assert None not in schemas(plain).values()


def test_an_unknown_profile_is_refused(embedder):
    """With or without a model, a wrong name is found out at once."""
    config = Config(extraction=ExtractionConfig(profile="cooking"))
    for model in (None, ScriptedChatModel()):
        with pytest.raises(ConfigError, match="cooking"):
            build_extraction(chat_model=model, embedder=embedder, config=config)
        with pytest.raises(ConfigError, match="cooking"):
            build_intent_merger(model, config)


async def test_the_two_workers_run_side_by_side(make_trajectory, make_extraction):
    """Instructions are asked for while the facts are still out."""
    model = ScriptedChatModel(NOTHING)
    model.block("semantic")
    async with anyio.create_task_group() as group:
        group.start_soon(make_extraction(model).extract, make_trajectory(1))
        await anyio.wait_all_tasks_blocked()
        assert purposes(model) == ["procedural", "semantic"]
        model.unblock("semantic")


async def test_the_first_failure_is_raised_bare_and_ends_the_other_worker(
    make_trajectory, make_extraction
):
    """No exception group leaves the pipeline, and no call is left behind."""
    failure = ModelUnavailable("gone")
    model = ScriptedChatModel({"semantic": failure})
    model.block("procedural")
    with pytest.raises(ModelUnavailable) as caught:
        await make_extraction(model).extract(make_trajectory(1))
    assert caught.value is failure
    assert model.waiting == 0


async def test_a_failing_returns_call_fails_the_trajectory(make_trajectory, make_extraction):
    """Instructions without their returns are not half a result."""
    model = ScriptedChatModel.answering(
        {"procedural": {"instructions": [told("row")]}, "returns": ModelUnavailable("gone")}
    )
    with pytest.raises(ModelUnavailable):
        await make_extraction(model).extract(make_trajectory(1))


async def test_a_cancelled_extraction_leaves_no_call_behind(make_trajectory, make_extraction):
    """Cancellation reaches both workers."""
    model = ScriptedChatModel(NOTHING)
    model.block()
    async with anyio.create_task_group() as group:
        group.start_soon(make_extraction(model).extract, make_trajectory(1))
        await anyio.wait_all_tasks_blocked()
        assert model.waiting == 2
        group.cancel_scope.cancel()
    assert model.waiting == 0


async def test_a_slow_model_is_a_typed_timeout(make_trajectory, make_extraction):
    """``config.extraction.timeout_s`` bounds each call; a timeout is not corrected."""
    model = ScriptedChatModel(NOTHING)
    model.block("semantic")
    config = Config(extraction=ExtractionConfig(timeout_s=0.01))
    with pytest.raises(ModelTimeout) as caught:
        await make_extraction(model, config).extract(make_trajectory(1))
    assert (caught.value.purpose, caught.value.retryable) == ("semantic", True)
    assert len(model.calls("semantic")) == 1


async def test_a_model_may_close_only_facts_that_it_was_shown(make_trajectory, make_extraction):
    """At most twelve stored facts are shown, by number; any other number is ignored."""
    wanted: list[tuple[str, int]] = []

    async def nearby(text: str, limit: int) -> Sequence[StoredFact]:
        wanted.append((text, limit))
        return [StoredFact(f"semantic-{i}", f"old fact {i}") for i in range(20)]

    known = [
        {"number": 4, "verdict": "replaces", "fact": 1},
        {"number": 5, "verdict": "ends", "fact": 1},
        {"number": 6, "verdict": "keeps", "fact": 1},
        {"number": 7, "verdict": "unrelated"},
        {"number": 8, "verdict": "ends"},
        *({"number": n, "verdict": "ends", "fact": 1} for n in (-1, 0, 13, 16, 10**9)),
        *({"number": 9, "verdict": "replaces", "fact": n} for n in (-1, 0, 2)),
    ]
    facts = {"facts": [fact("Bo sings")], "known": known}
    model = ScriptedChatModel({**NOTHING, "semantic": facts})
    changeset = await make_extraction(model, nearby=nearby).extract(make_trajectory(1))
    assert wanted == [("observation 0", 12)]
    assert list(changeset.replaces.values()) == [("semantic-3", "semantic-4")]
    shown = read_block(model.calls("semantic")[0].messages[1].content, "KNOWN FACTS")
    assert shown[3] == {"number": 4, "fact": "old fact 3"}
    assert "old fact 11" in model.calls("semantic")[0].messages[1].content
    assert "old fact 12" not in model.calls("semantic")[0].messages[1].content


async def test_the_nearest_facts_of_each_step_are_shown_in_turn(make_trajectory, make_extraction):
    """Each once; what is near to one of two matters is shown beside what is near to the other."""

    async def nearby(text: str, limit: int) -> Sequence[StoredFact]:
        return [StoredFact(f"{text}-{i}", f"{text}, {i}") for i in range(limit)] + [
            StoredFact("both", "of both")
        ]

    model = ScriptedChatModel({**NOTHING, "semantic": {"facts": []}})
    await make_extraction(model, nearby=nearby).extract(make_trajectory(2))
    shown = read_block(model.calls("semantic")[0].messages[1].content, "KNOWN FACTS")
    said = [row["fact"] for row in shown]
    assert len(said) == len(set(said)) == 12
    assert said[:3] == ["observation 0, 0", "observation 1, 0", "observation 0, 1"]


async def test_a_verdict_that_is_none_is_corrected_once(make_trajectory, make_extraction):
    """The model is told what is wrong; its second reply counts."""

    async def nearby(_text: str, _limit: int) -> Sequence[StoredFact]:
        return [StoredFact("semantic-0", "old fact")]

    def reply(verdict: str) -> dict[str, Any]:
        return {
            "facts": [fact("Bo sings")],
            "known": [{"number": 1, "verdict": verdict, "fact": 1}],
        }

    model = ScriptedChatModel({**NOTHING, "semantic": [reply("deletes"), reply("ends")]})
    changeset = await make_extraction(model, nearby=nearby).extract(make_trajectory(1))
    assert list(changeset.replaces.values()) == [("semantic-0",)]
    assert len(model.calls("semantic")) == 2
    assert "verdict" in model.calls("semantic")[1].messages[-1].content


async def test_a_failing_embedder_is_a_model_error(make_trajectory, make_extraction, embedder):
    """Foreign exceptions of an embedder are translated."""
    model = ScriptedChatModel({**NOTHING, "semantic": {"facts": [fact("Bo sings")]}})
    extraction = make_extraction(model)

    async def explode(texts: Sequence[str], **_: Any) -> Any:
        raise OSError("no weights")

    embedder.embed = explode
    with pytest.raises(ModelUnavailable) as caught:
        await extraction.extract(make_trajectory(1))
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize(
    ("vectors", "told"), [([[1.0, 0.0]], "shape"), ([[float("nan")] * 64], "not finite")]
)
async def test_vectors_of_no_use_are_refused(
    make_trajectory,
    make_extraction,
    embedder,
    vectors,
    told,
):
    """A wrong shape and what is no number never reach the store, which could not read it."""
    model = ScriptedChatModel({**NOTHING, "semantic": {"facts": [fact("Bo sings")]}})
    extraction = make_extraction(model)

    async def wrong(texts: Sequence[str], **_: Any) -> Any:
        return [vectors[0] for _ in texts]

    embedder.embed = wrong
    with pytest.raises(InvalidReply, match=told):
        await extraction.extract(make_trajectory(1))


async def test_without_a_model_there_is_no_intent_to_word():
    """The commit then uses the stored wording as it is."""
    assert build_intent_merger(None, Config()) is None


async def test_a_blank_intent_is_no_intent():
    """It is corrected once, and then a failure."""
    model = ScriptedChatModel({"merge_intent": [{"intent": " "}, {"intent": "deploy a service"}]})
    merge = build_intent_merger(model, Config())
    assert merge is not None
    assert await merge("deploy an app", "deploy a server") == "deploy a service"
    assert len(model.calls("merge_intent")) == 2
