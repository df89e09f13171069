"""Steps as rows: the append lane, and reading them back."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mnemo.episode.step import Annotation, Step, StepDraft
from mnemo.errors import Conflict, NotFound, UsageError
from mnemo.store.sqlite.bites import insert_rows
from mnemo.store.sqlite.codec import (
    decode_object,
    decode_vector,
    encode_json,
    encode_time,
    encode_vector,
    stored_time,
)
from mnemo.store.sqlite.connection import refusing
from mnemo.store.sqlite.damage import Rows
from mnemo.store.sqlite.texts import put_texts, step_row
from mnemo.store.sqlite.tombs import was_erased

__all__ = ["COLUMNS", "STEPS", "UNANNOTATED", "Handed", "annotate", "append_steps"]

_COLUMNS = """
    s.id, e.id, t.idx, t.observation, t.action, t.at, t.actor, t.node_id, t.key, t.metadata,
    t.ordinal, {}, t.thread, t.message
"""
COLUMNS = _COLUMNS.format(
    "t.state, t.subgoal, t.reward, t.trajectory_id, t.boundary, t.embedded, t.subgoal_vector"
)
"""What ``STEPS`` expects, of ``steps t``, ``episodes e``, ``sessions s``."""
UNANNOTATED = _COLUMNS.format("NULL, NULL, NULL, NULL, NULL, NULL, NULL")
"""The same without annotations, half of what is stored of a step."""

_NO_METADATA = "{}"
_LANE = """
SELECT s.owner, s.no, s.repo, e.no, e.status,
       (SELECT max(idx) + 1 FROM steps WHERE episode = e.no)
FROM sessions s LEFT JOIN episodes e ON e.session = s.no AND e.id = ?
WHERE s.id = ?
"""
_LAST_ORDINAL = "SELECT seq FROM sqlite_sequence WHERE name = 'steps'"
_INSERT_STEP = """
INSERT INTO steps (ordinal, repo, session, episode, idx, node_id, observation, action, at,
                   actor, key, metadata, recorded_at, thread, message) VALUES
"""
_ANNOTATE = """
UPDATE steps SET state = ?, subgoal = ?, reward = ?, trajectory_id = ?, boundary = ?,
                 embedded = ?, subgoal_vector = ?
WHERE episode = ? AND idx = ?
"""
_INDEXES = "SELECT idx FROM steps WHERE episode = ?"


@dataclass(frozen=True, slots=True)
class Handed:
    """A step on its way to the writer; *recorded_at* is the store's own time, as UTC text."""

    session_id: str
    episode_id: str
    draft: StepDraft
    token: str
    recorded_at: str


@dataclass(slots=True)
class _Lane:
    """Where the next step of an open episode goes."""

    session: int
    repo: int
    episode: int
    next_index: int


def append_steps(
    connection: sqlite3.Connection, handed: Sequence[Handed]
) -> list[Step | UsageError]:
    """
    Write steps with their full text, in order; a refused one leaves no gap.

    Raises:
        Conflict: A key or node id is in use (only then nothing at all is written).
    """
    lanes: dict[tuple[str, str, str], _Lane | UsageError] = {}
    (ordinal,) = connection.execute(_LAST_ORDINAL).fetchone() or (0,)
    results: list[Step | UsageError] = []
    rows: list[tuple[Any, ...]] = []
    for one in handed:
        place = (one.session_id, one.episode_id, one.token)
        lane = lanes.get(place) or lanes.setdefault(place, _lane(connection, one))
        if isinstance(lane, UsageError):
            results.append(lane)
            continue
        ordinal += 1
        rows.append(_row(ordinal, lane, one))
        results.append(_step(ordinal, lane.next_index, one))
        lane.next_index += 1
    _insert(connection, rows)
    return results


