"""
A chat agent with a memory, over any OpenAI-compatible server.

What is said is durable before the model is asked; what is known is recalled for each
question; the window keeps the thread within a budget of tokens. Start it again and it
goes on with the same person.

    python scripts/examples/chat_agent.py --url http://127.0.0.1:8080/v1 --model NAME

The server's key, if it wants one, is read from OPENAI_API_KEY.
"""

from __future__ import annotations

import argparse
import os
import sys

import anyio
import anyio.to_thread
import httpx

from mnemo import Mnemo, Repository

WINDOW_TOKENS = 4_000
RECALL_TOKENS = 400


async def answer(server: httpx.AsyncClient, model: str, repo: Repository, said: str) -> str:
    """One turn: recall, remember what was said, ask, remember the reply."""
    known = await repo.recall(said)
    await repo.remember(said, thread_id="chat")
    window = await repo.conversation("chat").viewport(WINDOW_TOKENS).render()
    request = window.to_openai()
    if known.candidates:
        memory = f"What you remember of earlier talks:\n{known.as_text(RECALL_TOKENS)}"
        request["messages"].insert(0, {"role": "system", "content": memory})
    response = await server.post("chat/completions", json={"model": model, **request})
    response.raise_for_status()
    message = response.json()["choices"][0]["message"]
    await repo.remember(message, thread_id="chat")
    return str(message["content"])


async def main(url: str, model: str, store: str, person: str) -> None:
    """Chat on the terminal until end of file."""
    key = os.environ.get("OPENAI_API_KEY", "none")
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        Mnemo(store) as memory,
        httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as server,
    ):
        repo = await memory.open_repo(person)
        while said := (await anyio.to_thread.run_sync(sys.stdin.readline)).strip():
            print(await answer(server, model, repo, said), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--store", default="chat.db")
    parser.add_argument("--person", default="you")
    given = parser.parse_args()
    anyio.run(main, given.url, given.model, given.store, given.person)
