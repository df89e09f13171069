"""
Another process that remembers, for tests of two and of killed ones.

Arguments: the store, what to do, a name and a number. Tells one line for each thing done.
"""

import sys

import anyio

from mnemo import Config, Mnemo, Repository
from mnemo.protocols import ChatReply, ChatRequest
from mnemo.testing import HashingEmbedder, ScriptedChatModel


class HangingModel(ScriptedChatModel):
    """Tells that facts are asked for, and never gives any."""

    async def complete(self, request: ChatRequest) -> ChatReply:
        if request.purpose == "semantic":
            tell("asked")
            await anyio.sleep_forever()
        return await super().complete(request)


def tell(what: str) -> None:
    """One line, at once."""
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


async def remember(repo: Repository, name: str, number: int) -> None:
    """One message in each of *number* threads, which others write to as well."""
    for n in range(number):
        text = f"The colour of {name}{n} is shade{n}."
        await repo.remember(text, thread_id=f"thread {n}", key=f"{name}{n}")
        tell(f"{name}{n}")


async def main(path: str, what: str, name: str, number: str) -> None:
    """Do it, and end when the work is done; as long as that takes."""
    model = HangingModel.answering() if what == "hang" else ScriptedChatModel.answering()
    config = Config(jobs={"quiet_s": 0, "poll_s": 0.05}, session={"lease_s": 2})
    async with Mnemo(path, embedder=HashingEmbedder(), chat_model=model, config=config) as memory:
        repo = await memory.open_repo("r")
        tell("open")
        await remember(repo, name, int(number))
        await repo.settle()
        tell("settled")


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
