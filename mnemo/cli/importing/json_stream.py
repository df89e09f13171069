"""Read the JSON values of a file one after the other, in memory bounded by the largest one."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from mnemo.cli.formats import ImportFileError

__all__ = ["BadLine", "Value", "stream_values"]

_CHUNK = 1 << 20
"""Bytes that are read at once; doubled while one value is longer."""
_BLANKS = " \t\r\n"
_LISTS = ("results", "memories", "conversations", "items", "data")
"""Keys under which exports wrap their list."""
_MARGIN = 64
"""Characters before the end of what is in memory: a mistake there may be a cut."""
_WRAPPED = re.compile(rf'\{{\s*"(?:{"|".join(_LISTS)})"\s*:\s*\[')
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Value:
    """A JSON value, and its line or its number in a list, from 1."""

    raw: Any
    number: int
    in_list: bool = False


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that is no JSON, in a file of one value per line."""

    number: int
    what: str


def stream_values(file: Path) -> Iterator[Value | BadLine]:
    """
    Read *file*: a list, one value per line, or a single value.

    An object whose list stands under a usual name, such as ``results``, is read as that list.

    Raises:
        ImportFileError: There is no such file, or it is broken at a place behind which nothing
            can be read; what stands complete before it was given.
    """
    try:
        opened = file.open("rb")
    except FileNotFoundError:
        raise ImportFileError("there is no such file", file=file) from None
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        raise ImportFileError(what, file=file) from error
    with opened as source:
        text = _Text(source, file)
        first = text.skip_blanks()
        if not first:
            raise ImportFileError("the file is empty", file=file)
        wrapped = text.begins(_WRAPPED)
        if wrapped:
            text.at = wrapped.end() - 1
        if first == "[" or wrapped:
            yield from _elements(text, wrapped=bool(wrapped))
        elif file.suffix == ".jsonl" or text.line_is_whole():
            yield from _lines(text)
        else:
            yield from _single(text)


