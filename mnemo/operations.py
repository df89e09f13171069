"""
Every operation of mnemo, declared once: name, parameters, result, right, surfaces, errors.

Names, types, texts and errors are those of the public methods. From these declarations are made
the routes of the HTTP service and its OpenAPI document, the methods of its client, what the MCP
server offers, and the guide's list of operations (``mnemo guide calls``).
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from functools import cached_property
from types import FunctionType, SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union

from pydantic import AwareDatetime, Field, JsonValue, NaiveDatetime

import mnemo
from mnemo.context.eviction import Snapshots
from mnemo.context.goals import Goals, Pins
from mnemo.repository.recalling import MOST_QUESTIONS
from mnemo.runtime.validation import MOST_AT_ONCE

__all__ = ["OPERATIONS", "Operation", "Parameter", "Right", "described"]

Right: TypeAlias = Literal["read", "write", "manage", "admin", "model"]

OWNERS: dict[str, type] = {
    "": mnemo.Repository,
    "session": mnemo.Session,
    "conversation": mnemo.Conversation,
    "conversation.goals": Goals,
    "conversation.pins": Pins,
    "conversation.snapshots": Snapshots,
    "notes": mnemo.Notes,
    "items": mnemo.Items,
    "checkpoints": mnemo.Checkpoints,
    "inspection": mnemo.Inspection,
    "memory": mnemo.Mnemo,
}
"""What a path from the repository leads to; ``memory`` is the service itself."""

SURFACES = """
remember                    write  POST    /remember                 remember
recall                      read   POST    /recall                   recall
recall_in_context           read   POST    /recall_in_context
recall_many                 read   POST    /recall_many
search                      read   POST    /search                   search_messages
view                        read   GET     /view                     view_messages
memories                    read   POST    /memories/list            list_memories
changes                     read   POST    /memories/changes
add_memory                  write  POST    /memories
memory                      read   GET     /memory
update_memory               write  PATCH   /memory                   update_memory
history                     read   GET     /memory/history
forget                      write  POST    /forget                   forget
recalls                     read   GET     /recalls
threads                     read   GET     /conversations
sessions                    read   GET     /sessions
start_session               write  POST    /sessions
resume_session              write  POST    /session/resume
statistics                  read   GET     /statistics
settle                      write  POST    /settle
retry_jobs                  write  POST    /jobs/retry
cancel_jobs                 write  POST    /jobs/cancel
inspection.jobs             read   GET     /jobs
conversation.append         write  POST    /conversation/messages
conversation.load           read   POST    /conversation/load
conversation.clear          write  POST    /conversation/clear
conversation.look           read   GET     /conversation/window
conversation.recent         read   GET     /conversation/recent
conversation.next_seq       read   GET     /conversation/next_seq
conversation.compact        write  POST    /conversation/compact
conversation.compactions    read   GET     /conversation/compactions
conversation.compress       write  POST    /conversation/compress
conversation.withdraw       write  POST    /conversation/withdraw
conversation.settle         write  POST    /conversation/settle
conversation.purge          write  POST    /conversation/purge
conversation.goals.add      write  POST    /conversation/goals
conversation.goals.list     read   GET     /conversation/goals
conversation.goals.update   write  PATCH   /conversation/goals
conversation.goals.complete write  POST    /conversation/goals/complete
conversation.pins.attach    write  POST    /conversation/pins
conversation.pins.list      read   GET     /conversation/pins
conversation.snapshots.list read   GET     /conversation/snapshots
session.start_episode       write  POST    /session/start_episode
session.append              write  POST    /session/steps
session.append_messages     write  POST    /session/messages
session.close               write  POST    /session/close
session.commit              write  POST    /session/commit
session.discard             write  POST    /session/discard
session.close_and_commit    write  POST    /session/close_and_commit
session.wait_for            write  POST    /session/wait
notes.list                  read   GET     /notes                    list_notes
notes.read                  read   GET     /note                     read_note
notes.write                 write  PUT     /note                     write_note
notes.delete                write  DELETE  /note
notes.history               read   GET     /note/history
notes.restore               write  POST    /note/restore
notes.purge                 write  POST    /note/purge
notes.overview              read   GET     /notes/overview
notes.recall                read   POST    /notes/recall
notes.undo                  write  POST    /notes/undo
notes.update_after_task     model  POST    /notes/update_after_task
items.put                   write  PUT     /item
items.get                   read   GET     /item
items.delete                write  DELETE  /item
items.search                read   POST    /items/search
items.list_namespaces       read   POST    /items/namespaces
inspection.changes          read   GET     /changes
inspection.names            read   GET     /names
inspection.named            read   GET     /name
memory.export_repo          manage GET     /repository/export
memory.import_repo          manage POST    /repository/import
memory.delete_repo          manage DELETE  /repository
memory.reembed              admin  POST    /repository/reembed
memory.check                admin  POST    /check
consolidate                 admin  POST    /consolidate
decay                       admin  POST    /decay
validate                    admin  POST    /validate
"""
"""
Operations that are on more surfaces than the library and ``mnemo.sync``: the right that each needs,
method and path of its route, which the client calls, too, and the tool that MCP has of it. What
is not listed needs the right ``admin``.
"""

LASTING = frozenset({"memory.reembed", "memory.check", "consolidate", "decay", "validate"})
"""Operations that a request is answered before, if they take over a second: they go on as jobs."""

ADDRESSES = {
    "id": "id",
    "repo_id": "repo",
    "topic": "topic",
    "view.message_id": "id",
    "resume_session.session_id": "session",
}
"""Parameters that are in a route's address, also where it has a body, and their names there."""

