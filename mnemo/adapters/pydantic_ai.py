"""Pydantic AI: ``MnemoConversationStore`` and the capability ``MnemoMemory``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from operator import methodcaller
from os import PathLike
from typing import Any, Self
from uuid import uuid4

import anyio.to_thread

from mnemo import Conflict, Message, NotFound, Repository, StoreCorrupt, StoredMessage
from mnemo import sync as blocking
from mnemo.adapters.handles import Adapter, AnyRepository, Handle, LazyService
from mnemo.runtime.extras import refuse
from mnemo.runtime.validation import portions

try:
    from pydantic import TypeAdapter, ValidationError
    from pydantic_ai import RunContext, Tool
    from pydantic_ai.capabilities import AbstractCapability
    from pydantic_ai.conversation_store import (
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
    )
    from pydantic_ai.messages import (
        ModelMessage,
        ModelMessagesTypeAdapter,
        ModelRequest,
        ModelResponse,
        RetryPromptPart,
        SystemPromptPart,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.toolsets import FunctionToolset
except ImportError as error:
    refuse(__name__, "pydantic-ai", error)

__all__ = ["MnemoConversationStore", "MnemoMemory", "thread_of"]

_FORMAT = "pydantic-ai"
_ATTEMPTS = 20
"""How often a save whose thread grew meanwhile is tried, before it is a conflict."""
_RECORDS: TypeAdapter[ConversationRecord] = TypeAdapter(ConversationRecord)


def thread_of(conversation_id: str) -> str:
    """The thread that holds a conversation; nothing else should be appended to it."""
    return f"{_FORMAT}:{conversation_id}"


class MnemoConversationStore(Adapter, ConversationStore):
    """
    The SDK's ``ConversationStore`` over a repository, one thread per conversation.

    Each message is stored once, as the SDK serializes it, and with its words as a message of
    the thread, so that search and recall find it. A save of up to 1,000 messages is one
    transaction: messages and record, or neither. A longer one is one for each thousand, the
    record in the last: no history has the others before.

    ``delete`` erases the messages as ``Repository.forget`` does; those that a fork shares go
    when the last conversation that needs them is deleted.

    Args:
        repo: An open repository, or one of ``mnemo.sync``.
        remember: Have facts extracted from the messages in the background; see
            ``Repository.conversation``.

    Raises:
        ConfigError: *repo* is no open repository.
    """

    def __init__(self, repo: AnyRepository | LazyService, *, remember: bool = False) -> None:
        self._remember = remember
        self._attach(repo, Repository, blocking.Repository)

    @classmethod
    def from_path(
        cls, path: str | PathLike[str], *, repo_id: str = "default", remember: bool = False
    ) -> Self:
        """A store over a file, opened at the first call; use ``async with``, or close it."""
        return cls(LazyService(path, repo_id), remember=remember)

    # ── Records ──────────────────────────────────────────────────────────────────────

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """The conversation's record; ``None``: there is none. *Cancellation*: safe."""
        newest = await self._recent(conversation_id, 1)
        if newest and not _holds_record(newest[0]):  # somebody else appended to the thread
            newest = await self._recent(conversation_id, None)
        return await anyio.to_thread.run_sync(_record_of, newest)

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """The records, of *scope* if it is given, last saved first. *Cancellation*: safe."""
        threads = await self._handle.run(lambda repo: repo.threads())
        saved = [one for one in threads if one.thread_id.startswith(thread_of("")) and one.last_at]
        saved.sort(key=lambda one: one.last_at, reverse=True)
        records: list[ConversationRecord] = []
        for thread in saved:
            if limit is not None and len(records) >= limit:
                break
            record = await self.read_record(thread.thread_id.removeprefix(thread_of("")))
            if record is not None and scope in (None, record.scope):
                records.append(record)
        return sorted(records, key=lambda record: record.updated_at, reverse=True)

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """
        Store a record with its new entries, up to 1,000 messages in one transaction.

        Raises:
            ConversationConflict: See ``ConversationStore``; nothing was stored.
            ValueError: The conversation's id or a message cannot be stored; nothing was.
                *Cancellation*: all is stored, or nothing. Of more than 1,000 messages the first
                thousands may be left without the record: found by search, in no history, and
                erased with the conversation.
        """
        known = {entry.id for entry in new_entries}
        shares = record.head_id is not None and record.head_id not in known
        if shares and await self._place(str(record.head_id)) is None:
            raise ConversationConflict(record.conversation_id)
        batch = await anyio.to_thread.run_sync(_batch, record, new_entries)
        await self._append_all(record, batch, expected_revision)
        if shares and expected_revision is None and not await self._is_forkable(record):
            await self._forget(record.conversation_id, batch)
            raise ConversationConflict(record.conversation_id)

    async def _is_forkable(self, record: ConversationRecord) -> bool:
        """Whether a fork's source is still there; whoever deletes it from now on sees the fork."""
        source = record.forked_from
        return source is None or await self.read_record(source) is not None

    async def _append_all(
        self, record: ConversationRecord, batch: Sequence[Message], expected_revision: str | None
    ) -> None:
        """Append *batch*, whose last message carries *record*; or nothing of it."""
        id, stored = record.conversation_id, list[Message]()
        try:
            for some in portions(batch):
                await self._append(id, some, expected_revision)
                stored += some
        except Exception:
            there = await self.read_record(id) if stored else record
            if there is None or there.revision != record.revision:  # they are in no history
                await self._forget(id, stored)
            raise

    async def _append(
        self, conversation_id: str, batch: Sequence[Message], expected_revision: str | None
    ) -> None:
        """Append *batch* if the record is still of that revision."""
        thread = thread_of(conversation_id)
        for _ in range(_ATTEMPTS):
            seq = await self._chat(thread, methodcaller("next_seq"))
            stored = await self.read_record(conversation_id)
            if (stored.revision if stored is not None else None) != expected_revision:
                break
            with suppress(Conflict):
                await self._chat(thread, methodcaller("append", batch, expected_seq=seq))
                return
        raise ConversationConflict(conversation_id)

    # ── Deleting ─────────────────────────────────────────────────────────────────────

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """
        Delete a record, then erase the messages that no other conversation's history reaches.

        Raises:
            ConversationConflict: See ``ConversationStore``; nothing was deleted.
                *Cancellation*: the record is deleted or not; messages that are left then go
                with the next deletion of a conversation that shares them.
        """
        record = await self.read_record(conversation_id)
        if record is None:
            raise ConversationConflict(conversation_id)
        deleted = Message(
            role="assistant", id=f"deleted:{uuid4()}", extra=_extra({"deleted": conversation_id})
        )
        await self._append(conversation_id, [deleted], expected_revision)
        await self._erase(conversation_id)
        source = record.forked_from
        while source is not None and await self.read_record(source) is None:
            source = await self._erase(source)

    async def _erase(self, conversation_id: str) -> str | None:
        """Erase a deleted conversation, if no fork needs it; give what it was a fork of."""
        held = await self._recent(conversation_id, None)
        thread = thread_of(conversation_id)
        if not held or thread in await self._needed():
            return None
        await self._forget(conversation_id, held)
        last = await anyio.to_thread.run_sync(partial(_record_of, held, deleted=True))
        return last.forked_from if last is not None else None

    async def _forget(self, conversation_id: str, messages: Sequence[Message]) -> None:
        ids, thread = [message.id for message in messages], thread_of(conversation_id)
        for some in portions(ids):  # what says that it is deleted goes last
            erase = methodcaller("forget", message_ids=some, thread_id=thread)
            with suppress(NotFound):  # somebody else erased them
                await self._handle.run(erase)

    async def _needed(self) -> set[str]:
        """The threads that the histories of forks reach into."""
        found: set[str] = set()
        for record in await self.read_records():
            if record.forked_from is not None:
                for tip in (record.head_id, *record.branches):
                    found.update([thread async for thread, _ in self._walk(tip, None)])
        return found

    # ── Entries ──────────────────────────────────────────────────────────────────────

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """
        The entry of this id.

        Raises:
            LookupError: There is none. *Cancellation*: safe.
        """
        (entry,) = await self.read_history(entry_id, limit=1)
        return entry

    async def read_history(
        self, head_id: str | None, *, limit: int | None = None
    ) -> list[ConversationEntry]:
        """
        The entries up to *head_id*, ascending; the last *limit* of them.

        Raises:
            LookupError: One of them is not stored.
            StoreCorrupt: One is not what this version of the SDK reads. *Cancellation*: safe.
        """
        return [entry async for _, entry in self._walk(head_id, limit)][::-1]

    async def _walk(self, entry_id: str | None, limit: int | None) -> Any:
        """Yield thread and entry from *entry_id* on backwards, at most *limit*."""
        found = 0
        while entry_id is not None and (limit is None or found < limit):
            place = await self._place(entry_id)
            if place is None:
                raise LookupError(f"no entry {entry_id!r} is stored")
            thread, seq = place
            first = 0 if limit is None else max(0, seq - 4 * (limit - found))
            read = methodcaller("history", from_seq=first, to_seq=seq)
            stored = await self._chat(thread, read)
            entries = await anyio.to_thread.run_sync(_entries_of, stored)
            while entry_id in entries and (limit is None or found < limit):
                found += 1
                entry = entries.pop(entry_id)
                yield thread, entry
                entry_id = entry.parent_id

    async def _place(self, entry_id: str) -> tuple[str, int] | None:
        """The thread and the seq of an entry; ``None``: it is not stored."""
        try:
            view = await self._handle.run(lambda repo: repo.view(entry_id, before=0, after=0))
        except NotFound:
            return None
        return view.target.session_id, view.target.seq

    async def _recent(self, conversation_id: str, count: int | None) -> list[StoredMessage]:
        found: list[StoredMessage] = await self._chat(
            thread_of(conversation_id), methodcaller("recent", count)
        )
        return found

    async def _chat(self, thread: str, work: Any) -> Any:
        return await self._handle.run(
            lambda repo: work(repo.conversation(thread, remember=self._remember))
        )


