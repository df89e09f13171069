"""Exports of other services: recognised, read with their odd cases, stored once."""

import io
import json
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import anyio
import pytest
from helpers import repository
from rich.console import Console

from mnemo.importing.json_stream import ImportFileError
from mnemo.importing.readers import items_of, mem0, source_of
from mnemo.importing.records import Broken, MemoryRecord, Record, Skipped
from mnemo.importing.writing import import_items


def node(id: str, parent: str | None, children: list[str], message: Any = None) -> dict[str, Any]:
    return {"id": id, "parent": parent, "children": children, "message": message}


def said(id: str, role: str, *parts: Any, at: float | None = None, **fields: Any) -> dict[str, Any]:
    content = {"content_type": "text", "parts": [*parts]}
    message = {"id": id, "author": {"role": role}, "create_time": at, "content": content}
    return message | {"recipient": "all", "metadata": {}} | fields


CHATGPT = [
    {
        "title": "Trip",
        "create_time": 1_709_654_400.0,
        "current_node": "m7",
        "conversation_id": "c1",
        "id": "c1",
        "mapping": {
            "root": node("root", None, ["m0"]),
            "m0": node("m0", "root", ["m1", "m1b"], said("m0", "system", "")),
            "m1": node("m1", "m0", ["m2"], said("m1", "user", "I go to Oslo.", at=1.0)),
            "m2": node("m2", "m1", [], said("m2", "assistant", "Oslo is cold.", at=2.0)),
            "m1b": node(
                "m1b",
                "m0",
                ["m3"],
                said(
                    "m1b",
                    "user",
                    {"content_type": "image_asset_pointer", "asset_pointer": "file://x"},
                    "I go to Kyoto.",
                    at=1_709_654_401.5,
                ),
            ),
            "m3": node(
                "m3",
                "m1b",
                ["m4"],
                said("m3", "assistant", content={"content_type": "thoughts", "thoughts": []}),
            ),
            "m4": node(
                "m4",
                "m3",
                ["m5"],
                said(
                    "m4",
                    "assistant",
                    recipient="python",
                    content={"content_type": "code", "language": "python", "text": "1 + 1"},
                ),
            ),
            "m5": node(
                "m5",
                "m4",
                ["m6"],
                said(
                    "m5",
                    "tool",
                    author={"role": "tool", "name": "python"},
                    content={"content_type": "execution_output", "text": "2"},
                ),
            ),
            "m6": node(
                "m6",
                "m5",
                ["m7"],
                said("m6", "user", "x", metadata={"is_visually_hidden_from_conversation": True}),
            ),
            "m7": node(
                "m7", "m6", [], said("m7", "assistant", "Two.", metadata={"model_slug": "gpt-4o"})
            ),
        },
    }
]

CLAUDE = [
    {
        "uuid": "c1",
        "name": "Report",
        "created_at": "2025-03-01T10:00:00.000000Z",
        "account": {"uuid": "a"},
        "chat_messages": [
            {
                "uuid": "h1",
                "sender": "human",
                "text": "Read this.",
                "content": [{"type": "text", "text": "Read this."}],
                "created_at": "2025-03-01T10:00:01.000000Z",
                "attachments": [
                    {"file_name": "a.txt", "file_size": 5, "extracted_content": "alpha"}
                ],
                "files": [{"file_name": "photo.jpg"}],
            },
            {
                "uuid": "a1",
                "sender": "assistant",
                "text": "",
                "content": [
                    {"type": "thinking", "thinking": "hm"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": None, "name": "web_search", "input": {"q": "x"}},
                    {
                        "type": "tool_result",
                        "tool_use_id": None,
                        "name": "web_search",
                        "content": [{"type": "text", "text": "found"}, {"type": "image"}],
                        "is_error": True,
                    },
                    {"type": "text", "text": "It is alpha."},
                ],
                "created_at": "2025-03-01T10:00:02.000000Z",
                "attachments": [],
                "files": [],
            },
            {"uuid": "h2", "sender": "human", "text": "", "content": [], "created_at": None},
            {"uuid": "h3", "sender": "robot", "text": "x"},
        ],
    }
]

LINE = {"sessionId": "s1", "timestamp": "2025-06-01T08:00:00.000Z", "cwd": "/src"}
CLAUDE_CODE = [
    {"type": "summary", "summary": "Fix it", "leafUuid": "x"},
    LINE | {"type": "user", "uuid": "u1", "message": {"role": "user", "content": "Fix the bug."}},
    LINE
    | {
        "type": "assistant",
        "uuid": "u2",
        "message": {
            "role": "assistant",
            "model": "claude",
            "content": [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"c": "ls"}}],
        },
    },
    LINE
    | {
        "type": "user",
        "uuid": "u3",
        "message": {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "a.py"}],
        },
    },
    LINE | {"type": "user", "uuid": "u4", "isMeta": True, "message": {"content": "caveat"}},
    LINE
    | {
        "type": "assistant",
        "uuid": "u5",
        "isSidechain": True,
        "agentId": "b7",
        "message": {"content": [{"type": "text", "text": "Searched."}]},
    },
    LINE | {"type": "assistant", "uuid": "u6", "message": {"content": 5}},
]

