"""The session task: runs queued operations, strictly one after the other."""

from __future__ import annotations

from mnemo.errors import SessionClosed
from mnemo.session.core import SessionCore
from mnemo.session.pending import PendingOperation
from mnemo.session.work import EpisodeWork
from mnemo.values.journal import SessionState

__all__ = ["drive"]


async def drive(core: SessionCore, work: EpisodeWork) -> None:
    """
    Run what the queue hands out, until the session closes.

    The next operation starts when the one before it has had its durable effect and
    nothing is in flight.
    """

    def due() -> bool:
        return not core.life.occupied and core.queue.next() is not None

    while True:
        await core.until(lambda: core.life.closing or due())
        if core.life.closing:
            return
        operation = core.queue.next()
        assert operation is not None
        await _run(core, work, operation)


async def _run(core: SessionCore, work: EpisodeWork, operation: PendingOperation) -> None:
    operation.begun = True
    try:
        with core.parts.spans.at(operation.place):
            await _execute(core, work, operation)
    except Exception as error:
        core.queue.fail(operation, error)
    else:
        core.queue.succeed(operation)


async def _execute(core: SessionCore, work: EpisodeWork, operation: PendingOperation) -> None:
    match operation.name:
        case "append":
            (draft,) = operation.arguments
            with core.parts.spans.span("append", attributes=core.parts.named(core.id)) as span:
                await core.append(draft, span, waits=False)
        case "commit":
            await _commit(core, work)
        case "start_episode" | "close" | "discard" as name:
            await work.run(name, *operation.arguments)


async def _commit(core: SessionCore, work: EpisodeWork) -> None:
    """Commit; in ``failed``, retry first: one operation that ends when something was committed."""
    if await core.doubts.settle("commit"):
        return
    core.life.require("commit")
    receipt = await work.begin_commit()
    if receipt.status == "committed":
        return
    await core.until(lambda: not core.life.extracting)
    if core.life.now is SessionState.READY and not core.life.auto:
        core.life.require("commit")
        await work.begin_commit()
    elif core.life.now is SessionState.EXTRACTING:
        raise SessionClosed(state=core.life.now, operation="commit")
    elif core.life.now is not SessionState.IDLE:
        assert core.error is not None
        raise core.error
