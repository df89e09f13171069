"""
An agent of the OpenAI Agents SDK whose session is a mnemo thread.

Turns are durable before the next one begins; start it again and it goes on. A line ``undo``
takes back the last question with everything that came of it.

    pip install 'mnemo-sessions[agents]'
    python scripts/examples/openai_agents.py --url http://127.0.0.1:8080/v1 --model NAME

The server's key, if it wants one, is read from OPENAI_API_KEY.
"""

from __future__ import annotations

import argparse
import os
import sys

import anyio
import anyio.to_thread
from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

from mnemo import Mnemo, Repository
from mnemo.adapters.openai_agents import MnemoSession

LAST_ITEMS = 40
RECALL_TOKENS = 400


def recall_tool(repo: Repository) -> object:
    """A tool that recalls what other threads of the repository hold, too."""

    @function_tool
    async def recall(question: str) -> str:
        """What is known from earlier talks."""
        return (await repo.recall(question)).as_text(RECALL_TOKENS)

    return recall


async def undo(session: MnemoSession) -> str:
    """Take items back until a question of the user is among them."""
    while item := await session.pop_item():
        if item.get("role") == "user":
            return f"Taken back: {item.get('content')}"
    return "There is nothing to take back."


async def main(url: str, model: str, store: str, person: str) -> None:
    """Chat on the terminal until end of file."""
    set_tracing_disabled(True)
    async with (
        Mnemo(store) as memory,
        AsyncOpenAI(base_url=url, api_key=os.environ.get("OPENAI_API_KEY", "none")) as server,
    ):
        repo = await memory.open_repo(person)
        session = MnemoSession("chat", repo, session_settings={"limit": LAST_ITEMS})
        agent = Agent(
            name="assistant",
            instructions="Use the tool recall before you say that you do not know.",
            model=OpenAIChatCompletionsModel(model, server),
            tools=[recall_tool(repo)],
        )
        while said := (await anyio.to_thread.run_sync(sys.stdin.readline)).strip():
            if said == "undo":
                print(await undo(session), flush=True)
            else:
                result = await Runner.run(agent, said, session=session)
                print(result.final_output, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--store", default="chat.db")
    parser.add_argument("--person", default="you")
    given = parser.parse_args()
    anyio.run(main, given.url, given.model, given.store, given.person)
