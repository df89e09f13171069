"""Plain calls from where no task runs: loop callbacks, and observers that these call."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import anyio

from mnemo import Config
from mnemo.events import SessionTransitioned, StepAppended

T = TypeVar("T")


async def in_a_callback(function: Callable[[], T]) -> T:
    """What *function* gives when the event loop itself calls it."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def callback() -> None:
        assert asyncio.current_task() is None
        try:
            result.set_result(function())
        except Exception as error:
            result.set_exception(error)

    loop.call_soon(callback)
    return await result


async def test_queued_calls_can_be_made_by_a_loop_callback(kit):
    """Each is accepted and carried out, its callback runs, and a waiting one is withdrawn."""
    session = await kit.repo.start_session("g")
    heard = []

    def queue():
        return [
            session.append_async("Ada lives in Lund.", "noted", heard.append),
            session.close_async(heard.append),
            session.commit_async(heard.append),
            session.start_episode_async("h", heard.append),
            session.append_async("Ada lives in Rome.", "noted", heard.append),
        ]

    with anyio.fail_after(120):
        *kept, withdrawn = await in_a_callback(queue)
        assert await in_a_callback(withdrawn.cancel)
        assert [await one for one in kept] == ["appended", "closed", "committed", "started"]
        await kit.until(lambda: len(heard) == 5)


async def test_appends_arm_the_timers_of_auto_commit(open_kit):
    """A step becomes durable in a loop callback, which starts the flush timer of its session."""
    config = Config(session={"auto_commit": True, "flush_timeout_s": 60, "session_timeout_s": 90})
    kit = await open_kit(config=config)
    with anyio.fail_after(120):
        session = await kit.repo.start_session("g")
        step = await session.append("Ada lives in Lund.", "noted")
        assert step.index == 0
        assert (await session.close_and_commit()).status == "committed"


async def test_an_observer_of_an_append_can_call_everything_that_is_plain(kit):
    """It subscribes others, opens handles and queues an update of notes, out of a loop callback."""
    session = await kit.repo.start_session("g")
    later, made = [], []

    async def hear(event):
        later.append(event)

    def observer(event):
        if not isinstance(event, StepAppended) or made:
            return
        assert asyncio.current_task() is None
        made.append(kit.memory.subscribe(hear))
        talk = kit.repo.conversation("t")
        made.append(talk.viewport(1_000))
        kit.repo.tools("t")
        made.append(kit.repo.notes.update_after_task_async([], iterations=1))
        made.append(session.close_async())

    kit.memory.subscribe(observer)
    with anyio.fail_after(120):
        await session.append("Ada lives in Lund.", "noted")
        _, _, updating, closing = made
        assert await closing == "closed"
        assert (await updating).error is None
        await kit.until(lambda: any(isinstance(event, SessionTransitioned) for event in later))
