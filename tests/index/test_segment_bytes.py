"""A segment is mapped: what is read of it is decoded and checked then, and no earlier."""

import mmap
from typing import Any

import numpy as np
import pytest
from helpers import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemo.index.segments import Batch, Head, Names, hashes, packed, unpacked
from mnemo.values.feed import FeedCursor

texts = st.lists(st.text(st.characters(), max_size=6) | st.sampled_from(["\ud800", "é", "a", ""]))


def packed_batch(batch: Batch, *, findable: bool = False) -> bytes:
    head = Head(
        repo=1,
        chain="steps",
        after=FeedCursor(),
        until=FeedCursor(),
        reading="r",
        documents=len(batch),
    )
    return packed(head, {"steps": batch}, findable=findable)


def opened(segment: Any) -> Any:
    """The batch of a segment that is checked when it is read."""
    return unpacked(segment, at_once=False)[1]["steps"]


def large() -> Batch:
    """A batch of many blocks."""
    numbers = np.random.default_rng(1)
    columns = {
        "codes": numbers.integers(-127, 127, (700, 48), np.int8),
        "scales": numbers.random(700, np.float32),
        "signs": numbers.integers(0, 2**63, (6, 700), np.uint64),
    }
    return Batch(columns, {"ids": [f"step-{number}" for number in range(700)]})


@given(texts, texts, st.booleans())
@settings(max_examples=examples(100), deadline=None)
def test_names_are_those_that_were_packed(names, asked, findable):
    """Each, some, all, and where those are that are asked for, also if they repeat."""
    found = opened(packed_batch(Batch({}, {"ids": names}), findable=findable)).names["ids"]
    assert isinstance(found, Names)
    assert (len(found), [*found]) == (len(names), names)
    assert [found[at] for at in range(-len(names), len(names))] == names * 2
    assert (found[1:3], found[::-1]) == (names[1:3], names[::-1])
    assert found.some(range(0, len(names), 2)) == names[::2]
    with pytest.raises(IndexError):
        found[len(names)]
    asked += names[:3]
    which, places = found.find_all(asked)
    every = [(w, p) for w, a in enumerate(asked) for p, name in enumerate(names) if name == a]
    assert [*zip(which.tolist(), places.tolist(), strict=True)] == every
    first = [names.index(name) if name in names else -1 for name in asked]
    assert found.find(asked, hashes(asked)).tolist() == first


def test_names_of_the_same_hash_are_told_apart(monkeypatch):
    """By the text itself."""
    monkeypatch.setattr(
        "mnemo.index.segments.hashes", lambda names: np.zeros(len([*names]), np.uint64)
    )
    found = opened(packed_batch(Batch({}, {"ids": ["a", "b", "a"]}), findable=True)).names["ids"]
    assert [part.tolist() for part in found.find_all(["b", "c", "a"])] == [[0, 2, 2], [1, 0, 2]]


