"""Who may import whom: the lines of the house, enforced on the source."""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

import mnemo

ROOT = Path(mnemo.__file__).parent

LINES: list[set[str]] = [
    {"errors"},
    {"runtime"},
    {"english"},
    {"values"},
    {"wire"},
    {"config", "events"},
    {"protocols"},
    {"prompts"},
    {"store"},
    {"jobs"},
    {"log"},
    {"graph"},
    {"index"},
    {"extraction", "commit", "recall", "conversation"},
    {"session", "notes", "items", "context"},
    {"erasure"},
    {"maintenance"},
    {"repository"},
    {"stores"},
    {"service"},
    {"exchange"},
    {"operations"},
    {"importing", "mcp", "remote", "sync"},
    {"client", "web"},
    {"adapters", "cli"},
]
"""From the lowest line to the highest; rooms of one line never import each other."""

IMPLEMENT_PROTOCOLS = {"models"}
"""
Imports protocols and below, and only the service imports it; but it is part of the surface,
from which applications such as the command line choose.
"""


def line_of(room: str) -> int:
    if room in IMPLEMENT_PROTOCOLS:
        return line_of("protocols")
    return next(i for i, rooms in enumerate(LINES) if room in rooms)


def allowed(importer: str, imported: str) -> bool:
    """Whether the house lets *importer* import *imported* (both names of rooms)."""
    if importer == imported or importer in ("testing", "__init__", "__main__"):
        return True
    if imported == "__init__":
        return line_of(importer) > line_of("service")
    if imported == "testing":
        return False
    if imported in IMPLEMENT_PROTOCOLS:
        return importer == "service" or (imported == "models" and importer in LINES[-1])
    if importer in IMPLEMENT_PROTOCOLS:
        return line_of(imported) <= line_of("protocols")
    return line_of(imported) < line_of(importer)


@cache
def parsed(source: str) -> tuple[ast.AST, ...]:
    """Every node of *source*, the module first; parsed once for all tests."""
    return tuple(ast.walk(ast.parse(source)))


def imports(source: str) -> Iterator[str]:
    """The rooms of mnemo that *source* imports, at whatever depth of nesting."""
    for node in parsed(source):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            if node.module == "mnemo":
                yield from (a.name if is_room(a.name) else "__init__" for a in node.names)
            elif node.module.startswith("mnemo."):
                yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("mnemo."))


def is_room(name: str) -> bool:
    return (ROOT / name).is_dir() or (ROOT / f"{name}.py").is_file()


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def offences() -> list[str]:
    return [
        f"{path.relative_to(ROOT)} imports {room}"
        for path in sorted(ROOT.rglob("*.py"))
        for room in imports(path.read_text(encoding="utf-8"))
        if not allowed(room_of(path), room)
    ]


def test_every_import_keeps_to_the_house():
    """No module imports a room above its own line or beside it."""
    assert offences() == []


@pytest.mark.parametrize(
    ("importer", "source"),
    [
        ("runtime", "from mnemo.events import Event"),
        ("values", "from mnemo.protocols import Clock"),
        ("values", "from mnemo.config import ScoringConfig"),
        ("values", "from mnemo.wire import listed"),
        ("commit", "from mnemo.extraction.pipeline import ExtractionPipeline"),
        ("values", "from mnemo.store.tx import Tx"),
        ("store", "from mnemo.log.sessions import append_steps"),
        ("log", "from mnemo.graph.apply import apply_write"),
        ("notes", "from mnemo.items.item_rows import ItemWriter"),
        ("store", "def f():\n    from mnemo.recall.pipeline import Recall"),
        ("session", "from mnemo.repository import Repository"),
        ("graph", "from mnemo.index.follower import RepositoryIndex"),
        ("session", "from mnemo.testing import ManualClock"),
        ("session", "from mnemo import Config"),
    ],
)
def test_a_forbidden_import_is_found(importer, source):
    """The check itself can fail: each of these would be reported."""
    assert not all(allowed(importer, room) for room in imports(source))


