"""Whether staged records of an archive fit each other; each finding is a line of the archive."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

from mnemo.errors import InvalidArchive
from mnemo.store.archive_rows import KINDS
from mnemo.store.tx import Tx

INDEXES = (
    "CREATE INDEX staging.sessions_id ON sessions (id)",
    "CREATE INDEX staging.episodes_id ON episodes (id)",
    "CREATE INDEX staging.episodes_session ON episodes (session)",
    "CREATE INDEX staging.steps_node ON steps (node_id)",
    "CREATE INDEX staging.steps_episode ON steps (episode, n)",
    "CREATE INDEX staging.nodes_id ON nodes (id)",
    "CREATE INDEX staging.threads_id ON threads (id)",
    "CREATE INDEX staging.messages_place ON messages (thread, seq)",
    "CREATE INDEX staging.compactions_id ON compactions (thread, id)",
    "CREATE INDEX staging.snapshots_id ON snapshots (thread, id)",
    "CREATE INDEX staging.notes_topic ON notes (topic)",
    "CREATE INDEX staging.note_versions_number ON note_versions (note, version)",
    """CREATE INDEX staging.checkpoint_values_version
       ON checkpoint_values (thread_id, namespace, channel, version)""",
)
"""What checks and the move need; made once everything is there, which is cheaper."""

StagedRule: TypeAlias = tuple[str, str]
"""What is wrong, and the query for the lines where it is."""


class Fit(NamedTuple):
    """
    What the rooms say of staged records: *rules* for how they fit, and statements that *settle*
    what would break them only because records were left out of the archive. *moves* make rows of
    what is staged, once its own are moved: ``:repo`` is the repository's number, ``:nodes`` what
    the numbers of staged nodes are added to. *refuse* raises for ids that may not come into a
    repository again.
    """

    rules: tuple[StagedRule, ...]
    settle: tuple[str, ...]
    moves: tuple[str, ...]
    refuse: Callable[[Tx, str, Iterable[str]], None]


def twice(table: str, columns: Iterable[str], where: str = "TRUE") -> str:
    """The query for lines of a staged table that have the same values in *columns*."""
    return (
        f"SELECT max(line) FROM staging.{table} WHERE {where} GROUP BY {', '.join(columns)} "
        "HAVING count(*) > 1 ORDER BY 1"
    )


_UNIQUE = (
    ("episodes", ("id",)),
    ("steps", ("node_id",)),
    ("messages", ("thread", "seq")),
    *(
        (kind.table.name, (*kind.owners, *kind.table.key))
        for kind in KINDS.values()
        if kind.name != "note_change"
    ),
)
_NO_OWNER = "SELECT line FROM staging.{} WHERE {} NOT IN (SELECT {} FROM staging.{}) ORDER BY n"
GENERAL: tuple[StagedRule, ...] = (
    *(("it is there twice", twice(table, columns)) for table, columns in _UNIQUE),
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
