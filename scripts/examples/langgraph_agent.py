"""
A LangGraph agent whose checkpoints and long-term notes are kept in one file of mnemo.

Each thread goes on where it ended, in another process too; what a user asked to be kept is found
in all of that user's threads, by its meaning.

    pip install 'mnemo-sessions[langgraph]'
    python scripts/examples/langgraph_agent.py --url http://127.0.0.1:8080/v1 --model NAME

A line ``keep: TEXT`` is kept. The server's key, if it wants one, is read from OPENAI_API_KEY.
"""

from __future__ import annotations

import argparse
import os
import sys
from operator import add
from typing import Annotated, Any, TypedDict
from uuid import uuid4

import anyio
import anyio.to_thread
import httpx
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import BaseStore

from mnemo import Mnemo
from mnemo.adapters.langgraph import MnemoSaver, MnemoStore

KEEP = "keep:"


class Talk(TypedDict):
    """What the graph passes on: the messages of a thread."""

    messages: Annotated[list[dict[str, str]], add]


def agent(server: httpx.AsyncClient, model: str) -> StateGraph[Any]:
    """One node that keeps what it is told to, and answers with what is known."""

    async def answer(state: Talk, config: RunnableConfig, *, store: BaseStore) -> dict[str, Any]:
        notes = ("notes", config["configurable"]["user"])
        said = state["messages"][-1]["content"]
        if said.startswith(KEEP):
            await store.aput(notes, str(uuid4()), {"text": said.removeprefix(KEEP).strip()})
            return {"messages": [{"role": "assistant", "content": "Kept."}]}
        known = await store.asearch(notes, query=said, limit=3)
        told = "What you know of the user:\n" + "\n".join(item.value["text"] for item in known)
        messages = [{"role": "system", "content": told}, *state["messages"]]
        response = await server.post(
            "chat/completions", json={"model": model, "messages": messages}
        )
        response.raise_for_status()
        reply = response.json()["choices"][0]["message"]
        return {"messages": [{"role": "assistant", "content": reply["content"]}]}

    graph = StateGraph(Talk)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    return graph


async def main(url: str, model: str, store: str, user: str, thread: str) -> None:
    """Chat on the terminal until end of file."""
    headers = {"Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', 'none')}"}
    config: RunnableConfig = {"configurable": {"thread_id": thread, "user": user}}
    async with (
        Mnemo(store) as memory,
        httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as server,
    ):
        repo = await memory.open_repo("agent")
        graph = agent(server, model).compile(
            checkpointer=MnemoSaver(repo), store=MnemoStore(repo, index={"fields": ["text"]})
        )
        while said := (await anyio.to_thread.run_sync(sys.stdin.readline)).strip():
            message = {"role": "user", "content": said}
            state = await graph.ainvoke({"messages": [message]}, config)
            print(state["messages"][-1]["content"], flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--store", default="agent.db")
    parser.add_argument("--user", default="you")
    parser.add_argument("--thread", default="1")
    given = parser.parse_args()
    anyio.run(main, given.url, given.model, given.store, given.user, given.thread)
