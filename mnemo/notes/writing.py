"""
Write, merge, retire, restore and undo notes, and the guards of what is written.

Everything that may refuse a change is decided here, inside the transaction that makes
it, so that it holds between updaters, services and processes.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime

from mnemo.config import NotesConfig
from mnemo.errors import Conflict, InvalidNote, NotFound
from mnemo.notes.note_rows import NoteReader, NoteWriter
from mnemo.runtime.secrets import without_secrets
from mnemo.runtime.text import clean, fold
from mnemo.values.notes import (
    Author,
    ChangeAction,
    Covered,
    NoteChange,
    NoteRow,
    NoteVersion,
    Trust,
    absorbed_by,
    check_length,
    check_neighbours,
    checked_body,
    checked_description,
    checked_topic,
    plain_text,
)

REDACTED = re.compile(r"\[redacted:[a-z-]+\]")
MOSTLY = 0.5
"""Share of a body's words that are redactions, from which nothing of worth is left."""

# Folded texts: lower case, accents gone, straight quotes.
_ORDERS = (
    # To ignore or override what an agent was told.
    r"\b(?:ignore|disregard|forget|override|bypass|overrule|do not follow|don't follow)\b"
    r"(?=.{0,30}\b(?:all|any|your|my|previous|prior|earlier|above|these|those|system|safety|other)\b)"
    r".{0,50}\b(?:instructions?|prompts?|rules?|guidelines?|directions?|messages?|polic(?:y|ies)"
    r"|constraints?|restrictions?|training)\b",
    r"\b(?:ignore|disregard|forget) (?:all |everything |anything )?"
    r"(?:of )?(?:the |what )?(?:above|previous|prior|earlier|before|was said)"
    r"(?=\s*(?:$|[^\w\s]|and\b|text\b|context\b|conversation\b|content\b))",
    r"\b(?:ignore|disregard|forget)\b.{0,20}\bwhat(?:ever)? you (?:were|have been|are) told\b",
    r"\b(?:do not|don't|never) follow\b.{0,20}\b(?:rules|instructions|orders)\b.{0,20}\bgiven\b",
    r"\b(?:new|updated|real|actual) (?:system )?(?:instructions?|prompt)\b ?:",
    r"\byou are now\b|\bfrom now on,? you (?:are(?! to\b)|must act|will act)\b"
    r"|\bpretend (?:to be|you are)\b|\b(?:developer|dan|jailbreak|god) mode\b",
    r"\breveal\b.{0,30}\b(?:system prompt|instructions)\b",
    # Marks of roles and tool calls.
    r"^\s*(?:[-*>] ?)?(?:<\|?|\[|#{1,6} ?)?(?:system|assistant|developer|tool|human)"
    r"(?:\|?>|\])?\s*:(?!//)",
    r"<\|[a-z_]+\|>|<\/?(?:system|assistant|user|tool_call|function_call|tool_use|invoke"
    r"|function_calls|antml)\b[^>]*>|\[/?inst\]|<</?sys>>|<(?:start|end)_of_turn>",
    r'"(?:tool_calls?|function_call)"\s*:',
    # To hide something from the user.
    r"\b(?:do not|don't|never|without)\b.{0,20}\b(?:tell(?:ing)?|inform(?:ing)?"
    r"|mention(?:ing)?|reveal(?:ing)?|show(?:ing)?|alert(?:ing)?|notify(?:ing)?)\b.{0,30}"
    r"\b(?:the )?(?:user|human|owner|customer|operator)\b",
    r"\b(?:user|human|owner)\b.{0,20}\b(?:must|should|may|need) (?:not|never)\b.{0,10}"
    r"\b(?:know|see|learn|notice|find out|be told)\b|\bwithout the (?:user|human|owner)(?:'s)?"
    r" (?:know|notic)",
    r"\b(?:hide|conceal|keep)\b.{0,40}\b(?:secret )?from (?:the )?"
    r"(?:user|human|owner|customer|operator)\b",
    # To send content to an address.
    r"\b(?:send|forward|post|upload|e-?mail|exfiltrate|transmit|leak|submit|copy)\b.{0,80}\bto\b"
    r".{0,40}(?:https?://|www\.|[\w.+-]+@[\w-]+\.[a-z])",
    r"\b(?:fetch|curl|wget|open|visit|call|load)\b.{0,20}https?://\S*[?&=]\S*\{",
)
_ORDER = re.compile("|".join(f"(?:{order})" for order in _ORDERS))


