"""Every command in this process: what it prints, its JSON, its exit code."""

import dataclasses
import json
import re
import shlex

import anyio
import pytest
from engines import change
from helpers import committed, repository
from scripted_server import ScriptedServer

import mnemo.cli.opening
from mnemo import Candidate, RecallResult, SourceRef, Tag
from mnemo.cli.output import explained
from mnemo.recall.result import GROUPS, RecallTrace
from mnemo.testing import HashingEmbedder

LOG = [
    {"role": "user", "content": "My name is Ada and I live in Bern.", "at": "2026-01-02T10:00:00Z"},
    {"role": "assistant", "content": "Nice to meet you, Ada.", "at": "2026-01-02T10:01:00Z"},
    {"role": "user", "content": "I work as a beekeeper.", "at": "2026-01-02T10:02:00Z"},
]


@pytest.fixture
def filled(cli, write):
    """The command line in a folder whose mnemo.db holds LOG in repository default."""
    assert cli("import", str(write("log.jsonl", LOG))).code == 0
    return cli


# ── import ───────────────────────────────────────────────────────────────────────────


def test_import_tells_what_it_did_and_the_second_time_adds_nothing(cli, write):
    """For a person, and as JSON."""
    file = str(write("log.jsonl", LOG))
    first, second = cli("import", file), cli("import", file, "--json")
    assert first.code == 0
    assert "3 steps added, 0 were there" in first.out
    assert first.err == ""
    assert second.data == {
        "file": file,
        "repo": "default",
        "store": "mnemo.db",
        "new_sessions": 0,
        "resumed_sessions": 0,
        "complete_sessions": 1,
        "new_steps": 0,
        "known_steps": 3,
        "problem": None,
    }


def test_one_file_goes_into_several_repositories(cli, write):
    """Each repository has sessions and keys of its own."""
    file = str(write("log.jsonl", LOG))
    assert cli("import", file, "--repo", "a", "--json").data["new_steps"] == 3
    assert cli("import", file, "--repo", "b", "--json").data["new_steps"] == 3


def test_a_bad_line_keeps_what_is_before_it_and_says_so(cli, write):
    """One line on stderr, exit code 2; put right, the rest is added."""
    whole = "".join(json.dumps(line) + "\n" for line in LOG)
    file = write("log.jsonl", whole[:-20])
    failed = cli("import", str(file), "--json")
    assert failed.code == 2
    assert failed.err.count("\n") == 1
    assert "log.jsonl: line 3, column" in failed.err
    assert "the 2 steps before it were kept" in failed.err
    assert failed.data["new_steps"] == 2
    assert failed.data["problem"] in failed.err
    file.write_text(whole)
    repaired = cli("import", str(file), "--json")
    assert (repaired.code, repaired.data["new_steps"]) == (0, 1)


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (b"", "the file is empty"),
        (b"\xff\xfe{\x00", "line 1, column 1: not UTF-8 (byte 0xff); nothing was kept"),
        (b'{"role": "user"}', 'line 1: has no "text" or "content"; nothing was kept'),
        (b'[{"id": "d", "turns": [{"id": 1', "not JSON"),
    ],
)
def test_a_file_without_anything_usable_makes_no_store(cli, write, tmp_path, content, wrong):
    """One line, exit code 2, and nothing is created."""
    failed = cli("import", str(write("x", content)), "--json")
    assert failed.code == 2
    assert failed.out == ""
    assert failed.err.count("\n") == 1
    assert wrong in failed.err
    assert not (tmp_path / "mnemo.db").exists()


# ── recall, sessions, stats ──────────────────────────────────────────────────────────


def test_recall_prints_text_with_its_sources(filled):
    """What an agent would be given: the memory, who told it, which step."""
    found = filled("recall", "Where does Ada live?")
    assert found.code == 0
    assert "lives in Bern" in found.out
    assert "(2 Jan 2026, user)" in found.out


