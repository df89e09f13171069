"""
Read the JSON values of a file one after the other, in memory bounded by the largest one.

Why not ijson (3.6.0, its C backend): a number of 5,000 digits ends the process, 100,000
brackets take 18 GB, NaN and half a surrogate pair end the file, a mistake has no line; and it
is as fast as this.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, TypeVar

from mnemo.errors import UsageError

T = TypeVar("T")
OnRead: TypeAlias = Callable[[int], None]

_CHUNK = 1 << 20
"""Bytes that are read at once; doubled while one value is longer."""
_BLANKS = " \t\r\n"
_LISTS = ("results", "memories", "conversations", "items", "data", "edges")
"""Keys under which exports wrap their list."""
_MARGIN = 64
"""Characters before the end of what is in memory: a mistake there may be a cut."""
_EXPONENT = len("e+1")
"""Characters that a number's next part has at least."""
_WRAPPED = re.compile(rf'\{{\s*"(?:{"|".join(_LISTS)})"\s*:\s*\[')
_DECODER = json.JSONDecoder()
_UNREADABLE: dict[type, str] = {
    FileNotFoundError: "there is no such file",
    IsADirectoryError: "is a directory, not a file",
}


class ImportFileError(UsageError):
    """
    The file cannot be imported, or only up to a mistake in it.

    *line* and *column*, in characters (bytes where it is not UTF-8), count from 1.
    """

    def __init__(
        self, what: str, *, file: Path, line: int | None = None, column: int | None = None
    ) -> None:
        self.what: str = what
        self.file: Path = file
        self.line: int | None = line
        self.column: int | None = column
        place = f"line {line}: " if column is None else f"line {line}, column {column}: "
        super().__init__(f"{file}: {place if line else ''}{what}")

    def having_kept(self, steps: int, what: str = "steps") -> ImportFileError:
        """The same, telling how many *steps* before the mistake were kept."""
        kept = f"the {steps} {what} before it were kept" if steps else "nothing was kept"
        what = f"{self.what}; {kept}"
        return ImportFileError(what, file=self.file, line=self.line, column=self.column)


@dataclass(frozen=True, slots=True)
class Value:
    """A JSON value, and its line; or its number in a list or among values, from 1."""

    raw: Any
    number: int
    in_list: bool = False

    def mistake(self, what: str, file: Path) -> ImportFileError:
        """*what* is wrong with this value of *file*."""
        if self.in_list:
            return ImportFileError(f"value {self.number}: {what}", file=file)
        return ImportFileError(what, file=file, line=self.number)


def begun(items: Iterator[T]) -> Iterator[T]:
    """Read the first of *items*. *Raises* ``ImportFileError``: nothing stands before a mistake."""
    try:
        first = list(islice(items, 1))
    except ImportFileError as error:
        raise error.having_kept(0) from error
    return chain(first, items)


def stream_values(
    file: Path, *, unwraps: bool = True, on_read: OnRead = lambda count: None
) -> Generator[Value | ImportFileError]:
    """
    Read *file*: a list, one value per line, or values one after the other.

    Of one value per line, a line that is no JSON is given as its error.

    Args:
        unwraps: Read the list under a usual name of an object, such as ``results``.
        on_read: Called before each value with about how many bytes of the file it ends behind,
            and with all of them at the end.

    Raises:
        ImportFileError: There is no such file, or a mistake behind which nothing can be read.
    """
    try:
        opened = file.open("rb")
    except OSError as error:
        what = _UNREADABLE.get(type(error)) or f"cannot be read: {error.strerror or error}"
        raise ImportFileError(what, file=file) from error
    with opened as source:
        text = _Text(source, file)
        first = text.skip_blanks()
        if not first:
            raise ImportFileError("the file is empty", file=file)
        wrapped = text.begins(_WRAPPED) if unwraps else None
        if wrapped:
            text.at = wrapped.end() - 1
        values: Iterator[Value | ImportFileError]
        if first == "[" or wrapped:
            values = _elements(text, wrapped=bool(wrapped))
        elif text.holds_lines():
            source.seek(0)
            text.text = ""
            values = _lines(source, file)
        else:
            values = _values(text, unwraps=unwraps)
        for value in values:
            on_read(source.tell() - text.waiting)
            yield value
        on_read(source.tell())


