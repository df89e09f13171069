"""The conversation an update looks back over; marks find a message again after compaction."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

from mnemo.config import NotesConfig
from mnemo.errors import InvalidNote
from mnemo.notes.cues import MAX_SPAN, CueKind, Request, corrects, prefers, requests_in
from mnemo.notes.writing import NoteSource, redact
from mnemo.protocols import ChatMessage, ChatModel, Purpose
from mnemo.runtime.text import count_tokens, fold, is_blank, one_line
from mnemo.values.messages import Message, StoredMessage, ToolCall, measured_text
from mnemo.values.notes import Trust, plain_text

Voice: TypeAlias = Literal["user", "assistant", "other"]

LEAST_EVIDENCE, MOST_EVIDENCE = 8, 300
"""Characters of an evidence phrase."""
_QUOTES = str.maketrans("‘’‚‛“”„‟«»`´", "''''\"\"\"\"\"\"''")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """
    An explicit request of the new part, which stands in the message *index*.

    Attributes:
        text: What to keep; ``""``: nothing that could be told.
        digest: Of its message and clause; names it for good.
    """

    text: str
    digest: str
    index: int
    message_ids: tuple[str, ...]
    forgets: bool = False

    @property
    def by_rule(self) -> bool:
        """Whether it can be served without a model."""
        return not self.forgets and not is_blank(self.text)


def folded(text: str) -> str:
    """Fold case, white space, quotation marks and Unicode forms of *text*."""
    return one_line(fold(text.translate(_QUOTES)))


def voice_of(message: Message) -> Voice:
    """Speaker: the user, the assistant, or neither, as of what the host inserted."""
    if message.metadata.get("injected") or message.kind == "summary":
        return "other"
    if message.role == "user":
        return "user"
    return "assistant" if message.role == "assistant" else "other"


def mark_keys(history: Sequence[Message], thread_id: str | None) -> list[str]:
    """Key of each message, by which it is recognised in a later history."""
    chain = hashlib.blake2b(digest_size=16)
    keys = []
    for message in history:
        whole = f"{message.role}\0{measured_text(message)}\0".encode("utf-8", "surrogatepass")
        chain.update(whole)
        if message.id is None:
            keys.append(f"h:{chain.hexdigest()}")
        else:
            thread = message.thread_id if isinstance(message, StoredMessage) else thread_id
            name = f"{thread or ''}\0{message.id}\0".encode("utf-8", "surrogatepass")
            keys.append(f"m:{hashlib.blake2b(name + whole, digest_size=16).hexdigest()}")
    return keys


def pair_keys(keys: Sequence[str]) -> list[str]:
    """Keys of each message together with the one before it."""
    pairs = zip(("", *keys), keys, strict=False)
    return [
        f"p:{hashlib.blake2b(f'{a} {b}'.encode(), digest_size=16).hexdigest()}" for a, b in pairs
    ]


class Material:
    """A copied history with the *keys* of ``mark_keys``; its new part begins at *start*."""

    def __init__(
        self,
        history: Sequence[Message],
        config: NotesConfig,
        *,
        keys: Sequence[str],
        start: int = 0,
    ) -> None:
        self.history: tuple[Message, ...] = tuple(history)
        self.keys: tuple[str, ...] = tuple(keys)
        self.start = start
        self._config = config

    @cached_property
    def fresh(self) -> tuple[Message, ...]:
        """The new part."""
        return self.history[self.start :]

    @cached_property
    def speaks(self) -> bool:
        """Whether a message of a user or assistant lies in the new part."""
        return any(voice_of(message) != "other" for message in self.fresh)

    @cached_property
    def first_words(self) -> str:
        """How the new part begins, in the user's words where there are some."""
        told = [m for m in self.fresh if voice_of(m) == "user" and not is_blank(m.text)]
        told = told or [m for m in self.fresh if not is_blank(m.text)]
        return one_line(told[0].text)[:200] if told else ""

    # ── Cues ─────────────────────────────────────────────────────────────────────────

    def _spoken(self) -> Iterator[tuple[int, Message]]:
        for index in range(self.start, len(self.history)):
            message = self.history[index]
            if voice_of(message) == "user" and not is_blank(message.text):
                yield index, message

    @cached_property
    def asked(self) -> tuple[Asked, ...]:
        """The explicit requests of the new part, in order, each once."""
        found: dict[str, Asked] = {}
        for index, message in self._spoken():
            for request in requests_in(message.text, self._config):
                asked = self._meant(index, request)
                found.setdefault(asked.digest, asked)
        return tuple(found.values())

    def _meant(self, index: int, request: Request) -> Asked:
        text, place = request.text, index
        if not request.forgets and is_blank(text):  # bare: the message before is meant
            place = self._user_before(index)
            text = self.history[place].text.strip()[:MAX_SPAN].rstrip() if place >= 0 else ""
        name = f"{self.keys[index]}\0{folded(text)}".encode("utf-8", "surrogatepass")
        ids = dict.fromkeys(self.history[i].id for i in (place, index) if i >= 0)
        return Asked(
            text=text,
            digest=hashlib.blake2b(name, digest_size=16).hexdigest(),
            index=place if place >= 0 else index,
            message_ids=tuple(id for id in ids if id is not None),
            forgets=request.forgets,
        )

    def _user_before(self, index: int) -> int:
        before = range(index - 1, -1, -1)
        spoken = (i for i in before if voice_of(self.history[i]) == "user")
        return next((i for i in spoken if not is_blank(self.history[i].text)), -1)

    def cue(self, open_requests: bool) -> CueKind | None:
        """The strongest cue; of requests only if there are some that are not covered."""
        if open_requests:
            return "request"
        after_assistant = False
        texts = []
        for index, message in enumerate(self.history):
            spoken = voice_of(message) == "user" and not is_blank(message.text)
            if index >= self.start and spoken:
                texts.append(message.text)
                if after_assistant and corrects(message.text, self._config):
                    return "correction"
            after_assistant = after_assistant or voice_of(message) == "assistant"
        prefers_something = any(prefers(text, self._config) for text in texts)
        return "preference" if prefers_something else None

    # ── Evidence ─────────────────────────────────────────────────────────────────────

    @cached_property
    def _folded(self) -> Mapping[int, str]:
        indexes = range(self.start, len(self.history))
        return {index: folded(self.history[index].text) for index in indexes}

    def quoting(self, phrase: str, source: NoteSource) -> NoteSource:
        """Let *source* rest on *phrase*; the best voice of it counts. *Raises* ``InvalidNote``."""
        wanted = quoted(phrase)
        where = {i: text for i, text in self._folded.items() if _holds(text, wanted)}
        if not where:
            message = (
                f"quote {LEAST_EVIDENCE} to {MOST_EVIDENCE} characters of the new part word for "
                "word, or the whole of a shorter message"
            )
            raise InvalidNote("evidence_not_found", message)
        trust = self._trust([voice_of(self.history[index]) for index in where])
        ids = (self.history[i].id for i in where if self._counts(i, trust))
        return replace(
            source,
            trust=trust,
            evidence=one_line(plain_text(phrase))[:MOST_EVIDENCE],
            message_ids=tuple(dict.fromkeys(id for id in ids if id is not None)),
            covers=tuple(a.digest for a in self.asked if self._overlaps(a, wanted)),
        )

    def _trust(self, voices: Sequence[Voice]) -> Trust:
        if "user" in voices:
            return "stated"
        if "assistant" in voices:
            return "inferred"
        if self._config.allow_tool_evidence:
            return "observed"
        message = "that was said by a tool or a page only; quote the user or the assistant"
        raise InvalidNote("untrusted_source", message)

    def _counts(self, index: int, trust: Trust) -> bool:
        voices: dict[Trust, Voice] = {"stated": "user", "inferred": "assistant"}
        return voice_of(self.history[index]) == voices.get(trust, "other")

    def _overlaps(self, asked: Asked, wanted: str) -> bool:
        text = self._folded.get(asked.index, folded(self.history[asked.index].text))
        clause = folded(asked.text)
        return any(
            start < at + len(clause) and at < start + len(wanted)
            for at in _places(text, clause)
            for start in _places(text, wanted)
        )