def test_recall_as_json_names_the_steps(filled):
    """Every candidate with at least one source; the key is the line number."""
    data = filled("recall", "Where does Ada live?", "-k", "3", "--json").data
    assert data["query"] == "Where does Ada live?"
    assert 0 <= data["confidence"] <= 1
    assert 1 <= len(data["candidates"]) <= 3
    assert all(candidate["sources"] for candidate in data["candidates"])
    assert data["candidates"][0]["sources"][0]["key"] == "1"
    assert data["candidates"][0]["sources"][0]["at"] == "2026-01-02T10:00:00+00:00"


def test_recall_keeps_to_the_given_bounds(filled):
    """--since and --until bound the evidence, --budget the text."""
    since = filled("recall", "Ada", "--since", "2026-01-02T10:02:00Z", "--json").data
    keys = {source["key"] for c in since["candidates"] for source in c["sources"]}
    assert keys <= {"3"}
    assert filled("recall", "Ada", "--until", "2025-01-01", "--json").data["candidates"] == []
    assert filled("recall", "Ada", "--budget", "0").out.strip() == ""


def test_a_recall_without_a_hit_says_so_on_stderr(filled):
    """Nothing found is no error."""
    found = filled("recall", "Ada", "--until", "1990-01-01")
    assert (found.code, found.out) == (0, "")
    assert "nothing found in repository 'default'" in found.err


def test_recall_asks_the_model_that_is_named(filled, monkeypatch):
    """--use-model; without it the variables that name one change nothing."""
    with ScriptedServer() as server:
        monkeypatch.setenv("MNEMO_MODEL_URL", f"{server.url}/v1")
        monkeypatch.setenv("MNEMO_MODEL", "scripted")
        assert filled("recall", "Where does Ada live?").code == 0
        assert server.requests == []
        assert "lives in Bern" in filled("recall", "Where does Ada live?", "--use-model").out
        assert {"mode", "plan"} <= {request.purpose for request in server.requests}


def test_the_only_repository_of_a_store_is_used(cli, write):
    """Where none is named; it is told, and named in what is printed."""
    assert cli("import", str(write("log.jsonl", LOG)), "--repo", "ada").code == 0
    found = cli("stats", "--json")
    assert (found.code, found.data["repo"], found.data["steps"]) == (0, "ada", 3)
    assert found.err == "mnemo: --repo ada: the only repository in mnemo.db\n"
    assert "Bern" in cli("recall", "--", "Where does Ada live?").out
    assert "- My name is Ada" in cli("forget", "--before", "2026-01-03", "--dry-run").out
    assert cli("export", "all.jsonl").code == 0
    refused = cli("stats", "--repo", "default")
    assert (refused.code, "there is 'ada'" in refused.err) == (2, True)


def test_what_recall_finds_can_be_viewed(filled, monkeypatch):
    """Each candidate has a line with its id and the command that opens its source, there."""
    found = filled("recall", "Where does Ada live?")
    ids = re.findall(r"^\[\d+\] \S+  mnemo view (\S+)$", found.out, re.M)
    assert ids
    for id in ids:
        viewed = filled("view", id, "--before", "0", "--after", "0")
        assert viewed.code == 0, viewed.err
    named = [
        c["view"] for c in filled("recall", "Where does Ada live?", "--json").data["candidates"]
    ]
    assert named[: len(ids)] == ids
    assert filled("remember", "I play the cello.", "--actor", "Ada").code == 0
    assert filled("remember", "Bo sails.", "--repo", "b o").code == 0
    (line,) = re.findall(r"mnemo (view .+)$", filled("recall", "boat", "--repo", "b o").out, re.M)
    assert "Bo sails." in filled(*shlex.split(line)).out
    assert filled("remember", "Cleo rows.", "--store", "other one.db").code == 0
    shown = filled("recall", "boat", "--store", "other one.db").out
    (line,) = re.findall(r"mnemo (view .+)$", shown, re.M)
    assert "Cleo rows." in filled(*shlex.split(line)).out
    monkeypatch.setenv("MNEMO_STORE", "other one.db")
    assert "--store" not in filled("recall", "boat").out
    assert "--store mnemo.db" in filled("recall", "boat", "--store", "mnemo.db").out
    monkeypatch.delenv("MNEMO_STORE")
    best = filled("recall", "Who plays the cello?", "-k", "1", "--json").data["candidates"][0]
    assert "cello" in filled("view", best["view"]).out