OPENAI = [
    {"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]},
    {"custom_id": "r1", "body": {"messages": [{"role": "user", "content": "Hello"}]}},
    {"messages": [{"content": "no role"}]},
]

MEM0 = {
    "results": [
        {
            "id": "m1",
            "memory": "Likes tea",
            "user_id": "ada",
            "created_at": "2024-07-20T01:30:36.275141-07:00",
            "updated_at": None,
            "metadata": {"project": "atlas"},
            "categories": ["food"],
        },
        {"id": "m2", "memory": "Old", "user_id": "ada", "is_deleted": True},
        {"id": "m3", "memory": None, "event": "DELETE"},
        {"id": "m4", "memory": "Born in May", "created_at": "03-14"},
        {"id": "m5", "content": "Plays chess", "state": "active", "created_at": 1721464236},
    ]
}

STORE = [
    {
        "namespace": ["users", "ada"],
        "key": "k1",
        "value": {"text": "Likes tea"},
        "created_at": "2025-01-01T00:00:00+00:00",
    },
    {"prefix": "users.ben", "key": "k2", "value": {"colour": "red"}},
    {"namespace": ["users"], "key": "k3", "value": "text alone"},
]

MARKDOWN = """---
date: 2024-05-06
tags: [a]
---
Before.

# Tea
Green.
```
# no heading
```
## Tea
Black.
# Empty
"""


_TURNS = ("user", "assistant", "tool", "assistant")


@pytest.fixture
def read(tmp_path) -> Callable[..., list[Any]]:
    """Writes an export, recognises it, and gives what was read; ``jsonl`` is one value a line."""

    def made(name: str, content: Any, wanted: str = "auto") -> list[Any]:
        path = tmp_path / name
        if not isinstance(content, str):
            lines = name.endswith(".jsonl")
            content = "\n".join(map(json.dumps, content)) if lines else json.dumps(content)
        path.write_text(content, encoding="utf-8")
        source = source_of(path, wanted)
        assert source is not None
        return list(items_of(path, source))

    return made


def told(items: list[Any]) -> list[tuple[str, str]]:
    """Thread and text of the records; of memories, no thread."""
    texts = [(item.thread_id, item.message.text) for item in items if isinstance(item, Record)]
    return texts + [("", item.text) for item in items if isinstance(item, MemoryRecord)]


def skipped(items: list[Any]) -> list[str]:
    return [item.reason for item in items if isinstance(item, Skipped)]


def broken(items: list[Any]) -> list[tuple[str, str]]:
    return [(item.place, item.what) for item in items if isinstance(item, Broken)]


# ── Formats ──────────────────────────────────────────────────────────────────────────────


def test_of_a_chatgpt_conversation_the_branch_in_use_is_read(read):
    """Left branches, reasoning and hidden messages are skipped; a time that lacks is inherited."""
    items = read("conversations.json", CHATGPT)
    records = [item for item in items if isinstance(item, Record)]
    assert [record.message.id for record in records] == ["m1b", "m4", "m5", "m7"]
    assert records[0].message.text == "[image file://x]\nI go to Kyoto."
    assert {record.thread_id for record in records} == {"chatgpt/c1"}
    assert {str(record.message.at) for record in records} == {"2024-03-05 16:00:01.500000+00:00"}
    call, result, answer = (record.message for record in records[1:])
    assert (call.tool_calls[0].name, result.tool_call_id, result.text) == ("python", "m4", "2")
    assert answer.metadata == {"title": "Trip", "model": "gpt-4o"}
    left = "2 messages on branches that were left (edits, regenerations)"
    assert skipped(items) == ["empty", "reasoning", "hidden", left]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"current_node": None, "mapping": {}}, "no last message"),
        (
            {
                "current_node": "a",
                "mapping": {"a": node("a", "b", ["b"]), "b": node("b", "a", ["a"])},
            },
            "each other's parents",
        ),
        ({"current_node": "m7", "id": None, "conversation_id": None}, 'no "conversation_id"'),
        ({"create_time": "03-14"}, "no date with a year"),
    ],
)
def test_a_damaged_chatgpt_conversation_is_named_and_the_next_is_read(read, change, what):
    """Each conversation stands by itself."""
    items = read("conversations.json", [CHATGPT[0] | change, CHATGPT[0]])
    ((place, why),) = broken(items)
    assert place == "conversation 1"
    assert what in why
    assert len(told(items)) == 4


