"""Hostile values for every argument of every public call, chosen by its annotation."""

import base64
import inspect
import math
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

import anyio

from mnemo import Changeset, CheckpointHead, Config, Mnemo, MnemoError, Semantic, StoreError
from mnemo.testing import HashingEmbedder

ANSWER_S = 20.0
"""Seconds within which every call answers."""
LONG = 40_000
"""Members of the long lists."""


def _cyclic_list() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def _cyclic_object() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["a"] = value
    return value


def _deep(make: Callable[[Any], Any]) -> Any:
    value: Any = "x"
    for _ in range(3 * sys.getrecursionlimit()):
        value = make(value)
    return value


NUMBERS: dict[str, Any] = {
    "10**400": 10**400,
    "-10**400": -(10**400),
    "10**5000": 10**5000,
    "2**63": 2**63,
    "2**63-1": 2**63 - 1,
    "-2**63": -(2**63),
    "1e308": 1e308,
    "-1": -1,
    "0": 0,
    "1.5": 1.5,
    "tiny": 5e-324,
    "inf": math.inf,
    "nan": math.nan,
    "true": True,
    "decimal": Decimal("NaN"),
    "complex": 1j,
}
TIMES: dict[str, Any] = {
    "last": datetime.max,
    "first": datetime.min,
    "last day": datetime(9999, 12, 31),
    "last, west": datetime.max.replace(tzinfo=timezone(timedelta(hours=-23))),
    "first, east": datetime.min.replace(tzinfo=timezone(timedelta(hours=23))),
    "last, utc": datetime.max.replace(tzinfo=UTC),
    "date": date(2024, 1, 1),
}
TEXTS: dict[str, Any] = {
    "empty": "",
    "blank": " \u2003\n",
    "nul": "a\0b",
    "surrogate": "a\ud800b",
    "600": "x" * 600,
    "600 wide": "é" * 511,
    "long": "word " * 20_000,
    "digits": "9" * 5_000,
    "quotes": "\"'`;-- %_\\ OR NOT ( *",
    "escape": "\x1b[2J\u202e",
    "cursor": "1.2.3",
    "a path": "x/../y",
    "broken URL": "http://[::1",
    "percent": "%zz%00",
    "deep JSON": "[" * 100_000,
    "deep JSON, packed": base64.urlsafe_b64encode(b"[" * 100_000).decode(),
    "last time, packed": base64.urlsafe_b64encode(b'["x", "9999-12-31", 1e999]').decode(),
    "long cursor": ".".join(["9" * 50] * 4),
    "bytes": b"x",
}
LISTS: dict[str, Any] = {
    "none": [None],
    "cyclic list": _cyclic_list(),
    "deep list": _deep(lambda inner: [inner]),
    "long list": [str(n) for n in range(LONG)],
    "long numbers": list(range(LONG)),
    "numbers": [10**400, -1, 2**63, math.nan],
    "odd texts": ["a\0b", "a\ud800b", "", "x" * 600],
    "set": {"a", 1},
    "objects": [object()],
    "dicts": [{"role": "user", "content": 10**400}],
    "lists": [["a"], ("b", 2**63)],
}
OBJECTS: dict[str, Any] = {
    "cyclic": _cyclic_object(),
    "cyclic operand": {"a": {"$eq": _cyclic_object()}},
    "deep": _deep(lambda inner: {"a": inner}),
    "operators": {"a": {"gt": 10**400}, "b": {"lt": math.nan}},
    "number": {"a": 10**400},
    "64 bits": {"a": 2**63},
    "below": {"a": {"gte": -(2**70)}},
    "exact": {"a": 1e308},
    "any of": {"a": list(range(LONG))},
    "any text of": {"a": [str(n) for n in range(LONG)]},
    "keys": {1: "a", None: "b"},
    "many keys": {str(n): n for n in range(LONG)},
    "dots": {"." * 2_000: 1},
    "odd key": {"a\0\ud800": "a\0\ud800"},
    "long text": {"a": "x" * 100_000},
    "not JSON": {"a": object(), "b": {1, 2}},
    "dollar": {"a": {"$gt": 10**400, "$eq": math.nan}},
    "message": {"role": "user", "content": "x", "at": datetime.max, "token_count": 10**400},
    "long message": {"role": "x" * 600, "content": [{"type": 2**63}]},
}
OTHERS: dict[str, Any] = {"None": None, "object": object(), "type": int, "function": len}
STORED_EACH = ("long list",)
"""What is no more than much work where every member is stored."""
POOLS = {"number": NUMBERS, "time": TIMES, "text": TEXTS, "list": LISTS, "object": OBJECTS}
EVERYTHING = {**OTHERS, **NUMBERS, **TIMES, **TEXTS, **LISTS, **OBJECTS}
_KINDS = {
    "number": ("int", "float"),
    "time": ("datetime",),
    "text": ("str", "Literal", "Role", "Order", "Style", "Path", "Format", "Given", "Content"),
    "list": ("Sequence", "Iterable", "Collection", "Given", "Content", "states"),
    "object": ("Mapping", "Any", "Given", "Content", "filter"),
}


