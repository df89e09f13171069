"""
The README and the guide: their examples run, their generated parts are those of the code.

When a page is stale, write it anew: ``scripts/make_guide``.
"""

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from helpers import is_thorough
from scripted_server import ScriptedServer
from typer import Typer

from mnemo.cli.app import app

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
GUIDE = sorted((ROOT / "mnemo" / "guide").glob("*.md"))
PAGES = [README, *GUIDE]
ONCE = {
    ("conversations", 1),  # it says which seq is next
    ("erasing", 1),  # what is erased stays so
    ("notes", 1),  # what was undone is not noted again
    ("operations", 2),  # a backup does not replace a file
    ("operations", 3),  # an archive is read into an empty repository
}
"""Examples whose subject refuses a second run."""
ELSEWHERE = re.compile(r"^from (crewai|haystack|smolagents|strands)\b", re.MULTILINE)
"""What ``scripts/test_bounds`` runs: not all of these fit into one environment."""


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def examples(page: Path) -> list[str]:
    """Every Python example of a page."""
    return re.findall(r"^```python\n(.*?)^```$", read(page), re.DOTALL | re.MULTILINE)


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """``scripts/make_guide.py``."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return import_module("make_guide")


@pytest.mark.parametrize(
    "page", ["calls", "configuration", "errors", "events", "figures", "scale", "states"]
)
def test_the_generated_parts_are_those_of_the_code(generator, page):
    """A changed setting, error, event, transition or figure makes its page stale, and is found."""
    text = read(ROOT / f"mnemo/guide/{page}.md")
    assert generator.renewed(page, text) == text, "run scripts/make_guide"
    (name, *_) = generator.PARTS[page]
    stale = text.replace(f"<!-- {name} -->\n", f"<!-- {name} -->\nobsolete\n")
    assert stale != text
    assert generator.renewed(page, stale) == text


def test_the_pictures_are_those_of_the_code_and_the_figures(generator):
    """A state or a way of the machine that is new, and a figure, make a picture stale."""
    for path, there, drawn in generator.parts():
        assert there == drawn, f"run scripts/make_guide: {path.name} is stale"


def test_figures_that_are_kept_show_in_the_tables_and_plots(generator, tmp_path, monkeypatch):
    """Those of a number of texts in a column of their own, one that misses its goal as missed."""
    names = {"2,000 texts: open and first recall": 2.0, "10,000 texts: open, to a tenth": 3.0}
    figures = [
        {"name": name, "value": value, "unit": "s", "least": None, "most": 2.5, "met": value < 2.5}
        for name, value in names.items()
    ]
    settings, told = {"engine": "postgres"}, {"day": "2026-01-01", "machine": "one, load 1.5, new"}
    run = {"row": "scale-open", "settings": settings, **told, "figures": figures}
    monkeypatch.setattr(generator, "KEPT", tmp_path / "kept.jsonl")
    generator.KEPT.write_text(json.dumps(run))
    assert generator.scale().splitlines()[-6:] == [
        "| texts | PostgreSQL, 2,000 | PostgreSQL, 10,000 |",
        "|---|---|---|",
        "| open and first recall | 2 s (≤ 2.5) | – |",
        "| open, to a tenth | – | 3 s (missed: ≤ 2.5) |",
        "",
        "Measured 2026-01-01 on one, new; load 1.5 to 1.5.",
    ]
    title = "Opening and the first recall, seconds of processor time, PostgreSQL"
    bar = f"{'2,000':>11} {'█' * generator.BAR} 2"
    assert generator.plots().splitlines() == ["```text", title, bar, "```"]


@pytest.mark.slow
@pytest.mark.long
def test_the_site_builds_without_a_warning(tmp_path):
    """Every page has its place, every link and anchor leads somewhere."""
    pytest.importorskip("properdocs")
    command = [sys.executable, str(ROOT / "scripts/guide.py"), str(tmp_path / "site")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    built = {page.stem for page in (tmp_path / "site").glob("*.html")}
    assert {page.stem for page in GUIDE} | {"index"} <= built
    listed, whole = (read(tmp_path / f"site/{name}.txt") for name in ("llms", "llms-full"))
    assert sorted(re.findall(r"\((\w[\w-]*)\.md\)", listed)) == [page.stem for page in GUIDE]
    assert listed.startswith("# mnemo\n\n> mnemo is durable memory")
    assert all(read(page).strip() in whole for page in PAGES)


@pytest.fixture(scope="module")
def model_url():
    """Where the examples find a model server: a scripted one."""
    with ScriptedServer() as server:
        yield f"{server.url}/v1"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "number"),
    [
        pytest.param(page, number, id=f"{page.stem}-{number + 1}")
        for page in PAGES
        for number, example in enumerate(examples(page))
        if not ELSEWHERE.search(example)
    ],
)
def test_an_example_runs_as_it_stands(page, number, tmp_path, monkeypatch, capsys, model_url):
    """
    Each in a folder and an environment of its own; and again, over what it has stored, where all
    tests run.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODEL_URL", model_url)
    monkeypatch.setenv("MNEMO_SESSION__AUTO_COMMIT", "false")
    example = examples(page)[number]
    code = compile(example, f"{page.name}, example {number + 1}", "exec")
    is_kept = "memory.db" in example and (page.stem, number + 1) not in ONCE
    for _ in range(1 + (is_kept and is_thorough())):
        exec(code, {"__name__": "__main__"})
    capsys.readouterr()


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_an_example_prints_what_stands_behind_it(page, tmp_path, monkeypatch, capsys):
    """A text right behind an example is its output."""
    monkeypatch.chdir(tmp_path)
    pattern = r"^```python\n((?:(?!^```).)*?)^```\n\n```text\n(.*?)^```$"
    for code, shown in re.findall(pattern, read(page), re.DOTALL | re.MULTILINE):
        exec(compile(code, page.name, "exec"), {"__name__": "__main__"})
        assert capsys.readouterr().out == shown


