"""Steps, trajectories and an embedder whose cosines are written down."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from world import a_step, a_trajectory, seen_as

from mnemo.config import Config
from mnemo.extraction.pipeline import ExtractionPipeline, build_extraction
from mnemo.models.named import traced
from mnemo.prompts.usage import UsageMeter
from mnemo.protocols import ChatModel, EmbeddingSpace
from mnemo.runtime.spans import NO_SPANS
from mnemo.values.steps import Step, Trajectory

START = datetime(2024, 3, 1, 9, tzinfo=UTC)
PLACE = {"session_id": "session-1", "episode_id": "episode-1"}


class PlaneEmbedder:
    """Texts with a written angle lie in one plane; every other text is orthogonal to all."""

    space = EmbeddingSpace("plane", 64)

    def __init__(self, degrees: Mapping[str, float] | None = None) -> None:
        self.degrees = dict(degrees or {})
        self.embedded: list[str] = []
        self._axes: dict[str, int] = {}

    async def embed(self, texts: Sequence[str], *, kind: str = "document") -> NDArray[np.float32]:
        self.embedded += texts
        return np.stack([self._vector(text) for text in texts]).astype(np.float32)

    def _vector(self, text: str) -> NDArray[np.float64]:
        vector = np.zeros(64)
        if text in self.degrees:
            angle = np.deg2rad(self.degrees[text])
            vector[:2] = np.cos(angle), np.sin(angle)
        else:
            vector[2 + self._axes.setdefault(text, len(self._axes))] = 1.0
        return vector


@pytest.fixture
def embedder() -> PlaneEmbedder:
    """An embedder for which different texts have cosine 0 until angles are written."""
    return PlaneEmbedder()


@pytest.fixture
def make_step() -> Callable[..., Step]:
    """Makes step *index* of one episode, an hour after the one before it."""

    def make(index: int, observation: str = "", action: str = "", **values: Any) -> Step:
        told = {"at": START + timedelta(hours=index), **PLACE, **values}
        return a_step(index, observation or f"observation {index}", action, **told)

    return make


@pytest.fixture
def make_annotated(make_step: Callable[..., Step]) -> Callable[..., Step]:
    """Makes a step that is annotated already."""

    def make(
        index: int, seen: str = "", action: str = "", *, trajectory: int = 0, **found: Any
    ) -> Step:
        step = make_step(index, seen, action)
        return seen_as(step, trajectory_id=f"episode-1/{trajectory}", **found)

    return make


@pytest.fixture
def make_trajectory(make_annotated: Callable[..., Step]) -> Callable[..., Trajectory]:
    """Makes a trajectory of given steps, or of so many plain ones."""

    def make(steps: Sequence[Step] | int) -> Trajectory:
        whole = [make_annotated(i) for i in range(steps)] if isinstance(steps, int) else steps
        return a_trajectory(whole, id="episode-1/0", goal="plan the trip", **PLACE)

    return make


@pytest.fixture
def make_extraction(embedder: PlaneEmbedder) -> Callable[..., ExtractionPipeline]:
    """Makes an extraction that asks a given model."""

    def make(
        model: ChatModel,
        config: Config | None = None,
        *,
        meter: UsageMeter | None = None,
        **more: Any,
    ) -> ExtractionPipeline:
        return build_extraction(
            chat_model=model,
            embedder=traced(embedder, NO_SPANS),  # as the service gives it
            config=config or Config(),
            meter=meter,
            **more,
        )

    return make