@dataclass(frozen=True, slots=True)
class Place:
    """One parameter of one public call."""

    subject: str
    call: str
    parameter: str
    annotation: str

    def __str__(self) -> str:
        return f"{self.subject}.{self.call}({self.parameter})"

    @property
    def values(self) -> dict[str, Any]:
        """The values by name that fit its annotation, and some that do not."""
        kinds = [k for k, words in _KINDS.items() if any(w in self.annotation for w in words)]
        fitting = {n: v for kind in kinds for n, v in POOLS[kind].items()}
        left_out = STORED_EACH if self.parameter in ("tags", "content", "messages") else ()
        return {n: v for n, v in {**OTHERS, **fitting}.items() if n not in left_out}


# ── The service under test ───────────────────────────────────────────────────────────────

SUBJECTS = "memory repo session talk items notes checkpoints inspection goals pins window found"
LEFT_OUT = {
    # What ends the service, its store or its only session; what takes a running function.
    "memory": {"open", "aclose", "work", "copy_to"},
    "session": {"aclose", "close", "commit", "discard", "close_async"},
    "talk": {"append_with"},
    "notes": {"update_after_task_async"},
}
GIVEN: dict[str, Any] = {
    "session_id": "s",
    "thread_id": "t",
    "repo_id": "r",
    "query": "where",
    "queries": ["tea"],
    "text": "Ada lives in Oslo.",
    "goal": "g",
    "name": "Ada",
    "observation": "I live in Oslo.",
    "action": "Noted.",
    "id": "x",
    "ids": ["x"],
    "content": "I like tea.",
    "messages": {"role": "user", "content": "x"},
    "message_id": "x",
    "namespace": ("a", "b"),
    "key": "k",
    "value": {"a": 1},
    "topic": "topic-a",
    "body": "body",
    "description": "about",
    "timeout_s": 0.01,
    "types": ["semantic"],
    "states": "collecting",
    "thread_ids": ["t"],
    "run_ids": ["x"],
    "operations": [],
    "lines": [],
    "channels": ["c"],
    "seqs": [0],
    "goal_ids": [1],
    "goal_id": 1,
    "start_seq": 0,
    "end_seq": 0,
    "summary_text": "short",
    "update_id": "u",
    "version": 1,
    "count": 1,
    "number": 1,
    "least": 0.5,
    "source": "x",
    "target": "y",
    "head": CheckpointHead(thread_id="t", id="x", type="json", data=b"1"),
    "values": {},
    "writes": [],
    "observer": print,
    "history": [{"role": "user", "content": "x"}],
    "iterations": 20,
    "changeset": Changeset(),
    "path": "",
}