def test_no_import_hides_behind_type_checking():
    """A cycle hidden by TYPE_CHECKING is still a cycle; two files spare every import its time."""
    hidden = {
        str(p.relative_to(ROOT))
        for p in ROOT.rglob("*.py")
        if "TYPE_CHECKING" in p.read_text(encoding="utf-8")
    }
    assert hidden == {"__init__.py", "service.py"}


def test_tasks_begin_in_one_place_only():
    """Nothing but the task root makes a task outside an anyio task group."""
    banned = ("create_task(", "ensure_future(", "gather(", "asyncio.Task(")
    found = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        for node in parsed(path.read_text(encoding="utf-8"))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith(tuple(name[:-1] for name in banned))
    }
    assert found == {"runtime/tasks.py"}


def unentered_scopes(source: str) -> int:
    """Cancel scopes and task groups of anyio that are not entered where they are made."""
    nodes = parsed(source)
    entered = {
        id(item.context_expr)
        for node in nodes
        if isinstance(node, ast.With | ast.AsyncWith)
        for item in node.items
    }
    made = ("anyio.CancelScope", "anyio.create_task_group")
    return sum(
        isinstance(node, ast.Call) and ast.unparse(node.func) in made and id(node) not in entered
        for node in nodes
    )


def test_cancel_scopes_are_entered_where_they_are_made():
    """Plain calls come from loop callbacks as well, where no task runs that could have a scope."""
    found = {
        str(path.relative_to(ROOT)): number
        for path in ROOT.rglob("*.py")
        if (number := unentered_scopes(path.read_text(encoding="utf-8")))
    }
    assert found == {"runtime/tasks.py": 1}
    assert unentered_scopes("def f(self):\n    self.scope = anyio.CancelScope()") == 1


