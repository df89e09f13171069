"""Keys that stored nodes are found by."""

import pytest

from mnemo.values.graph import Episodic, Intent, Procedural, Semantic, Tag
from mnemo.values.lookup import label_key, lookup_keys, rival_keys, text_key


@pytest.mark.parametrize("label", ["Database", " database ", "DATABASE", "ＤＡＴＡＢＡＳＥ"])
def test_spellings_of_one_tag_share_a_key(label):
    """Case, blanks and compatibility forms do not make another tag."""
    assert label_key(label) == label_key("database")


def test_near_labels_are_different_tags():
    """Accents and plurals are kept: near labels are not the same concept."""
    assert len({label_key(label) for label in ("resume", "résumé", "resumes")}) == 3


def test_each_kind_is_found_by_its_own_words():
    """Whatever is compared at commit has a key; steps are only known by id."""
    assert lookup_keys(Tag("Tea")) == ("tea",)
    assert lookup_keys(Intent("Brew  tea.")) == lookup_keys(Intent("brew tea"))
    assert text_key("if cold", "heat it") in lookup_keys(Procedural("heat it", "If cold."))
    assert text_key("ana drinks tea") in lookup_keys(Semantic("Ana drinks tea."))
    assert lookup_keys(Episodic("seen")) == ()


def test_condition_and_instruction_are_not_confused():
    """The same words on the other side are another instruction."""
    assert lookup_keys(Procedural("a", "b")) != lookup_keys(Procedural("b", "a"))


def test_a_long_text_has_a_short_key():
    """Keys do not bloat an index, and still tell texts apart."""
    one, other = lookup_keys(Semantic("x" * 10_000)), lookup_keys(Semantic("x" * 9_999))
    assert one != other
    assert all(len(key) <= 200 for key in one)


def test_a_rival_of_a_slot_is_found_by_the_slot():
    """A new value looks for the old ones under subject and attribute."""
    assert set(rival_keys("Bo's budget is 3000 euros")) & set(
        lookup_keys(Semantic("Bo's budget is 2000 euros"))
    )
