"""The retry policy: backoff with jitter, or what the server asked for. Imports tenacity."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    stop_any,
    wait_exponential,
    wait_random,
)
from tenacity.stop import stop_base

from mnemo.errors import ModelTimeout
from mnemo.models.failures import Failure

BACKOFF_S = 0.5
"""Seconds before the second try; doubled for each further one, plus up to as much jitter."""
MAX_BACKOFF_S = 20.0
TIMEOUT_TRIES = 2
"""Tries that may time out: each has already taken as long as the caller allowed."""

_backoff = wait_exponential(multiplier=BACKOFF_S, max=MAX_BACKOFF_S) + wait_random(0, BACKOFF_S)


def retrying(
    *, max_retries: int, max_wait_s: float, sleep: Callable[[float], Awaitable[None]]
) -> AsyncRetrying:
    """
    A policy for one call.

    Args:
        max_wait_s: Seconds of waiting between tries, together; a longer wait is not begun.
        sleep: The clock's.
    """

    return AsyncRetrying(
        sleep=sleep,
        stop=stop_any(
            stop_after_attempt(max_retries + 1), _TimedOutEnough(), _WaitedEnough(max_wait_s)
        ),
        wait=_wait,
        retry=retry_if_exception(lambda error: isinstance(error, Failure) and error.again),
        reraise=True,
    )


def _failure(state: RetryCallState) -> Failure | None:
    error = state.outcome.exception() if state.outcome else None
    return error if isinstance(error, Failure) else None


def _wait(state: RetryCallState) -> float:
    failure = _failure(state)
    asked = failure.retry_after_s if failure else None
    return asked if asked else _backoff(state)


class _TimedOutEnough(stop_base):
    def __call__(self, retry_state: RetryCallState) -> bool:
        failure = _failure(retry_state)
        timed_out = failure is not None and isinstance(failure.error, ModelTimeout)
        return timed_out and retry_state.attempt_number >= TIMEOUT_TRIES


class _WaitedEnough(stop_base):
    def __init__(self, max_wait_s: float) -> None:
        self._max_wait_s = max_wait_s

    def __call__(self, retry_state: RetryCallState) -> bool:
        return retry_state.idle_for + retry_state.upcoming_sleep > self._max_wait_s
