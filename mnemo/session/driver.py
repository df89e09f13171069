"""The session's own task: runs queued operations, strictly one after the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from mnemo.episode.journal import SessionState
from mnemo.episode.step import Step, StepDraft
from mnemo.errors import SessionClosed
from mnemo.session.core import SessionCore
from mnemo.session.pending import PendingOperation

__all__ = ["drive"]


async def drive(core: SessionCore) -> None:
    """
    Run what the queue hands out, until the session closes.

    The next operation starts when the one before it has had its durable effect and
    nothing is in flight.
    """

    def due() -> bool:
        return not core.occupied and core.queue.next() is not None

    while True:
        await core.until(lambda: core.closing or due())
        if core.closing:
            return
        operation = core.queue.next()
        assert operation is not None
        await _run(core, operation)


async def _run(core: SessionCore, operation: PendingOperation) -> None:
    operation.begun = True
    try:
        with core.parts.spans.at(operation.place):
            await _execute(core, operation)
    except Exception as error:
        core.queue.fail(operation, error)
    else:
        core.queue.succeed(operation)


async def _execute(core: SessionCore, operation: PendingOperation) -> None:
    if await core.doubts.settle(operation.name):
        return
    if operation.name == "append":
        (draft,) = operation.arguments
        await _append(core, draft)
        return
    core.require(operation.name)
    if operation.name == "commit":
        await _commit(core)
        return
    core.aim(operation.name)
    act: Callable[..., Awaitable[None]] = getattr(core, operation.name)
    await core.parts.own(partial(act, *operation.arguments))


async def _append(core: SessionCore, draft: StepDraft) -> None:
    with core.parts.spans.span("append", attributes=core.parts.named(core.id)) as span:
        known = core.appends.known(draft.key)
        if known is None:
            core.require("append")
            core.refuse_full_backlog()
            known = core.submit(draft)
        step = known if isinstance(known, Step) else await known.wait()
        span.set("mnemo.step.index", step.index)


async def _commit(core: SessionCore) -> None:
    """Commit; in ``failed``, retry first: one operation that ends when something was committed."""
    receipt = await core.begin_commit()
    if receipt.status == "committed":
        return
    await core.until(lambda: not core.extracting)
    if core.state is SessionState.READY and not core.auto:
        core.require("commit")
        await core.begin_commit()
    elif core.state is SessionState.EXTRACTING:
        raise SessionClosed(state=core.state, operation="commit")
    elif core.state is not SessionState.IDLE:
        assert core.error is not None
        raise core.error
