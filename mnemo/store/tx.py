"""
Transactions: what the rules of the store are written over.

A rule is a function over one ``Tx``. It sees rows and statements in common SQL, never a
driver; what differs by engine is in the engine and its dialect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

from mnemo.errors import MnemoError

__all__ = ["Result", "Tx", "Values"]

Values: TypeAlias = Sequence[Any] | Mapping[str, Any]
"""What a statement is given: by place (``?``) or by name (``:name``)."""


class Result(Protocol):
    """The rows of a statement, read as they are asked for."""

    @property
    def rowcount(self) -> int:
        """How many rows it changed."""

    def fetchone(self) -> Any:
        """The next row; ``None`` after the last one."""

    def fetchall(self) -> list[Any]:
        """All further rows."""

    def fetchmany(self, size: int, /) -> list[Any]:
        """At most *size* further rows."""

    def __iter__(self) -> Iterator[Any]: ...

    def close(self) -> None:
        """Read no further."""


class Tx(Protocol):
    """One transaction of an engine; used by one thread at a time, and not kept beyond its unit."""

    def run(self, statement: str, values: Values = ..., /) -> Result:
        """Run one statement."""

    def refusing(self, refusal: MnemoError) -> AbstractContextManager[None]:
        """Raise *refusal* where the block meets a unique value that is in use already."""

    def run_many(self, statement: str, rows: Iterable[Values], /) -> int:
        """Run *statement* once for each of *rows*; give how many rows were changed."""