def _lane(connection: sqlite3.Connection, one: Handed) -> _Lane | UsageError:
    row = connection.execute(_LANE, (one.episode_id, one.session_id)).fetchone()
    if row is None and was_erased(connection, one.session_id):
        return Conflict(f"session {one.session_id!r} was forgotten")
    if row is None:
        return NotFound("session", one.session_id)
    owner, session, repo, episode, status, next_index = row
    if owner != one.token:
        return Conflict(f"session {one.session_id!r} belongs to another process by now")
    if episode is None:
        return NotFound("episode", one.episode_id)
    if status != "open":
        return Conflict(f"episode {one.episode_id!r} takes no more steps")
    return _Lane(session, repo, episode, next_index or 0)


def _row(ordinal: int, lane: _Lane, one: Handed) -> tuple[Any, ...]:
    draft = one.draft
    return (
        ordinal,
        lane.repo,
        lane.session,
        lane.episode,
        lane.next_index,
        draft.node_id,
        draft.observation,
        draft.action,
        encode_time(draft.at),
        draft.actor,
        draft.key,
        encode_json(dict(draft.metadata)) if draft.metadata else _NO_METADATA,
        one.recorded_at,
        draft.thread_id,
        draft.message_id,
    )


def _step(ordinal: int, index: int, one: Handed) -> Step:
    draft = one.draft
    return Step(
        session_id=one.session_id,
        episode_id=one.episode_id,
        index=index,
        observation=draft.observation,
        action=draft.action,
        at=draft.at,
        actor=draft.actor,
        node_id=draft.node_id,
        key=draft.key,
        metadata=draft.metadata,
        thread_id=draft.thread_id,
        message_id=draft.message_id,
        ordinal=ordinal,
    )


def _insert(connection: sqlite3.Connection, rows: list[tuple[Any, ...]]) -> None:
    with refusing(Conflict("the step's key or node id is in use already")):
        insert_rows(connection, _INSERT_STEP, rows)
    texts: dict[int, list[tuple[int, str]]] = {}
    for row in rows:
        halves = ((step_row(row[0], 0), row[6]), (step_row(row[0], 1), row[7]))
        texts.setdefault(row[1], []).extend(halves)
    for repo, its_texts in texts.items():
        put_texts(connection, repo, its_texts)


def annotate(
    connection: sqlite3.Connection, episode: int, annotations: Iterable[Annotation]
) -> None:
    """
    Write what annotation found; an earlier annotation of a step is replaced whole.

    Raises:
        NotFound: A step of that index was never appended.
    """
    rows = [
        (
            found.state,
            found.subgoal,
            found.reward,
            found.trajectory_id,
            found.boundary,
            found.embedded,
            None if found.vector is None else encode_vector(found.vector),
            episode,
            found.index,
        )
        for found in annotations
    ]
    if connection.executemany(_ANNOTATE, rows).rowcount != len(rows):
        known = {index for (index,) in connection.execute(_INDEXES, (episode,))}
        raise NotFound("step", str(next(row[-1] for row in rows if row[-1] not in known)))


def _read(row: Sequence[Any]) -> Step:
    session_id, episode_id, index, observation, action, at, actor, node_id, key = row[:9]
    return Step(
        session_id=session_id,
        episode_id=episode_id,
        index=index,
        observation=observation,
        action=action,
        at=stored_time(at),
        actor=actor,
        node_id=node_id,
        key=key,
        metadata=decode_object(row[9]) if row[9] != _NO_METADATA else {},
        thread_id=row[18],
        message_id=row[19],
        ordinal=row[10],
        annotation=_annotation(index, row[11:18]),
    )


def _annotation(index: int, columns: Sequence[Any]) -> Annotation | None:
    state, subgoal, reward, trajectory_id, boundary, embedded, vector = columns
    if subgoal is None:
        return None
    return Annotation(
        index=index,
        state=state,
        subgoal=subgoal,
        reward=reward,
        trajectory_id=trajectory_id,
        boundary=bool(boundary),
        vector=None if vector is None else decode_vector(vector),
        embedded=bool(embedded),
    )


STEPS = Rows("steps", "s s i s s s s s s? s i s? s? f? s? i? i? b? s? s?", _read, key=(7,))
"""Steps of rows with ``COLUMNS``."""
