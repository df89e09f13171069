"""The commands about conversations: ``threads``, ``history``, ``window``, ``search``, ``view``."""

from __future__ import annotations

from typing import Any

import mnemo
from mnemo.cli.opening import Answer, on_repo
from mnemo.cli.output import as_data, said
from mnemo.runtime.text import counted


@on_repo()
async def threads(opened: mnemo.Repository) -> Answer:
    """List a repository's conversations, by id."""
    found = await opened.threads()
    heads = ("thread", "messages", "tokens", "last said", "window")
    rows = [(r.thread_id, r.messages, r.tokens, r.last_at, r.budget_tokens or "") for r in found]
    return {"threads": found}, (heads, rows)


@on_repo("conversation.history", "--from_seq --to_seq")
async def history(opened: mnemo.Repository, thread: str, **asked: Any) -> Answer:
    """
    Show what was said in a conversation, whole; nothing is summarised.

    Args:
        from_seq: From this message on.
        to_seq: Up to this one.
    """
    messages = await (await _known(opened, thread)).history(**asked)
    told = "\n".join(map(_line, messages))
    nothing = f"nothing is left there of thread {thread!r}"
    return {"thread": thread, "messages": messages}, told, nothing


@on_repo("conversation.look", "--budget_tokens")
async def window(opened: mnemo.Repository, thread: str, **asked: Any) -> Answer:
    """
    Show the context window of a conversation in its zones; nothing is changed by it.

    Args:
        budget_tokens: Tokens; default: the thread's, else as configured.
    """
    look = await (await _known(opened, thread)).look(**asked)
    parts = (_numbers(look), look.memory, look.zones.text, look.state)
    return _look_data(look), "\n\n".join(filter(None, parts))


@on_repo("search", "query --session_id --limit --not_visible_in")
async def search(opened: mnemo.Repository, **asked: Any) -> Answer:
    """
    Find words in everything ever said or observed, best first.

    Args:
        query: Words, "phrases", OR and NOT.
        session_id: Only this session or conversation.
        limit: Hits, at most.
        not_visible_in: Without what this conversation's agent sees.
    """
    hits = await opened.search(**asked)
    nothing = f"nothing found in repository {opened.id!r}"
    return {"query": asked["query"], "hits": hits}, "\n".join(map(_hit, hits)), nothing


@on_repo("view", "message_id --session_id --before --after --budget_tokens")
async def view(opened: mnemo.Repository, **asked: Any) -> Answer:
    """
    Open what lies around a message, a half of a step, or a snapshot.

    Args:
        message_id: As a hit of search has it.
        session_id: Where several have this id.
        before: Neighbours ahead of it.
        after: Neighbours behind it.
        budget_tokens: Tokens of text, at least 100.
    """
    found = await opened.view(**asked)
    text = found.as_text()
    return as_data(found) | {"text": text}, text


async def _known(repo: mnemo.Repository, thread: str) -> mnemo.Conversation:
    """The conversation. *Raises* ``UsageError``: nothing was ever said in it."""
    conversation = repo.conversation(thread)
    if not await conversation.next_seq():
        raise mnemo.UsageError(
            f"there is no thread {thread!r} in repository {repo.id!r}: `mnemo threads`"
        )
    return conversation


# ── In words ─────────────────────────────────────────────────────────────────────────


def _line(message: mnemo.StoredMessage) -> str:
    who, told = said(message)
    told = told.replace("\n", "\n    ")
    return f"{message.seq} {message.at:%Y-%m-%d %H:%M} {who}: {told}"


def _hit(hit: mnemo.SearchHit) -> str:
    head = f"{hit.message_id}  {hit.session_id}  {hit.kind}  {hit.at:%Y-%m-%d}  {hit.score:.2f}"
    return f"{head}\n    {hit.snippet}"


def _numbers(look: mnemo.WindowLook) -> str:
    budget, zone = look.budget, look.zones.zone
    leaving = f"{zone.from_seq}..{zone.to_seq}, {zone.tokens} tokens" if zone else "nothing"
    watched = f"watched with {look.watched_tokens}" if look.watched_tokens else "not watched"
    return "\n".join(
        (
            f"Thread {look.thread_id}, {budget.total} tokens ({watched})",
            f"window: {look.tokens} of {budget.window} tokens, "
            f"{counted(look.messages, 'message')} from {look.from_seq} on; "
            f"room is made above {budget.trigger}" + (": due" if look.is_due else ""),
            f"leaves next: {leaving}",
            f"memory: {look.memory_tokens} of {budget.long_term + budget.recent} tokens",
            f"state: {look.state_tokens} of {budget.goals} tokens",
        )
    )


def _look_data(look: mnemo.WindowLook) -> dict[str, Any]:
    data: dict[str, Any] = as_data(look)
    zones = {
        name: [message["seq"] for message in data["zones"][name]]
        for name in ("eviction", "middle", "recent")
    }
    return data | {"zones": zones | {"text": look.zones.text}}


COMMANDS = (threads, history, window, search, view)
