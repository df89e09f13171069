"""Conversations on the command line: in, through, and in their window."""

import anyio
import pytest
from helpers import repository

from mnemo import Config, Mnemo

CHAT = [
    {"role": "system", "content": "You are a ferryman."},
    {"role": "user", "content": "When does the ferry leave?", "at": "2026-01-02T10:00:00Z"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "timetable", "arguments": '{"line": 3}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "09:10"},
    {"role": "assistant", "content": "At ten past nine.", "refusal": None},
]

QUIET = Config(viewport={"auto_evict": False})


@pytest.fixture
def filled(cli, write):
    """The command line in a folder whose mnemo.db holds CHAT as thread t."""
    assert cli("import", str(write("chat.jsonl", CHAT)), "--thread", "t").code == 0
    return cli


def state_of(store, thread_id):
    """What of a thread a look could change."""

    async def read():
        async with repository(store, config=QUIET, embedder="static") as repo:
            conversation = repo.conversation(thread_id)
            return await repo.threads(), await conversation.snapshots.outcomes()

    return anyio.run(read)


# ── In ───────────────────────────────────────────────────────────────────────────────


def test_messages_are_imported_once(filled, write):
    """Running it again adds nothing; a file that has grown is continued."""
    again = filled("import", "chat.jsonl", "--thread", "t", "--json").data
    assert (again["new_messages"], again["known_messages"], again["thread"]) == (0, 5, "t")
    write("chat.jsonl", [*CHAT, {"role": "user", "content": "Thanks."}])
    told = filled("import", "chat.jsonl", "--thread", "t")
    assert told.out == "Thread t: 1 message added, 5 were there or are erased.\n"


def test_tool_calls_and_unknown_keys_are_kept(filled):
    """Chat completions' calls become calls, what has no place goes into metadata."""
    messages = filled("history", "t", "--json").data["messages"]
    assert messages[2]["tool_calls"] == [
        {"id": "c1", "name": "timetable", "arguments": {"line": 3}}
    ]
    assert (messages[2]["content"], messages[3]["tool_call_id"]) == (None, "c1")
    assert messages[4]["metadata"] == {"refusal": None}
    assert [message["id"] for message in messages[:2]] == ["chat#1", "chat#2"]


@pytest.mark.parametrize(
    "content",
    [
        '{"messages": [{"role": "human", "content": "Hello"}, {"role": "ai", "content": "Hi"}]}',
        '[{"role": "user", "content": "Hello"}, {"role": "assistant", "text": "Hi"}]',
        '{"id": "d", "turns": [{"id": 1, "speaker": "user", "text": "Hello"},'
        ' {"id": 2, "speaker": "agent", "text": "Hi"}]}',
        '{"observation": "Hello", "action": "Hi"}',
    ],
)
def test_each_format_becomes_messages(cli, write, content):
    """Lists, wrapped lists, dialogues and steps."""
    assert cli("import", str(write("x.json", content)), "--thread", "t").code == 0
    messages = cli("history", "t", "--json").data["messages"]
    assert [(m["role"], m["content"]) for m in messages] == [("user", "Hello"), ("assistant", "Hi")]


def test_what_history_prints_can_be_imported(filled, write):
    """Ids, times and calls are the same in another thread."""
    printed = filled("history", "t", "--json")
    write("copy.json", printed.out)
    assert filled("import", "copy.json", "--thread", "u", "--json").data["new_messages"] == 5
    copied = filled("history", "u", "--json").data["messages"]
    own = {"thread_id", "recorded_at"}
    assert [{k: v for k, v in m.items() if k not in own} for m in copied] == [
        {k: v for k, v in m.items() if k not in own} for m in printed.data["messages"]
    ]


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (
            b'{"role": "user", "content": "a"}\n{"role": "user"}',
            'line 2: has no "text" or "content"; the 1 messages before it were kept',
        ),
        (b'{"role": "tool", "content": "a"}', "line 1: a tool message"),
        (b'{"content": "a"}', 'line 1: has no "role" or "speaker"; nothing was kept'),
        (b'[{"role": "user", "content": "a", "at": "May"}]', "value 1: has an"),
        (b'{"messages": [{"role": "user", "content": "a"}, 7]}', "message 2: is no JSON object"),
        (b"[1", "value 1: is no JSON object"),
        (b"{]", "not JSON"),
        (b"", "the file is empty"),
    ],
)
def test_a_mistake_in_a_chat_is_told_with_its_place(cli, write, content, wrong):
    """One line, exit code 2; what stands before it is kept."""
    failed = cli("import", str(write("x.jsonl", content)), "--thread", "t")
    assert (failed.code, failed.err.count("\n")) == (2, 1)
    assert wrong in failed.err


def test_another_text_under_a_known_id_is_refused(filled, write):
    """The first text stays."""
    write("chat.jsonl", [{"role": "system", "content": "You are a pilot."}])
    failed = filled("import", "chat.jsonl", "--thread", "t")
    assert (failed.code, failed.err.count("\n")) == (2, 1)
    assert "You are a ferryman." in filled("history", "t").out


# ── Through ──────────────────────────────────────────────────────────────────────────


def test_threads_are_listed_and_counted(filled):
    """For a person and as JSON; a repository of messages alone is not empty."""
    (thread,) = filled("threads", "--json").data["threads"]
    assert (thread["thread_id"], thread["messages"], thread["next_seq"]) == ("t", 5, 5)
    assert "t " in filled("threads").out
    stats = filled("stats", "--json").data
    assert (stats["threads"], stats["messages"], stats["notes"], stats["steps"]) == (1, 5, 0, 0)


