"""
Give the memory to an agent of a framework as the guide's page ``more-frameworks`` does.

The page's example runs first. Then an agent of the framework with its ``tools_of``, whose model
is scripted, remembers, recalls, and must have read what was remembered.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mnemo
import mnemo.sync

PAGE = Path(mnemo.__file__).parent / "guide" / "more-frameworks.md"
SCRIPT = (
    ("remember", {"text": "The heron is called Otto."}),
    ("recall", {"query": "Which name has the bird?"}),
)
MODULES = {"haystack-ai": "haystack", "strands-agents": "strands"}
"""Distribution → its module, where that is called otherwise."""
Read = list[Any]
"""What the model was given, one a call."""
Tools = Callable[[Any, str], list[Any]]


def main() -> None:
    """Run what is named as a requirement, such as ``crewai>=1.15``."""
    package = re.split("[<>=]", sys.argv[1])[0]
    module = MODULES.get(package, package)
    # What they send home would only be tried again here.
    os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "HAYSTACK_TELEMETRY_ENABLED": "False"}
    examples = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.M)
    (example,) = (one for one in examples if f"\nfrom {module}" in f"\n{one}")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        given: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(example, PAGE.name, "exec"), given)
        read = USES[module](given["tools_of"])
        os.chdir("/")
    assert len(read) == len(SCRIPT) + 1, read
    assert "Otto" not in str(read[0]), read
    assert "Otto" in str(read[-1]), read
    print(f"{package} {version(package)}: its agent remembers and recalls")


def haystack(tools_of: Tools) -> Read:
    """An ``Agent`` and a chat generator."""
    from haystack import component
    from haystack.components.agents import Agent
    from haystack.dataclasses import ChatMessage, ToolCall

    read: Read = []

    @component
    class Scripted:
        @component.output_types(replies=list[ChatMessage])
        def run(self, messages: list[ChatMessage], tools: Any = None) -> dict[str, Any]:
            read.append([one.tool_call_results for one in messages])
            if len(read) > len(SCRIPT):
                return {"replies": [ChatMessage.from_assistant("Otto")]}
            call = ToolCall(*SCRIPT[len(read) - 1])
            return {"replies": [ChatMessage.from_assistant(tool_calls=[call])]}

    with mnemo.sync.Mnemo("agent.db") as memory:
        agent = Agent(chat_generator=Scripted(), tools=tools_of(memory.open_repo(), "ada"))
        agent.run([ChatMessage.from_user("Begin.")])
    return read


def smolagents(tools_of: Tools) -> Read:
    """A ``ToolCallingAgent`` and a ``Model``."""
    from smolagents import ChatMessage, Model, ToolCallingAgent
    from smolagents.models import (
        ChatMessageToolCall,
        ChatMessageToolCallFunction,
        MessageRole,
    )

    read: Read = []

    class Scripted(Model):  # type: ignore[misc]
        def generate(self, messages: list[Any], **options: Any) -> ChatMessage:
            read.append([one.content for one in messages if "response" in one.role])
            script = [*SCRIPT, ("final_answer", {"answer": "Otto"})]
            function = ChatMessageToolCallFunction(*reversed(script[len(read) - 1]))
            call = ChatMessageToolCall(id=str(len(read)), type="function", function=function)
            return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=[call])

    with mnemo.sync.Mnemo("agent.db") as memory:
        tools = tools_of(memory.open_repo(), "ada")
        agent = ToolCallingAgent(tools=tools, model=Scripted(), verbosity_level=0)
        assert agent.run("Begin.") == "Otto"
    return read


def strands(tools_of: Tools) -> Read:
    """An ``Agent`` and a ``Model``, whose answers are streams."""
    from strands import Agent
    from strands.models import Model

    read: Read = []

    class Scripted(Model):  # type: ignore[misc]
        def update_config(self, **options: Any) -> None:
            """There is none."""

        def get_config(self) -> dict[str, Any]:
            return {}

        async def structured_output(self, *given: Any, **options: Any) -> Any:
            raise NotImplementedError
            yield

        async def stream(self, messages: Any, *given: Any, **options: Any) -> Any:
            read.append([one for one in messages if "toolResult" in str(one)])
            for event in self.events():
                yield event

        def events(self) -> Iterator[dict[str, Any]]:
            yield {"messageStart": {"role": "assistant"}}
            if len(read) > len(SCRIPT):
                yield {"contentBlockDelta": {"delta": {"text": "Otto"}}}
                yield {"contentBlockStop": {}}
                yield {"messageStop": {"stopReason": "end_turn"}}
                return
            name, given = SCRIPT[len(read) - 1]
            called = {"name": name, "toolUseId": f"call-{len(read)}"}
            yield {"contentBlockStart": {"start": {"toolUse": called}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(given)}}}}
            yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "tool_use"}}

    async def run() -> None:
        async with mnemo.Mnemo("agent.db") as memory:
            tools = tools_of(await memory.open_repo(), "ada")
            await Agent(model=Scripted(), tools=tools, callback_handler=None).invoke_async("Begin.")

    asyncio.run(run())
    return read


def crewai(tools_of: Tools) -> Read:
    """A ``Crew`` of one ``Agent``, and a ``BaseLLM`` that calls tools in words."""
    from crewai import Agent, BaseLLM, Crew, Task

    read: Read = []

    class Scripted(BaseLLM):  # type: ignore[misc]
        def call(self, messages: Any, *given: Any, **options: Any) -> str:
            read.append(str(messages))
            if len(read) > len(SCRIPT):
                return "Thought: I know.\nFinal Answer: Otto"
            name, arguments = SCRIPT[len(read) - 1]
            return f"Thought: On.\nAction: {name}\nAction Input: {json.dumps(arguments)}"

        def supports_function_calling(self) -> bool:
            return False

    with mnemo.sync.Mnemo("agent.db") as memory:
        tools = tools_of(memory.open_repo(), "ada")
        llm = Scripted(model="scripted")
        agent = Agent(role="Asker", goal="Ask", backstory="None", llm=llm, tools=tools)
        task = Task(description="Begin.", expected_output="A name", agent=agent)
        Crew(agents=[agent], tasks=[task], verbose=False).kickoff()
    return read


USES: dict[str, Callable[[Tools], Read]] = {
    "crewai": crewai,
    "haystack": haystack,
    "smolagents": smolagents,
    "strands": strands,
}

if __name__ == "__main__":
    main()
