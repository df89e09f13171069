"""
An agent that talks for 5,000 messages in a window of 4,000 tokens, with a model that fails.

What it says is the same each time, so that whoever takes over from a process that was
killed says the rest. ``python long_talk.py DB LIFE`` is one such process: it tells what it
did in lines of JSON, and ends by itself only when everything is said.
"""

import json
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import anyio

from mnemo import Config, Mnemo, Repository, Session
from mnemo.errors import ModelTimeout, ModelUnavailable, RateLimited
from mnemo.protocols import ChatReply, ChatRequest
from mnemo.repository.conversation import Conversation
from mnemo.testing import HashingEmbedder, ScriptedChatModel, tool_call
from mnemo.values.messages import Message, ToolCall
from mnemo.values.strategies import Summary

LENGTH = 5_000
BUDGET = 4_000
FAILING = 0.2
REPLAYED = 50
"""Messages that a new process says again, as one does that does not know what arrived."""
THREAD, SESSION = "long", "long-session"

WORDS = (  # noqa: SIM905 - read as the sentence that it is
    "we went over the open points again and the second one still needs an answer from them "
    "so please look into it when there is time because nobody wrote down what was agreed on "
    "that afternoon while the others were packing boxes near the window"
).split()


@dataclass(frozen=True)
class Fact:
    """Something that must not be lost: where it is said, and how it is asked for."""

    seq: int
    text: str
    telling: str
    question: str
    goal: str | None = None


OFFICE, CATERER = "Move the office to Porto", "Find a caterer for the opening"
SAYINGS = (
    ("The landlord of Rua Formosa wants 1,850 euros.", "1,850 euros", "landlord Formosa"),
    ("Marta keeps the spare key to the archive.", "spare key", "who keeps the spare key"),
    ("The movers charge extra above the third floor.", "third floor", "movers charge extra"),
    ("Omar is allergic to sesame.", "sesame", "Omar allergic"),
    ("The server rack weighs 412 kilos.", "412 kilos", "server rack weighs"),
    ("Invoices go to the Lisbon branch.", "Lisbon branch", "where do invoices go"),
    ("The lift is out of order until May 12.", "May 12", "lift out of order"),
    ("Bettina wants vegetarian lasagne.", "lasagne", "Bettina vegetarian"),
    ("The alarm code is Tango 7719.", "Tango 7719", "alarm code"),
    ("Parking permits come from window 14.", "window 14", "parking permits"),
    ("The printer needs toner TN-3480.", "TN-3480", "printer toner"),
    ("Jiro signs for parcels on Mondays.", "Jiro signs", "who signs for parcels"),
    ("The carpet must be wool, says Helena.", "wool", "carpet Helena"),
    ("Deposit is due by September 3.", "September 3", "deposit due"),
    ("The fibre line is from provider Vento.", "provider Vento", "fibre line provider"),
    ("Old desks are given to the Aurora school.", "Aurora school", "old desks given"),
    ("Fire drill is at 10:45 on the last Friday.", "10:45", "fire drill"),
    ("Kenji prefers the room facing north.", "facing north", "Kenji prefers room"),
    ("The insurance number is PT-99172.", "PT-99172", "insurance number"),
    ("Opening night begins at 19:30 sharp.", "19:30", "opening night begins"),
)
HELD = {1: OFFICE, 6: OFFICE, 8: OFFICE, 13: OFFICE, 3: CATERER, 7: CATERER}
"""Facts that are pinned to a goal."""
CATERER_FOUND = 3_000
"""The message at which that goal is completed."""
SPEAKING = ("user", "assistant", "thought", "reply")


# ── What is said ─────────────────────────────────────────────────────────────────────


def script() -> tuple[list[Message], list[Fact]]:
    """Every message, by its seq, and the facts that are planted among them."""
    chance = random.Random(5)
    messages: list[Message] = []
    while len(messages) < LENGTH - 1:
        messages += _turn(chance, len(messages))
    messages[LENGTH - 1 :] = [Message(role="assistant", content="That is all, I believe.")]
    facts = [_planted(messages, number) for number in range(len(SAYINGS))]
    return [replace(message, id=f"m{seq}") for seq, message in enumerate(messages)], facts


def _turn(chance: random.Random, start: int) -> Iterator[Message]:
    """A question, thinking, calls with results, and an answer; not every result comes."""
    yield Message(role="user", content=_filler(chance))
    for round_ in range(chance.randint(1, 3)):
        if chance.random() < 0.3:
            yield Message(role="assistant", content=_filler(chance), kind="thought")
        names = ["look_up", "ask_colleague"][: chance.randint(1, 2)]
        calls = [ToolCall(f"c{start}-{round_}-{n}", name) for n, name in enumerate(names)]
        yield Message(role="assistant", tool_calls=calls)
        for call in calls:
            if chance.random() < 0.97:
                yield _result(chance, call)
            if chance.random() < 0.02:
                yield Message(role="user", content=_filler(chance))
    yield Message(role="assistant", content=_filler(chance))


def _result(chance: random.Random, call: ToolCall) -> Message:
    is_reply = call.name == "ask_colleague"
    return Message(
        role="tool",
        content=_filler(chance),
        tool_call_id=call.id,
        name=call.name,
        kind="reply" if is_reply else None,
        is_error=not is_reply and chance.random() < 0.1,
    )


def _filler(chance: random.Random) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randint(8, 30))) + "."


