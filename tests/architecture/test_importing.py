"""What importing costs, by what it loads and builds: a process of its own counts, no clock does."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import mnemo

PROBE = """
import dataclasses, json, sys
import anyio, asyncio, numpy, pydantic.main, pydantic.type_adapter
from pydantic._internal import _model_construction as construction
built = {"dataclasses": 0, "models": 0}

def counting(kind, build):
    def counted(*args, **kwargs):
        built[kind] += 1
        return build(*args, **kwargs)
    return counted

dataclasses._process_class = counting("dataclasses", dataclasses._process_class)
construction.complete_model_class = counting("models", construction.complete_model_class)
adapter = pydantic.type_adapter.TypeAdapter
adapter.__init__ = counting("models", adapter.__init__)
before = set(sys.modules)
%s
new = set(sys.modules) - before
print(json.dumps(built | {"modules": len(new), "loaded": sorted(new)}))
"""
MOST = {
    "import mnemo": {"modules": 5, "dataclasses": 0, "models": 0},
    "from mnemo import Config, Mnemo": {"modules": 120, "dataclasses": 210, "models": 2},
}
LATER = ("mnemo.repository", "mnemo.store", "mnemo.log", "mnemo.index", "mnemo.recall")


@pytest.mark.slow
@pytest.mark.parametrize("statement", MOST)
def test_importing_loads_and_builds_what_is_needed_first(statement):
    """Beside the modules of numpy, pydantic and anyio, which are loaded already."""
    run = [sys.executable, "-c", PROBE % statement]
    found = json.loads(subprocess.run(run, capture_output=True, text=True, check=True).stdout)
    most = MOST[statement]
    assert {kind: found[kind] for kind in most if found[kind] > most[kind]} == {}
    assert "mnemo" in found["loaded"]
    assert not set(LATER) & set(found["loaded"])


def test_each_name_is_loaded_from_where_it_is_imported_for_types():
    """What type checkers read and what is loaded later name the same modules."""
    source = ast.parse(Path(mnemo.__file__).read_text("utf-8"))
    (block,) = (node for node in source.body if isinstance(node, ast.If))
    typed = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == mnemo._LATER
    assert set(typed) <= set(mnemo.__all__) <= set(dir(mnemo))


def test_an_unknown_name_is_no_attribute():
    """As of any module, so that ``hasattr`` and ``from mnemo import`` say what they mean."""
    with pytest.raises(AttributeError, match="no attribute 'Mnemonic'"):
        mnemo.Mnemonic  # noqa: B018
