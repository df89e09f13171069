"""Notes as values, and what their texts must be like; what does not fit is refused."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Literal, TypeAlias, TypeVar

from mnemo.errors import InvalidNote
from mnemo.runtime.text import clean, fold, is_blank, one_line, stem, terms
from mnemo.values.chat import Usage

Author: TypeAlias = Literal["model", "rule", "agent", "application", "import", "undo"]
"""Who made a version."""
Trust: TypeAlias = Literal[
    "stated", "inferred", "observed", "unquoted", "application", "imported", ""
]
"""
What a version rests on: a user's words, an assistant's, a tool's output, nothing that was
quoted, the application's own authority, a file. ``""``: of a deletion that says nothing.
"""
ChangeAction: TypeAlias = Literal["created", "updated", "merged", "deleted", "restored"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteInfo:
    """
    A note without its text.

    Attributes:
        topic: Lower-case words joined by hyphens; its name.
        last_read_at: When it was last read or recalled; ``None``: never.
        version: Counts from 1, across deletions.
        size: Of the body, in code points.
    """

    topic: str
    description: str
    updated_at: datetime
    last_read_at: datetime | None
    version: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Note(NoteInfo):
    """A note with its text, a body of Markdown; *trust* is that of its latest version."""

    body: str
    created_at: datetime
    trust: Trust


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteVersion:
    """
    One version of a note; a deletion is one too, without text.

    Attributes:
        update_id: The update that made it, where one did; *task_id* likewise.
        message_ids: Messages of *thread_id* that *evidence* was found in.
        evidence: The words that it rests on, copied from those messages.
        reason: Why it was deleted or made, where that was said.
    """

    topic: str
    version: int
    action: ChangeAction
    body: str
    description: str
    at: datetime
    by: Author
    update_id: str | None = None
    task_id: str | None = None
    session_id: str | None = None
    thread_id: str | None = None
    message_ids: tuple[str, ...] = ()
    evidence: str = ""
    trust: Trust = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteChange:
    """What was done to one note, and the version that it gave."""

    topic: str
    action: ChangeAction
    version: int
    by: Author


N = TypeVar("N", bound=NoteInfo)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteRow:
    """A note as it is now; one that *deleted_by* deleted keeps its row, without texts."""

    topic: str
    version: int
    description: str
    body: str
    created_at: datetime
    updated_at: datetime
    last_read_at: datetime | None
    trust: Trust
    deleted_by: Author | None = None

    @property
    def is_there(self) -> bool:
        """Whether it has not been deleted."""
        return self.deleted_by is None

    @property
    def info(self) -> NoteInfo:
        """What a list shows of it."""
        return self._shown(NoteInfo)

    @property
    def note(self) -> Note:
        """All that is shown of it."""
        return self._shown(Note)

    def _shown(self, kind: type[N]) -> N:
        names = (one.name for one in fields(kind) if one.name != "size")
        return kind(size=len(self.body), **{name: getattr(self, name) for name in names})

    @property
    def text(self) -> str:
        """What it is found by, and its vector made of."""
        return f"{self.topic.replace('-', ' ')}\n{self.description}\n{self.body}"

    @property
    def words(self) -> str:
        """The terms of its text, each between blanks."""
        return f" {' '.join(terms(self.text))} "


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """What became of an explicit request: the note that holds it, or why none does."""

    topic: str | None = None
    refused: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationRow:
    """A conversation's updates: *failures* in a row over *part*; the last *ended_at*."""

    key: str
    ended_at: datetime | None = None
    part: str = ""
    failures: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRow:
    """What one call of a model cost."""

    update_id: str
    task_id: str | None
    session_id: str | None
    at: datetime
    usage: Usage
    purpose: str = "update_notes"


MAX_TOPIC = 64
"""Characters of a topic, at most."""

LONGEST = 16
"""Times its limit that a text may be before it is cleaned (S)."""

_TOPIC = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_RESERVED = frozenset(
    ["con", "prn", "aux", "nul"] + [f"{port}{i}" for port in ("com", "lpt") for i in range(10)]
)
_CONTINUED = re.compile(r"(?P<base>.+?)-(?:part|part-?\d+|cont|cont-?\d+|continued)")
_NUMBERED = re.compile(r"(?P<base>.+?)-\d{1,3}")
_JOINERS = re.compile("(?<=[ -~])[\u200c\u200d]+|[\u200c\u200d]+(?=[ -~])")
_FRONTMATTER = re.compile(r"---[ \t]*\n")


def is_topic(topic: object) -> bool:
    """Whether *topic* can name a note, and a file on any operating system."""
    return (
        isinstance(topic, str)
        and 2 <= len(topic) <= MAX_TOPIC
        and _TOPIC.fullmatch(topic) is not None
        and topic not in _RESERVED
    )


