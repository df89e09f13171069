"""
Calls into user code: observers, callbacks, models, embedders, functions of a config.

Whatever user code raises leaves here as an ``Exception``, so that it can end neither a task of the
service nor a loop callback. A ``CancelledError`` that the user's code raised is told from a
cancellation of the running task, which passes. ``KeyboardInterrupt`` and ``SystemExit`` leave the
event loop in its next turn, after the caller settled its state.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import anyio
import anyio.lowlevel

from mnemo.errors import MnemoError, ModelUnavailable
from mnemo.runtime.tasks import running_loop
from mnemo.runtime.text import clean

log: logging.Logger = logging.getLogger("mnemo")

CLOSING_S = 10.0
"""Seconds that each model may take to close; one of somebody else's may never end (S)."""

T = TypeVar("T")


class Interrupted(Exception):
    """User code raised what is no ``Exception``; ``__cause__`` is that."""


def traceback_of(error: Exception) -> Exception | None:
    """*error* as ``exc_info`` of the log; ``None`` for mnemo's own, whose message suffices."""
    return None if isinstance(error, MnemoError) else error


def call(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """
    Call a plain function of a user.

    *Raises* ``Exception``: what it raised; ``Interrupted`` in place of what is none.
    """
    try:
        return function(*args, **kwargs)
    except Exception:
        raise
    except BaseException as error:
        raise _interrupted(error) from error


async def called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """
    Call a function of a user, and await what it gives if that can be awaited.

    *Raises* what it raised; ``Interrupted`` in place of what is no ``Exception``.
    *Cancellation*: passed to what is awaited, and raised.
    """
    result = call(function, *args, **kwargs)
    if not inspect.isawaitable(result):
        return result
    task = asyncio.current_task()
    assert task is not None
    if task.cancelling():
        # A cancellation that is due arrives here, where it cannot be taken for theirs.
        await anyio.lowlevel.checkpoint()
    before = task.cancelling()
    try:
        return await result
    except Exception:
        raise
    except BaseException as error:
        if _is_ours(error, task, before):
            raise
        raise _interrupted(error) from error


def foreign(who: str, error: Exception, *, purpose: str | None = None) -> ModelUnavailable:
    """What is raised for *error* of a model or embedder, *who*, that is no ``ModelError``."""
    said = f"{who} raised {type(error).__name__}: {clean(str(error))}"
    made = ModelUnavailable(said, purpose=purpose, retryable=False)
    made.foreign = True
    return made


async def reported(function: Callable[..., Any] | None, value: object) -> None:
    """Tell a function of the user, if there is one; what it raises is logged."""
    if function is None:
        return
    try:
        await called(function, value)
    except Exception as error:
        log.error(
            "a function that follows progress failed: %s", error, exc_info=traceback_of(error)
        )


async def close_all(models: Iterable[Any]) -> None:
    """Close *models*, each within ``CLOSING_S``; what one raises is logged."""
    for model in models:
        try:
            with anyio.fail_after(CLOSING_S):
                await called(model.aclose)
        except Exception:
            # Everything of ours is closed already, and the others should be.
            log.exception("the model %s could not be closed", type(model).__name__)


def _is_ours(error: BaseException, task: asyncio.Task[Any], before: int) -> bool:
    """Whether somebody cancels the running task, or closes its coroutine."""
    if isinstance(error, asyncio.CancelledError):
        return task.cancelling() > before
    closes = running_loop() is None or asyncio.current_task() is not task
    return isinstance(error, GeneratorExit) and closes


def _interrupted(error: BaseException) -> Interrupted:
    if isinstance(error, KeyboardInterrupt | SystemExit) and (loop := running_loop()):
        loop.call_soon(_leave, error)
    return Interrupted(type(error).__name__)


def _leave(error: BaseException) -> None:
    raise error
