"""
One repository as lines of text, out and in: ``StoredArchive`` over an engine.

In bounded memory, whatever its size. JSON Lines in ASCII: a head, then a record each, of the kinds
of ``archive_rows``. What comes in is staged, in tables of its own, checked, and moved over in one
transaction: writers wait for the last move only, and a broken archive leaves nothing in the store.
"""

from __future__ import annotations

import json
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, islice, repeat
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, ConfigDict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from mnemo.errors import InvalidArchive, UsageError
from mnemo.runtime.clock import Breather
from mnemo.runtime.tasks import Threads
from mnemo.store.archive_rows import Kind, head_of, line_of, opened
from mnemo.store.engine import OfRepository, Snapshot, repository_locks
from mnemo.store.rows import Passed, Rows, log_passed, repo_number, repo_row
from mnemo.store.tx import Result, Tx
from mnemo.values.archive import DEVELOPMENT_FORMAT, FORMAT, VERSION, ArchiveHead
from mnemo.values.chat import EmbeddingSpace
from mnemo.values.fields import Rule, count, exact_text, positive

_PAGE_ROWS, _PAGE_LINES = 500, 500
_PAGE_CHARACTERS = 4 * 2**20
"""From which on a page of lines is full (S)."""


# ── What fits ────────────────────────────────────────────────────────────────────────

StagedRule: TypeAlias = tuple[str, str]
"""What is wrong, and the query for the lines where it is."""


def twice(table: str, columns: Iterable[str], where: str = "TRUE") -> str:
    """The query for lines of a staged table that have the same values in *columns*."""
    return (
        f"SELECT max(line) FROM staging.{table} WHERE {where} GROUP BY {', '.join(columns)} "
        "HAVING count(*) > 1 ORDER BY 1"
    )


_NO_OWNER = "SELECT line FROM staging.{} WHERE {} NOT IN (SELECT {} FROM staging.{}) ORDER BY n"


@dataclass(frozen=True)
class Fit:
    """
    What the rooms say of the records of an archive.

    *kinds*: By their names, in the order of an archive. *rules*: How staged records fit; *indexes*,
    for these and the move, are made once everything is there, which is cheaper. *settle*:
    Statements that mend what would break the rules only because records were left out of the
    archive. *refuse*: Raises for what may not come into a repository again.
    *further*: Columns that no line says, by table, and their values.
    *moves*: Statements that make rows of what is staged, once its own are moved: ``:repo`` is the
    repository's number, ``:nodes`` what the numbers of staged nodes are added to. *put_texts*: Puts
    them into the full text, given the repository's number and such numbers.
    """

    kinds: Mapping[str, Kind]
    rules: tuple[StagedRule, ...]
    indexes: tuple[str, ...]
    settle: tuple[str, ...]
    refuse: Callable[[Tx, str], None]
    further: Mapping[str, Mapping[str, str]]
    moves: tuple[str, ...]
    put_texts: Callable[[Tx, int, Mapping[str, int]], None]

    @cached_property
    def columns(self) -> dict[str, dict[str, str]]:
        """The columns of the tables that lines are staged in, and their definitions."""
        # ``n`` counts up from 1 in each table: the places that numbers of the store follow.
        staged = {
            kind.table.name: {"n": "$place", "line": "INTEGER"}
            | {column: type.split()[0] for column, type in kind.types.items()}
            | kind.found_by
            for kind in self.kinds.values()
        }
        parts = (kind.parts for kind in self.kinds.values() if kind.parts)
        return staged | {table: {of: "INTEGER", one: "TEXT"} for table, of, one, _ in parts}

    @property
    def tables(self) -> dict[str, str]:
        """The definitions of the *columns* of each table."""
        return {
            table: ", ".join(f"{column} {type}" for column, type in columns.items())
            for table, columns in self.columns.items()
        }

    @cached_property
    def all_rules(self) -> tuple[StagedRule, ...]:
        """*rules*, behind those that follow from *kinds*."""
        kinds = self.kinds.values()
        keys = [(kind, (*kind.owners, *kind.table.key)) for kind in kinds if kind.is_unique]
        owners = [(kind, *owner) for kind in kinds for owner in kind.owners.items()]
        return (
            *(("it is there twice", twice(kind.table.name, key)) for kind, key in keys),
            *(
                (
                    f"its {column} is not in the archive",
                    _NO_OWNER.format(kind.table.name, column, owner.key[0], owner.name),
                )
                for kind, column, owner in owners
            ),
            *self.rules,
        )