def test_claude_s_tool_use_and_attachments_are_kept(read):
    """A call without an id is answered by the result behind it; thinking is left out."""
    items = read("conversations.json", CLAUDE)
    asked, looked, result, answer = (i.message for i in items if isinstance(i, Record))
    assert asked.text == "Read this.\n\n[attachment a.txt]\nalpha\n\n[file photo.jpg]"
    assert (looked.id, looked.text, looked.tool_calls[0].name) == ("a1", "I look.", "web_search")
    assert (result.tool_call_id, result.is_error) == (looked.tool_calls[0].id, True)
    assert result.text == "found\n[image]"
    assert (answer.id, answer.text, answer.role) == ("a1#2", "It is alpha.", "assistant")
    assert str(asked.at) == "2025-03-01 10:00:01+00:00"
    assert skipped(items) == ["empty"]
    assert broken(items) == [("conversation 1, message 4", "has the sender 'robot'")]


def test_a_claude_code_transcript_keeps_calls_and_parts_subagents(read):
    """Bookkeeping is skipped; a subagent has a thread of its own."""
    items = read("session.jsonl", CLAUDE_CODE)
    assert told(items) == [
        ("claude-code/s1", "Fix the bug."),
        ("claude-code/s1", ""),
        ("claude-code/s1", "a.py"),
        ("claude-code/s1/agent-b7", "Searched."),
    ]
    call, result = (item.message for item in items[2:4])
    assert call.tool_calls[0].id == result.tool_call_id == "t1"
    assert skipped(items) == ["bookkeeping (summary)", "written by the program"]
    assert [place for place, _ in broken(items)] == ["line 7"]


def test_openai_chats_have_a_thread_each(read):
    """Named after their id, or after file and line; a batch's request is one as well."""
    items = read("chats.jsonl", OPENAI)
    assert told(items) == [
        ("openai/chats#1", "Be kind."),
        ("openai/chats#1", "Hi"),
        ("openai/r1", "Hello"),
    ]
    ((place, what),) = broken(items)
    assert (place, 'no "role"' in what) == ("line 3", True)


def test_deleted_mem0_memories_are_skipped(read):
    """Owner, times, metadata and categories are kept; a date without a year is named."""
    items = read("export.json", MEM0)
    first, second = (item for item in items if isinstance(item, MemoryRecord))
    assert (first.text, second.text) == ("ada: Likes tea", "Plays chess")
    assert first.at is not None
    assert first.at.isoformat() == "2024-07-20T01:30:36.275141-07:00"
    assert first.metadata == {
        "project": "atlas",
        "user_id": "ada",
        "categories": ["food"],
        "created_at": "2024-07-20T01:30:36.275141-07:00",
        "mem0_id": "m1",
    }
    assert skipped(items) == ["deleted", "deleted"]
    assert broken(items) == [("memory 4", "has a time that is no date with a year: '03-14'")]


def test_items_of_a_langgraph_store_keep_their_value(read):
    """One without text is found by its JSON; the table's prefix is a namespace, too."""
    first, second, wrong = read("items.jsonl", STORE)
    assert (first.namespace, first.key, first.value) == (("users", "ada"), "k1", STORE[0]["value"])
    assert first.texts == {"text": "Likes tea"}
    assert (second.namespace, second.texts) == (("users", "ben"), {"$": '{"colour": "red"}'})
    assert broken([wrong]) == [("line 3", 'has a "value" that is no JSON object')]


def test_markdown_is_read_by_sections(read, tmp_path):
    """With the date of the front matter; a heading in code is none; folders are read whole."""
    items = read("tea.md", MARKDOWN)
    records = [item for item in items if isinstance(item, Record)]
    assert [record.message.id for record in records] == ["tea.md#", "tea.md#Tea", "tea.md#Tea-2"]
    assert records[1].message.text == "# Tea\nGreen.\n```\n# no heading\n```"
    assert {str(record.message.at) for record in records} == {"2024-05-06 00:00:00+00:00"}
    assert skipped(items) == ["empty"]
    (tmp_path / "wrong.md").write_text("---\ndate: 14 March\n---\nx")
    (tmp_path / "bytes.md").write_bytes(b"\xff")
    found = list(items_of(tmp_path, "markdown"))
    assert len(told(found)) == 3
    assert [place for place, _ in broken(found)] == ["bytes.md", "wrong.md"]