@dataclass(slots=True)
class World:
    """A service with one of everything."""

    folder: Path
    memory: Any
    repo: Any = None
    session: Any = None
    talk: Any = None
    items: Any = None
    notes: Any = None
    checkpoints: Any = None
    inspection: Any = None
    goals: Any = None
    pins: Any = None
    window: Any = None
    found: Any = None

    async def fill(self) -> None:
        """Open and fill the repository."""
        self.repo = repo = await self.memory.open_repo("r")
        self.session, self.talk = await repo.start_session("g"), repo.conversation("t")
        await self.session.append("I live in Oslo.", "Noted.", metadata={"a": 1})
        await self.talk.append({"role": "user", "content": "where am I", "metadata": {"a": 2}})
        await repo.notes.write("topic-a", "body", "about")
        await repo.items.put(("a",), "k", {"a": 1}, texts={"t": "tea"})
        await repo.apply(Changeset((Semantic("Ada lives in Oslo."),)))
        await self.talk.goals.add("find out")
        self.items, self.notes, self.checkpoints = repo.items, repo.notes, repo.checkpoints
        self.inspection, self.goals, self.pins = repo.inspection, self.talk.goals, self.talk.pins
        self.window = self.talk.viewport(1_000)
        self.found = await repo.recall("where")

    async def call(self, place: Place, value: Any) -> None:
        """Make the call of *place* with *value* there; raises what is not documented."""
        call = getattr(getattr(self, place.subject), place.call)
        given, named = [], {}
        for parameter in inspect.signature(call).parameters.values():
            asked = value if parameter.name == place.parameter else self._given(parameter)
            if asked is inspect.Parameter.empty:
                continue
            if parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD):
                named[parameter.name] = asked
            else:
                given.append(asked)
        try:
            with anyio.fail_after(ANSWER_S) as limit:
                await _answered(call(*given, **named))
        except StoreError as error:
            raise AssertionError(f"{place}: {type(error).__name__}: {error}"[:500]) from error
        except TimeoutError as error:
            if limit.cancelled_caught:
                raise AssertionError(f"{place} does not answer") from error
        except UnicodeError as error:
            raise AssertionError(f"{place}: {error}"[:500]) from error
        except (ValueError, MnemoError):
            return
        except Exception as error:
            documented = call.__doc__ or ""
            if not any(f" {kind.__name__}:" in documented for kind in type(error).__mro__):
                told = f"{place}: {type(error).__name__}: {error}"
                raise AssertionError(told[:500]) from error

    def _given(self, parameter: inspect.Parameter) -> Any:
        if parameter.name == "session":
            return self.session
        if parameter.default is not parameter.empty and parameter.name != "timeout_s":
            return parameter.empty
        return GIVEN[parameter.name]


async def _answered(answer: Any) -> None:
    if isinstance(answer, AbstractAsyncContextManager):
        async with answer:
            return
    if isinstance(answer, Awaitable):
        answer = await answer
    if isinstance(answer, str):
        return
    as_text = getattr(answer, "as_text", None)
    if as_text is not None:
        as_text()


@asynccontextmanager
async def world(store: Any, folder: Path) -> AsyncIterator[World]:
    """Open a service over *store* with one of everything."""
    config = Config(
        shutdown_grace_s=0.05, conversation={"tool_deadline_s": 0.01}, session={"max_pending": 100}
    )
    async with Mnemo(store, embedder=HashingEmbedder(64), config=config) as memory:
        made = World(folder, memory)
        await made.fill()
        yield made


def places(made: World) -> list[Place]:
    """Every parameter of every public call."""
    return list(chain.from_iterable(_places_of(made, name) for name in SUBJECTS.split()))


def _places_of(made: World, subject: str) -> Iterator[Place]:
    kind = type(getattr(made, subject))
    for name, call in inspect.getmembers(kind, inspect.isfunction):
        if name.startswith("_") or name in LEFT_OUT.get(subject, ()):
            continue
        for parameter in inspect.signature(call).parameters.values():
            if parameter.name != "self":
                yield Place(subject, name, parameter.name, f"{parameter.annotation}")
