"""Whether staged records of an archive fit each other; each finding is a line of the archive."""

from __future__ import annotations

from mnemo.errors import InvalidArchive
from mnemo.store import tables
from mnemo.store.archive_rows import KINDS
from mnemo.store.tx import Tx
from mnemo.values.graph import ENDS

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
_TWICE = "SELECT max(line) FROM staging.{} WHERE {} GROUP BY {} HAVING count(*) > 1 ORDER BY 1"

_ALLOWED = ", ".join(
    f"('{kind}', '{source}', '{target}')"
    for kind, pairs in ENDS.items()
    for source, target in sorted(pairs)
)
_THREAD_ENDS = {
    "messages": "a.seq >= t.next_seq",
    "compactions": "a.end_seq >= t.next_seq",
    "snapshots": "a.to_seq >= t.next_seq",
    "outcomes": "a.to_seq >= t.next_seq",
    "goals": "a.id >= t.next_goal",
    "pins": "a.seq >= t.next_seq",
}
_NO_OWNER = "SELECT line FROM staging.{} WHERE {} NOT IN (SELECT {} FROM staging.{}) ORDER BY n"
_PAST_END = """
SELECT a.line FROM staging.{} a JOIN staging.threads t ON t.id = a.thread
WHERE a.epoch > t.epoch OR {} ORDER BY a.n
"""

_NO_NOTE = """
SELECT a.line FROM staging.{} a WHERE NOT EXISTS
(SELECT 1 FROM staging.notes n WHERE n.topic = a.note AND n.version >= a.version) ORDER BY a.n
"""
_LAST = "SELECT max(n) FROM staging.episodes WHERE session = s.id"
_FITTING = """
CASE s.state WHEN 'idle' THEN e.status IN ('committed', 'discarded')
             WHEN 'collecting' THEN e.status = 'open' ELSE e.status = 'closed' END
"""

_PARTLY = " OR ".join(
    f"({column} IS NULL) <> (subgoal IS NULL)"
    if type.endswith("NOT NULL")
    else f"({column} IS NOT NULL AND subgoal IS NULL)"
    for column, type in zip(tables.ANNOTATIONS.columns, tables.ANNOTATIONS.types, strict=True)
)

