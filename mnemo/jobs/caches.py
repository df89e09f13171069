"""
Leases of caches: each folder that keeps copies of segments has a row in ``caches``, and a machine.

What was erased is *asked* to be dropped, and each cache says up to which time it has *swept*. One
whose lease is over is not waited for: it deletes all it has before it serves again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

import anyio
import anyio.to_thread

from mnemo.errors import MnemoError
from mnemo.protocols import Clock
from mnemo.store.engine import OWNERS, Engine
from mnemo.store.tx import Tx

log = logging.getLogger("mnemo")

CONFIRM_S = 3.0
"""Seconds that an erasure waits, at most, for caches to drop what was erased."""
_BETWEEN_LOOKS_S = 0.05
FORGOTTEN_S = 86_400
"""Seconds after its lease for which a cache is known, and named as one that may hold something."""

_NOW = "extract(epoch FROM clock_timestamp())"
_PROLONG = f"""
UPDATE caches SET lease_until = greatest(lease_until, {_NOW} + ?)
WHERE id = ? AND lease_until > {_NOW}
"""
# Where another process of the machine has entered since, its files are not swept yet.
_ENTER = f"""
INSERT INTO caches (id, machine, lease_until) VALUES (?, ?, {_NOW} + ?)
ON CONFLICT (id) DO UPDATE SET machine = excluded.machine,
    lease_until = greatest(caches.lease_until, excluded.lease_until),
    swept = CASE WHEN caches.lease_until > {_NOW} THEN caches.swept ELSE caches.asked END
"""
_FORGET = f"DELETE FROM caches WHERE lease_until < {_NOW} - {FORGOTTEN_S}"
_ASKED = "SELECT asked FROM caches WHERE id = ? AND asked > swept"
_SWEPT = "UPDATE caches SET swept = ? WHERE id = ? AND swept < ?"
_ANY = "SELECT 1 FROM caches LIMIT 1"
_ASK = "UPDATE caches SET asked = asked + 1"
_UNSWEPT = f"""
SELECT machine, CAST(lease_until > {_NOW} AS INTEGER) FROM caches WHERE asked > swept
ORDER BY machine
"""


@dataclass(eq=False)
class CacheLease:
    """
    The right of a folder on this machine to serve what the store holds.

    Attributes:
        identity: Names the folder for all processes that share it. *Raises* ``OSError``: it cannot
            be used. Blocks.
        sweep: Deletes what is not among the digests; False: something is left. Blocks.
        listed: The digests of what the store holds.
        machine: Its name, for people.
        lease_s: Seconds for which it serves without a ``renew``.
        begun: Called when it is taken for the first time: ``asked`` is to be looked at from then.
    """

    engine: Engine
    clock: Clock
    identity: Callable[[], str]
    sweep: Callable[[Collection[str]], bool]
    listed: Callable[[Tx], Collection[str]]
    machine: str
    lease_s: float
    begun: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._id: str | None = None
        self._until: float | None = None
        self._renewing = anyio.Lock()

    @property
    def is_held(self) -> bool:
        """Whether files may be served now."""
        return self._until is not None and self.clock.monotonic() < self._until

    async def ready(self) -> bool:
        """
        Whether files may be served, also if that takes entering anew. *Raises* ``StoreError``.
        *Cancellation*: safe.
        """
        if not self.is_held:
            async with self._renewing:
                if not self.is_held:
                    await self._renew()
        return self.is_held

    async def renew(self) -> None:
        """
        Prolong the lease, if it was ever taken. *Raises* ``StoreError``. *Cancellation*: safe.
        """
        if self._id is not None:
            async with self._renewing:
                await self._renew()

    async def _renew(self) -> None:
        id, is_first = self._id, self._id is None
        if id is None:
            try:
                id = await anyio.to_thread.run_sync(self.identity)
            except OSError as error:
                log.warning("segments are read into memory, not mapped: %s", error)
                return
        began, values = self.clock.monotonic(), (self.lease_s, id)
        prolonged = await self.engine.writing(
            lambda tx: tx.run(_PROLONG, values).rowcount, locks=OWNERS
        )
        if not prolonged:
            self._until = None
            if not await self.engine.swept(self.sweep, _nothing):
                return
            began = self.clock.monotonic()
            entry = (id, self.machine, self.lease_s)
            await self.engine.writing(lambda tx: tx.run(_ENTER, entry), locks=OWNERS)
        self._id, self._until = id, began + self.lease_s
        if is_first:
            self.begun()

    # ── Dropping what was erased ─────────────────────────────────────────────────────

    def asked(self, tx: Tx) -> int | None:
        """Up to where it is to sweep; ``None``: it has, or never held anything."""
        row = None if self._id is None else tx.run(_ASKED, (self._id,)).fetchone()
        return None if row is None else int(row[0])

    async def confirm(self, asked: int) -> None:
        """Sweep, and say so. *Cancellation*: safe; it is asked again."""
        try:
            # What was erased was so before it was asked, so that it is not among these.
            if await self.engine.swept(self.sweep, partial(self.engine.reading, self.listed)):
                values = (asked, self._id, asked)
                await self.engine.writing(lambda tx: tx.run(_SWEPT, values), locks=OWNERS)
        except (MnemoError, OSError) as error:
            log.info("what was erased is dropped from the cache at the next look: %s", error)


async def unswept(engine: Engine, woken: Callable[[], None]) -> tuple[str, ...]:
    """
    Have all caches drop what was erased; the machines that may hold it still, after ``CONFIRM_S``.

    *woken* has caches of this process look; others are notified. *Raises* ``StoreError``.
    *Cancellation*: safe; they drop it even so.
    """
    if not await engine.reading(lambda tx: tx.run(_ANY).fetchone()):
        return ()
    await engine.writing(_ask, locks=OWNERS)
    woken()
    left: list[tuple[str, int]] = []
    with anyio.move_on_after(CONFIRM_S):
        while True:
            left = await engine.reading(lambda tx: tx.run(_UNSWEPT).fetchall())
            if not any(is_live for _, is_live in left):
                break
            await anyio.sleep(_BETWEEN_LOOKS_S)
    return tuple(dict.fromkeys(machine for machine, _ in left))


async def _nothing() -> Collection[str]:
    return ()


def _ask(tx: Tx) -> None:
    tx.run(_FORGET)
    tx.run(_ASK)