# ── What is stored ───────────────────────────────────────────────────────────────────


def _batch(record: ConversationRecord, entries: Sequence[ConversationEntry]) -> list[Message]:
    """The messages of a save: the last one carries the record."""
    kept = {"record": _RECORDS.dump_python(record, mode="json")}
    if not entries:
        id = f"record:{record.revision}"
        return [Message(role="assistant", id=id, at=record.updated_at, extra=_extra(kept))]
    messages = [one for entry in entries[:-1] for one in _messages_of(entry, {})]
    *others, last = _messages_of(entries[-1], kept)
    return [*messages, *others, replace(last, at=record.updated_at)]


def _extra(item: dict[str, Any]) -> str:
    return json.dumps({"format": _FORMAT, "item": item})


def _messages_of(entry: ConversationEntry, beside: dict[str, Any]) -> list[Message]:
    """What an entry says, a message per part; the last one has its id and carries it whole."""
    (message,) = ModelMessagesTypeAdapter.dump_python([entry.message], mode="json")
    item = {"id": entry.id, "parent_id": entry.parent_id, "message": message, **beside}
    *others, last = list(_spoken(entry.message)) or [Message(role="assistant")]
    named = [replace(one, id=f"{entry.id}/{place}") for place, one in enumerate(others)]
    return [*named, replace(last, id=entry.id, extra=_extra(item))]