def test_a_history_is_shown_in_part(filled):
    """Both ends inclusive, calls named."""
    shown = filled("history", "t", "--from-seq", "1", "--to-seq", "2").out
    assert shown.startswith("1 2026-01-02 10:00 user: When does the ferry leave?\n2 ")
    assert shown.endswith("assistant: [calls timetable]\n")


def test_a_hit_leads_to_its_surroundings(filled):
    """The id of a hit is what view takes."""
    (hit,) = filled("search", "ferry", "--json").data["hits"]
    assert (hit["message_id"], hit["session_id"]) == ("chat#2", "t")
    assert "When does the ferry leave?" in filled("search", "ferry").out
    shown = filled("view", hit["message_id"], "--before", "0", "--after", "4")
    assert "→ message 1" in shown.out
    assert "At ten past nine." in shown.out
    data = filled("view", "chat#2", "--after", "1", "--json").data
    assert (data["target"]["seq"], [r["seq"] for r in data["after"]]) == (1, [2])
    assert data["text"].startswith("── recalled from: t")


def test_a_search_leaves_out_what_is_seen(filled):
    """By thread, and without what its agent sees."""
    assert filled("search", "ferry", "--session", "u", "--json").data["hits"] == []
    hidden = filled("search", "ferry", "--not-visible-in", "t")
    assert (hidden.code, hidden.out) == (0, "")
    assert "nothing found" in hidden.err


def test_stored_control_characters_stay_off_the_terminal(cli, write):
    """In every command that shows text."""
    lines = [{"role": "user", "content": "The lamp \x1b[2J is green.", "actor": "\x1b]0;x\x07"}]
    cli("import", str(write("x.jsonl", lines)), "--thread", "t\x1b[1m")
    for command in (
        ("history", "t\x1b[1m"),
        ("window", "t\x1b[1m"),
        ("search", "lamp"),
        ("view", "x#1"),
        ("threads",),
    ):
        ran = cli(*command)
        assert ran.code == 0
        assert ran.out
        assert "\x1b" not in ran.out


def test_a_thread_is_forgotten(filled, tmp_path):
    """Messages and what came of them; the words are gone from the file."""
    ran = filled("forget", "--thread", "t", "--yes", "--json")
    assert (ran.data["messages"], ran.data["scrubbed"]) == (5, True)
    assert b"ferryman" not in (tmp_path / "mnemo.db").read_bytes()
    assert filled("history", "t", "--json").data["messages"] == []
    assert filled("import", "chat.jsonl", "--thread", "t", "--json").data["new_messages"] == 0
    gone = filled("history", "t")
    assert (gone.code, gone.out) == (0, "")
    assert "nothing is left there of thread 't'" in gone.err
    assert filled("forget", "--thread", "t", "--yes").out == "Nothing was there to forget.\n"


def test_notes_of_a_forgotten_thread_go_and_mixed_ones_are_named(cli, write):
    """What rests on the thread alone is erased; what rests on more is named for a look."""
    for thread, said in (("t", "Rex is my dog."), ("u", "Rex is my dog who barks.")):
        asked = {"role": "user", "content": f"Please remember that {said}", "id": f"{thread}1"}
        file = str(write(f"{thread}.jsonl", [asked]))
        assert cli("import", file, "--thread", thread).code == 0
        assert cli("notes", "update", file, "--thread", thread, "--json").data["wrote"]
    (note,) = cli("notes", "list", "--json").data["notes"]
    told = cli("forget", "--thread", "u", "--yes").out
    assert told.endswith(f"may still tell of it: {note['topic']}\n")
    alone = cli("forget", "--thread", "t", "--yes", "--json")
    assert alone.data["messages"] == 1


# ── The window ───────────────────────────────────────────────────────────────────────


def test_the_window_is_shown_in_its_zones(filled):
    """Numbers, then the zones as Mneme sees them; JSON names the seqs."""
    shown = filled("window", "t", "--budget", "40").out
    assert "Thread t, 40 tokens (not watched)" in shown
    assert "── EVICTION ZONE ──\nmessage 0 System: You are a ferryman." in shown
    assert "[1 tool called]" in shown
    data = filled("window", "t", "--budget", "40", "--json").data
    assert (data["budget"]["total"], data["budget"]["window"], data["messages"]) == (40, 28, 5)
    assert data["zones"]["eviction"] == [0]
    assert sorted(data["zones"]["middle"] + data["zones"]["recent"]) == [1, 2, 3, 4]
    assert data["is_due"] is (data["tokens"] > data["budget"]["trigger"])


def test_a_mere_look_changes_nothing(cli, tmp_path):
    """A thread that is watched and due keeps its budget, its window and its snapshots."""
    store = str(tmp_path / "mnemo.db")

    async def made() -> None:
        async with Mnemo(store, config=QUIET, embedder="static") as memory:
            conversation = (await memory.open_repo()).conversation("t")
            await conversation.append({"role": "user", "content": "Hello"})
            await conversation.viewport(100_000).render()
            await conversation.append(
                [{"role": "user", "content": f"{n} " + "words " * 900} for n in range(60)]
            )

    anyio.run(made)
    before = state_of(store, "t")
    assert (before[0][0].budget_tokens, before[1]) == (100_000, [])
    looked = cli("window", "t", "--budget", "2000", "--json").data
    assert (looked["watched_tokens"], looked["is_due"]) == (100_000, True)
    assert cli("window", "t", "--json").data["budget"]["total"] == 100_000
    for command in (("stats",), ("history", "t"), ("threads",), ("search", "words")):
        assert cli(*command).code == 0
    assert state_of(store, "t") == before


# ── What goes wrong ──────────────────────────────────────────────────────────────────