def docstring_lines(nodes: Iterable[ast.AST]) -> int:
    """How many lines of a module are docstrings of it, its classes and its functions."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = (
        ast.get_docstring(node, clean=False) or "" for node in nodes if isinstance(node, documented)
    )
    return sum(text.count("\n") for text in texts)


def test_functions_stay_small():
    """Nine in ten bodies are under 30 lines, none over 60; files under 600, docstrings aside."""
    sizes = []
    for path in ROOT.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        nodes = parsed(text)
        assert text.count("\n") - docstring_lines(nodes) <= 600, path
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                size = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
                assert size <= 60, f"{path}:{node.lineno} {node.name} has {size} lines"
                sizes.append(size)
    small = sum(size < 30 for size in sizes)
    assert small / len(sizes) >= 0.9


SQLITE_ONLY = re.compile(
    r"""
    \bINSERT\ OR\b | \bREPLACE\ INTO\b | \bsqlite_ | \bPRAGMA\b | _docsize\b | \bATTACH\b
    | \bjson_\w+\( | ->> | \bCROSS\ JOIN\s+\S+(\ \w+)?\s+ON\b | \bINDEXED\ BY\b
    | \bTEMP(ORARY)?\ | \b(typeof|iif|ifnull|instr|total|group_concat|printf|datetime|strftime)\(
    | \bMATERIALIZED\b | \b(IS|IS\ NOT)\ \? | \bWITHOUT\ ROWID\b | \bAUTOINCREMENT\b
    | \bINTEGER\ PRIMARY\ KEY\b | \browid\b | \bMATCH\ \? | \bGLOB\b | \bVIRTUAL\ TABLE\b
    | \b(max|min)\((?=[^()]*(\([^()]*\)[^()]*)*,) | \?\ IS\ NULL | \?\d
    | \b(committed|gone|owed|speaks|is_side)\b(?=\s+(AND|OR|ORDER)\b)
    """,
    re.VERBOSE,
)
"""SQL that SQLite reads and PostgreSQL does not, or reads otherwise."""
IS_SQL = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE|CREATE|WHERE|JOIN|ORDER BY|coalesce)\b")


def sqlite_in(source: str) -> list[str]:
    """What in *source* only the SQLite engine may know: its modules, and SQL of its own."""
    named = [a.name for n in parsed(source) if isinstance(n, ast.Import) for a in n.names]
    named += [n.module or "" for n in parsed(source) if isinstance(n, ast.ImportFrom)]
    found = [n for n in named if n.startswith(("sqlite", "mnemo.store.sqlite"))]
    for node in parsed(source):
        text = text_of(node) if isinstance(node, ast.Constant | ast.JoinedStr) else ""
        if IS_SQL.search(text) or "PRIMARY KEY" in text:
            found += [word[0] for word in SQLITE_ONLY.finditer(text)]
    return found


def text_of(node: ast.Constant | ast.JoinedStr) -> str:
    """A text; of a formatted one with a letter for each value."""
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(n) if isinstance(n, ast.Constant) else "x" for n in node.values)
    return node.value if isinstance(node.value, str) else ""


def test_rows_know_no_engine():
    """What is written over a transaction is read by another engine too; ``store.tx`` says how."""
    engines = {ROOT / "store" / "sqlite", ROOT / "store" / "postgres"}
    rules = (path for path in sorted(ROOT.rglob("*.py")) if path.parent not in engines)
    found = {
        str(path.relative_to(ROOT)): sqlite_in(path.read_text(encoding="utf-8")) for path in rules
    }
    assert {name: words for name, words in found.items() if words} == {
        "cli/hook.py": ["mnemo.store.sqlite.glance"],  # has no time to open a store
        "stores.py": ["mnemo.store.sqlite.engine"],
    }


def test_one_room_knows_the_driver_of_postgres():
    """Nothing outside of the PostgreSQL engine imports psycopg."""
    importing = [path for path in sorted(ROOT.rglob("*.py")) if psycopg_in(path.read_text("utf-8"))]
    assert {path.parent for path in importing} == {ROOT / "store" / "postgres"}


def psycopg_in(source: str) -> bool:
    """Whether *source* imports psycopg."""
    nodes = parsed(source)
    named = [a.name for n in nodes if isinstance(n, ast.Import) for a in n.names]
    named += [n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)]
    return any(name.startswith("psycopg") for name in named)


@pytest.mark.parametrize(
    "source",
    [
        "import sqlite3",
        "from sqlite_utils import Database",
        "from mnemo.store.sqlite.dialect import put_texts",
        "PUT = 'INSERT OR REPLACE INTO vectors VALUES (?)'",
        "LAST = \"SELECT seq FROM sqlite_sequence WHERE name = 'steps'\"",
        "GONE = 'DELETE FROM nodes WHERE no IN (SELECT value FROM json_each(?))'",
        "LABEL = \"SELECT body ->> '$.label' FROM nodes\"",
        "ORDERED = 'SELECT 1 FROM threads t CROSS JOIN messages m ON m.thread = t.no'",
        "LIVE = 'SELECT 1 FROM goals INDEXED BY goals_active'",
        "NEWEST = 'SELECT id FROM changesets ORDER BY rowid DESC'",
        "SCRATCH = 'CREATE TEMP TABLE leaving (no INTEGER)'",
        "TOUCH = 'UPDATE nodes SET at = max(coalesce(at, 0), ?)'",
        "ANY = 'SELECT 1 FROM threads t WHERE (? IS NULL OR t.id = ?)'",
        "OF = 'SELECT 1 FROM threads t WHERE t.id IS ?'",
        "FLAG = 'SELECT 1 FROM steps t WHERE t.committed AND t.idx > 3'",
        "TABLE = 'CREATE TABLE goals (no INTEGER PRIMARY KEY)'",
        "NAMES = 'SELECT group_concat(id) FROM goals'",
    ],
)
def test_a_rule_that_knows_sqlite_is_found(source):
    """The check itself can fail: each of these would be reported."""
    assert sqlite_in(source)
