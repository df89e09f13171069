"""
A second service for tests of processes: opens the file and does what its lines ask for.

Answers each line of its input with one line, so that a test knows what is durable.
"""

import sys
from functools import partial
from typing import Any

import anyio
from scenarios.other_service import serve
from world import NOON, Kit

from mnemo.config import Config, StoreConfig
from mnemo.conversation.log import append_drafts, drafts_of
from mnemo.conversation.scope import ThreadScope, ThreadSettings
from mnemo.log.transcript import TranscriptWriter
from mnemo.runtime.clock import SystemClock
from mnemo.runtime.text import count_tokens
from mnemo.stores import SqliteStore
from mnemo.values.graph import Tag
from mnemo.values.messages import Message
from mnemo.values.strategies import Recent


async def answer(kit: Kit, *words: Any) -> object:
    """Do one thing and give what is to be told."""
    match words:
        case ["start", session]:
            await kit.start(session)
        case ["append", session, number]:
            texts = [(f"{session} {n}", "") for n in range(number)]
            results = await kit.append_all(texts, session=session)
            return [getattr(result, "index", repr(result)) for result in results]
        case ["claim", session]:
            await kit.store.sessions("r").claim(session, kit.owner)
        case ["apply", label]:
            return (await kit.apply(Tag(label, created_at=NOON), id=label)).revision
        case ["say", who, number]:
            return [await say(kit, f"{who} {n}") for n in range(number)]
        case ["labels"]:
            return sorted(node.text for node in await kit.store.graph("r").nodes())
    return "done"


async def say(kit: Kit, text: str) -> int:
    """Append one message to a thread, as a conversation does; its seq."""
    settings = ThreadSettings(thread_id="t", retrieval=Recent())
    drafts = drafts_of([Message("user", text, id=text)], count_tokens)

    def work(tx: TranscriptWriter) -> int:
        appended = append_drafts(tx, ThreadScope.of(tx, settings, Config()), drafts)
        return appended.messages[0].seq

    seq: int = await kit.store.transcript("r").writing(work)
    return seq


async def main(path: str) -> None:
    """Serve until the input ends."""
    clock = SystemClock()
    store = SqliteStore(path, config=StoreConfig(), clock=clock, lease_s=30)
    kit = Kit(lambda _: store, clock, store, await store.open())  # type: ignore[arg-type]
    await serve(partial(answer, kit))
    await store.aclose()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
