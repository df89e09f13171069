"""What is remembered of words and texts is bounded: a process that runs for weeks stays flat."""

import ast
from collections.abc import Iterator
from pathlib import Path

import mnemo

MOST_ENTRIES = 4_096
"""Of one cache: an English conversation has about as many different words."""
MOST_IN_ALL = 24_000
"""Of all of them; an entry takes 0.3 kB (a word) to 3 kB (what a long text says)."""


def decorated() -> Iterator[tuple[str, ast.FunctionDef, ast.expr]]:
    """Every decorated function of the package, where it is, and its decorators."""
    root = Path(mnemo.__file__).parent
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef):
                for decorator in node.decorator_list:
                    yield f"{path.relative_to(root)}: {node.name}", node, decorator


def test_caches_hold_few_entries():
    """Misses beyond these sizes cost less than one percent of extraction, three of recall."""
    sizes = {
        name: ast.literal_eval([*decorator.args, *(word.value for word in decorator.keywords)][0])
        for name, _, decorator in decorated()
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "lru_cache"
    }
    assert len(sizes) > 10
    assert {name: size for name, size in sizes.items() if not 0 < size <= MOST_ENTRIES} == {}
    assert sum(sizes.values()) <= MOST_IN_ALL


def test_caches_without_a_bound_take_no_texts():
    """They hold one entry, or one of each of a few types and small numbers."""
    found = {
        name: [ast.unparse(argument.annotation) for argument in node.args.args]
        for name, node, decorator in decorated()
        if ast.unparse(decorator) in ("cache", "lru_cache")
    }
    assert found
    taken = {name: kinds for name, kinds in found.items() if any("str" in k for k in kinds)}
    assert taken == {}
