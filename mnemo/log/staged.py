"""Records of an archive, of the log: their kinds, how they fit, and what they become."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from mnemo.log.record_rows import message_row, snapshot_row, step_row
from mnemo.log.tombstones import refuse_erased
from mnemo.store.archive import StagedRule, twice
from mnemo.store.archive_rows import Kind
from mnemo.store.table import ARRIVAL
from mnemo.store.tables import (
    ANNOTATIONS,
    COMPACTIONS,
    EPISODES,
    GOALS,
    MESSAGES,
    OUTCOMES,
    PINS,
    SESSIONS,
    SNAPSHOTS,
    STAGED,
    STEPS,
    THREADS,
)
from mnemo.store.texts import put_texts
from mnemo.store.tx import Tx
from mnemo.values.codec import decode_time, utc_text
from mnemo.values.fields import share
from mnemo.values.messages import StoredMessage, searchable_text

_FLAG = ("INTEGER NOT NULL", share)
_ANNOTATION = {
    column: (type.split()[0], ANNOTATIONS.judges.get(column))
    for column, type in ANNOTATIONS.types.items()
}
JOURNAL = (
    Kind(
        "session",
        SESSIONS,
        by="d.no",
        # It was last active when its last step was recorded, if that is later.
        said={
            "updated_at": "$greatest(d.updated_at, coalesce((SELECT recorded_at FROM steps "
            "WHERE repo = d.repo AND episode = d.episode ORDER BY idx DESC LIMIT 1), d.updated_at))"
        },
    ),
    Kind("episode", EPISODES, by="session.no", order="session.no, d.no"),
    Kind(
        "trajectory",
        STAGED,
        source="sessions session "
        "$join episodes episode ON episode.repo = session.repo AND episode.session = session.no "
        "$join staged d ON d.repo = episode.repo AND d.episode = episode.no",
        by="session.no",
        order=f"session.no, episode.no, d.{ARRIVAL}",
    ),
    Kind(
        "step",
        STEPS,
        owners=("session", "episode"),
        first=True,
        order="d.ordinal",
        more={"committed": _FLAG, "gone": _FLAG, **_ANNOTATION},
    ),
)


def _searched(row: Sequence[Any], message: StoredMessage) -> tuple[str]:
    text = searchable_text(message, tools=True) if row[-1] else ""
    if row[-1] and not text:
        raise ValueError("it has nothing that could be searched for, but is said to be")
    return (text,)


TALK = (
    Kind("thread", THREADS),
    Kind(
        "message",
        MESSAGES,
        first=True,
        order="d.no",
        said={
            "searched": "CASE WHEN EXISTS (SELECT 1 FROM texts x "
            "WHERE x.no = 4 * d.no + 2 AND $also x.repo = d.repo) THEN 1 ELSE 0 END"
        },
        more={"searched": _FLAG},
        found_by={"text": "TEXT"},
        find=_searched,
        parts=("calls", "message", "call_id", lambda message: [c.id for c in message.tool_calls]),
    ),
    Kind("compaction", COMPACTIONS),
    Kind("snapshot", SNAPSHOTS),
    Kind("outcome", OUTCOMES),
    Kind("goal", GOALS),
    Kind("pin", PINS),
)

INDEXES = (
    "CREATE INDEX staging.sessions_id ON sessions (id)",
    "CREATE INDEX staging.episodes_id ON episodes (id)",
    "CREATE INDEX staging.episodes_session ON episodes (session)",
    "CREATE INDEX staging.steps_node ON steps (node_id)",
    "CREATE INDEX staging.steps_episode ON steps (episode, n)",
    "CREATE INDEX staging.threads_id ON threads (id)",
    "CREATE INDEX staging.messages_place ON messages (thread, seq)",
    "CREATE INDEX staging.compactions_id ON compactions (thread, id)",
    "CREATE INDEX staging.snapshots_id ON snapshots (thread, id)",
)
_THREAD_ENDS = {
    "messages": "a.seq >= t.next_seq",
    "compactions": "a.end_seq >= t.next_seq",
    "snapshots": "a.to_seq >= t.next_seq",
    "outcomes": "a.to_seq >= t.next_seq",
    "goals": "a.id >= t.next_goal",
    "pins": "a.seq >= t.next_seq",
}
_PAST_END = """
SELECT a.line FROM staging.{} a JOIN staging.threads t ON t.id = a.thread
WHERE a.epoch > t.epoch OR {} ORDER BY a.n
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
    for column, type in ANNOTATIONS.types.items()
)

