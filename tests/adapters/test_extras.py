"""Adapters without their framework."""

import subprocess
import sys
from importlib import metadata

import pytest

from mnemo.runtime.extras import needed


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("package", "adapter", "extra"),
    [
        ("google.adk", "adk", "adk"),
        ("langgraph", "langgraph", "langgraph"),
        ("agents", "openai_agents", "agents"),
        ("anthropic", "anthropic", "anthropic"),
        ("agent_framework", "agent_framework", "agent-framework"),
        ("llama_index", "llama_index", "llama-index"),
        ("pydantic_ai", "pydantic_ai", "pydantic-ai"),
    ],
)
def test_a_missing_extra_is_named(package, adapter, extra):
    """The import says what to install."""
    code = f"import sys; sys.modules[{package!r}] = None; import mnemo.adapters.{adapter}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError" in done.stderr
    assert f"mnemo-sessions[{extra}]" in done.stderr


@pytest.mark.parametrize(
    "extra", ["adk", "agents", "anthropic", "cli", "langgraph", "mcp", "postgres", "serve"]
)
def test_a_package_that_is_too_old_is_named_with_the_version_that_is_needed(monkeypatch, extra):
    """It is there: to say that it is missing would be wrong."""
    there = metadata.version
    wanted = metadata.requires("mnemo-sessions") or []
    name = next(one for one in wanted if f"extra == '{extra}'" in one).split(">=")[0].split("[")[0]
    assert needed("This", extra) == f"This needs pip install 'mnemo-sessions[{extra}]'"
    monkeypatch.setattr(metadata, "version", lambda one: "0.0.9rc1" if one == name else there(one))
    told = needed("This", extra)
    assert told.startswith(f"This needs {name} ")
    assert told.endswith(f", not 0.0.9rc1: pip install --upgrade 'mnemo-sessions[{extra}]'")