CHECKS: tuple[tuple[str, str], ...] = (
    *(
        ("it is there twice", _TWICE.format(table, "TRUE", ", ".join(columns)))
        for table, columns in _UNIQUE
    ),
    (
        "its key is there twice in its session",
        _TWICE.format("steps", "key IS NOT NULL", "session, key"),
    ),
    *(
        (
            f"its {column} is not in the archive",
            _NO_OWNER.format(kind.table.name, column, owner.key[0], owner.name),
        )
        for kind in KINDS.values()
        for column, owner in kind.owners.items()
    ),
    (
        "its episode is of another session",
        """SELECT t.line FROM staging.steps t WHERE NOT EXISTS (SELECT 1 FROM staging.episodes e
           WHERE e.id = t.episode AND e.session = t.session) ORDER BY t.n""",
    ),
    ("its annotation is not whole", f"SELECT line FROM staging.steps WHERE {_PARTLY} ORDER BY n"),
    (
        "its episode is over",
        """SELECT g.line FROM staging.staged g WHERE NOT EXISTS
           (SELECT 1 FROM staging.episodes e WHERE e.id = g.episode
            AND e.status IN ('open', 'closed')) ORDER BY g.n""",
    ),
    (
        "the state of the session does not fit its last episode",
        f"""SELECT s.line FROM staging.sessions s WHERE NOT EXISTS
            (SELECT 1 FROM staging.episodes e WHERE e.n = ({_LAST}) AND {_FITTING}
             AND (s.state <> 'ready' OR e.changeset IS NOT NULL)) ORDER BY s.n""",
    ),
    (
        "an episode that is not over must be the last of its session",
        f"""SELECT e.line FROM staging.episodes e JOIN staging.sessions s ON s.id = e.session
            WHERE e.status IN ('open', 'closed') AND e.n <> ({_LAST}) ORDER BY e.n""",
    ),
    (
        "its index does not follow that of the step before it",
        """SELECT line FROM
           (SELECT t.n, t.line, t.idx, e.status IN ('open', 'closed') AS unfinished,
                   coalesce(lag(t.idx) OVER (PARTITION BY t.episode ORDER BY t.n), -1) AS before
            FROM staging.steps t JOIN staging.episodes e ON e.id = t.episode) x
           WHERE idx <= before OR (unfinished AND idx <> before + 1) ORDER BY n""",
    ),
    (
        "it is committed, but its node is not in the archive",
        """SELECT t.line FROM staging.steps t WHERE t.committed = 1 AND t.gone = 0 AND NOT EXISTS
           (SELECT 1 FROM staging.nodes n WHERE n.id = t.node_id) ORDER BY t.n""",
    ),
    (
        "an end of the edge is of a type that it cannot join",
        f"""SELECT e.line FROM staging.edges e
            $join staging.nodes a ON a.id = e.source $join staging.nodes b ON b.id = e.target
            WHERE e.source = e.target OR (e.kind, a.type, b.type) NOT IN (VALUES {_ALLOWED})
            ORDER BY e.n""",
    ),
    (
        "what the vector is of is not in the archive, or gone",
        """SELECT v.line FROM staging.vectors v
           WHERE NOT EXISTS (SELECT 1 FROM staging.nodes n WHERE n.id IN (v.key, v.owner))
           AND NOT EXISTS (SELECT 1 FROM staging.steps t WHERE t.node_id = v.owner
                           AND v.is_side = 1 AND t.gone = 0) ORDER BY v.n""",
    ),
    *(
        ("it is past the end of its thread", _PAST_END.format(table, end))
        for table, end in _THREAD_ENDS.items()
    ),
    (
        "the message that it pins is not in the archive",
        """SELECT p.line FROM staging.pins p WHERE NOT EXISTS
           (SELECT 1 FROM staging.messages m WHERE m.thread = p.thread AND m.seq = p.seq
            AND m.id = p.message_id) ORDER BY p.n""",
    ),
    *(
        (
            "the summary that it names is not in the archive",
            f"""SELECT a.line FROM staging.{table} a WHERE a.{column} IS NOT NULL AND NOT EXISTS
                (SELECT 1 FROM staging.{named} b WHERE b.thread = a.thread AND b.id = a.{column})
                ORDER BY a.n""",
        )
        for table, column, named in (
            ("compactions", "superseded_by", "compactions"),
            ("snapshots", "covered_by", "snapshots"),
            ("outcomes", "snapshot_id", "snapshots"),
        )
    ),
    *(
        ("its note has not come to that version", _NO_NOTE.format(table))
        for table in ("note_versions", "note_journal")
    ),
    (
        "the note is not as its latest version says",
        """SELECT n.line FROM staging.notes n WHERE NOT EXISTS
           (SELECT 1 FROM staging.note_versions v WHERE v.note = n.topic
            AND v.version = n.version AND v.body = n.body AND v.description = n.description
            AND (v.action = 'deleted') = (n.deleted_by IS NOT NULL)) ORDER BY n.n""",
    ),
    (
        "the note that it names is not in the archive",
        """SELECT line FROM staging.note_requests WHERE topic IS NOT NULL
           AND topic NOT IN (SELECT topic FROM staging.notes) ORDER BY n""",
    ),
    (
        "the value of one of its channels is not in the archive",
        """SELECT c.line FROM staging.checkpoints c WHERE EXISTS
           (SELECT 1 FROM $entries(c.versions) j WHERE NOT EXISTS
            (SELECT 1 FROM staging.checkpoint_values v WHERE v.thread_id = c.thread_id
             AND v.namespace = c.namespace AND v.channel = j.key AND v.version = j.value))
           ORDER BY c.n""",
    ),
)
"""What is wrong, and the query for the lines where it is."""


_UNFINISHED_WITH_GAP = """
SELECT e.id FROM staging.episodes e WHERE e.status IN ('open', 'closed') AND
(SELECT max(t.idx) + 1 - count(*) FROM staging.steps t WHERE t.episode = e.id) > 0
"""
_SETTLE = (
    # A raw step whose node was left out stays as one that was not committed.
    """UPDATE staging.steps SET committed = 0 WHERE committed = 1 AND gone = 0
       AND NOT EXISTS (SELECT 1 FROM staging.nodes n WHERE n.id = steps.node_id)""",
    # An episode that lacks a step cannot go on: it ends, and its session rests.
    f"""UPDATE staging.steps SET gone = 1
        WHERE committed = 0 AND episode IN ({_UNFINISHED_WITH_GAP})""",
    f"DELETE FROM staging.staged WHERE episode IN ({_UNFINISHED_WITH_GAP})",
    f"""UPDATE staging.sessions SET state = 'idle', error = NULL, error_trajectory = NULL
        WHERE id IN (SELECT session FROM staging.episodes WHERE id IN ({_UNFINISHED_WITH_GAP}))""",
    f"""UPDATE staging.episodes SET status = 'discarded', changeset = NULL, changeset_steps = NULL
        WHERE id IN ({_UNFINISHED_WITH_GAP})""",
)


def prune(tx: Tx) -> None:
    """Drop what *CHECKS* would refuse, which hangs on records that were left out of the archive."""
    for statement in _SETTLE:
        tx.run(statement)
    dropped = True
    while dropped:
        dropped = False
        for _, query in CHECKS:
            for line in tx.run(query).fetchall():
                dropped = True
                for kind in KINDS.values():
                    tx.run(f"DELETE FROM staging.{kind.table.name} WHERE line = ?", line)


def check(tx: Tx, reason: str, query: str) -> None:
    """*Raises* ``InvalidArchive`` for the first line that *query* finds."""
    found = tx.run(f"{query} LIMIT 1").fetchone()
    if found is not None:
        raise InvalidArchive(found[0], reason)