def prune(tx: Tx, fit: Fit) -> None:
    """Drop what *fit* would refuse, which hangs on records that were left out of the archive."""
    for statement in fit.settle:
        tx.run(statement)
    dropped = True
    while dropped:
        dropped = False
        for _, query in fit.all_rules:
            for line in tx.run(query).fetchall():
                dropped = True
                for kind in fit.kinds.values():
                    tx.run(f"DELETE FROM staging.{kind.table.name} WHERE line = ?", line)


def check(tx: Tx, reason: str, query: str) -> None:
    """*Raises* ``InvalidArchive`` for the first line that *query* finds."""
    found = tx.run(f"{query} LIMIT 1").fetchone()
    if found is not None:
        raise InvalidArchive(found[0], reason)


# ── Out and in ───────────────────────────────────────────────────────────────────────


class StoredArchive(OfRepository):
    """One repository as lines, out and in; *fit* is what the rooms say of staged records."""

    def __init__(self, fit: Fit, *given: Any) -> None:
        super().__init__(*given)
        self._fit = fit

    @asynccontextmanager
    async def read(self) -> AsyncIterator[tuple[ArchiveHead, AsyncIterator[str]]]:
        """Everything as of one moment, of one read transaction, until the context ends."""
        async with self._engine.snapshot() as snapshot:
            repo, head = await snapshot.reading(self._head)
            async with aclosing(self._lines(snapshot, repo, head)) as lines:
                yield head, lines

    async def write(self, lines: AsyncIterable[str] | Iterable[str]) -> ArchiveHead:
        """
        Stage what *lines* say, check it, and move it over in one transaction; give their head.

        Sessions have no owner then. Other writers wait for the last move only.

        *Raises* ``UsageError``: the repository is not empty; ``Conflict``: a session, episode or
        step of it was forgotten in this repository; ``InvalidArchive``: a line is broken, or does
        not fit the others. *Cancellation*: safe.
        """
        reader = LinesReader(self._fit.kinds)
        async with aclosing(_batches(reader, lines)) as batches:
            batch = await anext(batches, None)
            refuse = partial(_refuse_filled, repo_id=self._repo_id, fit=self._fit)
            await self._engine.reading(refuse)
            async with self._engine.staging(self._fit.tables) as staging:
                while batch is not None:
                    await staging.staging(partial(_put, batch=batch, fit=self._fit))
                    batch = await anext(batches, None)
                for statement in self._fit.indexes:
                    await staging.staging(partial(_execute, statement))
                if reader.left_out:
                    await staging.staging(partial(prune, fit=self._fit))
                for reason, query in self._fit.all_rules:
                    await staging.staging(partial(check, reason=reason, query=query))
                moved = partial(move, repo_id=self._repo_id, head=reader.head, fit=self._fit)
                await staging.writing(moved, locks=repository_locks(self._repo_id))
        return reader.head

    async def matched(self, lines: AsyncIterable[str] | Iterable[str]) -> ArchiveHead | None:
        """
        The head, if *lines* are what ``read`` gives now; ``None``: nothing is there.

        *Raises* ``UsageError``: something else is there. *Cancellation*: safe.
        """
        async with self.read() as (head, own), aclosing(pages_of(lines)) as pages:
            if head.is_empty:
                return None
            async for page in pages:
                for line in page:
                    if await anext(own, "") != f"{line}".rstrip("\r\n") + "\n":
                        raise _filled(self._repo_id)
            if await anext(own, None) is not None:
                raise _filled(self._repo_id)
            return head

    def _head(self, tx: Tx) -> tuple[int, ArchiveHead]:
        return head_of(tx, self._repo_id, self._fit.kinds.values())

    async def _lines(
        self, snapshot: Snapshot, repo: int, head: ArchiveHead
    ) -> AsyncGenerator[str, None]:
        kinds = self._fit.kinds
        space = head.space and {"name": head.space.name, "dimensions": head.space.dimensions}
        said = {"format": FORMAT, "version": VERSION, "revision": head.revision, "space": space}
        yield line_of({**said, "counts": {kind: head.counts[kind] for kind in kinds}})
        for kind in kinds.values():
            rows, read = await snapshot.reading(partial(opened, kind, repo)), kind.rows(head)
            while page := await snapshot.reading(partial(_page, kind, rows, read)):
                for line in page:
                    yield line


def _execute(statement: str, tx: Tx) -> None:
    tx.run(statement)


def _page(kind: Kind, rows: Result, read: Rows[str], _: Tx) -> list[str]:
    passed: Passed = []
    found = read.all(rows.fetchmany(_PAGE_ROWS), passed)
    log_passed(passed)
    return [*found, *(kind.left_out(damage.key or "") for damage in passed)]