@pytest.mark.slow
def test_the_first_example_of_the_readme_finds_what_was_remembered(tmp_path, monkeypatch, capsys):
    """In the same breath: nothing is waited for between remembering and recalling."""
    monkeypatch.chdir(tmp_path)
    first, *_ = examples(README)
    exec(compile(first, "README.md", "exec"), {"__name__": "__main__"})
    assert re.fullmatch(r"- I am allergic to peanuts\. \(.*\) \[1\]\n", capsys.readouterr().out)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_short_and_has_one_title(page):
    """The README has 160 lines at most, a page of the guide 250."""
    lines = read(page).splitlines()
    assert len(lines) <= (160 if page == README else 250)
    assert lines[0].startswith("# ")
    assert not any(
        line.startswith("# ")
        for line in re.sub(r"```.*?```", "", read(page), flags=re.S).splitlines()[1:]
    )


def test_the_examples_of_the_readme_are_short():
    """Writing and recalling takes at most five lines, the loop 20, a session 15 with the frame."""
    first, loop, session, *_ = examples(README)
    inner = first[first.index("    async with") :].partition("\nasyncio")[0].splitlines()[1:]
    assert len([line for line in inner if line.strip()]) <= 5
    assert len([line for line in session.splitlines() if line.strip()]) <= 15
    loop = loop[loop.index("async def answer(") :].split("\nasync def ", 2)[0]
    assert len([line for line in loop.splitlines() if line.strip()]) <= 20
    assert all(used in loop for used in (".viewport(", ".recall(", ".tools("))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_path_that_a_page_names_exists(page):
    """Files in code spans and targets of links."""
    named = re.findall(r"`((?:mnemo|tests|scripts)/[\w./]+|\./scripts/\w+)", read(page))
    linked = re.findall(r"\]\((?!https?:)([^)#]+)", read(page))
    assert [path for path in named if not (ROOT / path).exists()] == []
    assert [path for path in linked if not (page.parent / path).exists()] == []


def test_the_readme_links_every_page_of_the_guide():
    """No page is without a way to it."""
    linked = set(re.findall(r"\]\(mnemo/guide/([\w-]+)\.md\)", read(README)))
    assert linked == {page.stem for page in GUIDE}


def names_of(group: Typer) -> set[str]:
    """Of the commands of *group* itself."""
    callbacks = [(c.name, c.callback) for c in group.registered_commands if c.callback]
    return {name or callback.__name__ for name, callback in callbacks}


def test_every_command_of_the_guide_exists_and_none_is_missing():
    """The commands that the page names are those of the command line, groups included."""
    page = ROOT / "mnemo" / "guide" / "commands.md"
    text = "\n".join(re.findall(r"^```text\n(.*?)^```$", read(page), re.DOTALL | re.MULTILINE))
    groups = {g.typer_instance.info.name: g.typer_instance for g in app.registered_groups}
    assert set(re.findall(r"^mnemo (\w+) ", text, re.MULTILINE)) == names_of(app) | set(groups)
    for name, group in groups.items():
        assert set(re.findall(rf"^mnemo {name} (\w+) ", text, re.MULTILINE)) == names_of(group)