# Letters of other scripts that look like Latin ones, folded.
_LOOKALIKES = str.maketrans(
    "авсеԁһіјкӏмопԛрѕтυѵԝхуαεικνορτχγıɩɡ", "abcedhijklmonqpstuvwxyaeikvoptxyiig"
)
_EMPHASIS = re.compile(r"[*~`]+")
_UNSEEN = re.compile("[\u115f\u1160\u2800\u3164\uffa0]")


def _forms(line: str) -> tuple[str, str]:
    """Fold *line*, look-alike letters included; with Markdown emphasis, and without."""
    wide = unicodedata.normalize("NFKD", line)
    shown = "".join(c for c in wide if unicodedata.category(c) not in ("Cf", "Mn", "Me"))
    seen = fold(_UNSEEN.sub(" ", shown)).translate(_LOOKALIKES)
    return seen, _EMPHASIS.sub("", seen).replace("_", " ")


def redact(text: str) -> str:
    """Replace every secret in *text* by ``[redacted:<kind>]``."""
    return without_secrets(text, lambda kind: f"[redacted:{kind}]")


def said_of(error: BaseException | None) -> str | None:
    """Class and message of *error*, redacted."""
    if error is None:
        return None
    try:
        said = str(error)
    except Exception:
        said = "(it cannot be shown)"
    return redact(clean(f"{type(error).__name__}: {said}"))[:1000]


def check_redacted(topic: str, body: str) -> None:
    """*Raises* ``InvalidNote``, ``secret``: the topic holds one, or the body is mostly such."""
    if redact(topic.replace("-", " ")) != topic.replace("-", " ") or redact(topic) != topic:
        raise InvalidNote("secret", "a topic must not hold a key, token or password")
    hidden = len(REDACTED.findall(body))
    rest = [word for word in REDACTED.sub(" ", body).split() if any(map(str.isalnum, word))]
    if hidden and hidden >= MOSTLY * (hidden + len(rest)):
        raise InvalidNote("secret", "nothing of worth is left once the secrets are taken out")


def check_screen(text: str, known: str = "") -> None:
    """
    Screen *text* for orders to the agent that may read it; lines of *known* are not looked at.

    Raises:
        InvalidNote: ``instruction_like``.
    """
    old = {line.strip() for line in known.splitlines()}
    fresh = [line for line in text.splitlines() if line.strip() and line.strip() not in old]
    for line in (*fresh, " ".join(fresh) if len(fresh) > 1 else ""):
        if any(_ORDER.search(form) for form in _forms(line)):
            message = "a note states facts and preferences; this reads like an order to an agent"
            raise InvalidNote("instruction_like", message)


# ── Writing ───────────────────────────────────────────────────────────────────────


_UNSCREENED: frozenset[Author] = frozenset(("application", "undo"))
"""Whose texts may give orders: the application's, and what a note has said before."""


class Changed(Conflict):
    """Version conflict; *row* is the present note, ``None``: it does not exist."""

    def __init__(self, topic: str, row: NoteRow | None) -> None:
        self.topic = topic
        self.row = row
        now = f"is at version {row.version}" if row else "is not there"
        super().__init__(f"the note {topic!r} has changed since: it {now}; read it again")