async def _batches(
    reader: LinesReader, lines: AsyncIterable[str] | Iterable[str]
) -> AsyncGenerator[Batch, None]:
    threads = Threads()
    async with aclosing(pages_of(lines)) as pages:
        async for page in pages:
            yield await threads.run(reader.batch, page)
    reader.finish()


async def pages_of(lines: AsyncIterable[str] | Iterable[str]) -> AsyncGenerator[list[str], None]:
    """*lines*, some at once, within bounds; a plain iterable, which may be a file, in a thread."""
    if isinstance(lines, str | bytes):
        raise ValueError("lines must give one line after the other, not be one text")
    if isinstance(lines, AsyncIterable):
        page, size = list[str](), 0
        async for line in lines:
            page.append(line)
            size += len(line) if isinstance(line, str) else 0
            if len(page) == _PAGE_LINES or size > _PAGE_CHARACTERS:
                yield page
                page, size = [], 0
        if page:
            yield page
        return
    threads, rest = Threads(), iter(lines)
    while page := await threads.run(_next_page, rest):
        yield page


def _next_page(lines: Iterator[str]) -> list[str]:
    page, size = list[str](), 0
    for line in islice(lines, _PAGE_LINES):
        page.append(line)
        size += len(line) if isinstance(line, str) else 0
        if size > _PAGE_CHARACTERS:
            break
    return page


# ── Staging ──────────────────────────────────────────────────────────────────────────

Batch = Mapping[str, list[tuple[Any, ...]]]
"""Rows by staged table."""


def _put(tx: Tx, batch: Batch, fit: Fit) -> None:
    for table, rows in batch.items():
        tx.insert(f"staging.{table}", tuple(fit.columns[table]), rows)


# ── Reading ──────────────────────────────────────────────────────────────────────────


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _that(rule: Rule) -> AfterValidator:
    def judged(value: Any) -> Any:
        rule(value)
        return value

    return AfterValidator(judged)


class _Space(TypedDict):
    name: Annotated[str, _that(exact_text)]
    dimensions: Annotated[int, _that(positive)]


@with_config(ConfigDict(extra="forbid", strict=True))
class _Head(TypedDict):
    format: str
    version: int
    revision: Annotated[int, _that(count)]
    space: _Space | None
    counts: dict[str, Annotated[int, _that(count)]]


