"""
Keep explicit requests by rule, word for word, whether or not a model does.

A request that was once served or refused is never served again: so a note that a person
has deleted since does not come back.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, count, takewhile

from mnemo.config import NotesConfig
from mnemo.errors import InvalidNote
from mnemo.notes.guards import redact
from mnemo.notes.material import Asked, folded
from mnemo.notes.note_rows import NoteReader
from mnemo.notes.note_writing import NoteWriter
from mnemo.notes.shelf import Shelf
from mnemo.notes.writing import AlreadyServed, Changed, NoteSource, Write, checked_text
from mnemo.runtime.text import content_words, fold, has_unspaced, is_blank, one_line, stem
from mnemo.values.note_rules import MAX_TOPIC, check_neighbours, is_topic, plain_text
from mnemo.values.notes import Covered, NoteRow

SHARED_WORDS = 2
"""Content words that a request shares with the topic and description of a note it goes under."""
TOPIC_WORDS = 4
DESCRIPTION_CHARACTERS = 120
ATTEMPTS = 20
"""Times that a note which others keep changing is read again, before the request fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteRequest:
    """
    Outcome of an explicit request.

    Attributes:
        text: Its words, without secrets.
        topic: The note that holds it now, or ``None``.
        refused: The code that says why none does, or ``None``.
    """

    text: str
    topic: str | None = None
    refused: str | None = None


def open_requests(tx: NoteReader, asked: Sequence[Asked]) -> list[Asked]:
    """Requests that are not covered: neither settled before nor stated in a note."""
    settled = tx.covered([one.digest for one in asked])
    waiting = [one for one in asked if one.digest not in settled]
    if not waiting:
        return []
    bodies = [folded(row.body) for row in tx.rows()]
    return [one for one in waiting if one.forgets or not _is_said(one, bodies)]


def _is_said(asked: Asked, bodies: Sequence[str]) -> bool:
    """Whether one of the folded *bodies* contains the request as whole words."""
    clause = folded(asked.text)
    words = re.escape(clause)
    if not has_unspaced(clause):
        words = rf"(?<!\w){words}(?!\w)"
    return bool(clause) and any(re.search(words, body) for body in bodies)


def settle_said(tx: NoteWriter, asked: Sequence[Asked]) -> None:
    """Mark requests that a note states as covered, also after the note is deleted."""
    settled = tx.covered([one.digest for one in asked])
    waiting = [one for one in asked if one.digest not in settled and not one.forgets]
    for row in tx.rows() if waiting else ():
        body = folded(row.body)
        for one in waiting:
            if _is_said(one, [body]):
                tx.cover(one.digest, Covered(topic=row.topic))


def outcomes(tx: NoteReader, asked: Sequence[Asked]) -> tuple[NoteRequest, ...]:
    """Outcomes of *asked*, in order."""
    settled = tx.covered([one.digest for one in asked])
    rows = tx.rows()
    there = {row.topic for row in rows}
    told = []
    for one in asked:
        found = settled.get(one.digest, Covered())
        topic = found.topic if found.topic in there else None
        if topic is None and not one.forgets and found.refused is None:
            topic = next((row.topic for row in rows if _is_said(one, [folded(row.body)])), None)
        told.append(NoteRequest(text=redact(one.text), topic=topic, refused=found.refused))
    return tuple(told)


async def keep_by_rule(shelf: Shelf, asked: Sequence[Asked], source: NoteSource) -> None:
    """
    Write each uncovered request to a note, and mark it as covered or refused.

    Raises:
        StoreError: What was written before stays. *Cancellation*: completes a write that
            has begun.
    """
    for one in await shelf.store.reading(lambda tx: open_requests(tx, asked)):
        if one.forgets or is_blank(one.text):
            continue
        try:
            await _keep(shelf, one, source)
        except AlreadyServed:
            continue
        except InvalidNote as refused:
            await _refuse(shelf, one, refused.reason)


async def _refuse(shelf: Shelf, asked: Asked, reason: str) -> None:
    covered = Covered(refused=reason)
    await shelf.store.writing(lambda tx: tx.cover(asked.digest, covered))


async def _keep(shelf: Shelf, asked: Asked, source: NoteSource) -> None:
    clause = plain_text(asked.text).strip()
    if shelf.config.redact and redact(clause) != clause:
        raise InvalidNote("secret", "without the secret in it, it would be worthless")
    quoting = replace(
        source,
        by="rule",
        trust="stated",
        evidence=one_line(clause)[:300],
        message_ids=asked.message_ids,
        covers=(asked.digest,),
    )
    for attempt in range(ATTEMPTS):
        change = await shelf.store.reading(lambda tx: _change(tx, clause, quoting, shelf.config))
        try:
            await shelf.write(change)
        except Changed:
            # Somebody else wrote to it in between: their text is read, the line goes behind it.
            if attempt == ATTEMPTS - 1:
                raise
        else:
            return


def _change(tx: NoteReader, clause: str, source: NoteSource, config: NotesConfig) -> Write:
    line = f"- {_day(tx.now)}: {clause}"
    row = _home(tx.rows(), clause, len(line), config)
    if row is not None:
        text = checked_text(config, row.topic, row.description, f"{row.body}\n{line}")
        return Write(text=text, source=source, expected=row.version)
    description = one_line(clause)[: min(DESCRIPTION_CHARACTERS, config.description_max_chars)]
    text = checked_text(config, _free_topic(tx, clause), description, line)
    return Write(text=text, source=source, expected=0)


def _day(at: datetime) -> str:
    return at.date().isoformat()


def _home(rows: Sequence[NoteRow], clause: str, size: int, config: NotesConfig) -> NoteRow | None:
    """Choose the note with room that shares most words with *clause*; ties by topic."""
    wanted = {stem(word) for word in content_words(clause)}

    def shared(row: NoteRow) -> int:
        about = f"{row.topic.replace('-', ' ')} {row.description}"
        return len(wanted & {stem(word) for word in content_words(about)})

    fitting = [row for row in rows if len(row.body) + 1 + size <= config.body_max_chars]
    alike = [row for row in fitting if shared(row) >= SHARED_WORDS]
    return max(alike, key=shared, default=None)


def _free_topic(tx: NoteReader, clause: str) -> str:
    """A free topic: the first content words of *clause*, else with a digest."""
    taken = tx.topics()
    named = _topic_of(clause)
    start = (named or "note")[: MAX_TOPIC - 9].rstrip("-")
    further = (f"{start}-{_digest(clause, number)}" for number in count())
    return next(topic for topic in chain([named] if named else [], further) if _fits(topic, taken))


def _digest(clause: str, number: int) -> str:
    text = f"{clause}{number}" if number else clause
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def _fits(topic: str, taken: Sequence[str]) -> bool:
    try:
        check_neighbours(topic, taken, known=None)
    except InvalidNote:
        return False
    return topic not in taken


def _topic_of(clause: str) -> str | None:
    plain = (re.sub(r"[^a-z0-9]", "", _ascii(word)) for word in content_words(clause))
    parts = [word for word in plain if word]
    while parts and not (parts[0][0].isalpha() and len(parts[0]) <= MAX_TOPIC):
        parts.pop(0)
    parts = parts[:TOPIC_WORDS]
    lengths = (len("-".join(parts[: i + 1])) for i in range(len(parts)))
    topic = "-".join(parts[: len([*takewhile(lambda length: length <= MAX_TOPIC, lengths)])])
    return topic if is_topic(topic) else None


def _ascii(word: str) -> str:
    return fold(word).encode("ascii", "ignore").decode()