def sound_values(file: Path, on_read: OnRead = lambda count: None) -> Generator[Value]:
    """Read *file* as ``stream_values`` does, and end at a line that is no JSON."""
    for value in stream_values(file, unwraps=False, on_read=on_read):
        if isinstance(value, ImportFileError):
            raise value
        yield value


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

    @property
    def waiting(self) -> int:
        """Characters in memory that are not read yet: about as many bytes of the file."""
        return len(self.text) - self.at

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
                raise self.mistake(error.pos, f"not JSON: {_wrong(error)}") from error
            except (ValueError, RecursionError) as error:
                raise self.mistake(self.at, f"not usable JSON: {error}") from error
            # A number that ends with what is in memory may go on behind it, as 1 and 1e+ do.
            if len(self.text) - end < _EXPONENT and self._reads_more():
                continue
            self.at, self._chunk = end, _CHUNK
            return found

    def _may_be_cut(self, error: json.JSONDecodeError) -> bool:
        return error.msg.startswith("Unterminated") or error.pos >= len(self.text) - _MARGIN

    def _reads_more(self) -> bool:
        self._chunk = max(_CHUNK, len(self.text) - self.at)
        return self.grow()

    def holds_lines(self) -> bool:
        """Whether the line that begins here is whole, and so is a value of its own."""
        self._pass(self.at)
        while (end := self.text.find("\n")) < 0 and self._reads_more():
            pass
        first = self.text[: end if end >= 0 else len(self.text)].rstrip(_BLANKS)
        if self._file.suffix == ".jsonl":
            return first != "{"
        while not self.text[end:].strip(_BLANKS) and self._reads_more():
            pass
        if end < 0 or not self.text[end:].strip(_BLANKS):
            return False
        try:
            json.loads(first)
        except (ValueError, RecursionError):
            return False
        return True

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


def _lines(source: BinaryIO, file: Path) -> Iterator[Value | ImportFileError]:
    for number, line in enumerate(source, 1):
        if not line.strip():
            continue
        encoding = "utf-8-sig" if number == 1 else "utf-8"
        try:
            yield Value(json.loads(line.rstrip(b"\r\n").decode(encoding)), number)
        except UnicodeDecodeError as error:
            what = f"not UTF-8 (byte 0x{error.object[error.start]:02x})"
            yield ImportFileError(what, file=file, line=number, column=error.start + 1)
        except json.JSONDecodeError as error:
            what = f"not JSON: {_wrong(error)}"
            yield ImportFileError(what, file=file, line=number, column=error.colno)
        except (ValueError, RecursionError) as error:
            yield ImportFileError(f"not usable JSON: {error}", file=file, line=number, column=1)


def _values(text: _Text, *, unwraps: bool) -> Iterator[Value]:
    found = text.value()
    several = _wrapped_list(found) if unwraps else None
    if several is None:
        yield Value(found, 1)
    for number, one in enumerate(several or (), 1):
        yield Value(one, number, in_list=True)
    number = 1
    while text.skip_blanks():
        number += 1
        yield Value(text.value(), number, in_list=True)


def _wrapped_list(found: Any) -> list[Any] | None:
    lists = (found[name] for name in _LISTS if isinstance(found, dict) and name in found)
    first = next(lists, None)
    return first if isinstance(first, list) else None


def _wrong(error: json.JSONDecodeError) -> str:
    """What the JSON parser says, for the middle of a sentence."""
    if error.msg.startswith("Unterminated string"):
        return "the text ends inside the string that begins here"
    return f"{error.msg[:1].lower()}{error.msg[1:]}"