class LinesReader:
    """Turns lines into rows to stage, page by page; *left_out* were damaged in their store."""

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self._kinds = kinds
        self.head: ArchiveHead = ArchiveHead(revision=0)
        self.left_out: int = 0
        self._line = 0
        self._due: Iterator[str] = iter(())
        self._last = dict.fromkeys(kinds, 0)

    def batch(self, lines: Iterable[str]) -> Batch:
        """The rows of the next lines, the head aside. *Raises* ``InvalidArchive``."""
        breather = Breather()
        batch: dict[str, list[tuple[Any, ...]]] = {}
        for line in lines:
            self._line += 1
            if self._line == 1:
                self._read_head(self._object(line))
            else:
                self._stage(self._object(line), batch)
            breather.breathe()
        return batch

    def finish(self) -> None:
        """*Raises* ``InvalidArchive`` if the head has promised more than there was."""
        self._line += 1
        if self._line == 1:
            raise self._wrong("there is nothing in it")
        if (missing := next(self._due, None)) is not None:
            left = 1 + sum(kind == missing for kind in self._due)
            raise self._wrong(
                f"the archive ends before it, but by its head {left} more "
                f"of kind {missing!r} are due"
            )

    def _read_head(self, raw: dict[str, Any]) -> None:
        if raw.get("format") == DEVELOPMENT_FORMAT:
            raise self._wrong(
                "a development version of mnemo wrote the archive: convert it by "
                "`scripts/convert_archive.py OLD.jsonl NEW.jsonl`"
            )
        if raw.get("format") != FORMAT:
            raise self._wrong(f'it is no head of a repository\'s archive ("format": "{FORMAT}")')
        if (version := raw.get("version")) != VERSION:
            raise self._wrong(
                f"the archive has format version {version}, this mnemo reads up to {VERSION}: "
                "import it with the mnemo that it was made for"
            )
        try:
            said = TypeAdapter(_Head).validate_python(raw)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise self._wrong(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        counts, space = said["counts"], said["space"]
        if counts.keys() != self._kinds.keys():
            raise self._wrong(f"counts must name {', '.join(self._kinds)}")
        self.head = ArchiveHead(
            revision=said["revision"], space=space and EmbeddingSpace(**space), counts=counts
        )
        self._due = chain.from_iterable(repeat(kind, counts[kind]) for kind in self._kinds)

    def _stage(self, said: dict[str, Any], batch: dict[str, list[tuple[Any, ...]]]) -> None:
        name = next(self._due, None)
        if name is None or said.get("kind") != name:
            due = f"a line of kind {name!r}" if name else "no further line"
            raise self._wrong(
                f"its kind is {said.get('kind')!r}, but {due} is due by the archive's head"
            )
        if "damaged" in said:
            self.left_out += 1
            return
        kind = self._kinds[name]
        try:
            row = kind.row(said)
            value = kind.value(row, self.head)
            found = kind.find(row, value)
        except ValueError as error:
            raise self._wrong(str(error)) from None
        self._last[name] = place = self._last[name] + 1
        batch.setdefault(kind.table.name, []).append((place, self._line, *row, *found))
        if kind.parts:
            table, _, _, parts = kind.parts
            batch.setdefault(table, []).extend((place, part) for part in parts(value))

    def _object(self, line: str) -> dict[str, Any]:
        if not isinstance(line, str):
            raise self._wrong(f"a line must be text, not {type(line).__name__}")
        try:
            raw = _DECODER.decode(line)
        except json.JSONDecodeError as error:
            raise self._wrong(f"not JSON: {error.msg} (column {error.colno})") from None
        except (ValueError, RecursionError) as error:
            raise self._wrong(f"not JSON that can be read: {error}") from None
        if not isinstance(raw, dict):
            raise self._wrong("it is no JSON object")
        return raw

    def _wrong(self, reason: str) -> InvalidArchive:
        return InvalidArchive(self._line, reason)


# ── Moving ───────────────────────────────────────────────────────────────────────────

_NUMBERED = {
    **{name: name for name in ("sessions", "episodes", "nodes", "notes", "items", "steps")},
    **{name: name for name in ("vectors", "threads", "messages", "snapshots")},
    "item_vectors": "fields",
}
"""Tables whose rows' numbers are given here, and the staged tables with as many rows."""
_STAMP = """
UPDATE repos SET revision = ?, space_name = ?, space_dimensions = ? WHERE no = ?
"""


def _move(kind: Kind, further: Mapping[str, str]) -> str:
    """The statement that moves a table, with the numbers of this store."""
    table, source = kind.table, f"staging.{kind.table.name} a"
    found = {column: f"a.{column}" for column in kind.stored}
    if table.name in _NUMBERED:
        found[table.number] = f":{table.name} + a.n"
    found["repo"] = ":repo"
    for column, owner in kind.owners.items():
        found[column] = f":{owner.name} + {column}.n"
        source += f" $join staging.{owner.name} {column} ON {column}.{owner.key[0]} = a.{column}"
    found |= further
    return (
        f"INSERT INTO {table.name} ({', '.join(found)}) "
        f"SELECT {', '.join(found.values())} FROM {source} ORDER BY a.n"
    )


def _refuse_filled(tx: Tx, repo_id: str, fit: Fit) -> None:
    """*Raises* ``UsageError`` if there is anything in the repository."""
    repo, revision, _, _ = repo_row(tx, repo_id)
    tables = [kind.table.name for kind in fit.kinds.values()]
    filled = " OR ".join(f"EXISTS (SELECT 1 FROM {name} WHERE repo = :repo)" for name in tables)
    if revision or tx.run(f"SELECT {filled}", {"repo": repo}).fetchone()[0]:
        raise _filled(repo_id)


def _filled(repo_id: str) -> UsageError:
    return UsageError(f"repository {repo_id!r} is not empty: import into another one")


def move(tx: Tx, repo_id: str, head: ArchiveHead, fit: Fit) -> None:
    """Put everything where it belongs. *Raises* as ``StoredArchive.write``."""
    _refuse_filled(tx, repo_id, fit)
    fit.refuse(tx, repo_id)
    repo = repo_number(tx, repo_id)
    space = (head.space.name, head.space.dimensions) if head.space else (None, None)
    tx.run(_STAMP, (head.revision, *space, repo))
    bases = {name: _base(tx, name, staged, repo) for name, staged in _NUMBERED.items()}
    moves = (_move(kind, fit.further.get(kind.table.name, {})) for kind in fit.kinds.values())
    for statement in (*moves, *fit.moves):
        tx.run(statement, bases | {"repo": repo})
    fit.put_texts(tx, repo, bases)


def _base(tx: Tx, table: str, staged: str, repo: int) -> int:
    (count,) = tx.run(f"SELECT count(*) FROM staging.{staged}").fetchone()
    return tx.dialect.reserve(tx, table, {repo: count})[repo]
