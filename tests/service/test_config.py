"""Configuration: refused when wrong, layered by precedence, read from the environment."""

import functools
import math
from collections.abc import Iterator
from typing import get_args

import pytest

from mnemo import Config, ConfigError, Mnemo
from mnemo.config import SessionConfig, Settings


@pytest.mark.parametrize(
    "make",
    [
        lambda: Config(nonsense=1),
        lambda: Config(session={"nonsense": 1}),
        lambda: SessionConfig(max_pending=0),
        lambda: Config(recall={"plateau_delta": 2}),
        lambda: Config(session={"flush_timeout_s": float("nan")}),
        lambda: Config(store={"synchronous": "sometimes"}),
    ],
)
def test_a_wrong_setting_is_refused_by_name(make):
    """Unknown keys and values out of range are ConfigError, which is a ValueError too."""
    with pytest.raises(ConfigError):
        make()
    assert issubclass(ConfigError, ValueError)


def test_an_unknown_setting_is_refused_with_those_that_are_known():
    """By its place, in a section or outside of one; the known ones are those of that place."""
    with pytest.raises(ConfigError, match=r"^recal is no setting; known: session, .*, recall,"):
        Config(recal={"k": 3})
    with pytest.raises(ConfigError, match=r"^session\.pending is no setting; .* max_pending"):
        Config(session={"pending": 3})


@pytest.mark.parametrize(
    ("section", "values", "said"),
    [
        ("viewport", {"l1_fraction": 0.9}, "viewport.l1_fraction, l2_fraction, goals_fraction"),
        ("viewport", {"max_output_tokens": 10}, "viewport.max_output_tokens 10 cuts snapshots"),
        ("session", {"max_pending": 0}, "session.max_pending: Input should be"),
        ("session", {"max_append_backlog": 2**63}, "session.max_append_backlog must be at most"),
        ("conversation", {"retrieval": 3}, "conversation.retrieval: Input should be an instance"),
        ("conversation", {"compression": 3}, "conversation.compression: Input should be an inst"),
    ],
)
def test_a_refused_setting_is_named_by_its_place(section, values, said):
    """Also where several settings do not fit each other, and where values of several kinds may."""
    with pytest.raises(ConfigError) as refused:
        Config(**{section: values})
    assert str(refused.value).startswith(said)
    assert "[" not in str(refused.value)


def test_what_is_no_clock_is_refused():
    """As the service is made, not at the first use of it."""
    with pytest.raises(ConfigError, match="clock must be an object to ask, like ManualClock"):
        Mnemo("memory:", clock=3)


def test_only_what_was_set_overrides():
    """An override changes the fields that were set on purpose, at any depth, and no other."""
    base = Config(session={"max_pending": 7}, scoring={"procedural": {"top_k": 3}})
    whole = Config().overlaid(base).overlaid(Config(session={"auto_commit": True}))
    assert whole.session.max_pending == 7
    assert whole.session.auto_commit is True
    assert whole.scoring.procedural.top_k == 3
    assert whole.scoring.procedural.threshold == 0.25


def test_settings_are_frozen():
    """A setting cannot be changed behind the back of who uses it."""
    with pytest.raises(ValueError, match="frozen"):
        Config().shutdown_grace_s = 1


def test_the_environment_gives_settings(monkeypatch):
    """MNEMO_* with two underscores per level; JSON for what is not a plain value."""
    monkeypatch.setenv("MNEMO_SESSION__AUTO_COMMIT", "true")
    monkeypatch.setenv("MNEMO_SHUTDOWN_GRACE_S", "3")
    monkeypatch.setenv("MNEMO_RECALL__AGENT_ACTORS", '["robot"]')
    monkeypatch.setenv("MNEMO_STORE", "somewhere.db")
    monkeypatch.setenv("MNEMO_EMBEDDER", "static")
    config = Config.from_env()
    assert config.session.auto_commit is True
    assert config.shutdown_grace_s == 3
    assert config.recall.agent_actors == frozenset({"robot"})
    assert config.store == Config().store


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MNEMO_SESION__AUTO_COMMIT", "true"),
        ("MNEMO_SESSION__AUTO_COMIT", "true"),
        ("MNEMO_SESSION__MAX_PENDING", "zero"),
        ("MNEMO_RECALL__AGENT_ACTORS", "[not json"),
    ],
)
def test_a_wrong_variable_is_refused(monkeypatch, name, value):
    """A misspelt variable is an error, not silence."""
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError):
        Config.from_env()


def _numbers(section: type[Settings], *above: str) -> Iterator[tuple[tuple[str, ...], type]]:
    """The path of every numeric field of a section and those in it, and its kind of number."""
    for name, field in section.model_fields.items():
        kinds = {getattr(kind, "__origin__", kind) for kind in get_args(field.annotation)}
        for kind in kinds | {field.annotation}:
            if kind in (int, float):
                yield (*above, name), kind
            elif isinstance(kind, type) and issubclass(kind, Settings):
                yield from _numbers(kind, *above, name)


NUMBERS = dict(_numbers(Config))


def test_the_settings_have_many_numbers():
    """The next test is about all of them; their kinds are found behind ``| None``, too."""
    assert len(NUMBERS) > 90
    assert NUMBERS["session", "flush_timeout_s"] is float
    assert NUMBERS["session", "max_model_calls"] is int
    assert NUMBERS["scoring", "intent", "k"] is float


@pytest.mark.parametrize("path", NUMBERS, ids=".".join)
def test_no_number_of_the_settings_is_infinite(path):
    """Infinity and NaN are refused everywhere, and integers that no store can hold."""
    beyond = [2**63, -(2**70)] if NUMBERS[path] is int else []
    for odd in (math.inf, -math.inf, math.nan, *beyond):
        values = functools.reduce(lambda inner, name: {name: inner}, reversed(path), odd)
        with pytest.raises(ConfigError, match=path[-1]):
            Config(**values)