@pytest.mark.parametrize(
    ("memory", "what"),
    [
        ('{"id": "m2", "memory": "x", "metadata": {"a": NaN}}', "JSON"),
        (
            '{"id": "m2", "memory": "x", "metadata": {"a": %s}}' % ("[" * 900 + "]" * 900),
            "recursion",
        ),
        ('{"id": "m2", "memory": "x", "created_at": %s}' % ("9" * 4_000), "no date with a year"),
        ('{"id": "m2", "memory": "x", "created_at": "9999-12-31T23:59:59Z"}', "years 1 to 9999"),
        ('{"id": "m2", "memory": 5}', 'no text in "memory"'),
        ("5", "no JSON object"),
    ],
)
async def test_a_record_of_no_use_is_broken_and_its_neighbours_are_stored(tmp_path, memory, what):
    """NaN, deep nesting and numbers of thousands of digits end no import."""
    path = tmp_path / "export.json"
    path.write_text(f"""[{{"id": "m1", "memory": "a"}}, {memory}, {{"id": "m3", "memory": "c"}}]""")
    async with repository("memory:", "r") as repo:
        arrival = await import_items(repo, items_of(path, "mem0"))
    assert (arrival.added, arrival.broken_records) == (2, 1)
    assert arrival.broken[0].place == "memory 2"
    assert what in arrival.broken[0].what


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("conversations.json", CHATGPT),
        ("conversations.json", CLAUDE),
        ("session.jsonl", CLAUDE_CODE),
        ("chats.jsonl", OPENAI),
        ("export.json", MEM0),
        ("items.jsonl", STORE),
        ("tea.md", MARKDOWN),
    ],
)
async def test_a_second_import_of_any_format_adds_nothing(tmp_path, name, content):
    """What the first one added is known, and the same records are skipped and broken."""
    path = tmp_path / name
    if not isinstance(content, str):
        lines = name.endswith(".jsonl")
        content = "\n".join(map(json.dumps, content)) if lines else json.dumps(content)
    path.write_text(content)
    source = source_of(path)
    assert source is not None
    async with repository("memory:", "r") as repo:
        first, second = [await import_items(repo, items_of(path, source)) for _ in range(2)]
    assert first.added > 0
    assert (second.added, second.known) == (0, first.added + first.known)
    assert (second.skipped, second.broken) == (first.skipped, first.broken)


async def test_long_messages_are_stored_a_few_at_once(tmp_path):
    """What is held in memory is bounded in characters, too."""
    path = tmp_path / "export.json"
    talks = [[{"role": "user", "content": f"{n} " * 100_000}] for n in range(9)]
    path.write_text(json.dumps([{"id": f"m{n}", "messages": one} for n, one in enumerate(talks)]))
    counts: list[int] = []
    async with repository("memory:", "r") as repo:
        await import_items(repo, items_of(path, "openai"), advance=counts.append)
    assert (sum(counts), max(counts)) == (9, 3)


def test_the_progress_of_an_import_is_shown_on_a_terminal_and_ends(cli, put, monkeypatch):
    """A bar on standard error that knows the size of the file and counts memories."""
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=100, color_system=None)
    monkeypatch.setattr("mnemo.cli.output.Console", lambda **_options: console)
    many = [{"id": f"m{n}", "memory": f"fact {n}", "user_id": "ada"} for n in range(12)]
    name = put("export.json", {"results": many})
    size = Path(name).stat().st_size
    assert cli("import", name).code == 0
    assert f"{size}/{size} bytes 12 memories" in written.getvalue()
    assert written.getvalue().endswith("\x1b[?25h")


