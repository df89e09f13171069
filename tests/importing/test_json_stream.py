"""JSON values of a file, read piece by piece: the same as if it were read whole."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemo.importing import json_stream
from mnemo.importing.json_stream import ImportFileError, Value, stream_values

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(autouse=True)
def pieces(monkeypatch) -> None:
    """Seven bytes at once, so that every value is cut somewhere."""
    monkeypatch.setattr(json_stream, "_CHUNK", 7)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("json")


def values(path: Path) -> list[Any]:
    return [one.raw if isinstance(one, Value) else one for one in stream_values(path)]


@pytest.mark.slow
@given(given=st.lists(VALUES, max_size=4), indent=st.sampled_from([None, 2]), ascii=st.booleans())
def test_a_list_is_read_as_it_was_written(folder, given, indent, ascii):
    """Whatever stands in it, wherever it is cut, with a byte order mark too."""
    path = folder / "list.json"
    path.write_text(json.dumps(given, indent=indent, ensure_ascii=ascii), encoding="utf-8-sig")
    assert values(path) == given


@pytest.mark.parametrize("number", ["12", "-1.25", "1.5e+16", "2E-7", "1e5"])
def test_a_number_is_one_value_wherever_it_is_cut(tmp_path, number):
    """Behind each of its characters, the signs and the point too."""
    path = tmp_path / "list.json"
    for blanks in range(7):
        path.write_text(f"[{' ' * blanks}{number}, 3]")
        assert values(path) == [float(number), 3]


@pytest.mark.slow
@given(given=st.lists(VALUES.filter(lambda value: not isinstance(value, list)), min_size=2))
def test_lines_are_read_as_they_were_written(folder, given):
    """One value per line, blank lines between them."""
    path = folder / "lines.jsonl"
    path.write_text("\n\n".join(json.dumps(one) for one in given))
    assert values(path) == given


@pytest.mark.parametrize("name", ["export.json", "export.jsonl"])
@pytest.mark.parametrize(
    "wrapped", [{"results": [1, 2], "next": None}, {"next": 0, "data": [1, 2]}]
)
def test_a_wrapped_list_is_read_as_that_list(tmp_path, name, wrapped):
    """Its key first, or behind another."""
    path = tmp_path / name
    path.write_text(json.dumps(wrapped) + "\n")
    if name == "export.json" or "results" in wrapped:
        assert values(path) == [1, 2]
    else:
        assert values(path) == [wrapped]


@pytest.mark.parametrize(
    ("content", "before", "place", "what"),
    [
        (b"[1, 2", [1, 2], (1, 6), "expected , or ]"),
        (b'[{"a": 1},\n {"b": "two', [{"a": 1}], (2, 8), "the text ends inside the string"),
        (b"[1,\n 2,\n x]", [1, 2], (3, 2), "not JSON"),
        (b"[1] 2", [1], (1, 5), "more follows"),
        (b'[1,\n "\xff"]', [1], (2, 3), "not UTF-8 (byte 0xff)"),
        (b'{"results": [1} ', [1], (1, 15), "expected , or ]"),
        (b"[" + b"[" * 100_000, [], (1, 2), "not usable JSON"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path, content, before, place, what):
    """What stands complete before it was given."""
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    found = []
    with pytest.raises(ImportFileError) as caught:
        found.extend(one.raw for one in stream_values(path))
    assert what in str(caught.value)
    assert (caught.value.line, caught.value.column) == place
    found = []
    try:
        for one in stream_values(path):
            found.append(one.raw)
    except ImportFileError:
        pass
    assert found == before


def test_a_bad_line_is_told_and_the_next_is_read(tmp_path):
    """A line stands by itself."""
    path = tmp_path / "lines.jsonl"
    path.write_text('{"a": 1}\n{"b": \n{"c": 3}\n')
    first, bad, last = stream_values(path)
    assert (first, last) == (Value({"a": 1}, 1), Value({"c": 3}, 3))
    assert isinstance(bad, ImportFileError)
    assert (bad.line, "not JSON" in bad.what) == (2, True)


def test_a_line_that_is_not_utf8_is_told_and_the_next_is_read(tmp_path):
    """With the byte's place in its line; a byte order mark does not count."""
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": "\xff"}\n{"b": "caf\xe9"}\r\n{"c": 3}\r\n')
    *bad, last = stream_values(path)
    assert [(one.line, one.what, one.column) for one in bad] == [
        (1, "not UTF-8 (byte 0xff)", 8),
        (2, "not UTF-8 (byte 0xe9)", 11),
    ]
    assert last == Value({"c": 3}, 3)


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e400", "9" * 4_000, r'"\ud800"', "\t1"])
def test_values_that_other_parsers_refuse_cost_no_other_record(tmp_path, value):
    """In a list and in lines; whether they are of use is for those who take them to say."""
    (tmp_path / "list.json").write_text(f"[1,{value},3]")
    (tmp_path / "lines.jsonl").write_text(f"1\n{value}\n3\n")
    for name in ("list.json", "lines.jsonl"):
        first, _, last = values(tmp_path / name)
        assert (first, last) == (1, 3)


def test_values_may_stand_one_after_the_other(tmp_path):
    """Each over several lines, in a file that is not of lines."""
    path = tmp_path / "several.json"
    path.write_text('{\n "a": 1\n}\n{\n "a": 2\n}')
    assert values(path) == [{"a": 1}, {"a": 2}]


def test_what_is_no_file_is_told(tmp_path):
    """Absent, empty, a folder."""
    (tmp_path / "empty.json").write_text(" \n")
    for name, what in (
        ("none", "no such file"),
        ("empty.json", "is empty"),
        ("", "is a directory"),
    ):
        with pytest.raises(ImportFileError, match=what):
            list(stream_values(tmp_path / name))


@pytest.mark.parametrize("name", ["lines.jsonl", "list.json", "values.json"])
def test_how_much_is_read_is_told(tmp_path, name):
    """In bytes, never less than before; all of them at the end."""
    path, one = tmp_path / name, {"text": "ä" * 50}
    joined = {"lines.jsonl": "\n", "list.json": ",", "values.json": "\n\n"}[name]
    text = joined.join([json.dumps(one, ensure_ascii=False)] * 40)
    path.write_text(f"[{text}]" if name == "list.json" else text, encoding="utf-8")
    read: list[int] = []
    assert len(list(stream_values(path, on_read=read.append))) == 40
    assert read == sorted(read)
    assert len(set(read)) > 20
    assert read[-1] == path.stat().st_size