def _spoken(message: ModelMessage) -> Iterator[Message]:
    """The parts of *message* in words; what no message can hold is in its item alone."""
    if isinstance(message, ModelResponse):
        calls = [
            {"id": part.tool_call_id, "name": part.tool_name, "arguments": part.args_as_dict()}
            for part in message.parts
            if isinstance(part, ToolCallPart)
        ]
        content = "\n".join(p.content for p in message.parts if isinstance(p, TextPart)) or None
        yield from _first_of(
            {"role": "assistant", "content": content, "tool_calls": calls},
            {"role": "assistant", "content": content},
        )
        return
    for part in message.parts:
        if isinstance(part, SystemPromptPart):
            yield Message(role="system", content=part.content)
        elif isinstance(part, UserPromptPart):
            yield Message(role="user", content=_words(part.content), at=part.timestamp)
        elif isinstance(part, ToolReturnPart):
            yield from _result(part, part.model_response_str(), is_error=False)
        elif isinstance(part, RetryPromptPart):
            yield from _result(part, part.model_response(), is_error=True)


def _result(
    part: ToolReturnPart | RetryPromptPart, text: str, *, is_error: bool
) -> Iterator[Message]:
    answer = {"role": "tool", "tool_call_id": part.tool_call_id, "name": part.tool_name}
    yield from _first_of(
        {**answer, "content": text, "is_error": is_error}, {"role": "user", "content": text}
    )


def _first_of(*values: dict[str, Any]) -> Iterator[Message]:
    """A message of the first *values* that it accepts: providers allow ids that it refuses."""
    for accepted in values:
        with suppress(ValueError):
            yield Message(**accepted)
            return


def _words(content: Any) -> str:
    """The texts of a user's prompt."""
    if isinstance(content, str):
        return content
    texts = (one if isinstance(one, str) else getattr(one, "content", None) for one in content)
    return "\n".join(text for text in texts if isinstance(text, str))


def _item(message: StoredMessage) -> dict[str, Any]:
    """What the SDK's side of *message* is; empty: somebody else stored it."""
    if message.extra is None or f'"{_FORMAT}"' not in message.extra:
        return {}
    kept = json.loads(message.extra)
    item = kept["item"] if kept["format"] == _FORMAT else {}
    return item if isinstance(item, dict) else {}


def _holds_record(message: StoredMessage) -> bool:
    return not {"record", "deleted"}.isdisjoint(_item(message))