IN_PROCESS = frozenset({"config", "chat_model", "embedder", "on_progress"})
"""Parameters that JSON has no form for: settings, models and callbacks are the service's own."""
STREAMED = frozenset({"lines"})
"""Parameters that are the body of a request, line by line."""

DEFAULTS: dict[str, tuple[Any, str]] = {
    "forget.dry_run": (True, "a call that does not say so erases nothing"),
    "memory.delete_repo.dry_run": (True, "a call that does not say so deletes nothing"),
    "memory.import_repo.exist_ok": (True, "a call whose answer was lost is made again"),
    "session.append.action": ("", "an observation alone is a step"),
    "limit": (100, "an answer that is not asked for stays bounded"),
    "threads.limit": (MOST_AT_ONCE, "an answer that is not asked for stays bounded"),
    "settle.timeout_s": (30.0, "a request does not wait without end"),
    "session.wait_for.timeout_s": (60.0, "a request does not wait without end"),
    "session.close_and_commit.timeout_s": (60.0, "a request does not wait without end"),
    "conversation.load.budget_tokens": (32_000, "an answer that is not asked for stays bounded"),
}
"""Defaults over HTTP that are not the method's, and why; ``limit`` where the method has none."""

_PROMPT: dict[str, tuple[Any, Any, str]] = {
    "budget_tokens": (int | None, None, "Tokens of `text`, at most; null: all that was found."),
    "style": (
        Literal["compact", "full"],
        "compact",
        "Of `text`: a line per memory, or facts, instructions and episodes apart.",
    ),
    "order": (Literal["relevance", "time"], "relevance", "Of `text`: best or oldest first."),
}
ADDED: dict[str, dict[str, tuple[Any, Any, str]]] = {
    "start_session": {
        "auto_commit": (
            bool | None,
            None,
            "Commit finished trajectories in the background; null: as the service is configured.",
        )
    },
    "recall": _PROMPT,
    "recall_in_context": _PROMPT,
    "recall_many": _PROMPT,
    "conversation.append": {
        "remember": (bool, False, "Have facts extracted in the background from these messages.")
    },
}
"""Parameters that a method has no other form for: type, default, description."""