def checked_topic(topic: object) -> str:
    """*topic*, if it can name a note. *Raises* ``InvalidNote``: ``bad_topic``."""
    if is_topic(topic):
        return str(topic)
    wanted = (
        f"a topic is 2 to {MAX_TOPIC} characters: lower-case ASCII words joined by single hyphens, "
        "starting with a letter, and no name that an operating system reserves"
    )
    suggestion = suggested_topic(topic) if isinstance(topic, str) else None
    raise InvalidNote("bad_topic", wanted + (f"; try {suggestion!r}" if suggestion else ""))


def suggested_topic(text: str) -> str | None:
    """A topic made of the words of *text*, as many as fit; ``None`` if none can start one."""
    parts = re.findall(r"[a-z0-9]+", fold(text).encode("ascii", "ignore").decode())
    while parts and not parts[0][0].isalpha():
        parts.pop(0)
    while parts and len("-".join(parts)) > MAX_TOPIC:
        parts.pop()
    topic = "-".join(parts)
    longer = f"{topic}-note"
    return next((given for given in (topic, longer) if is_topic(given)), None)


def check_length(name: str, text: object, limit: int) -> None:
    """Refuse what is far too long: ``InvalidNote`` ``body_too_long`` or ``bad_description``."""
    if isinstance(text, str) and len(text) > LONGEST * limit:
        reason = "body_too_long" if name == "body" else "bad_description"
        message = f"a {name} has at most {limit} characters; this has {len(text)}"
        raise InvalidNote(reason, message)


def checked_description(text: object, limit: int) -> str:
    """*text* without outer blanks, if it describes a note. *Raises*: ``bad_description``."""
    wanted = f"a description is one line of 1 to {limit} characters that is not blank"
    if not isinstance(text, str):
        raise InvalidNote("bad_description", wanted)
    stripped = plain_text(text).strip()
    if is_blank(stripped) or len(stripped.splitlines()) != 1 or len(stripped) > limit:
        raise InvalidNote("bad_description", f"{wanted}; this has {len(stripped)}")
    return stripped


def checked_body(text: object, limit: int) -> str:
    """
    *text* with its line ends as LF and no outer blanks, if it can be a note's body.

    *Raises* ``InvalidNote``: ``empty_body``, ``has_frontmatter`` or ``body_too_long``.
    """
    body = plain_text(text).strip() if isinstance(text, str) else ""
    if is_blank(body):
        raise InvalidNote("empty_body", f"a body is text of 1 to {limit} characters, not blank")
    if _FRONTMATTER.match(body):
        message = "a body has no frontmatter of its own: give topic and description apart from it"
        raise InvalidNote("has_frontmatter", message)
    if len(body) > limit:
        over = len(body) - limit
        message = f"a body has at most {limit} characters; this is {over} too long"
        raise InvalidNote("body_too_long", f"{message}: leave out the least important facts")
    return body


def plain_text(text: str) -> str:
    """*text* storable, with LF, without what is invisible: controls, tags, zero-width spaces."""
    text = clean(text).replace("\r\n", "\n").replace("\r", "\n")
    if text.isascii() and text.isprintable():
        return text
    return "".join(c for c in _JOINERS.sub("", text) if c in "\n\t" or not _is_hidden(c))


def _is_hidden(character: str) -> bool:
    category = unicodedata.category(character)
    # Joiners shape words in some scripts, and emoji.
    return category == "Cc" or (category == "Cf" and character not in "\u200c\u200d")


def check_neighbours(topic: str, others: Sequence[str], *, known: frozenset[str] | None) -> None:
    """
    Keep one topic in one note, beside *others*, of which the writer has read those *known*.

    *Raises* ``InvalidNote``: ``split_topic`` or ``similar_topic`` (unless *known* is ``None``: it
    need not have looked); ``.topic`` is the other note's.
    """
    present = set(others) - {topic}
    continued = _CONTINUED.fullmatch(topic)
    if continued and continued["base"] in present:
        base = continued["base"]
        message = f"one topic is one note: write it into {base!r}, which is there already"
        raise InvalidNote("split_topic", message, topic=base)
    if known is None:
        return
    for other in sorted(_alike(topic, present) - known):
        message = (
            f"the note {other!r} seems to be of the same topic: read it, and write to it unless "
            "this is something else"
        )
        raise InvalidNote("similar_topic", message, topic=other)


def _alike(topic: str, present: set[str]) -> set[str]:
    numbered = _NUMBERED.fullmatch(topic)
    key = _stems(topic)
    alike = {other for other in present if _stems(other) == key}
    return alike | ({numbered["base"]} & present if numbered else set())


def _stems(topic: str) -> list[str]:
    return sorted(stem(part) for part in topic.split("-"))


def absorbed_by(topic: str) -> str:
    """Why a note was retired that *topic* took in, as its history says it."""
    return f"absorbed by {topic}"


def first_line(body: str) -> str:
    """The first heading of *body*, else its first line; ``""`` if it has none."""
    lines = [line.strip() for line in body.splitlines() if line.strip()]
    heading = next((line for line in lines if re.match(r"#{1,6}\s", line)), None)
    return one_line((heading or (lines[0] if lines else "")).lstrip("#").strip())
