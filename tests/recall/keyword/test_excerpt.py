"""What of a text is shown: an excerpt that holds the match."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemo.recall import keyword as module
from mnemo.recall.keyword import Excerpts

FILLER = " ".join(f"word{i}" for i in range(2_000))


def excerpt(text: str, operands: list[str], chars: int) -> str:
    return Excerpts(text, operands).of(chars)


def test_a_short_text_is_shown_whole():
    """Up to the bound the excerpt is the text, white space collapsed."""
    text = "Ana  likes\n\ttea " * 6
    assert excerpt(text, ["tea"], 300) == " ".join(text.split())


def test_a_late_match_is_in_the_excerpt():
    """At most 300 characters, the match inside, marks on both sides."""
    shown = excerpt(f"{FILLER} zebra {FILLER}", ["zebra"], 300)
    assert len(shown) <= 300
    assert "zebra" in shown
    assert shown.startswith("…word")
    assert shown.endswith("…")
    assert abs(shown.index("zebra") - len(shown) / 2) < 30


@pytest.mark.parametrize(
    ("text", "left", "right"), [("zebra " + FILLER, "", "…"), (FILLER + " zebra", "…", "")]
)
def test_a_mark_stands_only_where_text_is_left_out(text, left, right):
    """The end of a text needs no mark."""
    shown = excerpt(text, ["zebra"], 300)
    assert shown.startswith("…") == bool(left)
    assert shown.endswith("…") == bool(right)


def test_the_stretch_with_most_operands_is_shown():
    """One distant word loses against two that stand together."""
    text = f"tea {FILLER} the tea is in the kettle {FILLER}"
    shown = excerpt(text, ["tea", "kettle"], 100)
    assert "tea is in the kettle" in shown


def test_the_first_of_equal_stretches_is_shown():
    """Ties go to what was said first."""
    shown = excerpt(f"{FILLER} tea one {FILLER} tea two {FILLER}", ["tea"], 60)
    assert "tea one" in shown


def test_a_match_is_found_in_another_form():
    """What the index finds by stem and without accents, the excerpt finds too."""
    assert "testing" in excerpt(f"{FILLER} testing {FILLER}", ["tests"], 80)
    assert "café" in excerpt(f"{FILLER} café {FILLER}", ["cafe"], 80)


def test_a_match_longer_than_the_excerpt_shows_its_beginning():
    """Something of the match is always there."""
    shown = excerpt(f"{FILLER} {'x' * 500} {FILLER}", ["x" * 500], 100)
    assert shown == f"…{'x' * 98}…"


def test_words_are_not_cut():
    """Both ends are word borders."""
    shown = excerpt(f"{FILLER} zebra {FILLER}", ["zebra"], 120).strip("…")
    assert set(shown.split()) <= {*FILLER.split(), "zebra"}


def test_a_character_is_not_parted_from_its_marks():
    """A script of combined characters is cut between them."""
    text = "e\u0301" * 400
    shown = excerpt(text, ["nothing"], 100)
    assert shown.rstrip("…").endswith("\u0301")


def test_a_match_across_the_border_of_two_windows_is_found():
    """A text is read by pieces; a phrase on their border is not lost."""
    for shift in range(0, 40, 7):
        text = "y " * ((32_768 - shift) // 2) + "green tea pot " + "z " * 20_000
        assert "green tea pot" in excerpt(text, ["green tea pot"], 100)


@given(
    text=st.text(alphabet=st.sampled_from("ab \n\u0301éß東京.zebra"), max_size=600),
    operands=st.lists(st.sampled_from(["zebra", "a b", "é", "東京", "."]), min_size=1, max_size=3),
    chars=st.integers(50, 200),
)
def test_an_excerpt_never_exceeds_its_bound(text, operands, chars):
    """Whatever the text, the bound holds and nothing but the text and its marks is shown."""
    shown = excerpt(text, operands, chars)
    assert len(shown) <= chars
    assert shown.strip("…").strip() in " ".join(text.split())


def test_excerpts_of_many_lengths_cost_one_look(monkeypatch):
    """A text is taken to pieces once, and each excerpt is what ``excerpt`` gives."""
    text = f"{FILLER[:6_000]} zebra {FILLER[:1_000]}"
    lengths = (2_048, 80, 1_064, 300, 81)
    expected = [excerpt(text, ["zebra", "word7"], chars) for chars in lengths]
    looked: list[str] = []
    words = module.index_words
    monkeypatch.setattr(
        module,
        "index_words",
        lambda text: looked.append(text) or words(text),  # type: ignore[func-returns-value]
    )
    excerpts = Excerpts(text, ["zebra", "word7"])
    assert [excerpts.of(chars) for chars in lengths] == expected
    assert looked.count(text) == 1


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_match_is_seen_however_its_letters_are_composed(form):
    """And shown as it was written."""
    text = unicodedata.normalize(form, f"{'раз два ' * 40} чайник {'три ' * 40}")
    shown = Excerpts(text, ["чайник"]).of(60)
    assert f" {unicodedata.normalize(form, 'чайник')} " in shown