_BOUNDS: dict[str, tuple[float, float]] = {
    "after": (0, 100),
    "before": (0, 100),
    "budget_tokens": (1, 10_000_000),
    "count": (1, MOST_AT_ONCE),
    "end_seq": (0, 2**53),
    "expected_seq": (0, 2**53),
    "expected_version": (0, 2**53),
    "goal_id": (0, 2**53),
    "iterations": (0, 1_000_000),
    "k": (1, 1_000),
    "limit": (1, MOST_AT_ONCE),
    "max_depth": (1, 1_000),
    "max_hops": (0, 10),
    "max_retries": (0, 10),
    "min_confidence": (0, 1),
    "min_score": (0, 1),
    "offset": (0, 2**53),
    "parent_id": (0, 2**53),
    "remember.timeout_s": (0, 600),
    "search.limit": (1, 100),
    "start_seq": (0, 2**53),
    "timeout_s": (0, 300),
    "update_memory.expected_version": (1, 2**53),
    "consolidate.threshold": (-1, 1),
    "decay.threshold": (0, 1_000_000),
    "version": (1, 2**53),
    "view.budget_tokens": (100, 1_000_000),
}
"""Of numbers, ends included; an operation's own bound goes before that of the name."""

Time: TypeAlias = AwareDatetime | NaiveDatetime
JsonObject: TypeAlias = dict[str, JsonValue]
Many = Field(max_length=MOST_AT_ONCE)
_Text: TypeAlias = str | JsonObject

_SENT: dict[Any, Any] = {
    datetime | str | None: Time | None,
    Mapping[str, Any]: JsonObject,
    Mapping[str, Any] | None: JsonObject | None,
    mnemo.Session | str: str,
    mnemo.SessionState | str: mnemo.SessionState,
    Sequence[mnemo.Step | str]: Annotated[list[str], Many],
}
"""Types of parameters, and what JSON has in their place."""
_SENT_AS: dict[str, Any] = {
    "content": _Text | Annotated[list[_Text], Many],
    "history": Annotated[list[JsonObject], Field(max_length=10_000)],
    "messages": Annotated[list[JsonObject], Many],
    "mode": Literal["semantic", "procedural", "episodic", "mixed"] | None,
    "queries": Annotated[list[str], Field(max_length=MOST_QUESTIONS)],
    "notes.update_after_task.session": str | None,
    "states": Annotated[list[mnemo.SessionState], Field(max_length=5)],
}
"""Parameters whose types say less, or more, than JSON's."""

_TEXTS = {
    "active_only": "Only those that are not done.",
    "body": "The note's Markdown.",
    "description": "What it is about, in a line.",
    "end_seq": "The last seq of the range.",
    "expected_version": "The version that this replaces; another one is a conflict.",
    "from_seq": "The first seq.",
    "goal": "What the session is for.",
    "goal_id": "The goal's id.",
    "goal_ids": "Goals that hold on to them.",
    "id": "Its id.",
    "key": "Its key.",
    "limit": "Members of the answer, at most.",
    "max_depth": "Parts of a namespace, at most.",
    "namespace": "The path that the key is below.",
    "offset": "How many are skipped.",
    "prefix": "How the namespace begins.",
    "repair": "First put right what follows from the other rows.",
    "repo": "The repository's id.",
    "repo_id": "The repository's id.",
    "seqs": "Messages of the thread, by seq.",
    "session": "The session's id.",
    "start_seq": "The first seq of the range.",
    "states": "Any of these ends the wait.",
    "suffix": "How the namespace ends; null is any part.",
    "summary_text": "The text that stands for the range.",
    "text": "What it says.",
    "thread": "The thread's id.",
    "thread_ids": "Threads.",
    "timeout_s": "Seconds to wait, at most.",
    "topic": "The note's topic.",
    "type": "A fact or an instruction.",
    "unfinished": "Only those that are not idle.",
    "update_id": "``NoteUpdate.id``.",
    "version": "The version.",
}
"""What a parameter means, by its name, where the method's docstring leaves it out."""


def described(doc: str | None, section: str) -> dict[str, str]:
    """Each name and its text in a section of a docstring: ``Args``, ``Attributes``, ``Raises``."""
    part = re.search(rf"^{section}:\n(.*?)(?=^\S|\Z)", inspect.cleandoc(doc or ""), re.M | re.S)
    texts: dict[str, str] = {}
    for names, text in re.findall(
        r"^ {4}([\w, -]+): +(.*(?:\n {8}.*)*)", part[1] if part else "", re.M
    ):
        told = re.sub(r" ?\*Cancellation\*.*", "", " ".join(text.split()))
        texts |= dict.fromkeys(names.split(", "), told)
    return texts


