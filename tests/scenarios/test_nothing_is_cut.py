"""What is told all at once becomes as many facts as told one by one."""

from mnemo import Config, Mnemo
from mnemo.testing import HashingEmbedder

TOLD = [f"My lantern number {n} hangs in room {100 + n} of the inn." for n in range(60)]


async def test_sixty_messages_give_sixty_facts():
    """In one call, waited for, they are one trajectory, whose bound grows with them."""
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("inn")
        await repo.remember(TOLD, wait=True)
        await repo.settle()
        statistics = await repo.statistics()
    assert statistics.nodes["semantic"] == 60
    assert statistics.left_out == 0


async def test_sixty_messages_that_wait_for_a_worker_give_sixty_facts():
    """However many wait when the job runs."""
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("inn")
        for told in TOLD:
            await repo.remember(told)
        await repo.settle()
        assert (await repo.statistics()).nodes["semantic"] == 60


async def test_a_session_of_fifty_steps_gives_fifty_facts():
    """One trajectory of fifty steps."""
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("inn")
        session = await repo.start_session("Tell of the inn")
        for told in TOLD[:50]:
            await session.append(told, "Noted.")
        receipt = await session.close_and_commit()
        assert (await repo.statistics()).nodes["semantic"] == 50
        assert receipt.left_out == 0


async def test_what_a_bound_leaves_out_is_in_the_receipt_and_the_statistics():
    """Ten facts of one step, where four steps may give three."""
    config = Config(extraction={"max_facts": 3})
    async with Mnemo("memory:", embedder=HashingEmbedder(), config=config) as memory:
        repo = await memory.open_repo("inn")
        session = await repo.start_session("Tell of the inn")
        await session.append(" ".join(TOLD[:10]), "Noted.")
        receipt = await session.close_and_commit()
        statistics = await repo.statistics()
        assert statistics.nodes["semantic"] == 3
        assert receipt.left_out == session.statistics().left_out == statistics.left_out == 7
