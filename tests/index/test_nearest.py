"""What is near is found."""

import numpy as np
import pytest

from mnemo.index.corpus import DocumentsView
from mnemo.index.corpus_writer import Corpus
from mnemo.index.documents import node_document
from mnemo.index.nearest import nearest
from mnemo.runtime.clock import Breather
from mnemo.values.graph import Semantic


def facts_in(rows: np.ndarray, gone: list[str]) -> DocumentsView:
    """Facts ``f0``, ``f1``, … with the vectors *rows*, of which *gone* are removed."""
    corpus, breather = Corpus(dimensions=rows.shape[1]), Breather()
    for number, row in enumerate(rows):
        fact = Semantic(f"Fact {number}", id=f"f{number}", vector=row)
        corpus.put(node_document(fact, {}), breather)
    corpus.remove(gone)
    return corpus.view(1, breather).nodes["semantic"]


def unit(rows: np.ndarray) -> np.ndarray:
    """*rows* with length 1, in single precision."""
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("threshold", [0.0, 0.5, 0.8, 0.92, 0.999])
@pytest.mark.parametrize("width", [8, 64, 65, 256])
def test_nothing_near_is_missed(threshold, width):
    """The search gives what comparing everything gives, in any space."""
    random = np.random.default_rng(width)
    centres = random.standard_normal((20, width))
    noise = random.uniform(0, 1.5, (400, 1)) * random.standard_normal((400, width))
    rows = unit(np.repeat(centres, 20, axis=0) + noise)
    view = facts_in(rows, gone=["f3", "f7"])
    asked = unit(np.vstack((centres, rows[:9])))
    found = nearest([view], asked, threshold, 400)
    cosines = rows @ asked.T
    for column, pairs in enumerate(found):
        near = {f"f{n}" for n in np.flatnonzero(cosines[:, column] >= threshold + 1e-5)}
        far = {f"f{n}" for n in np.flatnonzero(cosines[:, column] < threshold - 1e-5)}
        ids = [id for id, _ in pairs]
        assert near - {"f3", "f7"} <= set(ids)
        assert far.isdisjoint(ids)
        assert {"f3", "f7"}.isdisjoint(ids)
        assert [c for _, c in pairs] == sorted((c for _, c in pairs), reverse=True)


def test_a_question_of_another_width_finds_nothing():
    """While a repository moves to another space, nothing is near."""
    view = facts_in(unit(np.eye(4, 96) + 0.1), gone=[])
    assert nearest([view], np.eye(2, 32, dtype=np.float32), 0.5, 3) == [[], []]
