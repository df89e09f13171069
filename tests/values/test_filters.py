"""Filters: the language of ``where=``, against a plain reading of its rules."""

import sys
from datetime import UTC, datetime
from itertools import count
from threading import Event, Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemo.index.columns import Facets
from mnemo.values.filters import OPERATORS, Filters, Where

KEYS = ("a", "b", "a.b", "b.a")
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.5, 1.0]), st.sampled_from("xy")
)
data = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)
    ),
    max_leaves=6,
)
metadata = st.dictionaries(st.sampled_from(KEYS), data, max_size=3)
comparable = st.one_of(st.integers(-3, 3), st.sampled_from([0.5, 1.0]), st.sampled_from("xy"))
operators = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("gt", "gte", "lt", "lte"), comparable),
        "ne": scalars,
        "exists": st.booleans(),
    },
).filter(bool)
wheres = st.dictionaries(
    st.sampled_from(KEYS), st.one_of(scalars, st.lists(scalars, max_size=3), operators), max_size=2
)


def same(one: Any, other: Any) -> bool:
    """Equal as JSON has it: ``true`` is not 1, but 1 is 1.0."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return (type(one) in (int, float) and type(other) in (int, float) and one == other) or (
        one == other and type(one) is type(other)
    )


def alike(one: Any, other: Any) -> bool:
    """Of one kind: both numbers, both texts, both true or false, both null."""
    return any(
        one_is and other_is
        for one_is, other_is in (
            (one is None, other is None),
            (isinstance(one, bool), isinstance(other, bool)),
            (isinstance(one, str), isinstance(other, str)),
            (type(one) in (int, float), type(other) in (int, float)),
        )
    )


def reached(value: Any, key: str) -> list[Any]:
    """Everything that *key* names in *value*, lists not opened."""
    if isinstance(value, list):
        return [found for one in value if isinstance(one, dict) for found in reached(one, key)]
    if not isinstance(value, dict):
        return []
    if key in value:
        return [value[key]]
    head, dot, rest = key.partition(".")
    return reached(value[head], rest) if dot and head in value else []


def opened(values: list[Any]) -> list[Any]:
    """*values* with the members of lists in their place."""
    return [
        member
        for value in values
        for member in (opened(value) if isinstance(value, list) else [value])
    ]


def compares(operator: str, member: Any, operand: Any) -> bool:
    """Whether *member* stands so to *operand*."""
    if not alike(member, operand):
        return False
    return {
        "gt": lambda: member > operand,
        "gte": lambda: member >= operand,
        "lt": lambda: member < operand,
        "lte": lambda: member <= operand,
    }[operator]()


def oracle(where: dict[str, Any], data: dict[str, Any]) -> bool:
    """The rules as one would say them, a key at a time."""
    for key, asked in where.items():
        found = reached(data, key)
        held = opened(found)
        if not isinstance(asked, dict):
            wanted = asked if isinstance(asked, list) else [asked]
            if not any(same(member, one) for member in held for one in wanted):
                return False
            continue
        if asked.get("exists") is False:
            if found or len(asked) > 1:
                return False
            continue
        if not found:
            return False
        bounds = {name: asked[name] for name in ("gt", "gte", "lt", "lte") if name in asked}
        if bounds and not any(
            all(compares(name, member, operand) for name, operand in bounds.items())
            for member in held
        ):
            return False
        if "ne" in asked:
            unequal = asked["ne"]
            if not any(alike(member, unequal) for member in held):
                return False
            if any(same(member, unequal) for member in held):
                return False
    return True


@given(where=wheres, data=metadata)
def test_conditions_hold_as_the_rules_say(where, data):
    """Whatever is asked of whatever is stored: the parsed conditions agree with the rules."""
    assert Where.checked(where).holds(data) == oracle(where, data)


@given(
    asked=st.lists(st.tuples(wheres, st.lists(metadata, max_size=4)), min_size=1, max_size=4),
    extra=st.lists(st.integers(-2_000, 2_000), max_size=80),
)
def test_facets_hold_as_each_object_by_itself(asked, extra):
    """However asking and adding follow one another: the index agrees with the conditions."""
    facets, objects = Facets(), []
    for where, added in asked:
        objects += [*added, *({"a": number} for number in extra)]
        numbers = [facets.number(one) for one in objects]
        parsed = Where.checked(where)
        held = facets.holding(parsed)
        assert [bool(held[n]) for n in numbers] == [parsed.holds(one) for one in objects]


def test_an_unknown_operator_is_refused_and_the_known_ones_are_named():
    """A caller who guesses an operator is told which there are."""
    with pytest.raises(ValueError, match="like") as refused:
        Where.checked({"year": {"like": 2}})
    assert all(operator in str(refused.value) for operator in OPERATORS)


@pytest.mark.parametrize(
    "where",
    [
        {"": 1},
        {1: 1},
        {"a": {}},
        {"a": {"exists": 1}},
        {"a": {"gt": None}},
        {"a": {"gt": True}},
        {"a": {"gt": [1]}},
        {"a": {"ne": [1]}},
        {"a": [[1]]},
        {"a": float("nan")},
        {"a": datetime(2024, 1, 1)},
        "a",
        ["a"],
    ],
)
def test_what_cannot_be_compared_is_refused(where):
    """Operands that no metadata could equal or be ordered with are an error, not no hits."""
    with pytest.raises(ValueError, match="where"):
        Where.checked(where)


def test_filters_of_who_and_where_hold_of_one_piece_of_evidence():
    """Names are compared without case, a session's id names a thread as well."""
    said = {
        "at": datetime(2024, 3, 1, tzinfo=UTC),
        "actors": ("Zoë",),
        "session_ids": ("s1",),
        "thread_id": "t1",
        "metadata": {},
    }
    assert Filters.checked(actor="zoe").holds(**said)
    assert not Filters.checked(actor="Bo").holds(**said)
    assert Filters.checked(session_id="s1", thread_id="t1").holds(**said)
    assert Filters.checked(session_id="t1").holds(**said)
    assert not Filters.checked(thread_id="s1").holds(**said)
    assert not Filters.checked(since=datetime(2024, 3, 2)).holds(**said)
    assert Filters.checked().is_open
    assert not Filters.checked(where={"a": 1}).is_open


@pytest.mark.parametrize("where", [{"n": 7}, {"n": {"lt": 7}}], ids=["named", "compared"])
def test_metadata_that_is_numbered_meanwhile_ends_no_filter(where):
    """Another thread adds while a filter asks: the answer covers what there was, or more."""
    facets, ended, before = Facets(), Event(), sys.getswitchinterval()

    def add() -> None:
        for number in range(20_000):
            facets.number({"n": number})
        ended.set()

    adding = Thread(target=add)
    sys.setswitchinterval(1e-6)
    try:
        adding.start()
        for limit in count(8):
            if ended.is_set():
                break
            facets.holding(Where.checked(where | {"other": {"ne": limit}}))
    finally:
        adding.join()
        sys.setswitchinterval(before)
    found = facets.holding(Where.checked(where))
    assert (len(found), found.sum()) == (20_001, 1 if where == {"n": 7} else 7)
