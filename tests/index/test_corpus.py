"""Documents in memory are the same however the writer was handed them."""

import tracemalloc
from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_texts import TEXTS

from mnemo.english.words import index_terms
from mnemo.index.corpus import CorpusView, Side, StepsView
from mnemo.index.corpus_writer import SHRINKAGE, Corpus
from mnemo.index.documents import node_document
from mnemo.runtime.clock import Breather
from mnemo.values.graph import Semantic
from mnemo.values.vectors import keyed_passages

_TEXTS = [text[:400] for text in TEXTS if text.strip()][:300]
_TERMS = sorted({term for text in _TEXTS for term in index_terms(text)})


def _side(number: int) -> Side:
    text = _TEXTS[number]
    return Side(
        key=f"n{number // 2}/{number % 2}",
        id=f"n{number // 2}",
        text=text,
        meaning=text,
        first=float(number),
        last=float(number),
        chain=f"s{number % 7}",
        actor=("Ana", "Bo")[number % 2],
        acted=number % 2 == 1,
        asks=text.endswith("?"),
    )


def _vector(number: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    vector = np.random.default_rng(number).normal(size=4).astype(np.float32)
    return vector / np.linalg.norm(vector)


def _view(pages: Sequence[range]) -> CorpusView:
    """After each page a view, as readers take them, vectors a page late, and removals."""
    corpus, breather = Corpus(dimensions=4), Breather()
    view = corpus.view(0, breather)
    for page in pages:
        for number in page:
            corpus.add_side(_side(number), breather)
        view = corpus.view(0, breather)
        corpus.add_vectors({_side(n).key: _vector(n) for n in page})
    corpus.remove(["n3", "n40"])
    assert view.steps.count == len(_TEXTS)
    return corpus.view(0, breather)


def test_an_empty_corpus_takes_little():
    """Columns take room when there is something to put in."""
    tracemalloc.start()
    try:
        kept = Corpus(dimensions=384)
        kept.view(0, Breather())
        assert tracemalloc.get_traced_memory()[0] < 60_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [1, 7, 64])
