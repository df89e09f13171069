"""Adapters without their framework."""

import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("package", "adapter", "extra"),
    [
        ("google.adk", "adk", "adk"),
        ("langgraph", "langgraph", "langgraph"),
        ("agents", "openai_agents", "agents"),
        ("pydantic_ai", "pydantic_ai", "pydantic-ai"),
    ],
)
def test_a_missing_extra_is_named(package, adapter, extra):
    """The import says what to install."""
    code = f"import sys; sys.modules[{package!r}] = None; import mnemo.adapters.{adapter}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError" in done.stderr
    assert f"mnemo-sessions[{extra}]" in done.stderr