def _told(texts: Mapping[str, str], name: str) -> str:
    """What *texts* say of a parameter, under its own name or beside another's."""
    return texts.get(name) or next((text for text in texts.values() if f"*{name}*" in text), "")


_RECALL = described(mnemo.Repository.recall.__doc__, "Args")
"""What filters mean, to which the other docstrings refer."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """
    A parameter of an operation, as JSON has it.

    Attributes:
        kind: Its type with its bounds.
        default: ``...``: it must be given.
        address: Its name in the query of a route that has a body, too; ``None``: in the body.
    """

    name: str
    kind: Any
    default: Any
    description: str
    address: str | None


@dataclass(frozen=True)
class Operation:
    """
    An operation.

    Attributes:
        name: As one writes it behind a repository: ``remember``, ``notes.write``.
        function: The public method.
        right: What a token must permit.
        method, path: Of its route below ``/v1``; ``""``: it is on no other surface than the
            library and ``mnemo.sync``.
        tool: The name of its MCP tool.
    """

    name: str
    function: FunctionType
    _: KW_ONLY
    right: Right = "admin"
    method: str = ""
    path: str = ""
    tool: str | None = None

    @property
    def owner(self) -> str:
        """The path to whose method it is, a key of ``OWNERS``."""
        return self.name.rpartition(".")[0]

    @property
    def surfaces(self) -> tuple[str, ...]:
        """Where it is offered."""
        more = (*(("http", "client") if self.path else ()), *(("mcp",) if self.tool else ()))
        return ("library", "sync", *more)

    @cached_property
    def summary(self) -> str:
        """The first paragraph of the docstring."""
        text = " ".join(inspect.cleandoc(self.function.__doc__ or "").split("\n\n")[0].split())
        return re.sub(r" ?\*(Cancellation|Raises)\*.*", "", text)

    @cached_property
    def cancellation(self) -> str:
        """What a call that is cancelled has done."""
        text = " ".join((self.function.__doc__ or "").split())
        found = re.search(r"\*Cancellation\*:? ?([^.]*\.)", text)
        return found[1] if found else ""

    @cached_property
    def hints(self) -> dict[str, Any]:
        """Types by parameter, and of the result as ``return``."""
        kept = {n: kind for n, kind in self.function.__annotations__.items() if n not in IN_PROCESS}
        named = SimpleNamespace(__annotations__=kept)
        known = {"ReembeddingReport": mnemo.ReembeddingReport, **self.function.__globals__}
        return typing.get_type_hints(named, known, include_extras=True)

    @cached_property
    def signature(self) -> inspect.Signature:
        """Of a call from elsewhere, behind ``self``: without what only a process has."""
        whole = inspect.signature(self.function)
        kept = [one for name, one in whole.parameters.items() if name not in IN_PROCESS]
        kind = inspect.Parameter.KEYWORD_ONLY
        kept += [
            inspect.Parameter(name, kind, default=default, annotation=type)
            for name, (type, default, _) in ADDED.get(self.name, {}).items()
        ]
        return whole.replace(parameters=kept)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """What a request gives."""
        return tuple(self._parameters())

    def _parameters(self) -> Iterator[Parameter]:
        texts, added = described(self.function.__doc__, "Args"), ADDED.get(self.name, {})
        for name, one in [*self.signature.parameters.items()][1:]:
            if name in STREAMED:
                continue
            if name in added:
                kind, default, text = added[name]
                yield Parameter(name, self._bounded(name, kind), default, text, None)
                continue
            kind = self._own(_SENT_AS, name, None) or _sent(self.hints[name])
            default = ... if one.default is one.empty else one.default
            if default is None or f"{self.name}.{name}" in DEFAULTS:
                default, _ = self._own(DEFAULTS, name, (default, ""))
                kind = kind if default is None else _without_none(kind)
            text = _told(texts, name) or _told(_RECALL, name) or _TEXTS.get(name, "")
            address = self._own(ADDRESSES, name, None)
            yield Parameter(name, self._bounded(name, kind), default, text, address)

    def _bounded(self, name: str, kind: Any) -> Any:
        bounds = self._own(_BOUNDS, name, None)
        if bounds and {int, float} & {kind, *typing.get_args(kind)}:
            return Annotated[kind, Field(ge=bounds[0], le=bounds[1])]
        return kind

    def _own(self, table: Mapping[str, Any], name: str, otherwise: Any) -> Any:
        """The entry of this operation's parameter, or else of all that have its name."""
        return table.get(f"{self.name}.{name}", table.get(name, otherwise))

    @property
    def is_stream(self) -> bool:
        """Whether it gives one line after the other, in a context."""
        return not inspect.iscoroutinefunction(self.function)

    @cached_property
    def result(self) -> Any:
        """The type of the answer, as JSON has it; ``None``: there is none."""
        # The command line needs none of the shapes, and building them takes time.
        from mnemo.exchange import SHAPES

        kind = self.hints["return"]
        if typing.get_origin(kind) is list and (shape := SHAPES.get(typing.get_args(kind)[0])):
            return list[shape]  # type: ignore[valid-type]
        return None if kind is type(None) else SHAPES.get(kind, kind)

    def call(self, target: Any, given: dict[str, Any]) -> Any:
        """Call the method of *target* with arguments by name."""
        kinds = {one.kind: name for name, one in self.signature.parameters.items()}
        several = given.pop(kinds.get(inspect.Parameter.VAR_POSITIONAL, ""), ())
        return getattr(target, self.function.__name__)(*several, **given)

    @cached_property
    def reasons(self) -> frozenset[str]:
        """Reasons of refusals that are this operation's own; a session's are those of all its."""
        of = [self.function]
        if self.owner == "session":
            of = [one.function for one in OPERATIONS.values() if one.owner == self.owner]
            of.append(OPERATIONS["resume_session"].function)
        return frozenset(reason for function in of for reason in _reasons(function))


