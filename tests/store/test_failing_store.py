"""``FailingStore``: fails when told to, and only then."""

import pytest
from world import NOON, Kit, store_at

from mnemo.errors import Conflict, StoreError
from mnemo.testing import FailingStore, ManualClock
from mnemo.values.feed import FeedCursor
from mnemo.values.graph import Tag

TAG = Tag("Porto", id="tag", created_at=NOON)


@pytest.fixture
async def failing() -> Kit:
    clock = ManualClock()
    store = FailingStore(store_at(None, clock))
    return Kit(lambda _: store, clock, store, await store.open())


def faults(kit: Kit) -> FailingStore:
    assert isinstance(kit.store, FailingStore)
    return kit.store


async def test_an_untold_store_does_what_it_should(failing):
    """Without faults it is the store that it wraps."""
    await failing.start()
    await failing.append("o")
    await failing.close()
    assert (await failing.apply(TAG)).revision == 1
    made = {"create": 1, "append": 1, "record": 1, "revision": 1, "apply": 1}
    assert faults(failing).calls == made


async def test_a_fault_before_the_effect_writes_nothing(failing):
    """The call fails as often as it was told to, then goes through."""
    faults(failing).fail("apply", times=2)
    for _ in range(2):
        with pytest.raises(StoreError, match="made to fail"):
            await failing.apply(TAG)
    assert await failing.store.graph("r").revision() == 0
    assert (await failing.apply(TAG)).revision == 1


async def test_a_fault_after_the_effect_loses_the_answer(failing):
    """What was asked for is done, and the caller is told it failed."""
    await failing.start()
    faults(failing).fail("append", before=False)
    faults(failing).fail("apply", before=False, error=Conflict("lost"))
    with pytest.raises(StoreError):
        await failing.append("o")
    with pytest.raises(Conflict, match="lost"):
        await failing.apply(TAG)
    assert len((await failing.load()).steps) == 1
    assert (await failing.apply(TAG)).again


async def test_a_failing_append_tells_its_caller_later(failing):
    """The error arrives through the loop, as the writer's would, and leaves no gap."""
    await failing.start()
    faults(failing).fail("append")
    with pytest.raises(StoreError):
        await failing.append("lost")
    assert (await failing.append("kept")).index == 0


async def test_a_fault_may_be_meant_for_one_call_only(failing):
    """Calls that it is not meant for pass by and do not use it up."""
    faults(failing).fail("apply", only=lambda write: write.changeset_id == "second")
    await failing.apply(TAG, id="first")
    with pytest.raises(StoreError):
        await failing.apply(id="second")


async def test_acts_creations_and_deletions_fail_too(failing):
    """Every writing call has its fault."""
    for call in ("create", "record", "delete"):
        faults(failing).fail(call)
    with pytest.raises(StoreError):
        await failing.start()
    await failing.start()
    with pytest.raises(StoreError):
        await failing.close()
    await failing.apply(TAG)
    with pytest.raises(StoreError):
        await failing.store.graph("r").delete(["tag"])
    assert await failing.store.graph("r").nodes(["tag"]) == [TAG]


@pytest.mark.parametrize(
    ("call", "use"),
    [
        ("records", lambda store: store.sessions("r").records(unfinished=False)),
        ("revision", lambda store: store.graph("r").revision()),
        ("changes", lambda store: store.feed("r").changes(FeedCursor())),
        ("reading", lambda store: store.transcript("r").reading(lambda tx: tx.threads())),
        ("around", lambda store: store.records("r").around("anything")),
        ("writing", lambda store: store.notes("r").writing(lambda tx: None)),
        ("touched", lambda store: store.overhaul("r").touched("anything")),
        ("write", lambda store: store.archive("r").write("head", "pages")),
    ],
)
async def test_a_call_of_any_part_can_fail(failing, call, use):
    """Journal, graph, feed, conversations, records, notes, overhaul and archive."""
    faults(failing).fail(call)
    with pytest.raises(StoreError, match=f"this {call} was made to fail"):
        await use(failing.store)
    assert faults(failing).calls[call] == 1


def test_a_call_that_no_part_has_is_refused(failing):
    """A misspelt name would never fail anything."""
    with pytest.raises(ValueError, match=r"call must be one of .*apply.*, not 'aply'"):
        faults(failing).fail("aply")