def test_an_export_overwrites_nothing_unless_it_is_forced(filled, tmp_path):
    """In every format; what is there stays as it is."""
    file = tmp_path / "out"
    file.write_text("mine")
    for to in ("archive", "markdown"):
        refused = filled("export", "out", "--to", to)
        assert (refused.code, file.read_text()) == (2, "mine")
        assert "--force overwrites it" in refused.err
    assert filled("export", "out", "--force").code == 0
    assert file.read_text() != "mine"


@pytest.mark.parametrize("command", [("sessions",), ("stats",)])
def test_reading_needs_no_embedder(cli, command):
    """A repository made with an embedder that the command line does not have can be read."""

    async def made() -> None:
        async with repository("mnemo.db", embedder=HashingEmbedder(32)) as repo:
            await committed(repo, "Omar plays the violin.", "", goal="play")

    anyio.run(made)
    assert cli(*command).code == 0
    found = cli("recall", "violin", "--json").data
    assert "violin" in found["text"]
    assert found["degraded"] == ["embedder: ModelUnavailable"]


def test_stored_control_characters_do_not_reach_the_terminal(cli, write):
    """A stored escape sequence or override of direction is spelled."""
    log = [{"role": "user", "content": "The lamp \x1b[2J is \u202egreen."}]
    cli("import", str(write("log.jsonl", log)))
    for found in (cli("recall", "lamp"), cli("recall", "lamp", "--explain"), cli("search", "lamp")):
        assert r"The lamp \u001b[2J is \u202egreen." in found.out
        assert not {"\x1b", "\u202e"} & set(found.out)


def test_sessions_are_listed(filled):
    """Id, goal, state, steps, last act; --unfinished leaves the finished ones out."""
    (session,) = filled("sessions", "--json").data["sessions"]
    assert session["id"].startswith("default/log/1-")
    assert (session["goal"], session["state"], session["steps"]) == ("log, session 1", "idle", 3)
    assert session["id"] in filled("sessions").out
    assert filled("sessions", "--unfinished", "--json").data["sessions"] == []


def test_stats_count_what_is_stored(filled):
    """By type, for a person and as JSON."""
    data = filled("stats", "--json").data
    assert (data["repo"], data["sessions"], data["steps"]) == ("default", 1, 3)
    assert data["nodes"]["episodic"] == 3
    assert data["embedding_space"].startswith("wordllama")
    assert "nodes: episodic" in filled("stats").out


def test_the_store_is_an_option_or_a_variable(filled, monkeypatch, tmp_path):
    """--store beats MNEMO_STORE beats mnemo.db."""
    (tmp_path / "mnemo.db").rename(tmp_path / "else.db")
    assert filled("stats", "--json").code == 2
    assert filled("stats", "--store", "else.db", "--json").data["steps"] == 3
    monkeypatch.setenv("MNEMO_STORE", "else.db")
    assert filled("stats", "--json").data["steps"] == 3
    assert filled("stats", "--store", "mnemo.db").code == 2


# ── doctor ───────────────────────────────────────────────────────────────────────────


def test_the_doctor_finds_a_sound_store_sound(filled):
    """Exit code 0, no problem, and what was counted."""
    assert filled("doctor").out.startswith("No problems: ")
    data = filled("doctor", "--json").data
    assert (data["healthy"], data["problems"], data["counts"]["steps"]) == (True, [], 3)


def test_the_doctor_finds_what_is_missing(filled, tmp_path):
    """Edges and the nodes of steps taken away behind mnemo's back: exit code 1."""
    nodes = "DELETE FROM nodes WHERE type = 'episodic'"
    change(tmp_path / "mnemo.db", "DELETE FROM edges", nodes)
    sick = filled("doctor", "--json")
    assert sick.code == 1
    assert sick.data["healthy"] is False
    assert sick.data["problems"]
    assert filled("doctor").out.splitlines() == sick.data["problems"]


def test_the_doctor_repairs_what_follows_from_other_rows(cli, tmp_path):
    """A thread that was set back is told, and sound afterwards."""
    cli("remember", "I live in Bern.", "--thread", "talk")
    change(tmp_path / "mnemo.db", "UPDATE threads SET next_seq = 0")
    assert cli("doctor").code == 1
    told, counted = cli("doctor", "--repair").out.splitlines()
    assert told == "Repaired: 1 threads whose next seq was behind, e.g. talk."
    assert counted.startswith("No problems: ")
    assert cli("doctor", "--repair", "--json").data["repaired"] == []