def test_pages_of_any_size_give_the_same_documents(size):
    """Columns, links, postings and vectors agree to the bit with those of one page."""
    ends = range(0, len(_TEXTS), size)
    mine = _view([range(at, min(at + size, len(_TEXTS))) for at in ends]).steps
    whole = _view([range(len(_TEXTS))]).steps
    for field in fields(whole):
        one, other = getattr(mine, field.name), getattr(whole, field.name)
        if isinstance(other, np.ndarray):
            assert one.dtype == other.dtype
            assert one.tobytes() == other.tobytes(), field.name
        elif field.name not in ("postings", "facets"):
            assert one == other, field.name
    for term in _TERMS:
        for known in (len(_TEXTS), len(_TEXTS) // 2):
            assert _read(mine, term, known) == _read(whole, term, known), term


def _read(view: StepsView, term: str, documents: int) -> list[list[float]] | None:
    found = view.postings.read(term, documents)
    return None if found is None else [part.tolist() for part in found]


def test_a_view_stays_as_it_was_while_the_writer_goes_on():
    """What came later is seen neither in columns nor behind words."""
    corpus, breather = Corpus(dimensions=4), Breather()
    for number in range(40):
        corpus.add_side(_side(number), breather)
    view = corpus.view(0, breather).steps
    before = {term: _read(view, term, view.count) for term in _TERMS}
    ends = view.last.copy()
    for number in range(40, 120):
        corpus.add_side(_side(number), breather)
        corpus.view(0, breather)
    assert view.last.tobytes() == ends.tobytes()
    assert {term: _read(view, term, view.count) for term in before} == before


_LONG = "one two three four five six seven eight nine ten"
_QUESTION = np.array([1, 0, 0, 0], np.float32)
_TURNED = [
    np.array([cosine, np.sqrt(1 - cosine**2), 0, 0], np.float32) for cosine in (-0.9, -0.3, -0.6)
]


def _long_side(number: int) -> Side:
    return replace(_side(number), text=_LONG, meaning=_LONG)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_a_document_is_as_near_as_its_best_passage(order):
    """In whatever order they come; of the first alone, where that is asked for."""
    corpus, breather = Corpus(dimensions=4, passage_tokens=5), Breather()
    corpus.add_side(_side(0), breather)
    keys = list(corpus.add_side(_long_side(1), breather))
    assert keys == list(keyed_passages("n0/1", _LONG, 5))[:3]
    fact = Semantic(_LONG, id="fact", created_at=datetime(2024, 3, 1, tzinfo=UTC))
    assert len(corpus.put(node_document(fact, {}), breather)) == 3
    for at in order:
        vectors = {keys[at]: _TURNED[at], ("fact", "fact#1", "fact#2")[at]: _TURNED[at]}
        assert corpus.add_vectors(vectors) == set()
        assert corpus.add_vectors(vectors) == set(vectors)
    view = corpus.view(0, breather)
    for documents, number in ((view.steps, 1), (view.nodes["semantic"], 0)):
        best = documents.best_of(documents.vectors @ _QUESTION)
        assert best[number] == pytest.approx(-0.3)
        assert best[:number].tolist() == [0.0] * number
    first = view.steps.first_of(view.steps.vectors @ _QUESTION)
    assert first.tolist() == pytest.approx([0.0, -0.9])
    assert view.steps.vectors[view.steps.rows[1]] == pytest.approx(_TURNED[0])


def test_a_document_without_its_first_passage_has_no_cosine_yet():
    """The first one is embedded before any further one; a second process may differ."""
    corpus, breather = Corpus(dimensions=4, passage_tokens=5), Breather()
    keys = list(corpus.add_side(_long_side(0), breather))
    corpus.add_vectors({keys[1]: _TURNED[1]})
    steps = corpus.view(0, breather).steps
    assert steps.best_of(steps.vectors @ _QUESTION).tolist() == [0.0]


def test_a_node_keeps_its_passages_while_its_text_stays():
    """Shown anew it waits for nothing; with another text it waits for all of them."""
    corpus, breather = Corpus(dimensions=4, passage_tokens=5), Breather()
    fact = Semantic(_LONG, id="fact", created_at=datetime(2024, 3, 1, tzinfo=UTC))
    texts = corpus.put(node_document(fact, {}), breather)
    corpus.add_vectors(dict(zip(texts, _TURNED, strict=True)))
    assert corpus.put(node_document(fact, {"tags": ("x",)}), breather) == {}
    facts = corpus.view(0, breather).nodes["semantic"]
    assert facts.best_of(facts.vectors @ _QUESTION)[-1] == pytest.approx(-0.3)
    other = replace(fact, proposition=f"{_LONG} eleven twelve")
    assert len(corpus.put(node_document(other, {}), breather)) == 3
    corpus.remove(["fact"])
    assert corpus.add_vectors({"fact#1": _TURNED[1]}) == {"fact#1"}


class _LinkedMeanwhile(np.ndarray):
    """Rows of vectors that the writer sets as soon as somebody has compared them."""

    def __lt__(self, other):
        found = np.asarray(self) < other
        self[:] = other
        return found


def test_a_document_that_is_linked_meanwhile_has_no_row_yet():
    """Its vector came later than the view's: there is none at its row."""
    corpus, breather = Corpus(dimensions=4), Breather()
    corpus.add_side(_side(0), breather)
    steps = corpus.view(0, breather).steps
    steps = replace(steps, linked=steps.linked.copy().view(_LinkedMeanwhile))
    assert steps.rows.tolist() == [-1]


def test_a_view_finds_the_node_that_was_put_anew_since():
    """As it was: a commit that confirms a fact takes it from no answer that is under way."""
    corpus, breather = Corpus(dimensions=4), Breather()
    fact = Semantic("Ana keeps bees.", id="fact", created_at=datetime(2024, 3, 1, tzinfo=UTC))
    corpus.put(node_document(fact, {}), breather)
    before = corpus.view(0, breather).nodes["semantic"]
    for text in ("Ana keeps hens.", "Ana keeps cats."):
        corpus.put(node_document(replace(fact, proposition=text), {}), breather)
    after = corpus.view(0, breather).nodes["semantic"]
    texts = [[view.nodes[d].text for d in view.of("fact")] for view in (before, after)]
    assert texts == [["Ana keeps bees."], ["Ana keeps cats."]]
    assert (corpus.documents, corpus.removed) == (1, 2)
    corpus.remove(["fact"])
    assert (corpus.documents, corpus.removed) == (0, 3)


def _centre(order: Sequence[int], gone: Sequence[str] = ()) -> np.ndarray:
    """The centre of 300 sides whose vectors arrived in *order*, some of which were erased."""
    corpus, breather = Corpus(dimensions=4), Breather()
    for number in range(len(_TEXTS)):
        corpus.add_side(_side(number), breather)
    for number in order:
        corpus.add_vectors({_side(number).key: _vector(number)})
    corpus.remove(gone)
    return corpus.view(0, breather).steps.centre


def test_the_centre_is_the_mean_shrunk_by_two_hundred():
    """With few documents it is next to nothing, with many next to their mean."""
    every = range(len(_TEXTS))
    total = np.sum([_vector(n) for n in every], axis=0)
    assert _centre(every) == pytest.approx(total / (len(_TEXTS) + SHRINKAGE), abs=1e-7)
    assert not _centre([]).any()


@given(order=st.permutations(range(len(_TEXTS))), gone=st.sets(st.integers(0, 149)))
@settings(max_examples=10)
def test_the_centre_is_exact_in_any_order_and_after_an_erasure(order, gone):
    """To the bit that of those which are left, as if nothing else had ever been."""
    left = [n for n in range(len(_TEXTS)) if n // 2 not in gone]
    assert _centre(order, [f"n{n}" for n in gone]).tobytes() == _centre(left).tobytes()


def test_a_fact_and_a_further_passage_do_not_move_the_centre():
    """It is the mean of the first passages of what was said."""
    corpus, breather = Corpus(dimensions=4, passage_tokens=5), Breather()
    keys = list(corpus.add_side(_long_side(0), breather))
    corpus.add_vectors({keys[0]: _TURNED[0]})
    before = corpus.view(0, breather).steps.centre
    fact = Semantic("Ana keeps bees.", id="fact", created_at=datetime(2024, 3, 1, tzinfo=UTC))
    corpus.put(node_document(fact, {}), breather)
    corpus.add_vectors({keys[1]: _TURNED[1], "fact": _TURNED[2]})
    assert corpus.view(0, breather).steps.centre.tobytes() == before.tobytes()
    assert before == pytest.approx(_TURNED[0] / (1 + SHRINKAGE))
