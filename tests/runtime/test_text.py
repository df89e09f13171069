"""Words: cleaning, counting, folding, stems; the same in every thread."""

import sys
from concurrent.futures import ThreadPoolExecutor

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
    visible,
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
def test_the_compiled_stemmer_stems_as_the_pure_one(algorithm, pure):
    """With the extra ``fast`` words are found by the same stems."""
    compiled = pytest.importorskip("Stemmer").Stemmer(algorithm)
    known = {word for text in TEXTS for word in words(text) if word.isascii() and word.isalpha()}
    endings = ("ing", "ed", "s", "es", "ly", "ation", "fulness", "ibly", "ies", "ously", "ized")
    spelled = sorted({*known, *(word + ending for word in known for ending in endings)})
    assert len(spelled) > 2_000
    stemmer = pure()
    assert [compiled.stemWord(word) for word in spelled] == [stemmer.stemWord(w) for w in spelled]


@pytest.mark.parametrize(
    "text",
    [
        "plain words,\tin two\r\nlines\n",
        "Grüße, Ελλάδα, Привет, 你好",
        "\U0001f469\u200d\U0001f4bb ships \u2764\ufe0f\u200d\U0001f525 and 1\ufe0f\u20e3",
        "\U0001f3f3\ufe0f\u200d\U0001f308 \U0001f44d\U0001f3fd",
        "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f of Scotland",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \u06a9\u062a\u0627\u0628",
        "PDF\u200c\u0647\u0627",
        "\u0d28\u0d4d\u200d, \u0d85\u0dc1\u0dca\u200d\u0dbb\u0dd3",
        "\u05e9\u05dc\u05d5\u05dd!\u200f C++\u200e",
        "\u200f\u05e9\u05dc\u05d5\u05dd",
        "\u0e2a\u0e27\u0e31\u0e2a\u200b\u0e14\u0e35",
        "\u8fbb\U000e0100",
    ],
)
def test_text_of_any_script_stays_as_it_is(text):
    """Joiners of Persian, Malayalam and emoji, marks of Hebrew, breaks of Thai, flags."""
    assert visible(text) == text


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("\x1b[31mred\x07", r"\u001b[31mred\u0007"),
        ("a\rb\x7f\x9b\x85", r"a\u000db\u007f\u009b\u0085"),
        ("pay\u202elap\u202c", r"pay\u202elap\u202c"),
        ("\u2066a\u2069 \u05e9\u202b\u05e9", "\\u2066a\\u2069 \u05e9\\u202b\u05e9"),
        ("pass\u200bwo\u200crd\ufeff\u2060", r"pass\u200bwo\u200crd\ufeff\u2060"),
        ("pass\u200dword\u200e", r"pass\u200dword\u200e"),
        ("\U0001f600\ufe0f\ufe01\U000e0155", "\U0001f600\ufe0f\\ufe01\\U000e0155"),
        ("hi\U000e0069\U000e0067", r"hi\U000e0069\U000e0067"),
        ("\u05e9\u200f\u200e", "\u05e9\u200f\\u200e"),
    ],
)
def test_what_nobody_sees_is_spelled(text, spelled):
    """Controls, overrides and isolates of direction, zero width within Latin words, tags."""
    assert visible(text) == spelled


@given(st.text())
def test_what_is_spelled_once_stays(text):
    """Prompts within prompts change nothing more, and no line gets another number."""
    shown = visible(text)
    assert visible(shown) == shown
    assert not set("\x1b\u202e\u2066\x85") & set(shown)
