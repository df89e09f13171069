"""The tools of a repository for agents: remember, recall, look, correct and erase."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from mnemo.errors import NotFound
from mnemo.notes.tools import NoteToolbox
from mnemo.recall.keyword import SearchHit
from mnemo.recall.view import MessageView
from mnemo.repository.agent_tools import (
    AgentTool,
    Refused,
    checked_limit,
    limit_schema,
    object_schema,
    optional_text,
)
from mnemo.repository.memories import Memory
from mnemo.repository.repository import Repository
from mnemo.runtime.text import is_blank, one_line
from mnemo.runtime.validation import every, quoted
from mnemo.values.erasure import ErasureReport
from mnemo.values.untrusted import json_line, without_marks

LONGEST_TEXT = 100_000
"""Characters of a text that a model may store."""
RECALL_TOKENS = 2_000
"""Tokens of a recall's answer, at most."""
MOST_RECALLED = 50
MOST_LISTED = 100
MOST_HITS = 20
DEFAULT_HITS = 5
LONGEST_QUERY = 1_000
"""Characters of the words of a search."""
SHOWN = 200
"""Characters of a query and of an id in an answer."""
MOST_ERASED = 100
"""Ids of one call of ``forget``."""

_IDS = {"type": "array", "items": {"type": "string"}, "maxItems": MOST_ERASED}
_TEXT = {"type": "string", "minLength": 1, "maxLength": LONGEST_TEXT}


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


_ID = _text("As list_memories gives it.")


def tools_of(
    repo: Repository, thread_id: str | None, names: Sequence[str] | None
) -> list[AgentTool]:
    """Make the tools called *names*, in that order; see ``Repository.tools``."""
    names = ("search_messages", "view_messages") if names is None else every("names", names)
    toolbox = repo.notes.toolbox(limited=False)
    makers: dict[str, Callable[[], AgentTool]] = {
        "search_messages": lambda: search_tool(partial(repo.search, not_visible_in=thread_id)),
        "view_messages": lambda: view_tool(repo.view),
        "remember": lambda: _remember(repo, thread_id or "default"),
        "recall": lambda: _recall(repo),
        "list_memories": lambda: _list_memories(repo),
        "update_memory": lambda: _update_memory(repo),
        "forget": lambda: _forget(repo),
    }
    makers |= {spec["name"]: partial(_note_tool, toolbox, spec) for spec in toolbox.specs}
    if unknown := [name for name in names if not isinstance(name, str) or name not in makers]:
        raise ValueError(f"there is no tool {quoted(unknown[0])}; there are {', '.join(makers)}")
    return [makers[name]() for name in names]


def search_tool(search: Callable[..., Awaitable[list[SearchHit]]]) -> AgentTool:
    """``search_messages``, which asks *search*."""

    async def run(arguments: Mapping[str, Any]) -> str:
        query = _query(arguments.get("query"))
        limit = checked_limit(arguments, DEFAULT_HITS, MOST_HITS)
        hits = await search(query, session_id=optional_text(arguments, "session_id"), limit=limit)
        return _found(query, hits)

    return AgentTool(
        name="search_messages",
        description=(
            "Search everything ever said or observed, except what is visible to you now, by "
            "words that must all occur. "
            'A "quoted phrase" is found as it stands; OR and NOT in upper case join words. '
            "Each result has an id that view_messages opens."
        ),
        parameters=object_schema(
            query={
                "type": "string",
                "minLength": 1,
                "maxLength": LONGEST_QUERY,
                "description": "Words that must all occur.",
            },
            session_id=_text("Search this session or conversation only."),
            limit=limit_schema(DEFAULT_HITS, MOST_HITS),
        ),
        run=run,
        missing="search is unavailable",
    )


def view_tool(view: Callable[..., Awaitable[MessageView]]) -> AgentTool:
    """``view_messages``, which asks *view*."""

    async def run(arguments: Mapping[str, Any]) -> str:
        id = _required(arguments, "message_id")
        try:
            return (await view(id, session_id=optional_text(arguments, "session_id"))).as_text()
        except NotFound:
            message = f"Message {one_line(id)[:SHOWN]} not found"
            raise Refused(message, reason="not_found") from None

    return AgentTool(
        name="view_messages",
        description=(
            "Open the conversation around a message, by an id which a search returned: the "
            "messages before and after it, and what lies further away in short."
        ),
        parameters=object_schema(
            message_id=_text("The id of a search result."),
            session_id=_text("The session or conversation named with that result."),
        ),
        run=run,
        missing="viewing messages is unavailable",
    )