def test_the_doctor_calls_a_file_that_is_no_store_sick(cli, write):
    """Other commands refuse it with exit code 2, the doctor reports it with 1."""
    write("notes.db", b"no database at all, but long enough to look at" * 50)
    sick = cli("doctor", "--store", "notes.db", "--json")
    assert (sick.code, sick.data["healthy"]) == (1, False)
    refused = cli("stats", "--store", "notes.db")
    assert (refused.code, refused.err.count("\n")) == (2, 1)


# ── What goes wrong ──────────────────────────────────────────────────────────────────


def test_a_wrong_variable_is_one_line(filled, monkeypatch):
    """Settings come from MNEMO_*; a bad one is named."""
    monkeypatch.setenv("MNEMO_SESSION__MAX_PENDING", "many")
    failed = filled("stats")
    assert (failed.code, failed.err.count("\n")) == (2, 1)
    assert "max_pending" in failed.err


def test_an_interrupt_says_how_to_go_on(cli, write, monkeypatch):
    """Ctrl-C: exit code 130 and one line."""

    def interrupted(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(mnemo.cli.opening, "in_repo", interrupted)
    stopped = cli("import", str(write("log.jsonl", LOG)))
    assert stopped.code == 130
    assert "run the same command again to go on" in stopped.err


def test_without_a_command_the_help_is_shown(cli):
    """By groups, nothing cut off; and --version tells the version."""
    shown = cli().out
    assert all(group in shown for group in ("Everyday", "Look inside", "Operation"))
    assert shown.index("recall") < shown.index("doctor")
    assert "…" not in shown
    assert cli("--version").out.startswith("mnemo 0.")
    assert "archive" in cli("import", "--help").out


def test_recall_explains_where_each_candidate_comes_from(cli, write):
    """Reasons in groups on one scale, factors and sources are printed; in JSON they are numbers."""
    lines = [{"observation": f"remark {i} about tea", "action": ""} for i in range(25)]
    lines.append({"observation": "Ada lives in Osaka.", "action": "", "actor": "Ada"})
    lines.append({"observation": "Bo says that Ada lives here.", "action": "", "actor": "Bo"})
    assert cli("import", str(write("steps.jsonl", lines))).code == 0
    told = cli("recall", "Where does Ada live?", "--explain")
    assert told.code == 0
    printed = r"^ {5}([a-z ]+?) +([+-]\d+\.\d\d) ([+-]*) +(\w.*)$"
    bars = re.findall(printed, told.out, re.M)
    assert {group for group, *_ in bars} <= set(GROUPS)
    assert bars[0][0] == "words"
    assert bars[0][3].startswith("words +")
    most = max(abs(float(value)) for _, value, *_ in bars)
    for _, value, bar, _ in bars:
        assert set(bar) <= {"-" if float(value) < 0 else "+"}
        assert abs(len(bar) - 24 * abs(float(value)) / most) <= 1
    assert "value: relevance" in told.out
    assert "Ada lives in Osaka." in told.out
    (first, *_) = cli("recall", "Where does Ada live?", "--explain", "--json").data["candidates"]
    assert first["why"]["signals"]["words"] > 0
    assert "why" not in cli("recall", "Where does Ada live?", "--json").data["candidates"][0]


def test_an_explanation_names_a_step_once_and_the_facts_that_restate_it_below():
    """Two sources that are one step are one line."""
    step = SourceRef("s1", "e1", 0, None, "Ana", None, "I live in Lund and work.")
    sources = [step, dataclasses.replace(step, text="Ana lives in Lund.")]
    candidate = Candidate(Tag("x"), 0.5, 0.5, "initial", 0, sources)
    trace = RecallTrace("episodic", "caller", (), 0)
    told = explained(RecallResult("episodic", (), [candidate], None, trace))
    assert told.endswith(
        "   from s1#0 (Ana): I live in Lund and work.\n     restated: Ana lives in Lund."
    )