def test_a_name_is_found_among_damaged_ones_or_refused():
    """What its search compared and did not check sent it where the blocks beside say otherwise."""
    names, chance = [f"name {number}" for number in range(3_000)], np.random.default_rng(2)
    segment = packed_batch(Batch({}, {"ids": names}), findable=True)
    refused, size = 0, len(segment) - 8_192
    for _ in range(60):
        damaged = bytearray(segment)
        at = 8_192 + int(chance.integers(size // 2_048)) * 2_048
        damaged[at : at + 2_048] = chance.bytes(2_048)
        found = opened(bytes(damaged[: len(segment)])).names["ids"]
        for number in chance.integers(-300, 3_000, 20).tolist():
            try:
                assert found.find([f"name {number}"]).tolist() == [max(number, -1)]
            except ValueError:
                refused += 1
    assert 0 < refused < 600


@pytest.mark.parametrize("findable", [False, True])
def test_the_hashes_of_names_are_known_by_their_places(findable):
    """Without reading the names, in whatever order they are asked for."""
    names = [f"name {number % 40}" for number in range(60)]
    batch = Batch({"lengths": np.zeros(60, np.int32)}, {"ids": names})
    found = opened(packed_batch(batch, findable=findable)).names["ids"]
    numbers = np.array([59, 0, 7, 7, 40])
    assert found.hashed(numbers).tolist() == hashes([names[n] for n in numbers]).tolist()
    assert found.some(numbers) == [names[n] for n in numbers]


def test_hashes_are_the_same_everywhere():
    """Segments hold them."""
    assert [f"{one:x}" for one in hashes(["a", "é\ud800"])] == [
        "2f42665b399ef840",
        "7f80aa1a1473ff4b",
    ]


def test_a_file_is_mapped_as_it_is(tmp_path):
    """Arrays of any shape are read-only views into it."""
    batch = large()
    (tmp_path / "segment").write_bytes(packed_batch(batch, findable=True))
    with open(tmp_path / "segment", "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    found = opened(mapped)
    for name, array in batch.columns.items():
        again = found.columns[name]
        assert (again.dtype, again.tolist()) == (array.dtype, array.tolist())
        assert not again.flags.writeable
        assert not again.flags.owndata
    assert found.names["ids"].find(["step-699", "none"]).tolist() == [699, -1]


@given(st.integers(0, 700), st.integers(0, 700), st.lists(st.integers(0, 699)))
@settings(max_examples=examples(50), deadline=None)
def test_parts_of_arrays_are_read(begin, end, numbers):
    """Rows in order, and some."""
    batch, columns = large(), opened(SEGMENT).columns
    for name in ("codes", "scales"):
        array, stored = batch.columns[name], columns.stored[name]
        assert stored.cut(begin, end).tolist() == array[begin:end].tolist()
        assert stored.rows(numbers).tolist() == array[numbers].tolist()


SEGMENT = packed_batch(large())
BODY = opened(SEGMENT).columns.stored["codes"]._body.bytes


def test_nothing_is_read_by_opening():
    """Neither checked nor decoded: only the head is, and what is no whole block."""
    rest = len(BODY) % 4_096
    damaged = SEGMENT[: -len(BODY)] + bytes(len(BODY) - rest) + SEGMENT[-rest:]
    found = opened(damaged)
    assert len(found) == 700
    for read in (lambda: found.columns["codes"], lambda: found.names["ids"][0]):
        with pytest.raises(ValueError, match="damaged"):
            read()
    for one in (SEGMENT[:-1], SEGMENT + b"\0", b"", b"mnemoseg" + SEGMENT[8:]):
        with pytest.raises(ValueError, match="damaged"):
            opened(one)


@pytest.mark.parametrize("at", range(100, len(SEGMENT), 4_096))
def test_damage_is_found_where_it_is_read(at):
    """What lies in other blocks is of use, and all that is read is what was packed."""
    damaged = bytearray(SEGMENT)
    damaged[at] ^= 0x55
    with pytest.raises(ValueError, match="damaged"):
        unpacked(damaged)
    try:
        found = opened(damaged)
    except ValueError:
        assert at < 4_096
        return
    batch, refused, intact = large(), 0, 0
    for read, array in readings(found, batch):
        try:
            assert np.array_equal(read(), array)
            intact += 1
        except ValueError:
            refused += 1
    assert refused
    assert intact
    with pytest.raises(ValueError, match="damaged"):
        [*found.columns.values(), *found.names["ids"]]


@given(st.data(), st.just(2**63) | st.integers(1, 2**64 - 1))
@settings(max_examples=examples(100), deadline=None)
def test_no_other_word_passes_for_one(data, other):
    """Whatever it was; nor one that changed its place with another, in its block or elsewhere."""
    damaged = bytearray(SEGMENT)
    words = np.frombuffer(damaged, "<u8", offset=len(SEGMENT) - len(BODY))
    at, there = (data.draw(st.integers(0, len(words) - 1)) for _ in range(2))
    if data.draw(st.booleans()):
        words[[at, there]] = words[[there, at]]
    else:
        words[at] ^= np.uint64(other)
    if damaged == SEGMENT:
        assert len(unpacked(damaged)[1]["steps"]) == 700
    else:
        with pytest.raises(ValueError, match="damaged"):
            unpacked(damaged)


def test_what_lies_in_two_blocks_is_checked_in_both():
    """Short names, and rows of a length that divides no block."""
    names = [f"{number:03}" for number in range(1_000)] * 6
    segment = packed_batch(Batch({"codes": np.zeros((6_000, 3), np.int8)}, {"ids": names}))
    tried = 0
    for is_name in (False, True):
        batch = opened(segment)
        stored = batch.names["ids"]._text if is_name else batch.columns.stored["codes"]
        for at in range(-stored._at % 4_096, 18_000, 4_096):
            if at % 3:
                damaged = bytearray(segment)
                damaged[len(segment) - len(stored._body.bytes) + stored._at + at] ^= 1
                found = opened(damaged)
                read = found.names["ids"].some if is_name else found.columns.stored["codes"].rows
                assert len(read(range(at // 3 - 12, at // 3))) == 12
                with pytest.raises(ValueError, match="damaged"):
                    read(range(at // 3 - 11, at // 3 + 1))
                tried += 1
    assert tried > 4


def readings(found: Batch, batch: Batch) -> Any:
    """Ways to read a row or a name, and what it is."""
    columns: Any = found.columns
    for name, array in batch.columns.items():
        stored = columns.stored[name]
        for at in range(0, len(array), len(array) // 100 or 1):
            yield lambda stored=stored, at=at: stored.rows([at, at])[0], array[at]
            yield lambda stored=stored, at=at: stored.cut(at, at + 1)[0], array[at]
    for at in range(700):
        yield lambda at=at: found.names["ids"][at], batch.names["ids"][at]