ZEP = [
    {
        "thread_id": "t1",
        "messages": [
            {
                "uuid": "z1",
                "role": "user",
                "name": "Ada",
                "content": "I moved to Bern.",
                "created_at": "2026-03-02T09:00:00Z",
            },
            {"uuid": "z2", "role_type": "assistant", "role": "bot", "content": "Noted."},
            {"uuid": "z3", "role": "user", "content": " "},
        ],
    },
    {"messages": [{"uuid": "z4", "role": "user", "content": "I play the cello."}]},
]
ZEP_FACTS = [
    {
        "uuid": "e1",
        "name": "LIVES_IN",
        "fact": "Ada lives in Bern.",
        "valid_at": "2026-03-02T09:00:00Z",
        "created_at": "2026-03-05T09:00:00Z",
        "invalid_at": None,
    },
    {"uuid": "e2", "fact": "Ada plays the cello.", "created_at": "2026-03-05T09:00:00Z"},
    {"uuid": "e3", "fact": "Ada lives in Lund.", "invalid_at": "2026-03-02T09:00:00Z"},
]
LETTA = [
    {
        "id": "message-1",
        "message_type": "user_message",
        "date": "2026-03-02T09:00:00Z",
        "agent_id": "agent-1",
        "content": json.dumps({"type": "user_message", "message": "I moved to Bern."}),
    },
    {
        "id": "message-2",
        "message_type": "assistant_message",
        "content": [{"type": "text", "text": "Noted."}],
    },
    {"id": "message-3", "message_type": "reasoning_message", "reasoning": "Hm."},
    {"id": "message-4", "message_type": "user_message", "content": '{"type": "login"}'},
    {"id": "block-1", "label": "human", "value": "Ada plays the cello."},
    {"id": "passage-1", "text": "Ada's sister is Mara.", "created_at": "2026-03-02T09:00:00Z"},
]
CHROMA = [
    {
        "ids": ["c1", "c2", "c3"],
        "embeddings": None,
        "documents": ["Ada lives in Bern.", None, "Ada plays the cello."],
        "metadatas": [{"page": 4}, None, None],
    },
    {"ids": ["c4"], "documents": ["Ada keeps bees."], "metadatas": None},
]
EXPORTS: dict[str, tuple[str, list[Any]]] = {
    "zep": ("threads.json", ZEP),
    "zep-facts": ("edges.json", ZEP_FACTS),
    "letta": ("agent.json", LETTA),
    "chroma": ("collection.json", CHROMA),
    "chatgpt": ("conversations.json", CHATGPT * 2),
    "claude": ("conversations.json", CLAUDE),
    "claude-code": ("session.jsonl", CLAUDE_CODE),
    "openai": ("chats.jsonl", OPENAI),
    "mem0": ("export.json", MEM0["results"]),
    "langgraph-store": ("items.jsonl", STORE),
}


OTHERS = {
    "zep": ("zep: 3 messages added", "zep, skipped, 1: empty"),
    "zep-facts": ("zep-facts: 2 memories added", "skipped, 1: no longer true"),
    "letta": ("letta: 4 records added", "skipped, 1: reasoning_message"),
    "chroma": ("chroma: 3 memories added", "skipped, 1: empty"),
}


@pytest.mark.parametrize("source", OTHERS)
def test_other_memories_come_along_once(cli, put, source):
    """Recognised, told, found in their own words, and with a second import there already."""
    name = put(*EXPORTS[source])
    first, again = cli("import", name), cli("import", name)
    told, skipped = OTHERS[source]
    assert f"from {told}, 0 were" in first.out
    assert skipped.partition(", s")[2] in first.out or skipped in first.out
    number = told.split()[1]
    assert f" 0 {told.split()[2]} added, {number} were there" in again.out
    assert "Bern" in cli("recall", "Where does Ada live?" if source != "zep" else "Bern").out


def test_who_said_it_and_where_stays_with_what_comes_from_zep_and_letta(read):
    """Speakers, times and threads; a user's words are taken out of Letta's envelope."""
    first, second, _, fourth = read("threads.json", ZEP, "zep")
    assert (first.thread_id, first.message.actor, first.message.id) == ("zep/t1", "Ada", "z1")
    assert (second.message.role, fourth.thread_id) == ("assistant", "zep/threads")
    said, answered, *_ = read("agent.json", LETTA, "letta")
    assert (said.thread_id, said.message.text) == ("letta/agent-1", "I moved to Bern.")
    assert answered.thread_id == "letta/agent"


@pytest.mark.parametrize("source", EXPORTS)
def test_a_file_cut_off_anywhere_gives_the_first_records_of_the_whole(tmp_path, source):
    """Each as it is in the whole file: none half-read, none that is not there."""
    name, content = EXPORTS[source]
    whole = "\n".join(map(json.dumps, content)) if ".jsonl" in name else json.dumps(content)
    path = tmp_path / name

    def kept(text: str) -> list[Any]:
        path.write_text(text)
        found = []
        with suppress(ImportFileError):
            for item in items_of(path, source):
                found += [] if isinstance(item, Broken | Skipped) else [item]
        return found

    records = kept(whole)
    for cut in range(1, len(whole), 37):
        found = kept(whole[:cut])
        assert found == records[: len(found)]
    assert len(found) >= len(records) - 4


