"""A store that loses the answer to one of its writes, and a caller who asks again."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from mnemo.errors import StoreError
from mnemo.stores import EngineStore
from mnemo.testing import FailingStore, FailingWrite

__all__ = ["LosingStore", "insistent"]

T = TypeVar("T")


class LosingStore(FailingStore):
    """
    Performs its *nth* write of one kind and then raises ``StoreError``.

    ``lost`` and ``lost_subject`` are that call and its first argument, once it was made.

    Args:
        kind: Of the write.
        nth: Counted from 1 among writes of its kind; 0 loses nothing.
        probe: Whether the next call that asks what became of it fails as well.
    """

    def __init__(self, store: EngineStore, *, kind: FailingWrite, nth: int, probe: bool) -> None:
        super().__init__(store)
        self._kind = kind
        self._left = nth
        self._probe = probe
        self.lost: FailingWrite | None = None
        self.lost_subject: object = None

    def take(self, call: FailingWrite, subject: object) -> object:
        """Lose the write whose turn it is, and the look after it."""
        if self.lost is not None:
            if self._probe and call in ("load", "first_answer", self.lost):
                self._probe = False
                self.fail(call)
        elif call == self._kind:
            self._left -= 1
            if self._left == 0:
                self.lost, self.lost_subject = call, subject
                self.fail(call, before=False)
        return super().take(call, subject)


async def insistent(operation: Callable[[], Awaitable[T]]) -> T:
    """The result of *operation*, called again while the store fails it; four times at most."""
    for _ in range(3):
        try:
            return await operation()
        except StoreError:
            continue
    return await operation()
