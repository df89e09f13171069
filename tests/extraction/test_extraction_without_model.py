"""The same pipeline with the embedded stages: no key, no network, no chance."""

from typing import Any

from mnemo.config import Config, ExtractionConfig
from mnemo.extraction.pipeline import build_extraction
from mnemo.prompts.usage import UsageMeter
from mnemo.testing import HashingEmbedder
from mnemo.values.changeset import Changeset
from mnemo.values.graph import EdgeKind, Semantic
from mnemo.values.steps import Step, split_trajectories

TALK = [
    ("I adopted a cat yesterday.", "Congratulations!"),
    ("The cat is called Miso.", "Noted the name."),
    ("Hi! How are you? Thanks, that's great!", ""),
]


async def extracted(
    steps: list[Step], model: Any = None, config: Config | None = None
) -> Changeset:
    """Annotate *steps* in one batch, close, and extract all trajectories."""
    extraction = build_extraction(
        chat_model=model, embedder=HashingEmbedder(), config=config or Config()
    )
    found = await extraction.annotate(goal="talk", known=(), fresh=steps, closing=True)
    known = [step.annotated(annotation) for step, annotation in zip(steps, found, strict=True)]
    whole = Changeset()
    for trajectory in split_trajectories(known, goal="talk"):
        whole = whole.merge(await extraction.extract(trajectory))
    return whole


def shape(changeset: Changeset) -> tuple[list[tuple[str, str]], list[tuple[str, str, str]]]:
    """Nodes and edges by their texts, ids aside."""
    texts = {node.id: f"{node.type}: {node.text}" for node in changeset.nodes}
    nodes = [(str(node.type), node.text) for node in changeset.nodes]
    edges = [(texts[e.source], e.kind.value, texts[e.target]) for e in changeset.edges]
    return nodes, edges


async def test_a_dialogue_becomes_facts_with_their_sources(make_step):
    """Ana's cat is a fact that names her, the cat and the day, from that step alone."""
    steps = [make_step(i, said, done) for i, (said, done) in enumerate(TALK)]
    changeset = await extracted(steps)
    changeset.validate()
    adopted = [
        node
        for node in changeset.nodes
        if isinstance(node, Semantic) and "adopted" in node.proposition
    ]
    assert len(adopted) == 1
    assert "Ana" in adopted[0].proposition
    assert "cat" in adopted[0].proposition
    assert "2024-02-29" in adopted[0].proposition
    sources = [
        edge.target
        for edge in changeset.edges
        if edge.kind is EdgeKind.PROVENANCE and edge.source == adopted[0].id
    ]
    assert sources == ["episodic-0"]


async def test_equal_input_gives_equal_nodes(make_step):
    """Nodes, edges and texts are the same the second time, ids aside."""
    steps = [make_step(i, said, done) for i, (said, done) in enumerate(TALK)]
    assert shape(await extracted(steps)) == shape(await extracted(steps))


async def test_a_long_trajectory_becomes_one_changeset(make_annotated, make_trajectory):
    """Each of 500 steps is in it once, and so is what each says."""
    words = ["harbour", "garden", "violin", "budget", "engine", "recipe", "lantern"]
    steps = [
        make_annotated(i, f"My {words[i % 7]} number {i} cost {i} euros in {1900 + i % 120}.")
        for i in range(500)
    ]
    extraction = build_extraction(chat_model=None, embedder=HashingEmbedder(), config=Config())
    changeset = await extraction.extract(make_trajectory(steps))
    changeset.validate()
    assert sum(node.type == "episodic" for node in changeset.nodes) == 500
    assert sum(node.type == "semantic" for node in changeset.nodes) == 500
    assert changeset.left_out == 0


async def test_what_the_bound_leaves_out_is_counted(make_annotated, make_trajectory):
    """Four steps share the bound; what is beyond it is counted in the changeset and the meter."""
    said = " ".join(f"My house number {i} cost {i} euros." for i in range(100, 110))
    meter, config = UsageMeter(), Config(extraction=ExtractionConfig(max_facts=6))
    extraction = build_extraction(
        chat_model=None, embedder=HashingEmbedder(), config=config, meter=meter
    )
    changeset = await extraction.extract(make_trajectory([make_annotated(0, said)]))
    assert sum(node.type == "semantic" for node in changeset.nodes) == 6
    assert changeset.left_out == meter.left_out == 4
