"""Documents in memory are the same however the writer was handed them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
import pytest
from real_texts import TEXTS

from mnemo.index.corpus_writer import Corpus
from mnemo.runtime.clock import Breather
from mnemo.values.corpus import CorpusView, Side, StepsView

_TEXTS = [text[:400] for text in TEXTS if text.strip()][:300]


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


@pytest.mark.parametrize("size", [1, 7, 64])
def test_pages_of_any_size_give_the_same_documents(size: int) -> None:
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
    for term in whole.term_numbers:
        for known in (len(_TEXTS), len(_TEXTS) // 2):
            assert _read(mine, term, known) == _read(whole, term, known), term


def _read(view: StepsView, term: str, documents: int) -> list[list[float]] | None:
    found = view.postings.read(term, documents)
    return None if found is None else [part.tolist() for part in found]


def test_a_view_stays_as_it_was_while_the_writer_goes_on() -> None:
    """What came later is seen neither in columns nor behind words."""
    corpus, breather = Corpus(dimensions=4), Breather()
    for number in range(40):
        corpus.add_side(_side(number), breather)
    view = corpus.view(0, breather).steps
    before = {term: _read(view, term, view.count) for term in view.term_numbers}
    ends = view.last.copy()
    for number in range(40, 120):
        corpus.add_side(_side(number), breather)
        corpus.view(0, breather)
    assert view.last.tobytes() == ends.tobytes()
    assert {term: _read(view, term, view.count) for term in before} == before