class AlreadyServed(Exception):
    """The request was covered meanwhile; nothing was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteSource:
    """Provenance of a change, as stored with the version."""

    by: Author
    trust: Trust
    update_id: str | None = None
    task_id: str | None = None
    session_id: str | None = None
    thread_id: str | None = None
    message_ids: tuple[str, ...] = ()
    evidence: str = ""
    reason: str = ""
    covers: tuple[str, ...] = ()
    """Digests of the explicit requests that the change serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteText:
    """Validated, redacted texts of a note."""

    topic: str
    description: str
    body: str

    @property
    def searchable(self) -> str:
        """Text that is embedded."""
        return f"{self.topic.replace('-', ' ')}\n{self.description}\n{self.body}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """
    A change to be made.

    Attributes:
        expected: The version that the writer knows; 0: none must be there; ``None``: any.
        absorbs: Notes to be retired with it, each with the version that the writer knows.
        known: Topics whose notes the writer has read; ``None``: it need not have.
        revives: Whether a note that the application deleted may be made again.
        at: When it was written; ``None``: now.
        action: ``None``: ``created``, ``updated`` or ``merged``, as it comes.
    """

    text: NoteText
    source: NoteSource
    expected: int | None = None
    absorbs: Mapping[str, int] = field(default_factory=dict)
    known: frozenset[str] | None = None
    revives: bool = True
    at: datetime | None = None
    action: ChangeAction | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """The note, whether that took a new version, and whether the note was not there before."""

    row: NoteRow
    changed: bool
    created: bool = False


def checked_text(config: NotesConfig, topic: object, description: object, body: object) -> NoteText:
    """Validate and redact a note's texts. *Raises* ``InvalidNote``: what is wrong, ``secret``."""
    name = checked_topic(topic)
    check_length("body", body, config.body_max_chars)
    check_length("description", description, config.description_max_chars)
    if config.redact:
        # What cannot be seen goes first: it must not stand between the letters of a secret.
        description, body = (
            redact(plain_text(text)) if isinstance(text, str) else None
            for text in (description, body)
        )
        check_redacted(name, body or "")
    return NoteText(
        topic=name,
        description=checked_description(description, config.description_max_chars),
        body=checked_body(body, config.body_max_chars),
    )


def write(tx: NoteWriter, change: Write, config: NotesConfig) -> Written:
    """
    Create, replace or merge a note; the same text again, at the version expected, changes nothing.

    Raises:
        Changed: A version is another than the writer knows.
        InvalidNote: ``similar_topic``, ``split_topic``, ``too_many_notes``,
            ``instruction_like`` or ``deleted_by_application``.
        AlreadyServed: The rule was to write what is covered since.
    """
    text, source = change.text, change.source
    if source.by == "rule" and tx.covered(source.covers):
        raise AlreadyServed
    row = tx.row(text.topic)
    there = row if row is not None and row.is_there else None
    _expect(text.topic, row, change.expected)
    _cover(tx, source, text.topic)
    if there and not change.absorbs and change.action is None and says(there, text):
        return Written(there, changed=False)
    if there is None:
        _check_new(tx, row, change, config)
    if source.by not in _UNSCREENED:
        known = f"{there.description}\n{there.body}" if there else ""
        check_screen(f"{text.description}\n{text.body}", known)
    absorbing = replace(source, reason=absorbed_by(text.topic), covers=())
    for topic, version in change.absorbs.items():
        retire(tx, topic, absorbing, config, expected=version)
    action = change.action or ("merged" if change.absorbs else "updated" if there else "created")
    at = change.at or tx.now
    written = NoteRow(
        topic=text.topic,
        version=row.version + 1 if row else 1,
        description=text.description,
        body=text.body,
        created_at=there.created_at if there else at,
        updated_at=at,
        last_read_at=there.last_read_at if there else None,
        trust=source.trust,
    )
    _put(tx, written, action, source, config)
    return Written(written, changed=True, created=there is None)


def there(tx: NoteReader, topic: str) -> NoteRow:
    """The note. *Raises* ``NotFound``: it is not there."""
    row = tx.row(topic)
    if row is None or not row.is_there:
        raise NotFound("note", topic)
    return row


def _expect(topic: str, row: NoteRow | None, expected: int | None) -> None:
    now = row.version if row is not None and row.is_there else 0
    if expected is not None and now != expected:
        raise Changed(topic, row if now else None)


def says(row: NoteRow | None, text: NoteText) -> bool:
    """Whether the note is there and has this very text."""
    if row is None or not row.is_there:
        return False
    return (row.description, row.body) == (text.description, text.body)


def _check_new(tx: NoteReader, row: NoteRow | None, change: Write, config: NotesConfig) -> None:
    topic = change.text.topic
    if row is not None and row.deleted_by == "application" and not change.revives:
        message = f"the note {topic!r} was deleted on purpose; only the user can ask for it again"
        raise InvalidNote("deleted_by_application", message)
    others = tx.topics()
    if change.source.by != "import" and change.action != "restored":
        check_neighbours(topic, others, known=change.known)
    if len(others) - len(change.absorbs) >= config.max_notes:
        message = f"there are {len(others)} notes, the most there may be: merge or delete some"
        raise InvalidNote("too_many_notes", message)


