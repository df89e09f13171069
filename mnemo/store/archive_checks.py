"""Whether staged records of an archive fit each other; each finding is a line of the archive."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from mnemo.errors import InvalidArchive
from mnemo.store.archive_rows import KINDS
from mnemo.store.tx import Tx

StagedRule: TypeAlias = tuple[str, str]
"""What is wrong, and the query for the lines where it is."""


class Fit(NamedTuple):
    """
    What the rooms say of staged records.

    *rules*: How they fit; *indexes*, for these and the move, are made once everything is there,
    which is cheaper. *settle*: Statements that mend what would break the rules only because records
    were left out of the archive. *refuse*: Raises for what may not come into a repository again.
    *further*: Columns that no line says, by table, and their values.
    *moves*: Statements that make rows of what is staged, once its own are moved: ``:repo`` is the
    repository's number, ``:nodes`` what the numbers of staged nodes are added to. *put_texts*: Puts
    them into the full text, given the repository's number and such numbers.
    """

    rules: tuple[StagedRule, ...]
    indexes: tuple[str, ...]
    settle: tuple[str, ...]
    refuse: Callable[[Tx, str], None]
    further: Mapping[str, Mapping[str, str]]
    moves: tuple[str, ...]
    put_texts: Callable[[Tx, int, Mapping[str, int]], None]


def twice(table: str, columns: Iterable[str], where: str = "TRUE") -> str:
    """The query for lines of a staged table that have the same values in *columns*."""
    return (
        f"SELECT max(line) FROM staging.{table} WHERE {where} GROUP BY {', '.join(columns)} "
        "HAVING count(*) > 1 ORDER BY 1"
    )


_NO_OWNER = "SELECT line FROM staging.{} WHERE {} NOT IN (SELECT {} FROM staging.{}) ORDER BY n"
GENERAL: tuple[StagedRule, ...] = (
    *(
        ("it is there twice", twice(kind.table.name, (*kind.owners, *kind.table.key)))
        for kind in KINDS.values()
        if kind.name != "note_change"
    ),
    *(
        (
            f"its {column} is not in the archive",
            _NO_OWNER.format(kind.table.name, column, owner.key[0], owner.name),
        )
        for kind in KINDS.values()
        for column, owner in kind.owners.items()
    ),
)


def prune(tx: Tx, fit: Fit) -> None:
    """Drop what *fit* would refuse, which hangs on records that were left out of the archive."""
    for statement in fit.settle:
        tx.run(statement)
    dropped = True
    while dropped:
        dropped = False
        for _, query in (*GENERAL, *fit.rules):
            for line in tx.run(query).fetchall():
                dropped = True
                for kind in KINDS.values():
                    tx.run(f"DELETE FROM staging.{kind.table.name} WHERE line = ?", line)


def check(tx: Tx, reason: str, query: str) -> None:
    """*Raises* ``InvalidArchive`` for the first line that *query* finds."""
    found = tx.run(f"{query} LIMIT 1").fetchone()
    if found is not None:
        raise InvalidArchive(found[0], reason)