def _remember(repo: Repository, thread_id: str) -> AgentTool:
    async def run(arguments: Mapping[str, Any]) -> str:
        role = arguments.get("role", "user")
        if role not in ("user", "assistant"):
            raise Refused("role must be user or assistant")
        stored = await repo.remember(
            _required(arguments, "text"),
            thread_id=thread_id,
            role=role,
            key=optional_text(arguments, "key"),
            wait=arguments.get("wait") is True,
        )
        if stored.left_out:
            raise Refused(
                f"nothing was remembered: the message of key {stored.left_out[0]!r} was forgotten; "
                "give it another key if it is to be known again"
            )
        return without_marks(f"Remembered as message {stored.messages[0].id}.")

    return AgentTool(
        name="remember",
        description=(
            "Store a text for good: what the user said about themselves, a decision, a result. "
            "It is found at once; facts are extracted from it in the background. Write whole "
            "sentences with names and dates, since they are read without this conversation."
        ),
        parameters=object_schema(
            text={**_TEXT, "description": "What to remember."},
            role={
                "type": "string",
                "enum": ["user", "assistant"],
                "default": "user",
                "description": "Whose words these are.",
            },
            key=_text("Your own id of this text: the same again adds nothing."),
            wait={
                "type": "boolean",
                "default": False,
                "description": "Return when the facts are extracted; takes seconds.",
            },
        ),
        run=run,
        missing="remembering failed; call again with the same key",
    )


def _recall(repo: Repository) -> AgentTool:
    async def run(arguments: Mapping[str, Any]) -> str:
        limit = checked_limit(arguments, 10, MOST_RECALLED)
        found = await repo.recall(_required(arguments, "query"), k=limit)
        return found.as_text(RECALL_TOKENS) if found.candidates else "Nothing is known about that."

    return AgentTool(
        name="recall",
        description=(
            "Find what is known about a question: facts, instructions and what was said, best "
            "first, with dates. Ask in whole words, before you answer from memory. For the exact "
            "words of a message use search_messages."
        ),
        parameters=object_schema(
            query={**_TEXT, "description": "The question."}, limit=limit_schema(10, MOST_RECALLED)
        ),
        run=run,
        missing="recall is unavailable",
    )


def _list_memories(repo: Repository) -> AgentTool:
    async def run(arguments: Mapping[str, Any]) -> str:
        page = await repo.memories(
            limit=checked_limit(arguments, 20, MOST_LISTED), after=optional_text(arguments, "after")
        )
        lines = [_shown(memory) for memory in page] or ["There are no memories."]
        return "\n".join([*lines, *([f"More: after={page.next}"] if page.next else [])])

    return AgentTool(
        name="list_memories",
        description=(
            "List the stored facts and instructions with their ids, the newest first, a page at "
            "a time. To find something use recall."
        ),
        parameters=object_schema(
            0, limit=limit_schema(20, MOST_LISTED), after=_text("As the page before names it.")
        ),
        run=run,
        missing="listing memories is unavailable",
    )


def _update_memory(repo: Repository) -> AgentTool:
    async def run(arguments: Mapping[str, Any]) -> str:
        memory = await repo.update_memory(
            _required(arguments, "memory_id"),
            _required(arguments, "text"),
            reason=optional_text(arguments, "reason"),
        )
        return f"Version {memory.version}: {_shown(memory)}"

    return AgentTool(
        name="update_memory",
        description=(
            "Correct the wording of a fact or instruction; the former wording stays in its "
            "history. Only when the user says that it is wrong or has changed."
        ),
        parameters=object_schema(
            2,
            memory_id=_ID,
            text={**_TEXT, "description": "The whole new wording."},
            reason=_text("Why, for the history."),
        ),
        run=run,
        missing="correcting is unavailable; nothing was changed",
    )