def _planted(messages: list[Message], number: int) -> Fact:
    """Have a message say the fact of this number too: of each kind in turn, evenly spread."""
    text, telling, question = SAYINGS[number]
    kind = SPEAKING[number % len(SPEAKING)]
    seq = 40 + number * (LENGTH - 80) // (len(SAYINGS) - 1)
    while messages[seq].kind != kind:
        seq += 1
    messages[seq] = replace(messages[seq], content=f"{messages[seq].text} {text}")
    return Fact(seq, text, telling, question, HELD.get(number))


# ── The model ────────────────────────────────────────────────────────────────────────


class Failing:
    """A chat model of which one answer in five is an error, nonsense, or cut off."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._model = ScriptedChatModel.answering({"summarize": _summary})
        self.asked: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Answer, or fail."""
        self.asked[request.purpose] += 1
        if self._chance.random() >= FAILING:
            return await self._model.complete(request)
        self.failed[request.purpose] += 1
        answer = self._chance.choice(_failures(request))
        if isinstance(answer, Exception):
            raise answer
        return answer


def _failures(request: ChatRequest) -> list[Exception | ChatReply]:
    purpose = request.purpose
    half = tool_call("save_snapshot", text="It was about the") | {"id": "x"}
    return [
        ModelUnavailable("the server is down", purpose=purpose),
        ModelUnavailable("no such model", purpose=purpose, retryable=False),
        ModelTimeout("no answer", purpose=purpose),
        RateLimited("slow down", purpose=purpose, retry_after_s=0.0),
        RuntimeError("a bug in somebody's client"),
        ChatReply(text="" if not request.tools else "I have saved it all, do not worry."),
        ChatReply(text="It was about the", tool_calls=(half,), truncated=True),
    ]


def _summary(request: ChatRequest) -> Any:
    """A summary that keeps the latest names and numbers, few enough to be short."""
    shown = "\n".join(message.content for message in request.messages[1:])
    zone = shown.split("── MIDDLE ZONE ──")[0]
    told = [one for one in re.findall(r"[A-Z][^.]*\w[^.]*\.", zone) if one in _TELLING]
    text = " ".join([*dict.fromkeys(told[-4:]), "The rest was talk about open points."])
    return tool_call("save_snapshot", text=text) if request.tools else text


_TELLING = frozenset(text for text, _, _ in SAYINGS)


# ── A life ───────────────────────────────────────────────────────────────────────────


def tell(*told: object) -> None:
    """One line, at once: one write is never cut by a kill."""
    os.write(1, (json.dumps(told) + "\n").encode())


def config() -> Config:
    """Nothing waits for a failure's time to pass, so that much is tried."""
    return Config(
        viewport={"retry_backoff_s": 0},
        conversation={
            "retry_backoff_s": 0,
            "tool_deadline_s": 0.5,
            "compression": Summary(max_tokens=4_000, keep_last=5, max_summary_tokens=200),
        },
    )


def opened(path: str, model: Failing | None = None) -> Mnemo:
    """The service over that file."""
    return Mnemo(path, config=config(), chat_model=model, embedder=HashingEmbedder())


class Life:
    """What one process says and does, from where it finds the conversation."""

    def __init__(self, repo: Repository) -> None:
        self._repo = repo
        self._talk: Conversation = repo.conversation(THREAD)
        self._viewport = self._talk.viewport(BUDGET)
        self._messages, facts = script()
        self._facts = {fact.seq: fact for fact in facts}
        self._goals: dict[str, int] = {}

    async def live(self) -> None:
        """Say the rest, and wait for all that follows from it."""
        found = await self._talk.next_seq()
        tell("up", found, len(await self._talk.snapshots.outcomes()))
        await self._know_goals()
        session = await self._session()
        held = session.held_messages(THREAD)
        feed = await self._talk.feed(session, from_seq=None if held else 0)
        for seq in range(max(0, found - REPLAYED), LENGTH):
            await self._say(seq)
        await feed.caught_up()
        await self._talk.settle()

    async def _know_goals(self) -> None:
        there = {goal.description: goal.id for goal in await self._talk.goals.list()}
        for goal in (OFFICE, CATERER):
            if goal not in there:
                there[goal] = (await self._talk.goals.add(goal)).id
        self._goals = there

    async def _session(self) -> Session:
        if any(one.id == SESSION for one in await self._repo.unfinished_sessions()):
            return await self._repo.resume_session(SESSION)
        return await self._repo.start_session("Run the office", session_id=SESSION)

    async def _say(self, seq: int) -> None:
        """Append, pin what is to be held, and look at the window before the model would."""
        message = self._messages[seq]
        (stored,) = await self._talk.append(message)
        assert stored.seq == seq
        tell("said", seq)
        fact = self._facts.get(seq)
        if fact and fact.goal and await self._is_active(fact.goal):
            await self._talk.pins.attach([seq], [self._goals[fact.goal]])
        if seq == CATERER_FOUND and await self._is_active(CATERER):
            await self._talk.goals.complete(self._goals[CATERER])
        if message.role == "user":
            rendered = await self._viewport.render()
            assert rendered.degraded is None
            assert rendered.token_count <= BUDGET, "the rendering exceeds its budget"

    async def _is_active(self, goal: str) -> bool:
        active = await self._talk.goals.list(active_only=True)
        return self._goals[goal] in {one.id for one in active}


async def main(path: str, life: int) -> None:
    """One process."""
    model = Failing(life)
    async with opened(path, model) as memory:
        await Life(await memory.open_repo("office")).live()
    tell("done", dict(model.asked), dict(model.failed))


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], int(sys.argv[2]))
