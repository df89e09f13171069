"""Profiles, shipped and home-made."""

import pytest

from mnemo.config import ScoringConfig, TypeScoring
from mnemo.errors import ConfigError
from mnemo.prompts.profiles import PROFILES, Profile, instructed, resolve_profile


def test_three_profiles_are_shipped():
    """Each is found by its name and has words for every stage of extraction it speaks of."""
    assert set(PROFILES) == {"coding", "research", "customer_support"}
    for name, profile in PROFILES.items():
        assert resolve_profile(name) is profile
        assert profile.name == name
        assert {"semantic", "procedural"} <= set(profile.overlays)


@pytest.mark.parametrize("key", ["get_semantic", "Semantic", "", "reward"])
def test_an_overlay_for_no_purpose_is_refused(key):
    """A typing error in a key does not go unnoticed."""
    with pytest.raises(ConfigError, match="mine"):
        Profile(name="mine", overlays={"semantic": "fine", key: "lost"})


def test_any_purpose_may_have_an_overlay():
    """Also those that no domain context reaches."""
    profile = Profile(name="mine", domain_context="At sea.", overlays={"merge_intent": "Be terse."})
    assert instructed("Do.", "merge_intent", profile) == "Do.\n\nBe terse."
    assert instructed("Do.", "semantic", profile) == "Do.\n\nAt sea."
    assert instructed("Do.", "plan", profile) == "Do."
    assert instructed("Do.", "semantic", None) == "Do."


@pytest.mark.parametrize("wrong", ["cooking", 7, {"name": "x"}, ""])
def test_what_is_no_profile_is_refused(wrong):
    """The error names those that are shipped."""
    with pytest.raises(ConfigError, match="coding, customer_support, research"):
        resolve_profile(wrong)


def test_no_profile_is_none():
    """And a profile is itself."""
    profile = Profile(name="mine")
    assert resolve_profile(None) is None
    assert resolve_profile(profile) is profile


@pytest.mark.parametrize(
    ("name", "floors"),
    [
        ("coding", {"semantic": 0.3, "procedural": 0.45}),
        ("research", {"semantic": 0.45, "procedural": 0.15}),
        ("customer_support", {"semantic": 0.3, "procedural": 0.40}),
    ],
)
def test_a_profile_favours_a_type_by_its_floor(name, floors):
    """The default floor is 0.3; only the floor changes."""
    scoring = PROFILES[name].scoring(ScoringConfig())
    for type, floor in floors.items():
        row = getattr(scoring, type)
        assert row.base_floor == floor
        assert row.model_copy(update={"base_floor": 0.3}) == getattr(ScoringConfig(), type)


def test_a_profile_beats_the_settings_where_it_says_something():
    """All other numbers stay as they were set."""
    base = ScoringConfig(procedural=TypeScoring(base_floor=0.9, top_k=3), recency_weight=0.7)
    scoring = PROFILES["coding"].scoring(base)
    assert (scoring.procedural.base_floor, scoring.procedural.top_k) == (0.45, 3)
    assert scoring.recency_weight == 0.7


@pytest.mark.parametrize(
    "overrides",
    [{"fact": {"base_floor": 0.4}}, {"semantic": {"floor": 0.4}}, {"semantic": {"base_floor": 4}}],
)
def test_an_override_of_no_parameter_is_refused(overrides):
    """Types, names and ranges are checked when the profile is made."""
    with pytest.raises(ConfigError):
        Profile(name="mine", value_function_overrides=overrides)
