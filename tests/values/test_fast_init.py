"""Frozen dataclasses with ``fast_init`` behave as those without."""

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from mnemo.values.fast_init import fast_init


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    name: str
    count: int = 3
    tags: dict[str, int] = field(default_factory=dict)


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Fast:
    name: str
    count: int = 3
    tags: dict[str, int] = field(default_factory=dict)


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Derived(Fast):
    more: str = "x"


def test_defaults_and_factories_are_those_of_the_fields():
    """A factory is called for each instance; what is given stands."""
    one, other = Fast(name="a"), Fast(name="a", count=4, tags={"b": 1})
    assert (one.name, one.count, one.tags) == ("a", 3, {})
    assert (other.count, other.tags) == (4, {"b": 1})
    assert one.tags is not Fast(name="a").tags


def test_an_instance_is_frozen_and_of_its_own_class():
    """After ``__init__`` nothing can be assigned or deleted, also in a derived class."""
    for made in (Fast(name="a"), Derived(name="a", more="b")):
        assert type(made) in (Fast, Derived)
        with pytest.raises(FrozenInstanceError):
            made.name = "b"  # type: ignore[misc]
        with pytest.raises(FrozenInstanceError):
            del made.name


def test_signature_and_errors_are_the_same():
    """A missing or an unknown argument is a ``TypeError``; tools see the same parameters."""
    assert list(inspect.signature(Fast).parameters) == list(inspect.signature(Plain).parameters)
    for wrong in ({}, {"name": "a", "other": 1}):
        with pytest.raises(TypeError):
            Fast(**wrong)  # type: ignore[arg-type]


def test_instances_can_be_replaced_copied_and_pickled():
    """What ``dataclasses``, ``copy`` and ``pickle`` make of an instance is equal to it."""
    made = Derived(name="a", tags={"b": 1})
    assert replace(made, count=5) == Derived(name="a", count=5, tags={"b": 1})
    assert copy.deepcopy(made) == made == pickle.loads(pickle.dumps(made))
    assert repr(made) == "Derived(name='a', count=3, tags={'b': 1}, more='x')"


@fast_init
@dataclass(frozen=True, slots=True)
class Placed:
    name: str
    id: str = field(default="", kw_only=True)
    count: int = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", self.id or f"id of {self.name}")


def test_fields_by_place_and_post_init_work_as_before():
    """Keyword-only fields stand behind the others, and ``__post_init__`` sees all of them."""
    assert Placed("a", 4) == Placed(name="a", count=4, id="id of a")
    with pytest.raises(TypeError):
        Placed("a", 4, "b")  # type: ignore[misc]
