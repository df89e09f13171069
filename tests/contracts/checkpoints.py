"""The contract of checkpoints: values once per version, writes in order, nothing half-written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pytest
from contracts.archive import (
    Change,
    assert_refused_by_line,
    doubling,
    dropping,
    lines_of,
    of,
    put,
    setting,
)
from world import Kit, StoreContract

from mnemo.errors import Conflict, UsageError
from mnemo.repository.checkpoints import CheckpointReader, CheckpointWriter
from mnemo.values.checkpoints import Blob, CheckpointHead, CheckpointWrite

__all__ = ["CheckpointContract", "checkpointed"]

T = TypeVar("T")


def head(id: str, parent: str | None = None, **values: Any) -> CheckpointHead:
    """A checkpoint of thread ``t`` whose channel ``log`` is at version 1."""
    given = {"thread_id": "t", "versions": {"log": "1"}, "type": "json", "data": b"{}"} | values
    return CheckpointHead(id=id, parent_id=parent, **given)


def write(id: str, task: str, index: int = 0, **values: Any) -> CheckpointWrite:
    """A write to ``log`` on top of a checkpoint of thread ``t``."""
    given = {"thread_id": "t", "channel": "log", "type": "json", "data": task.encode()} | values
    return CheckpointWrite(checkpoint_id=id, task_id=task, index=index, **given)


def blob(text: str) -> Blob:
    """Text as a value."""
    return "json", text.encode()


def checkpointed(tx: CheckpointWriter) -> None:
    """Threads with a parent, a namespace, a fork of one version, writes and metadata."""
    tx.put(head("1", metadata={"step": 0, "who": {"name": "お茶"}}), {"log": blob("a")})
    tx.put(head("2", "1", run_id="run", metadata={"step": 1}), {})
    tx.put(head("3", "1"), {"log": blob("forked")})
    tx.put(head("1", namespace="inner", deltas=("log",), versions={}), {})
    tx.put(head("1", thread_id="u", data=bytes(range(256))), {"log": blob("of u")})
    tx.put_writes([write("2", "b"), write("2", "a", -1), write("2", "c", task_path="~1")])


BROKEN: dict[str, Change] = {
    **{
        f"a {kind} twice": doubling(kind)
        for kind in ("checkpoint", "channel_value", "checkpoint_write")
    },
    "a value that is gone": dropping("channel_value", -1, lambda rows: of(rows, "checkpoint", -1)),
    "a version that is no text": setting("checkpoint", versions='{"log":1}'),
    "bytes that are no base64": setting("channel_value", data="?"),
    "a thread without a name": setting("checkpoint_write", thread_id=" "),
}


class CheckpointContract(StoreContract):
    """``StoredCheckpoints``."""

    async def _write(self, kit: Kit, work: Callable[[CheckpointWriter], T]) -> T:
        return await kit.store.checkpoints("r").writing(work)

    async def _read(self, kit: Kit, work: Callable[[CheckpointReader], T]) -> T:
        return await kit.store.checkpoints("r").reading(work)

    async def _values(self, kit: Kit, id: str, thread: str = "t") -> Mapping[str, Blob]:
        found = await self._read(kit, lambda tx: tx.get(thread, "", id))
        assert found is not None
        return found.values

    async def _kept(self, kit: Kit) -> int:
        """How many values are kept, of all threads."""
        async with kit.store.archive("r").read() as (found, _):
            return found.counts["channel_value"]

    async def test_a_value_is_kept_once_for_its_version(self, kit: Kit) -> None:
        """Checkpoints of one version share it, and one that differs has its own."""
        await self._write(kit, checkpointed)
        for id, expected in (("1", "a"), ("2", "a"), ("3", "forked")):
            assert await self._values(kit, id) == {"log": blob(expected)}
        assert await self._values(kit, "1", "u") == {"log": blob("of u")}
        assert await self._kept(kit) == 3

    async def test_a_child_of_a_fork_shares_the_value_of_the_fork(self, kit: Kit) -> None:
        """The parent's value counts, not the first one of that version."""
        await self._write(kit, checkpointed)
        assert await self._write(kit, lambda tx: tx.put(head("4", "3"), {})) == frozenset()
        assert await self._values(kit, "4") == {"log": blob("forked")}

    @pytest.mark.parametrize(
        ("parent", "versions"),
        [(None, {"log": "1"}), ("gone", {"log": "1"}), ("1", {"log": "2"}), ("1", {"x": "1"})],
    )
    async def test_a_missing_value_is_asked_for(
        self, kit: Kit, parent: str | None, versions: dict[str, str]
    ) -> None:
        """Without a parent that has the channel at this version, nothing is written."""
        await self._write(kit, checkpointed)
        new = head("9", parent, versions=versions)
        assert await self._write(kit, lambda tx: tx.put(new, {})) == versions.keys()
        assert await self._read(kit, lambda tx: tx.get("t", "", "9")) is None

    async def test_a_checkpoint_is_replaced_with_its_values(self, kit: Kit) -> None:
        """The same id again is compared in full; what shares the old value keeps it."""
        await self._write(kit, checkpointed)
        assert await self._write(kit, lambda tx: tx.put(head("1"), {})) == {"log"}
        await self._write(kit, lambda tx: tx.put(head("1"), {"log": blob("b")}))
        assert await self._values(kit, "1") == {"log": blob("b")}
        assert await self._values(kit, "2") == {"log": blob("a")}
        await self._write(kit, lambda tx: tx.put(head("1"), {"log": blob("a")}))
        assert await self._kept(kit) == 3

    async def test_writes_come_in_order_and_once(self, kit: Kit) -> None:
        """By path, task and index; the first of an index counts, below 0 the last."""
        await self._write(kit, checkpointed)
        again = [write("2", "b", data=b"again"), write("2", "a", -1, data=b"again")]
        await self._write(kit, lambda tx: tx.put_writes(again))
        found = await self._read(kit, lambda tx: tx.get("t", "", "2"))
        assert found is not None
        told = [(write.task_id, write.data) for write in found.writes]
        assert told == [("a", b"again"), ("b", b"b"), ("c", b"c")]

    async def test_a_listing_is_filtered_and_paged(self, kit: Kit) -> None:
        """Newest id first, of all threads; each condition narrows."""
        await self._write(kit, checkpointed)

        async def listed(**wanted: Any) -> list[tuple[str, str, str]]:
            found = await self._read(kit, lambda tx: tx.list(**{"limit": 9} | wanted))
            return [(c.head.id, c.head.thread_id, c.head.namespace) for c in found]

        whole = [
            ("3", "t", ""),
            ("2", "t", ""),
            ("1", "t", ""),
            ("1", "t", "inner"),
            ("1", "u", ""),
        ]
        assert await listed() == whole
        for place, after in enumerate(whole):
            assert await listed(after=after, limit=2) == whole[place + 1 :][:2]
        assert await listed(thread_id="t", namespace="inner") == [whole[3]]
        assert await listed(before="2", id="1", thread_id="u") == [whole[4]]
        assert await listed(metadata={"who.name": "お茶"}) == [whole[2]]
        assert await listed(metadata={"step": None}, limit=1) == [whole[0]]

    async def test_a_history_follows_the_parents_to_a_value(self, kit: Kit) -> None:
        """Writes of the ancestors, oldest first, from the nearest one that has a value."""
        empty: dict[str, Any] = {"versions": {}, "deltas": ("log",)}

        def work(tx: CheckpointWriter) -> None:
            tx.put(head("1"), {"log": blob("seed")})
            for id, parent in (("2", "1"), ("3", "2"), ("2b", "1")):
                tx.put(head(id, parent, **empty), {})
            tx.put_writes([write(id, f"w{id}") for id in ("1", "2", "2b", "3")])

        await self._write(kit, work)
        found = await self._read(kit, lambda tx: tx.history("t", "", None, ["log", "x"]))
        assert found["log"].seed == blob("seed")
        assert [write.task_id for write in found["log"].writes] == ["w1", "w2"]
        assert (found["x"].seed, found["x"].writes) == (None, ())

    async def test_pruning_keeps_what_a_state_is_made_of(self, kit: Kit) -> None:
        """The ancestors of a delta stay to its nearest value; those of others go."""
        deltas: dict[str, Any] = {"versions": {}, "deltas": ("log",)}

        def work(tx: CheckpointWriter) -> None:
            for thread in ("t", "plain"):
                tx.put(head("1", thread_id=thread), {"log": blob("old")})
                tx.put(head("2", "1", thread_id=thread, versions={"log": "2"}), {"log": blob("n")})
            tx.put(head("3", "2", **deltas), {})
            tx.put(head("4", "3", **deltas), {})
            tx.put_writes([write(id, f"w{id}") for id in ("1", "2", "3", "4")])

        await self._write(kit, work)
        assert await self._write(kit, lambda tx: tx.prune(["t", "plain", "nowhere"])) == 2
        listed = await self._read(kit, lambda tx: tx.list(limit=9))
        assert [c.head.id for c in listed] == ["4", "3", "2", "2"]
        found = (await self._read(kit, lambda tx: tx.history("t", "", None, ["log"])))["log"]
        assert (found.seed, [w.task_id for w in found.writes]) == (blob("n"), ["w2", "w3"])
        assert await self._kept(kit) == 2

    async def test_runs_are_deleted_but_for_what_others_are_made_of(self, kit: Kit) -> None:
        """The checkpoints of a run go with their writes; an ancestor of a delta stays."""
        deltas: dict[str, Any] = {"versions": {}, "deltas": ("log",)}

        def work(tx: CheckpointWriter) -> int:
            checkpointed(tx)
            tx.put(head("1", thread_id="d", run_id="run"), {"log": blob("seed")})
            tx.put(head("2", "1", thread_id="d", **deltas), {})
            return tx.delete_runs(["run", "nowhere"])

        assert await self._write(kit, work) == 1
        assert await self._read(kit, lambda tx: tx.get("t", "", "2")) is None
        assert await self._values(kit, "1", "d") == {"log": blob("seed")}

    async def test_a_copy_and_its_original_go_their_own_ways(self, kit: Kit) -> None:
        """All namespaces, values and writes are copied, once."""
        await self._write(kit, checkpointed)
        assert await self._write(kit, lambda tx: tx.copy("t", "copy")) == 4
        with pytest.raises(Conflict):
            await self._write(kit, lambda tx: tx.copy("u", "copy"))
        assert await self._write(kit, lambda tx: tx.delete(["t"])) == 4
        found = await self._read(kit, lambda tx: tx.get("copy", "", "2"))
        assert found is not None
        assert (found.values, len(found.writes)) == ({"log": blob("a")}, 3)
        assert await self._read(kit, lambda tx: tx.get("t", "", None)) is None

    async def test_checkpoints_travel_in_an_archive(self, kit: Kit, elsewhere: Kit) -> None:
        """Out of this store, into another and back: the lines agree, and the check is silent."""
        await self._write(kit, checkpointed)
        lines = await lines_of(kit.store.archive("r"))
        await put(elsewhere.store.archive("copy"), lines)
        assert await lines_of(elsewhere.store.archive("copy")) == lines
        await put(kit.store.archive("back"), lines)
        assert await lines_of(kit.store.archive("back")) == lines
        assert (await kit.store.check()).problems == ()
        with pytest.raises(UsageError, match="not empty"):
            await put(kit.store.archive("back"), lines)

    @pytest.mark.parametrize("what", BROKEN)
    async def test_lines_that_do_not_fit_are_refused(
        self, kit: Kit, elsewhere: Kit, what: str
    ) -> None:
        """The line is named, and nothing is written."""
        await elsewhere.store.checkpoints("r").writing(checkpointed)
        await assert_refused_by_line(kit, elsewhere, BROKEN[what])

    async def test_a_deleted_repository_has_no_checkpoints(self, kit: Kit) -> None:
        """They go with the rest, and are counted."""
        await self._write(kit, checkpointed)
        assert (await kit.store.delete_repository("r")).checkpoints == 5
        assert (await kit.store.check()).counts["checkpoints"] == 0