def _record_of(
    messages: Sequence[StoredMessage], *, deleted: bool = False
) -> ConversationRecord | None:
    """The newest record in *messages*; ``None`` if there is none, or it is *deleted*."""
    for message in reversed(messages):
        item = _item(message)
        if "record" in item:
            with _translated(message):
                return _RECORDS.validate_python(item["record"])
        if "deleted" in item and not deleted:
            return None
    return None


def _entries_of(messages: Iterable[StoredMessage]) -> dict[str, ConversationEntry]:
    """The entries in *messages*, by id."""
    found: dict[str, ConversationEntry] = {}
    for message in messages:
        item = _item(message)
        if "message" in item:
            with _translated(message):
                (value,) = ModelMessagesTypeAdapter.validate_python([item["message"]])
            parent_id = item["parent_id"]
            found[item["id"]] = ConversationEntry(id=item["id"], parent_id=parent_id, message=value)
    return found


@contextmanager
def _translated(message: StoredMessage) -> Iterator[None]:
    """A context in which what the SDK cannot read is ``StoreCorrupt``."""
    try:
        yield
    except ValidationError as error:
        raise StoreCorrupt(
            f"the message {message.id!r} is none of this version of Pydantic AI",
            table="messages",
            key=message.id,
        ) from error


# ── The capability ───────────────────────────────────────────────────────────────────

_SEARCHING = ("search_messages", "view_messages", "recall")


class MnemoMemory(AbstractCapability[Any]):
    """
    A capability: the window of the stored conversation, and tools over the repository.

    Before each request the earlier turns are cut to the window that a viewport of the stored
    thread keeps, and what has left it is told in its words (a system prompt). The messages of
    the present run are always sent whole. The request alone is changed: nothing is stored
    from it, and the run's history stays whole. A conversation that no
    ``MnemoConversationStore`` saved is sent as it is.

    Tools: ``search_messages``, ``view_messages``, ``recall`` and ``remember``.

    Args:
        repo: An open repository, or one of ``mnemo.sync``.
        budget_tokens: Of the viewport; ``None``: as configured.
        remember_in: The thread that ``remember`` appends to.

    Raises:
        ConfigError: *repo* is no open repository.
    """

    def __init__(
        self, repo: AnyRepository, *, budget_tokens: int | None = None, remember_in: str = "default"
    ) -> None:
        self._repo = Handle.of(repo, Repository, blocking.Repository)
        self._budget_tokens = budget_tokens
        self._remember_in = remember_in
        searching = repo.tools(names=_SEARCHING)
        remembering = repo.tools(remember_in, names=("remember",))
        self._tools = [tool.spec["function"] for tool in (*searching, *remembering)]

    def get_toolset(self) -> FunctionToolset[Any]:
        """The tools over the repository, for the agent."""
        return FunctionToolset([self._tool(spec) for spec in self._tools])

    def _tool(self, spec: dict[str, Any]) -> Tool[Any]:
        name = spec["name"]

        async def call(ctx: RunContext[Any], **arguments: Any) -> str:
            thread = thread_of(ctx.conversation_id or "") if name in _SEARCHING else None
            made = methodcaller("tools", thread or self._remember_in, names=(name,))
            answer: str = await self._repo.run(lambda repo: made(repo)[0].call(arguments))
            return answer

        return Tool.from_schema(call, name, spec["description"], spec["parameters"], takes_ctx=True)

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Cut the earlier turns of the request to the window. *Cancellation*: safe."""
        earlier = [m for m in request_context.messages if m.run_id != ctx.run_id]
        if not earlier or ctx.conversation_id is None:
            return request_context
        thread = thread_of(ctx.conversation_id)
        rendered = await self._repo.run(
            lambda repo: repo.conversation(thread).viewport(self._budget_tokens).render()
        )
        if not rendered.memory:  # nothing has left the window
            return request_context
        kept = sum("message" in _item(one) for one in rendered.window)
        told = ModelRequest(parts=[SystemPromptPart(rendered.memory)])
        present = request_context.messages[len(earlier) :]
        request_context.messages = [told, *_whole_turns(earlier, kept), *present]
        return request_context


def _whole_turns(messages: list[ModelMessage], count: int) -> list[ModelMessage]:
    """The last *count* of *messages* from where a turn begins: no result without its call."""
    first = len(messages) - min(count, len(messages))
    turns = (place for place in range(first, len(messages)) if _begins_turn(messages[place]))
    return messages[next(turns, len(messages)) :]


def _begins_turn(message: ModelMessage) -> bool:
    """Whether it is a prompt of the user, and answers no call."""
    kinds = {type(part) for part in message.parts} if isinstance(message, ModelRequest) else set()
    return UserPromptPart in kinds and ToolReturnPart not in kinds