def _put(
    tx: NoteWriter, row: NoteRow, action: ChangeAction, source: NoteSource, config: NotesConfig
) -> None:
    """Write *row* with the version that it gives."""
    said = asdict(source)
    del said["covers"]
    version = NoteVersion(
        topic=row.topic,
        version=row.version,
        action=action,
        body=row.body,
        description=row.description,
        at=row.updated_at,
        **said,
    )
    tx.put(row, version, keep=config.keep_versions)


def retire(
    tx: NoteWriter,
    topic: str,
    source: NoteSource,
    config: NotesConfig,
    *,
    expected: int | None = None,
) -> NoteRow:
    """Delete a note; its versions stay. *Raises* ``NotFound``, ``Changed``: not at *expected*."""
    row = tx.row(topic)
    if row and row.deleted_by == source.by == "application" and row.version - 1 == expected:
        return row
    _expect(topic, row, expected)
    row = there(tx, topic)
    _cover(tx, source, None)
    gone = replace(
        row,
        version=row.version + 1,
        description="",
        body="",
        updated_at=tx.now,
        last_read_at=None,
        trust="",
        deleted_by=source.by,
    )
    _put(tx, gone, "deleted", source, config)
    return gone


def _cover(tx: NoteWriter, source: NoteSource, topic: str | None) -> None:
    for digest in source.covers:
        tx.cover(digest, Covered(topic=topic))


# ── Going back: an old version again, an update undone ──────────────────────────────────


def restore(
    tx: NoteWriter, topic: str, version: int, source: NoteSource, config: NotesConfig
) -> NoteRow:
    """
    Write an old version as a new one, of a deleted note, too.

    Raises:
        NotFound: There never was such a note, or the version is not kept.
        InvalidNote: ``no_text``: the version is a deletion; ``too_many_notes``.
    """
    if tx.row(topic) is None:
        raise NotFound("note", topic)
    old = _kept(tx, topic, version)
    if old is None:
        raise NotFound("note version", f"{topic} {version}")
    if old.action == "deleted":
        raise InvalidNote("no_text", f"version {version} of {topic!r} is its deletion")
    return _written_again(tx, old, source, config)


def _kept(tx: NoteReader, topic: str, version: int) -> NoteVersion | None:
    return next((old for old in tx.versions(topic) if old.version == version), None)


def _written_again(
    tx: NoteWriter, old: NoteVersion, source: NoteSource, config: NotesConfig
) -> NoteRow:
    change = Write(
        text=NoteText(topic=old.topic, description=old.description, body=old.body),
        source=replace(
            source,
            trust=old.trust,
            session_id=old.session_id,
            thread_id=old.thread_id,
            message_ids=old.message_ids,
            evidence=old.evidence,
            reason=f"version {old.version} again",
        ),
        action="restored",
    )
    return write(tx, change, config).row


def undo(
    tx: NoteWriter, update_id: str, source: NoteSource, config: NotesConfig
) -> list[NoteChange]:
    """
    Undo an update: retire the notes it created, restore the others.

    Raises:
        NotFound: No update of this id changed anything.
        Conflict: Notes have changed since, or a former text is not kept; nothing was touched.
    """
    first, last = _span(tx.changes(update_id))
    if not first:
        raise NotFound("update", update_id)
    versions = {row.topic: row.version for row in tx.rows([*last])}
    since = [topic for topic in last if versions.get(topic, 0) != last[topic]]
    if since:
        raise Conflict(f"changed since that update: {', '.join(sorted(since))}; nothing was undone")
    before = {topic: _before(tx, topic, number) for topic, number in first.items()}
    # What was made goes first: it may stand in the place of what comes back.
    for topic, old in before.items():
        row = tx.row(topic)
        if old is None and row is not None and row.is_there:
            retire(tx, topic, replace(source, reason=f"undoes {update_id}"), config)
    for old in filter(None, before.values()):
        _written_again(tx, old, source, config)
    assert source.update_id is not None
    return tx.changes(source.update_id)


def _span(changes: list[NoteChange]) -> tuple[dict[str, int], dict[str, int]]:
    """The first and the last version that an update made of each topic."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for change in changes:
        first.setdefault(change.topic, change.version)
        last[change.topic] = change.version
    return first, last


def _before(tx: NoteReader, topic: str, first: int) -> NoteVersion | None:
    """What the note was before its version *first*; ``None``: it was not there."""
    if first == 1:
        return None
    found = _kept(tx, topic, first - 1)
    if found is None:
        raise Conflict(f"the text of {topic} before that update is not kept; nothing was undone")
    return None if found.action == "deleted" else found