def _forget(repo: Repository) -> AgentTool:
    async def run(arguments: Mapping[str, Any]) -> str:
        memories, messages = _ids(arguments, "memory_ids"), _ids(arguments, "message_ids")
        if not (memories or messages):
            raise Refused("memory_ids or message_ids is required")
        erase = partial(repo.forget, memory_ids=memories, message_ids=messages)
        report = await erase(dry_run=True)
        token = _token(memories, messages, report)
        given = optional_text(arguments, "token")
        if given is None:
            return f"Nothing was erased yet. {_erased(report)} To erase, call again with {token=!s}"
        if given != token:
            message = "this token is of another selection, or what would be erased has changed"
            raise Refused(f"{message}. {_erased(report)} Now {token=!s}", reason="conflict")
        return f"Done. {_erased(await erase())}"

    return AgentTool(
        name="forget",
        description=(
            "Erase memories for good, with the messages that they rest on. Only when the user "
            "asks for it. The first call erases nothing: it reports what would go, and gives a "
            "token. Show the report to the user, then call again with the same ids and the token."
        ),
        parameters=object_schema(
            0,
            memory_ids={**_IDS, "description": "Ids of list_memories."},
            message_ids={**_IDS, "description": "Ids of search_messages."},
            token=_text("What the first call returned."),
        ),
        run=run,
        missing="erasing is unavailable; nothing was erased",
    )


def _note_tool(toolbox: NoteToolbox, spec: Mapping[str, Any]) -> AgentTool:
    """One of the note tools, whose answers are JSON."""

    async def run(arguments: Mapping[str, Any]) -> str:
        answer = await toolbox.carry_out(spec["name"], arguments)
        if not answer["ok"]:
            raise Refused(json_line(answer), reason=answer["code"])
        return json_line(answer)

    return AgentTool(
        name=spec["name"],
        description=spec["description"],
        parameters=spec["parameters"],
        run=run,
        missing="notes are unavailable",
    )


# ── Arguments and answers ────────────────────────────────────────────────────────────────


def _query(given: object) -> str:
    if given is None or (isinstance(given, str) and is_blank(given)):
        raise Refused("Query cannot be blank")
    if not isinstance(given, str) or len(given) > LONGEST_QUERY:
        raise Refused(f"query must be a text of at most {LONGEST_QUERY:,} characters")
    return given


def _required(arguments: Mapping[str, Any], name: str) -> str:
    text = optional_text(arguments, name)
    if text is None:
        raise Refused(f"{name} is required")
    if len(text) > LONGEST_TEXT:
        raise Refused(f"{name} must have at most {LONGEST_TEXT:,} characters, not {len(text):,}")
    return text


def _ids(arguments: Mapping[str, Any], name: str) -> list[str]:
    given = arguments.get(name) or []
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise Refused(f"{name} must be a list of ids")
    if len(given) > MOST_ERASED:
        raise Refused(f"{name} must name at most {MOST_ERASED} ids")
    return given


def _token(memories: list[str], messages: list[str], report: ErasureReport) -> str:
    """Stands for a selection and what was reported of it; another report has another token."""
    told = f"{sorted(memories)} {sorted(messages)} {asdict(replace(report, scrubbed=False))}"
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def _erased(report: ErasureReport) -> str:
    counts = {name: count for name, count in asdict(report).items() if type(count) is int and count}
    shown = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())
    return f"What goes: {shown or 'nothing'}."


def _shown(memory: Memory) -> str:
    at = memory.valid_from or memory.created_at
    day = f", {at.date().isoformat()}" if at else ""
    return without_marks(f"[{memory.id}, {memory.type}{day}] {one_line(memory.text)}")


def _found(query: str, hits: list[SearchHit]) -> str:
    asked = without_marks(one_line(query)[:SHOWN])
    if not hits:
        return f'No results found for "{asked}".'
    count = "1 result" if len(hits) == 1 else f"{len(hits)} results"
    return "\n\n".join([f'Found {count} for "{asked}":', *map(_told_hit, hits)])


def _told_hit(hit: SearchHit) -> str:
    stream, day = one_line(hit.session_id), hit.at.date().isoformat()
    head = f'[message {one_line(hit.message_id)}, session "{stream}", {hit.kind}, {day}]'
    return without_marks(f"{head}\n  {hit.snippet}")
