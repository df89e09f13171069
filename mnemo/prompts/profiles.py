"""Profiles: what a domain adds to the questions, and how it changes the scoring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from mnemo.config import ScoringConfig
from mnemo.errors import ConfigError
from mnemo.protocols import Purpose

_IN_DOMAIN: frozenset[Purpose] = frozenset(("annotate", "semantic", "procedural", "returns"))
"""The purposes whose questions carry the domain context."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """
    A field of work.

    Attributes:
        domain_context: Follows the standing instructions of annotation and extraction.
        overlays: Purpose → text that follows in the requests of that purpose only.
        value_function_overrides: Node type → parameter of its scoring → value, e.g.
            ``{"procedural": {"base_floor": 0.45}}``; beats ``config.scoring``.

    Raises:
        ConfigError: An overlay names no purpose, or an override no parameter.
    """

    name: str
    domain_context: str = ""
    overlays: Mapping[str, str] = field(default_factory=dict)
    value_function_overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = sorted(set(self.overlays) - set(get_args(Purpose)))
        if unknown:
            raise ConfigError(f"profile {self.name!r}: {', '.join(unknown)} is no purpose")
        self.scoring(ScoringConfig())

    def scoring(self, base: ScoringConfig) -> ScoringConfig:
        """*base* with the overrides of this profile; all other numbers stay."""
        return base.overlaid(ScoringConfig(**self.value_function_overrides))


def resolve_profile(profile: Any) -> Profile | None:
    """What ``config.extraction.profile`` means. *Raises* ``ConfigError``: it is no profile."""
    if profile is None or isinstance(profile, Profile):
        return profile
    found = PROFILES.get(profile) if isinstance(profile, str) else None
    if found is None:
        names = ", ".join(sorted(PROFILES))
        raise ConfigError(f"extraction.profile: {profile!r} is neither a Profile nor of: {names}")
    return found


def instructed(standing: str, purpose: Purpose, profile: Profile | None) -> str:
    """The standing instructions of *purpose* with what *profile* adds to them."""
    if profile is None:
        return standing
    domain = profile.domain_context if purpose in _IN_DOMAIN else ""
    parts = (standing, domain, profile.overlays.get(purpose, ""))
    return "\n\n".join(part.strip() for part in parts if part.strip())


_CODING = Profile(
    name="coding",
    domain_context=(
        "The steps come from work on software. Names of files, functions, commands, packages, "
        "versions and error types are the substance: keep them letter by letter."
    ),
    overlays={
        "annotate": (
            "Judge a step by what tests, builds and programs then said, not by how confident "
            "the one who acted sounded. A failing test that isolates the fault is progress."
        ),
        "semantic": (
            "Worth keeping: interfaces and how they are really called, errors together with "
            "their cause, and results that a run has verified. A plan that was not carried "
            "out is not a result."
        ),
        "procedural": (
            "A condition names the language, the versions and the environment in which the "
            "instruction holds, and the error by its type where there was one."
        ),
        "returns": "High scores need evidence: tests that pass, a build that succeeds.",
    },
    value_function_overrides={"procedural": {"base_floor": 0.45}},
)

_RESEARCH = Profile(
    name="research",
    domain_context=(
        "The steps come from finding things out: searching, reading, comparing sources. What "
        "is claimed, by whom and on what evidence matters more than where it was clicked."
    ),
    overlays={
        "annotate": "A step did well if it brought information that is new and has a source.",
        "semantic": (
            "State each claim with its evidence and source. Where sources disagree, keep every "
            "side as a claim of its own instead of settling it yourself."
        ),
        "procedural": (
            "Describe methods that carry over to other questions (how to search, check, "
            "compare); leave out the path through one particular site."
        ),
        "returns": "Score by how much new, sourced information the method led to.",
    },
    value_function_overrides={"semantic": {"base_floor": 0.45}, "procedural": {"base_floor": 0.15}},
)

_CUSTOMER_SUPPORT = Profile(
    name="customer_support",
    domain_context=(
        "The steps come from helping customers with a product. Keep apart what the customer "
        "reports, what was found to be so, and what the rules of the company say."
    ),
    overlays={
        "annotate": "A step did well if it brought the customer's case nearer to resolution.",
        "semantic": (
            "Worth keeping: symptoms, the causes found for them, and policies with their "
            "limits and exceptions."
        ),
        "procedural": (
            "Describe ways to resolve a case and when and to whom to escalate it. A condition "
            "names the product, the plan and the symptom."
        ),
        "returns": "Score by resolution: confirmed by the customer, merely offered, or missed.",
    },
    value_function_overrides={"procedural": {"base_floor": 0.40}},
)

PROFILES: Mapping[str, Profile] = {
    profile.name: profile for profile in (_CODING, _RESEARCH, _CUSTOMER_SUPPORT)
}
"""The shipped profiles, by name."""