RULES: tuple[StagedRule, ...] = (
    ("it is there twice", twice("episodes", ("id",))),
    ("it is there twice", twice("steps", ("node_id",))),
    ("it is there twice", twice("messages", ("thread", "seq"))),
    (
        "its key is there twice in its session",
        twice("steps", ("session", "key"), "key IS NOT NULL"),
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
)
_UNFINISHED_WITH_GAP = """
SELECT e.id FROM staging.episodes e WHERE e.status IN ('open', 'closed') AND
(SELECT max(t.idx) + 1 - count(*) FROM staging.steps t WHERE t.episode = e.id) > 0
"""
SETTLE = (
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
"""How what lacks records that were left out becomes whole, before *RULES* are looked for."""
FURTHER = {
    "sessions": {
        "episode": ":episodes + (SELECT max(e.n) FROM staging.episodes e WHERE e.session = a.id)"
    },
    # Gaps are where steps were forgotten; their number is all that is kept of that.
    "episodes": {
        "erased": "coalesce((SELECT max(t.idx) + 1 - count(*) "
        "FROM staging.steps t WHERE t.episode = a.id), 0)"
    },
    "steps": {"recorded_at": "session.updated_at"},
}
"""Columns that no line says, and their values."""
MOVES = (
    """
    INSERT INTO message_calls (repo, thread, call_id, seq)
    SELECT :repo, :threads + t.n, c.call_id, a.seq FROM staging.calls c
    $join staging.messages a ON a.n = c.message $join staging.threads t ON t.id = a.thread
    """,
    """
    UPDATE threads SET erased = next_seq -
        (SELECT count(*) FROM messages m WHERE m.repo = threads.repo AND m.thread = threads.no)
    WHERE repo = :repo
    """,
    # An archive has no jobs: what is left to extract is due at once.
    f"""
    INSERT INTO jobs (repo, kind, subject, due_at, state, tries, token)
    SELECT :repo, 'extract', id, '{utc_text(datetime(1970, 1, 1, tzinfo=UTC))}', 'waiting', 0, 0
    FROM threads WHERE repo = :repo AND extracted_seq < next_seq
    """,
)
_IDS = """
SELECT id FROM staging.sessions UNION ALL SELECT id FROM staging.episodes
UNION ALL SELECT node_id FROM staging.steps
"""
# Each is read in the order of its table: SQLite ends a read that is not when a table is made.
_TEXTS = "SELECT n, {1}, at FROM staging.{0} WHERE {1} <> '' ORDER BY n"
_SEARCHED: tuple[tuple[str, str, Callable[[int], int]], ...] = (
    ("steps", "observation", partial(step_row, side=0)),
    ("steps", "action", partial(step_row, side=1)),
    ("messages", "text", message_row),
    ("snapshots", "text", snapshot_row),
)
"""Staged tables, what is searched of them, and what gives its row in the full text."""
# Records whose texts are written at once.
_BATCH = 1_000


def refuse_staged(tx: Tx, repo_id: str) -> None:
    """*Raises* ``Conflict`` if something staged was erased from the repository."""
    refuse_erased(tx, repo_id, (id for (id,) in tx.run(_IDS)))


def index_staged(tx: Tx, repo: int, bases: Mapping[str, int]) -> None:
    """Put the staged texts into the full text, by numbers that are added to *bases*."""
    for table, column, row_of in _SEARCHED:
        rows = tx.run(_TEXTS.format(table, column))
        while batch := rows.fetchmany(_BATCH):
            texts = [(row_of(bases[table] + n), text, decode_time(at)) for n, text, at in batch]
            put_texts(tx, repo, texts)