def quoted(phrase: object) -> str:
    """An evidence phrase, folded. *Raises* ``InvalidNote``: ``evidence_missing``."""
    if not isinstance(phrase, str) or is_blank(phrase):
        raise InvalidNote("evidence_missing", "quote what the change rests on")
    return folded(phrase)


def _holds(text: str, wanted: str) -> bool:
    if LEAST_EVIDENCE <= len(wanted) <= MOST_EVIDENCE:
        return wanted in text
    return len(wanted) < LEAST_EVIDENCE and wanted == text


def _places(text: str, wanted: str) -> Iterator[int]:
    at = text.find(wanted) if wanted else -1
    while at >= 0:
        yield at
        at = text.find(wanted, at + 1)


# ── The model's input ─────────────────────────────────────────────────────────────────────

PURPOSE: Purpose = "update_notes"


def asks_elsewhere(model: ChatModel) -> bool:
    """Whether *model* sends updates of notes to another model by an override."""
    model_for = getattr(model, "model_for", None)
    return callable(model_for) and model_for(PURPOSE) != getattr(model, "model", None)


def redacted(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Redact secrets in the texts and tool calls of *messages*."""
    hidden = []
    for message in messages:
        calls = tuple(ToolCall(c.id, c.name, _hidden(c.arguments)) for c in message.tool_calls)
        content = _hidden(message.content)
        hidden.append(replace(message, content=content, tool_calls=calls, extra=None))
    return tuple(hidden)


def _hidden(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_hidden(item) for item in value]
    if isinstance(value, dict):
        return {key: _hidden(item) for key, item in value.items()}
    return value


def prefix(
    messages: Sequence[Message], *, fresh_from: int, instruction: str, config: NotesConfig
) -> tuple[tuple[ChatMessage, ...], bool]:
    """
    Choose the leading messages of an update's requests, and say whether they are the task's own.

    All of *messages*, if they are estimated to fit the room of one turn. Otherwise the
    system message and the new part, less of its oldest groups until that fits; the latest stays.
    """
    room = config.max_total_tokens // config.max_turns - count_tokens(instruction)
    whole = tuple(_chat(message) for message in messages)
    if sum(map(tokens_of, whole)) <= room:
        return whole, True
    system = tuple(message for message in whole[:1] if message.role == "system")
    room -= sum(map(tokens_of, system))
    first = len(whole)
    for at in reversed(range(max(fresh_from, len(system)), len(whole))):
        room -= tokens_of(whole[at])
        if room < 0 and first < len(whole):
            break
        if whole[at].role != "tool":  # answers stay with their call
            first = at
    return (*system, *whole[first:]), False


def tokens_of(message: ChatMessage) -> int:
    """Estimated input tokens of *message*."""
    tokens = count_tokens(message.content)
    if message.tool_calls:
        calls = [dict(call) for call in message.tool_calls]
        tokens += count_tokens(json.dumps(calls, default=str))
    return tokens


def _chat(message: Message) -> ChatMessage:
    content = message.content
    if not isinstance(content, str):
        texts = [b["text"] for b in content or () if isinstance(b.get("text"), str)]
        content = "\n".join(texts)
    if is_blank(content) and message.kind == "thought" and not message.tool_calls:
        content = message.text
    return ChatMessage(
        message.role,
        content,
        tool_calls=tuple(
            {"id": call.id, "name": call.name, "arguments": deepcopy(call.arguments)}
            for call in message.tool_calls
        ),
        tool_call_id=message.tool_call_id,
    )