def reason_of(error: str) -> str:
    """The reason that a refusal has by its exception's class: its name in snake case."""
    plain = {"ValueError": "invalid_argument", "TimeoutError": "timeout"}
    return plain.get(error) or re.sub(r"(?<=[a-z])(?=[A-Z])", "_", error).lower()


def _reasons(function: FunctionType) -> Iterator[str]:
    for name in re.findall(r"\*Raises\* ``(\w+)``", function.__doc__ or ""):
        yield reason_of(name)
    for names, text in described(function.__doc__, "Raises").items():
        codes = re.findall(r"``([a-z]+_[a-z_]+)``", text) if names.startswith("Session") else []
        yield from codes or [reason_of(names)]


def _sent(kind: Any) -> Any:
    """What JSON has in place of *kind*."""
    if kind in _SENT:
        return _SENT[kind]
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, UnionType):
        return Union[tuple(map(_sent, args))]  # noqa: UP007
    return Annotated[list[args[0]], Many] if origin is Sequence else kind  # type: ignore[valid-type]


def _without_none(kind: Any) -> Any:
    return Union[tuple(one for one in typing.get_args(kind) if one is not type(None)) or kind]  # noqa: UP007


def _declared() -> Iterator[Operation]:
    """An operation of each public coroutine function, and of what is listed besides."""
    listed = {row[0]: row for row in map(str.split, SURFACES.strip().splitlines())}
    for owner, cls in OWNERS.items():
        for own, function in inspect.getmembers(cls, inspect.isfunction):
            name = f"{owner}.{own}".removeprefix(".")
            if name not in listed:
                if inspect.iscoroutinefunction(function) and not own.startswith("_"):
                    yield Operation(name, function)
                continue
            _, right, method, path, *tool = listed.pop(name)
            yield Operation(
                name,
                function,
                right=typing.cast(Right, right),
                method=method,
                path=path,
                tool=tool[0] if tool else None,
            )
    assert not listed, f"no method is called {[*listed]}"


OPERATIONS: dict[str, Operation] = {one.name: one for one in _declared()}
"""By name."""