def changed_anywhere(value: Any, odd: Any) -> Iterator[Any]:
    """*value* with *odd* in the place of each of its parts, one at a time."""
    yield odd
    if not isinstance(value, dict | list):
        return
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        for changed in changed_anywhere(part, odd):
            copy = value.copy()
            copy[key] = changed
            yield copy


@pytest.mark.parametrize("odd", [None, [None], {"a": 1}, 5, True], ids=json.dumps)
@pytest.mark.parametrize("source", EXPORTS)
def test_a_part_of_another_type_ends_no_import(tmp_path, source, odd):
    """A record that holds it anywhere is read, skipped or broken; the one behind it is read."""
    good = EXPORTS[source][1][source == "claude-code"]
    changed = [good, *changed_anywhere(good, odd), good]
    path = tmp_path / "export.json"
    path.write_text(json.dumps(changed))
    *_, last = (i for i in items_of(path, source) if not isinstance(i, Broken | Skipped))
    assert last.place.partition(",")[0].endswith(f" {len(changed)}")


@pytest.mark.slow
@pytest.mark.parametrize("source", EXPORTS)
def test_memory_does_not_grow_with_the_file(tmp_path, source):
    """A file of 8 MB is read with a few of them, whatever its format."""
    name, content = EXPORTS[source]
    one = json.dumps(content[0] | {"unknown": "x" * 40_000})
    many = [one] * (8_000_000 // len(one))
    path = tmp_path / name
    path.write_text("\n".join(many) if ".jsonl" in name else f"[{', '.join(many)}]")
    tracemalloc.start()
    try:
        assert sum(1 for _ in items_of(path, source)) >= len(many)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("chatgpt", [0, "mapping", "m7", "message", "create_time"]),
        ("claude", [0, "chat_messages", 0, "created_at"]),
        ("claude-code", [1, "timestamp"]),
        ("mem0", [0, "created_at"]),
        ("zep", [0, "messages", 0, "created_at"]),
        ("zep-facts", [0, "valid_at"]),
        ("letta", [0, "date"]),
    ],
)
def test_a_date_without_a_year_breaks_its_message_alone(read, source, path):
    """The others of its conversation are read."""
    name, content = EXPORTS[source]
    changed = json.loads(json.dumps(content[:1] if source == "chatgpt" else content))
    before = read(name, changed, source)
    *way, last = path
    reduce(getitem, way, changed)[last] = "14 March"
    after = read(name, changed, source)
    (new,) = {what for _, what in broken(after)} - {what for _, what in broken(before)}
    assert "no date with a year: '14 March'" in new
    assert len(told(after)) == len(told(before)) - 1


@pytest.mark.parametrize(
    ("source", "thread", "messages"),
    [
        (
            "chatgpt",
            "chatgpt/c1",
            [(role, None, "2024-03-05T16:00:01.500000+00:00") for role in _TURNS],
        ),
        (
            "claude",
            "claude/c1",
            [
                ("user", None, "2025-03-01T10:00:01+00:00"),
                ("assistant", None, "2025-03-01T10:00:02+00:00"),
                ("tool", None, "2025-03-01T10:00:02+00:00"),
                ("assistant", None, "2025-03-01T10:00:02+00:00"),
            ],
        ),
        (
            "claude-code",
            "claude-code/s1",
            [(role, None, "2025-06-01T08:00:00+00:00") for role in _TURNS[:3]],
        ),
    ],
)
async def test_exports_arrive_with_their_speakers_times_and_counts(
    tmp_path, source, thread, messages
):
    """What the conversation holds afterwards is what the export says."""
    name, content = EXPORTS[source]
    path = tmp_path / name
    path.write_text(
        "\n".join(map(json.dumps, content)) if ".jsonl" in name else json.dumps(content)
    )
    async with repository("memory:", "r") as repo:
        await import_items(repo, items_of(path, source))
        stored = await repo.conversation(thread).history()
    assert [(m.role, m.actor, m.at.astimezone(UTC).isoformat()) for m in stored] == messages


# ── The command ──────────────────────────────────────────────────────────────────────────


@pytest.fixture
def put(tmp_path) -> Callable[[str, Any], str]:
    """Writes a file and gives its name."""

    def made(name: str, content: Any) -> str:
        text = content if isinstance(content, str) else json.dumps(content)
        Path(tmp_path, name).write_text(text)
        return name

    return made


