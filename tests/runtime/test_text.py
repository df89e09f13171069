"""Words: cleaning, counting, folding, stems; the same in every thread."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from real_texts import TEXTS
from snowballstemmer.english_stemmer import EnglishStemmer
from snowballstemmer.porter_stemmer import PorterStemmer

from mnemo.runtime.text import (
    clean,
    count_tokens,
    fold,
    has_unspaced,
    is_blank,
    one_line,
    stem,
    terms,
    words,
)


@pytest.mark.slow
def test_threads_do_not_disturb_each_others_stems():
    """A stemmer keeps the word in itself, so every thread needs one of its own."""
    endings = ("ational", "iveness", "fulness", "ization", "ingly", "edly", "ements", "ousli")
    words = [
        f"{chr(97 + a)}{chr(97 + b)}rt{end}" for a in range(26) for b in range(8) for end in endings
    ]
    stem.cache_clear()
    expected = [stem(word) for word in words]
    stem.cache_clear()
    pause = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: [stem.__wrapped__(w) for w in words], range(4)))
    finally:
        sys.setswitchinterval(pause)
    assert all(stems == expected for stems in found)


@given(st.text(alphabet=st.characters(codec=None)))
def test_what_is_cleaned_can_be_stored(text):
    """No U+0000 and no lone surrogate is left, and nothing else has changed."""
    cleaned = clean(text)
    assert "\0" not in cleaned
    assert cleaned.encode("utf-8").decode("utf-8") == cleaned
    assert len(cleaned) == len(text)


@pytest.mark.parametrize(
    ("text", "tokens"), [(None, 0), ("", 0), ("abcd", 1), ("abcde", 2), ("日本", 2)]
)
def test_tokens_are_a_quarter_of_the_bytes(text, tokens):
    """ceil(utf8_bytes / 4); nothing counts nothing."""
    assert count_tokens(text) == tokens


def test_case_and_accents_are_folded():
    """Café, CAFÉ and cafe are one word."""
    assert fold("Café") == fold("CAFÉ") == "cafe"


def test_terms_are_what_both_sides_of_a_search_share():
    """Stop words are dropped, the rest stemmed; unspaced scripts give character pairs."""
    assert list(terms("She was running with the dogs")) == ["run", "dog"]
    assert list(terms("東京都")) == ["東京", "京都"]


def test_blank_is_blank_in_every_script():
    """A no-break or ideographic space is blank; a letter is not."""
    assert is_blank("\u00a0\u3000\t")
    assert is_blank(None)
    assert not is_blank(" a ")
    assert one_line(" a\n\tb ") == "a b"


def test_scripts_without_blanks_are_told_from_the_others():
    """One character of them is enough; accents, Greek and emoji are none."""
    assert all(map(has_unspaced, ("東", "a ไทย b", "カ", "한국", "plain and ពាក្យ")))
    assert not any(map(has_unspaced, ("", "plain", "Café", "Ελλάδα", "🙂")))


@pytest.mark.parametrize(
    ("algorithm", "pure"), [("english", EnglishStemmer), ("porter", PorterStemmer)]
)
def test_the_compiled_stemmer_stems_as_the_pure_one(algorithm: str, pure: Any) -> None:
    """With the extra ``fast`` words are found by the same stems."""
    compiled = pytest.importorskip("Stemmer").Stemmer(algorithm)
    known = {word for text in TEXTS for word in words(text) if word.isascii() and word.isalpha()}
    endings = ("ing", "ed", "s", "es", "ly", "ation", "fulness", "ibly", "ies", "ously", "ized")
    spelled = sorted({*known, *(word + ending for word in known for ending in endings)})
    assert len(spelled) > 2_000
    stemmer = pure()
    assert [compiled.stemWord(word) for word in spelled] == [stemmer.stemWord(w) for w in spelled]