class _Text:
    """The text of a file, of which a part is in memory."""

    def __init__(self, source: BinaryIO, file: Path) -> None:
        self._source = source
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._line, self._column = 1, 1
        self._chunk = _CHUNK
        self._undecodable: str | None = None
        self.text = ""
        self.at = 0
        self.is_whole = False

    def grow(self) -> bool:
        """Read more behind what is in memory. Returns whether there was more."""
        if self.is_whole:
            return False
        self._pass(self.at)
        raw = self._source.read(self._chunk)
        self.is_whole = not raw
        try:
            self.text += self._decoder.decode(raw, final=self.is_whole)
        except UnicodeDecodeError as error:
            self.text += error.object[: error.start].decode("utf-8")
            self._undecodable = f"not UTF-8 (byte 0x{error.object[error.start]:02x})"
            self.is_whole = True
        return True

    def _pass(self, end: int) -> None:
        """Drop what was read, and count its lines."""
        lines = self.text.count("\n", 0, end)
        last = self.text.rfind("\n", 0, end)
        self._column = end - last if lines else self._column + end
        self._line += lines
        self.text, self.at = self.text[end:], 0

    def skip_blanks(self) -> str:
        """Go to the next character that is no blank; ``""``: there is none."""
        while True:
            while self.at < len(self.text) and self.text[self.at] in _BLANKS:
                self.at += 1
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.grow():
                self.check_decodable()
                return ""

    def begins(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Match the beginning of what is read next."""
        while len(self.text) - self.at < _MARGIN and self.grow():
            pass
        return pattern.match(self.text, self.at)

    def value(self) -> Any:
        """Read the JSON value that begins here."""
        while True:
            try:
                found, end = _DECODER.raw_decode(self.text, self.at)
            except json.JSONDecodeError as error:
                if self._may_be_cut(error) and self._reads_more():
                    continue
                raise self.mistake(error.pos, f"not JSON: {wrong(error)}") from error
            except (ValueError, RecursionError) as error:
                raise self.mistake(self.at, f"not usable JSON: {error}") from error
            # A number that ends with what is in memory may go on behind it.
            if end == len(self.text) and self._reads_more():
                continue
            self.at, self._chunk = end, _CHUNK
            return found

    def _may_be_cut(self, error: json.JSONDecodeError) -> bool:
        return error.msg.startswith("Unterminated") or error.pos >= len(self.text) - _MARGIN

    def _reads_more(self) -> bool:
        self._chunk = max(_CHUNK, len(self.text) - self.at)
        return self.grow()

    def line(self) -> str:
        """Read to the end of the line; the line end is not given."""
        while (end := self.text.find("\n", self.at)) < 0 and self._reads_more():
            pass
        end = len(self.text) if end < 0 else end
        found, self.at = self.text[self.at : end], end + 1
        self._chunk = _CHUNK
        return found

    def line_is_whole(self) -> bool:
        """Whether the line that begins here holds a value, and more follows it."""
        while (end := self.text.find("\n", self.at)) < 0 and self._reads_more():
            pass
        while not self.text[end:].strip(_BLANKS) and self._reads_more():
            pass
        if end < 0 or not self.text[end:].strip(_BLANKS):
            return False
        try:
            json.loads(self.text[self.at : end])
        except (ValueError, RecursionError):
            return False
        return True

    @property
    def has_more(self) -> bool:
        return self.at < len(self.text) or (self.grow() and self.has_more)

    @property
    def line_number(self) -> int:
        """Of the place that is read next."""
        return self._line + self.text.count("\n", 0, self.at)

    def check_decodable(self) -> None:
        """*Raises* ``ImportFileError``: a byte that is no UTF-8 ended the text."""
        if self._undecodable:
            raise self.mistake(len(self.text), self._undecodable)

    def mistake(self, at: int, what: str) -> ImportFileError:
        """What is wrong at *at*, an index of the text in memory."""
        what = self._undecodable or what
        at = len(self.text) if self._undecodable else at
        ends = (
            "" if self._undecodable or self.text[at:].strip(_BLANKS) else " (the file ends there)"
        )
        self._pass(at)
        return ImportFileError(
            f"{what}{ends}", file=self._file, line=self._line, column=self._column
        )


def _elements(text: _Text, *, wrapped: bool) -> Iterator[Value]:
    text.at += 1
    number = 0
    while (found := text.skip_blanks()) != "]":
        if number and found != ",":
            raise text.mistake(text.at, "not JSON: expected , or ]")
        if number:
            text.at += 1
            text.skip_blanks()
        number += 1
        yield Value(text.value(), number, in_list=True)
    text.at += 1
    if wrapped and text.skip_blanks() not in (",", "}"):
        raise text.mistake(text.at, "not JSON: expected , or }")
    if not wrapped and text.skip_blanks():
        raise text.mistake(text.at, "not JSON: more follows after the list")


def _lines(text: _Text) -> Iterator[Value | BadLine]:
    while text.has_more:
        number = text.line_number
        line = text.line()
        if not line.strip(_BLANKS):
            continue
        try:
            yield Value(json.loads(line), number)
        except json.JSONDecodeError as error:
            yield BadLine(number, f"column {error.colno}: not JSON: {wrong(error)}")
        except (ValueError, RecursionError) as error:
            yield BadLine(number, f"not usable JSON: {error}")
    text.check_decodable()


def _single(text: _Text) -> Iterator[Value]:
    found = text.value()
    if text.skip_blanks():
        raise text.mistake(text.at, "not JSON: more follows after the value")
    lists = [found[name] for name in _LISTS if isinstance(found, dict) and name in found]
    several = lists[0] if lists and isinstance(lists[0], list) else [found]
    for number, one in enumerate(several, 1):
        yield Value(one, number, in_list=bool(lists))


def wrong(error: json.JSONDecodeError) -> str:
    """What the JSON parser says, for the middle of a sentence."""
    if error.msg.startswith("Unterminated string"):
        return "the text ends inside the string that begins here"
    return f"{error.msg[:1].lower()}{error.msg[1:]}"