@pytest.mark.slow
def test_an_export_is_stored_with_speakers_and_times_and_once(cli, put):
    """The second import adds nothing; a grown export brings what is new."""
    name = put("conversations.json", CHATGPT)
    first = cli("import", name, "--json")
    assert (first.code, first.data["from"], first.data["added"]) == (0, "chatgpt", 4)
    again = cli("import", name)
    assert again.out.startswith("Repository default, from chatgpt: 0 messages added, 4 were there")
    assert "skipped, 1: reasoning" in again.out
    messages = cli("history", "chatgpt/c1", "--json").data["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[0]["at"].startswith("2024-03-05T16:00:01")
    assert "Kyoto" in cli("recall", "Where does the trip go?").out
    grown = json.loads(json.dumps(CHATGPT))
    grown[0]["current_node"] = "m8"
    grown[0]["mapping"]["m8"] = node("m8", "m7", [], said("m8", "user", "Thanks."))
    assert cli("import", put(name, grown), "--json").data["added"] == 1


@pytest.mark.slow
def test_facts_are_extracted_when_the_import_waits_for_them(cli, put):
    """Without it they are owed, and the next program that is open makes them."""
    name = put("chat.json", {"messages": [{"role": "user", "content": "I live in Lund."}]})
    assert cli("import", name, "--json").code == 0
    assert cli("stats", "--json").data["nodes"].get("semantic", 0) == 0
    assert cli("import", name, "--wait").code == 0
    assert "Lund" in cli("memories").out


@pytest.mark.slow
def test_a_dry_run_shows_the_first_ten_and_stores_nothing(cli, put, tmp_path):
    """With what would be skipped and what is broken."""
    many = [{"id": f"m{n}", "memory": f"fact {n}", "user_id": "ada"} for n in range(12)]
    name = put("export.json", {"results": [*many, *MEM0["results"]]})
    shown = cli("import", name, "--dry-run")
    assert shown.code == 1
    assert shown.out.count("ada: fact") == 10
    assert "14 memories" in shown.out
    assert "skipped, 2: deleted" in shown.out
    assert "memory 16: has a time that is no date with a year" in shown.err
    assert not (tmp_path / "mnemo.db").exists()
    data = cli("import", name, "--dry-run", "--json").data
    assert (data["added"], data["skipped"], data["broken_records"]) == (
        14,
        {"deleted": 2},
        1,
    )


@pytest.mark.slow
def test_a_broken_record_is_named_and_strict_ends_at_it(cli, put):
    """The others are stored, and the exit code tells; strict keeps what stands before."""
    name = put("export.json", MEM0)
    strict = cli("import", name, "--strict", "--repo", "s")
    assert strict.code == 2
    assert "memory 4: has a time" in strict.err
    assert cli("stats", "--repo", "s", "--json").data["nodes"] == {"semantic": 1}
    lax = cli("import", name)
    assert lax.code == 1
    assert lax.err == (
        "mnemo: export.json: memory 4: has a time that is no date with a year: '03-14'\n"
    )
    assert cli("stats", "--json").data["nodes"] == {"semantic": 2}


@pytest.mark.slow
def test_of_a_file_that_is_cut_off_what_is_whole_is_kept(cli, put):
    """With the place of the end; the whole file afterwards brings the rest."""
    whole = json.dumps([CHATGPT[0], CHATGPT[0] | {"conversation_id": "c2"}])
    cut = cli("import", put("conversations.json", whole[:-40]))
    assert cut.code == 2
    assert "line 1, column" in cut.err
    assert "the 4 messages before it were kept" in cut.err
    assert cli("import", put("conversations.json", whole), "--json").data["added"] == 4


@pytest.mark.parametrize(
    ("content", "options", "error"),
    [
        (CLAUDE, ["--from", "chatgpt"], "no export of chatgpt; it looks like one of claude"),
        ([{"a": 1}], ["--from", "mem0"], "no export of mem0"),
        (CLAUDE, ["--from", "gmail"], "--from takes auto, archive, chatgpt"),
        (CLAUDE, ["--thread", "t"], "conversations of its own"),
        ([{"a": 1}], ["--dry-run"], "for exports of other services"),
        ("", ["--from", "claude"], "the file is empty"),
    ],
)
def test_a_file_of_another_service_is_refused(cli, put, tmp_path, content, options, error):
    """Nothing is made."""
    ran = cli("import", put("export.json", content), *options)
    assert ran.code == 2
    assert error in ran.err
    assert not (tmp_path / "mnemo.db").exists()


@pytest.mark.parametrize(
    ("user", "text", "kept"),
    [
        ("al", "Always likes tea", "al: Always likes tea"),
        ("4", "Has 42 books", "4: Has 42 books"),
        ("ada", "Ada's dog is called Rex", "Ada's dog is called Rex"),
        ("a.b", "Likes tea, says A.B", "Likes tea, says A.B"),
    ],
)
def test_a_user_is_named_by_a_word_not_by_letters_within_one(user, text, kept):
    """Else the memory would be nobody's."""
    (record,) = mem0({"id": "m1", "memory": text, "user_id": user}, "memory 1")
    assert record.text == kept


@pytest.mark.slow
def test_memories_of_mem0_are_memories_and_found_in_other_words(cli, put):
    """Each as it is, with its user as the subject, and counted."""
    told = ["Lives in Bern", "Likes tea", "Has a dog called Rex", "Works as a nurse", "Is vegan"]
    records = [
        {"id": f"m{n}", "memory": text, "user_id": "ada", "created_at": f"2024-01-0{n}T10:00:00Z"}
        for n, text in enumerate(told, 1)
    ]
    records.append({"id": "m9", "memory": "Likes tea", "user_id": "ben"})
    ran = cli("import", put("export.json", {"results": records}))
    assert ran.code == 0
    assert ran.out == (
        "Repository default, from mem0: 6 memories added, 0 were there or are erased.\n"
    )
    found = cli("memories", "--json").data["memories"]
    texts = {f"ada: {text}" for text in told} | {"ben: Likes tea"}
    assert {memory["text"] for memory in found} == texts
    (bern,) = (memory for memory in found if "Bern" in memory["text"])
    assert bern["valid_from"].startswith("2024-01-01T10:00:00")
    assert bern["metadata"]["user_id"] == "ada"
    assert "Bern" in cli("recall", "Where does she live?", "-k", "1").out
    again = cli("import", "export.json")
    assert "0 memories added, 6 were there" in again.out
    one = cli("import", put("one.json", {"results": [{"id": "n1", "memory": "Sails"}]}))
    assert "from mem0: 1 memory added" in one.out
    assert "Lives in Bern (1 Jan 2024, hand)" in cli("recall", "Where is her home?").out


@pytest.mark.slow
def test_an_id_with_another_text_is_broken_and_the_rest_goes_on(cli, put):
    """The first text stays."""
    put("export.json", {"results": [{"id": "m1", "memory": "Likes tea"}]})
    assert cli("import", "export.json").code == 0
    changed = [{"id": "m1", "memory": "Likes milk"}, {"id": "m2", "memory": "Plays chess"}]
    ran = cli("import", put("export.json", {"results": changed}))
    assert ran.code == 1
    assert "memory 1: " in ran.err
    page = cli("memories", "--json").data
    assert sorted(m["text"] for m in page["memories"]) == ["Likes tea", "Plays chess"]


@pytest.mark.slow
def test_store_items_become_keyed_items_once(cli, put, tmp_path):
    """Found by their namespace; another value under the same key is refused, the first stays."""
    name = put("items.json", STORE[:2])
    assert cli("import", name).out.startswith(
        "Repository default, from langgraph-store: 2 items added, 0 were there"
    )
    changed = [STORE[0] | {"value": {"text": "Likes milk"}}, STORE[1]]
    again = cli("import", put("items.json", changed), "--json")
    assert (again.code, again.data["added"], again.data["known"]) == (1, 0, 1)
    assert "the key 'k1' has another value already" in again.err

    async def values() -> list[Any]:
        async with repository(tmp_path / "mnemo.db", "default", embedder="static") as repo:
            return [item.value for item in await repo.items.search(("users",), query="tea")]

    assert anyio.run(values) == [{"text": "Likes tea"}, {"colour": "red"}]


# ── And out ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_what_was_said_is_exported_for_programs_and_people(cli, put, tmp_path):
    """JSON Lines, OpenAI's chats (which can be imported again) and Markdown."""
    cli("import", put("conversations.json", CHATGPT))
    assert cli("export", "out.jsonl", "--to", "jsonl", "--json").data["messages"] == 4
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == ["m1b", "m4", "m5", "m7"]
    assert cli("export", "chats.jsonl", "--to", "openai").code == 0
    assert cli("import", "chats.jsonl", "--repo", "copy", "--json").data["added"] == 4
    assert cli("export", "out.md", "--to", "markdown").code == 0
    page = (tmp_path / "out.md").read_text()
    assert "## Thread chatgpt/c1" in page
    assert "**user**, 2024-03-05 16:00:\n\n[image file://x]\nI go to Kyoto." in page
    assert cli("export", "x", "--to", "csv").code == 2
    assert cli("export", "-", "--to", "openai").out.startswith('{"id": "chatgpt/c1"')
