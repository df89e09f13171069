"""Steps as rows: the append lane, and reading them back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from mnemo.errors import Conflict, NotFound, NotToFeed, UsageError
from mnemo.protocols import Clock
from mnemo.store import tables
from mnemo.store.codec import utc_text
from mnemo.store.rows import listed, step_row
from mnemo.store.tombstones import was_erased
from mnemo.store.tx import Text, Tx
from mnemo.values.steps import Annotation, Step, StepDraft

_LANES = """
SELECT r.id, s.id, s.owner, s.no, s.repo, s.thread_id, e.id, e.no, e.status,
       (SELECT max(idx) + 1 FROM steps WHERE episode = e.no)
FROM repos r $join sessions s ON s.repo = r.no AND s.id IN $texts
LEFT JOIN episodes e ON e.repo = r.no AND e.session = s.no AND e.id IN $texts
WHERE r.id IN $texts
"""
# Nothing of it has to be decoded or compared; where it finds no row, ``_LANES`` tells why.
_OPEN_LANE = """
SELECT s.no, s.repo, e.no, (SELECT max(idx) + 1 FROM steps WHERE episode = e.no)
FROM sessions s JOIN episodes e ON e.repo = s.repo AND e.session = s.no
WHERE s.repo = (SELECT no FROM repos WHERE id = ?) AND s.id = ? AND s.owner = ?
AND e.id = ? AND e.status = 'open'
"""
_INSERTED = ("ordinal", "repo", "session", "episode", "recorded_at", *tables.STEPS.columns)
_ANNOTATE = f"""
UPDATE steps SET {", ".join(f"{column} = ?" for column in tables.ANNOTATIONS.columns)}
WHERE episode = ? AND idx = ?
"""
# What messages are: still held by their thread, and steps by hand or of a job.
_KNOWN = """
SELECT t.thread, t.message, CASE WHEN s.thread_id IS NULL THEN 'by hand' ELSE 'by job' END
FROM steps t JOIN sessions s ON s.no = t.session
WHERE t.repo = ? AND t.thread IN $texts AND t.message IN $texts
UNION SELECT t.id, m.id, 'held' FROM threads t $join messages m $by(messages_id) ON m.thread = t.no
WHERE t.repo = ? AND t.id IN $texts AND m.id IN $texts
"""
_INDEXES = "SELECT idx FROM steps WHERE episode = ?"


class Handed(NamedTuple):
    """A step on its way to the writer."""

    repo_id: str
    session_id: str
    episode_id: str
    draft: StepDraft
    token: str


_Found: TypeAlias = dict[tuple[str, str, str | None], tuple[Any, ...]]
"""
Owner, numbers of session and repository, the thread whose job the session does, and number,
status and next index of an episode.
"""


@dataclass(slots=True)
class _Lane:
    """Where the next step of an open episode goes."""

    session: int
    repo: int
    episode: int
    next_index: int


def append_steps(tx: Tx, handed: Sequence[Handed], *, clock: Clock) -> list[Step | UsageError]:
    """
    Write steps with their full text, in order; a refused one leaves no gap.

    A message that a job has made a step is refused of sessions by hand, and the other way
    round: whichever writes first keeps the message. Of a feed and of a job one is refused that
    was erased since.

    Args:
        clock: The service's; gives the time at which they were recorded.

    Raises:
        Conflict: A key or node id is in use (only then nothing at all is written).
    """
    recorded_at = utc_text(clock.now())
    lanes, unfit = _found(tx, handed)
    taken = [lane.repo for lane in lanes if isinstance(lane, _Lane)]
    ordinal = tx.dialect.reserve(tx, "steps", len(taken), taken)
    results: list[Step | UsageError] = []
    rows: list[tuple[Any, ...]] = []
    texts: dict[int, list[Text]] = {}
    for one, lane in zip(handed, lanes, strict=True):
        if isinstance(lane, UsageError):
            results.append(lane)
            continue
        if one.draft.node_id in unfit:
            what = f"message {one.draft.message_id!r} was erased, or is a step already"
            results.append(NotToFeed(what))
            continue
        ordinal += 1
        step = one.draft.step(
            session_id=one.session_id,
            episode_id=one.episode_id,
            index=lane.next_index,
            ordinal=ordinal,
        )
        place = (ordinal, lane.repo, lane.session, lane.episode, recorded_at)
        rows.append((*place, *tables.STEPS.values(step)))
        texts.setdefault(lane.repo, []).extend(_texts(step))
        results.append(step)
        lane.next_index += 1
    with tx.refusing(Conflict("the step's key or node id is in use already")):
        tx.insert("steps", _INSERTED, rows)
    for repo, its_texts in texts.items():
        tx.dialect.put_texts(tx, repo, its_texts)
    return results


def _found(
    tx: Tx, handed: Sequence[Handed]
) -> tuple[Sequence[_Lane | UsageError], Collection[str]]:
    """The lane of each, and the node ids to refuse; steps of one episode take one look."""
    one = handed[0]
    place = (one.repo_id, one.session_id, one.token, one.episode_id)
    if all((h.repo_id, h.session_id, h.token, h.episode_id) == place for h in handed) and not any(
        h.draft.message_id for h in handed
    ):
        row = tx.run(_OPEN_LANE, place).fetchone()
        if row is not None:
            session, repo, episode, next_index = row
            return [_Lane(session, repo, episode, next_index or 0)] * len(handed), ()
    found = _find_lanes(tx, handed)
    return _lanes(tx, found, handed), _not_to_feed(tx, found, handed)


def _lanes(tx: Tx, found: _Found, handed: Sequence[Handed]) -> list[_Lane | UsageError]:
    """The lane of each; those of one episode share theirs."""
    lanes: dict[tuple[str, str, str, str], _Lane | UsageError] = {}
    for one in handed:
        of = (one.repo_id, one.session_id, one.episode_id, one.token)
        if of not in lanes:
            lanes[of] = _lane(tx, found, one)
    return [lanes[one.repo_id, one.session_id, one.episode_id, one.token] for one in handed]


def _find_lanes(tx: Tx, handed: Sequence[Handed]) -> _Found:
    """The sessions of *handed* by repository and id, and their episodes by their id, too."""
    found: _Found = {}
    repos = listed({one.repo_id for one in handed})
    sessions = listed({one.session_id for one in handed})
    episodes = listed({one.episode_id for one in handed})
    for row in tx.run(_LANES, (sessions, episodes, repos)):
        repo_id, id, owner, session, repo, job, episode, *rest = row
        lane = (owner, session, repo, job, *rest)
        found[repo_id, id, None] = found[repo_id, id, episode] = lane
    return found


def _not_to_feed(tx: Tx, found: _Found, handed: Sequence[Handed]) -> set[str]:
    """
    Node ids of the drafts to refuse.

    By hand those whose message a job made a step, and the other way round; of a feed and of a
    job, which have read the message before, those whose message was erased since.
    """
    by_repo: dict[int, list[tuple[StepDraft, bool]]] = {}
    for one in handed:
        row, draft = found.get((one.repo_id, one.session_id, None)), one.draft
        if row is not None and draft.thread_id and draft.message_id:
            by_repo.setdefault(row[2], []).append((draft, row[3] is not None))
    unfit: set[str] = set()
    for repo, drafts in by_repo.items():
        threads = listed({str(draft.thread_id) for draft, _ in drafts})
        ids = listed({str(draft.message_id) for draft, _ in drafts})
        known = set(tx.run(_KNOWN, (repo, threads, ids) * 2))
        for draft, by_job in drafts:
            message = (draft.thread_id, draft.message_id)
            is_erased = (by_job or draft.is_fed) and (*message, "held") not in known
            if is_erased or (*message, "by hand" if by_job else "by job") in known:
                unfit.add(draft.node_id)
    return unfit


def _lane(tx: Tx, found: _Found, one: Handed) -> _Lane | UsageError:
    row = found.get((one.repo_id, one.session_id, None))
    if row is None and was_erased(tx, one.repo_id, one.session_id):
        return Conflict(f"session {one.session_id!r} was forgotten")
    if row is None:
        return NotFound("session", one.session_id)
    if row[0] != one.token:
        return Conflict(f"session {one.session_id!r} belongs to another service by now")
    row = found.get((one.repo_id, one.session_id, one.episode_id))
    if row is None:
        return NotFound("episode", one.episode_id)
    _, session, repo, _, episode, status, next_index = row
    if status != "open":
        return Conflict(f"episode {one.episode_id!r} takes no more steps")
    return _Lane(session, repo, episode, next_index or 0)


def _texts(step: Step) -> list[Text]:
    """Those of the full text, one for each side."""
    return [
        (step_row(step.ordinal, 0), step.observation, step.at),
        (step_row(step.ordinal, 1), step.action, step.at),
    ]


def annotate(tx: Tx, episode: int, annotations: Iterable[Annotation]) -> None:
    """
    Write what annotation found; an earlier annotation of a step is replaced whole.

    Raises:
        NotFound: A step of that index was never appended.
    """
    rows = [(*tables.ANNOTATIONS.values(one), episode, one.index) for one in annotations]
    if tx.run_many(_ANNOTATE, rows) != len(rows):
        known = {index for (index,) in tx.run(_INDEXES, (episode,))}
        raise NotFound("step", str(next(row[-1] for row in rows if row[-1] not in known)))
