"""What is near is found."""

from collections.abc import Sequence

import numpy as np
import pytest
from segments_kit import few

from mnemo.index import at_rest
from mnemo.index.columns import Coded, ascending, products, products_of
from mnemo.index.corpus import DocumentsView, Part
from mnemo.index.corpus_writer import Corpus
from mnemo.index.documents import node_document
from mnemo.index.held import Held
from mnemo.index.large import Segment
from mnemo.index.nearest import nearest
from mnemo.index.segment_rows import Kept
from mnemo.index.segments import unpacked
from mnemo.runtime.clock import Breather
from mnemo.values.feed import FeedCursor
from mnemo.values.graph import Semantic


def facts_in(rows: np.ndarray, gone: list[str]) -> DocumentsView:
    """Facts ``f0``, ``f1``, … with the vectors *rows*, of which *gone* are removed."""
    corpus, breather = Corpus(dimensions=rows.shape[1]), Breather()
    for number, row in enumerate(rows):
        fact = Semantic(f"Fact {number}", id=f"f{number}", vector=row)
        corpus.put(node_document(fact, {}), breather)
    corpus.remove(gone)
    return corpus.view(1, breather).nodes["semantic"]


def large_facts_in(rows: np.ndarray, gone: list[str]) -> Sequence[Part]:
    """The same, two in three of them in a large segment; ``f0`` was then written anew."""
    held, breather = Held(rows.shape[1], None), Breather()

    def put(number: int, born: int) -> None:
        fact = Semantic(f"Fact {number}", id=f"f{number}", vector=rows[number])
        held.corpus.put(node_document(fact, {}, born=born), breather)
        held.hide("nodes", [fact.id])

    many = 2 * len(rows) // 3
    for number in range(many):
        put(number, 1)
    with few(large=many, exact=1):
        cursor = FeedCursor(revision=1)
        made = at_rest.large_segment(held, "nodes", cursor, least=1, repo=1, reading="")
    head, batches = unpacked(made[1])
    held.large["nodes"] = (Segment.of(head, batches),)
    held.listed["nodes"] = (Kept(1, many, head.until, "x"),)
    at_rest.shed(held, "nodes", head.until)
    for number in (0, *range(many, len(rows))):
        put(number, 2)
    held.remove(gone)
    parts = held.corpus.view(2, breather, held.large).parts("semantic")
    assert len(parts) == 2
    return parts


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


@pytest.mark.parametrize("threshold", [0.0, 0.8, 0.92])
@pytest.mark.parametrize("width", [64, 96, 256])
def test_what_is_near_is_found_in_large_segments(threshold, width):
    """The nearest first, each once, with cosines to .01."""
    random = np.random.default_rng(width)
    centres = random.standard_normal((20, width))
    noise = random.uniform(0, 1.5, (400, 1)) * random.standard_normal((400, width))
    rows = unit(np.repeat(centres, 20, axis=0) + noise)
    asked, gone = unit(np.vstack((centres, rows[:9]))), ["f3", "f7"]
    parts, view = large_facts_in(rows, gone), facts_in(rows, gone)
    expected = nearest([view], asked, threshold, 400)
    for column, pairs in enumerate(nearest(parts, asked, threshold, 400)):
        exact, found = dict(expected[column]), dict(pairs)
        assert len(found) == len(pairs)
        near = {id for id, cosine in exact.items() if cosine >= threshold + 0.01}
        assert near <= found.keys()
        assert {"f3", "f7"}.isdisjoint(found)
        cosines = rows @ asked[column]
        assert all(abs(c - cosines[int(id[1:])]) < 0.01 for id, c in pairs)


def test_a_question_of_another_width_finds_nothing():
    """While a repository moves to another space, nothing is near."""
    view = facts_in(unit(np.eye(4, 96) + 0.1), gone=[])
    assert nearest([view], np.eye(2, 32, dtype=np.float32), 0.5, 3) == [[], []]


def test_codes_are_multiplied_as_the_rows_that_they_stand_for():
    """Whatever their number: those that are multiplied at once are few."""
    chance = np.random.default_rng(1)
    codes = chance.integers(-127, 128, (1_500, 384)).astype(np.int8)
    scales = chance.random(1_500, np.float32) / 127
    coded, rows = Coded(codes, scales), codes * scales[:, np.newaxis]
    asked = chance.standard_normal((3, 384)).astype(np.float32)
    some = chance.integers(1_500, size=40)
    assert np.array_equal(coded[some], rows[some])
    assert np.allclose(products_of(coded, asked), asked @ rows.T, atol=1e-3)
    assert np.allclose(products(coded, asked[0]), products(rows, asked[0]), atol=1e-3)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_numbers_ascend_once_each(dtype):
    """Those of several arrays; -1, which stands for none, is left out."""
    numbers = np.random.default_rng(3)
    for count in (0, 1, 2, 40):
        some = [numbers.integers(-1, 9, count).astype(dtype) for _ in range(2)]
        found = ascending(*some)
        assert found.tolist() == sorted({*np.concatenate(some).tolist()} - {-1})
        assert found.dtype == dtype
