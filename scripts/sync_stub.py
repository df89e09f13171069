"""
Write stubs: the types of the classes that ``mnemo.sync`` and ``mnemo.remote`` make when imported.

hatch runs it in each build. It reads source only, so a build needs no requirement of mnemo.
"""

from __future__ import annotations

import ast
import re
import runpy
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

ROOT = Path(__file__).parents[1]
Function = ast.FunctionDef | ast.AsyncFunctionDef
Imports = dict[str, ast.Import | ast.ImportFrom]
"""Name → the statement by which another module imports it."""
Member = tuple[ast.stmt, Imports]
"""A statement in a class, and what the names in it mean."""


def write(root: Path = ROOT) -> None:
    """Write the stubs of the tree *root*, where what is there is another."""
    for stub in (Stub(root), RemoteStub(root)):
        path, text = root / "mnemo" / f"{stub.module}.pyi", stub.text()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


class Stub:
    """The stub of ``mnemo.sync``, for the sources in *root*."""

    module = "sync"
    used: ClassVar = {
        "AbstractContextManager": "from contextlib import AbstractContextManager",
        "Blocking": "from mnemo.runtime.portal import Blocking",
        "Iterator": "from collections.abc import Iterator",
    }

    def __init__(self, root: Path) -> None:
        self._root = root
        rules = runpy.run_path(str(root / "mnemo" / "runtime" / "twins.py"))
        self._summary, self._blocking_type = rules["summary"], rules["blocking_type"]
        self._body = self._parsed(f"mnemo.{self.module}")
        self._public = _imports("mnemo", self._parsed("mnemo.__init__"))
        operations = self._parsed("mnemo.operations")
        self._public |= _imports("mnemo.operations", operations)
        tables = {name: node for node in operations for name in _names(node)}
        self._tables = {
            name: node.value
            for name, node in tables.items()
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        }
        self._owners = {
            ast.unparse(cls).rpartition(".")[2]: ast.literal_eval(path)
            for path, cls in _pairs(self._tables["OWNERS"])
        }
        self._classes = {node.name: node for node in self._body if isinstance(node, ast.ClassDef)}
        self._used = dict(self.used)

    def text(self) -> str:
        """All of it."""
        self._classes |= {name: _class_of(name) for name in [*self._made()]}
        classes = [self._class(node) for node in self._classes.values()]
        exported = f"__all__ = {sorted(self._classes)}"
        return "\n".join([*sorted(self._used.values()), exported, *classes, ""])

    def _made(self) -> Iterator[str]:
        """Names of the classes that are made in a loop."""
        yield from (name for name in self._owners if name not in self._classes)
        for node in self._body:
            if isinstance(node, ast.AugAssign):
                yield from (ast.unparse(one).rpartition(".")[2] for one in node.value.elts)  # type: ignore[attr-defined]

    def _parsed(self, module: str) -> list[ast.stmt]:
        path = self._root.joinpath(*module.split(".")).with_suffix(".py")
        return ast.parse(path.read_text(encoding="utf-8")).body

    def _class(self, blocking: ast.ClassDef) -> str:
        doc, behind = self._members(blocking.name)
        members = {one: member for one, member in behind.items() if not one.startswith("_")}
        imports = _imports("mnemo.sync", self._body)
        for node in blocking.body:
            for one in _names(node):
                if one.endswith("__") or not one.startswith("_"):
                    is_like = isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
                    members[one] = behind[one] if is_like else (node, imports)
        texts = [f'"""{self._summary(doc)}"""\n']
        texts += [self._member(one, *member) for one, member in members.items()]
        return f"class {blocking.name}(Blocking):\n{textwrap.indent(''.join(texts), '    ')}"

    def _members(
        self, name: str, module: str | None = None
    ) -> tuple[str | None, dict[str, Member]]:
        """The docstring and the members of a class by name, those of its bases first."""
        body = self._parsed(module := module or str(self._public[name].module))  # type: ignore[union-attr]
        imports = _imports(module, body)
        (cls,) = (node for node in body if isinstance(node, ast.ClassDef) and node.name == name)
        found: dict[str, Member] = {}
        for base in cls.bases:
            origin = imports.get(ast.unparse(base))
            if isinstance(origin, ast.ImportFrom) and str(origin.module).startswith("mnemo."):
                found |= self._members(origin.names[0].name, str(origin.module))[1]
        found |= {one: (node, imports) for node in cls.body for one in _names(node)}
        return ast.get_docstring(cls), found

    def _member(self, name: str, node: ast.stmt, imports: Imports) -> str:
        if isinstance(node, ast.AnnAssign):
            if node.value is not None and "repr=False" in ast.unparse(node.value):
                return ""
            kind = ast.unparse(node.annotation)
            (node,) = ast.parse(f"@property\ndef {name}(self) -> {kind}: ...").body
        elif isinstance(node, Function):
            node = self._function(node)
        for one in ast.walk(node):
            if isinstance(one, ast.Name) and one.id in imports and one.id not in self._classes:
                self._used.setdefault(one.id, ast.unparse(imports[one.id]))
        return ast.unparse(node) + "\n"

    def _function(self, function: Function) -> ast.FunctionDef:
        assert function.returns is not None
        text = self._summary(ast.get_docstring(function))
        returned = self._blocking_type(ast.unparse(function.returns))
        return ast.FunctionDef(
            name=function.name,
            args=function.args,
            body=[ast.Expr(ast.Constant(one)) for one in (text, ...) if one],
            decorator_list=function.decorator_list,
            returns=ast.parse(returned, mode="eval").body,
            lineno=0,
        )


class RemoteStub(Stub):
    """The stub of ``mnemo.remote``: the listed operations, without what only a process has."""

    module = "remote"
    used: ClassVar = {
        "Any": "from typing import Any",
        "Literal": "from typing import Literal",
        "Operation": "from mnemo.operations import Operation",
        "RemoteSession": "from mnemo.client import RemoteSession",
    }

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        rows = ast.literal_eval(self._tables["SURFACES"]).strip().splitlines()
        self._listed = {row.split()[0] for row in rows}
        self._left_out = set(re.findall(r"'(\w+)'", ast.unparse(self._tables["IN_PROCESS"])))

    def text(self) -> str:
        """All of it."""
        (sent,) = (one for one in self._classes["Calls"].body if _names(one) == ["_carry_out"])
        sent.body = [ast.Expr(ast.Constant(...))]  # type: ignore[attr-defined]
        base = f"class Calls:\n{textwrap.indent(ast.unparse(sent), '    ')}"
        classes = [self._class(_class_of(name)) for name in self._owners]
        return "\n".join([*sorted(self._used.values()), base, *classes, ""])

    def _class(self, of: ast.ClassDef) -> str:
        texts = []
        for one, (node, imports) in self._members(of.name)[1].items():
            path = f"{self._owners[of.name]}.{one}".removeprefix(".")
            if path in self._listed and isinstance(node, ast.AsyncFunctionDef):
                self._reduce(path, node)
                texts.append(self._member(one, node, imports))
        return f"class {of.name}Calls(Calls):\n{textwrap.indent(''.join(texts) or '...', '    ')}"

    def _reduce(self, path: str, node: ast.AsyncFunctionDef) -> None:
        """Leave out parameters that only a process has, and add those that a method has not."""
        args = node.args
        kept = [
            (one, default)
            for one, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)
            if one.arg not in self._left_out
        ]
        for name, table in _pairs(self._tables["ADDED"]):
            if ast.literal_eval(name) == path:
                shared = self._tables.get(ast.unparse(table), table)
                for one, added in _pairs(shared):
                    kind, default, _ = added.elts  # type: ignore[attr-defined]
                    kept.append((ast.arg(ast.literal_eval(one), kind), default))
        args.kwonlyargs = [one for one, _ in kept]
        args.kw_defaults = [default for _, default in kept]
        for named in ast.walk(node):
            if isinstance(named, ast.Name) and named.id == "Session":
                named.id = "RemoteSession"

    def _function(self, function: Function) -> Any:
        made = super()._function(function)
        parts = ("name", "args", "body", "decorator_list", "returns")
        return ast.AsyncFunctionDef(**{one: getattr(made, one) for one in parts}, lineno=0)


def _class_of(name: str) -> ast.ClassDef:
    return ast.ClassDef(name, [], [], [], [])


def _pairs(table: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """The keys and values of a dictionary as it is written."""
    assert isinstance(table, ast.Dict)
    return [(key, value) for key, value in zip(table.keys, table.values, strict=True) if key]


def _names(node: ast.stmt) -> list[str]:
    """The names that a statement defines."""
    if isinstance(node, ast.ClassDef | Function):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [one.id for one in targets if isinstance(one, ast.Name)]


def _imports(module: str, body: list[ast.stmt]) -> Imports:
    found: Imports = {}
    for node in ast.walk(ast.Module(body, [])):
        for one in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            whole = isinstance(node, ast.Import)
            alone = ast.Import([one]) if whole else ast.ImportFrom(node.module, [one], 0)
            found.setdefault(one.asname or one.name, alone)
    own = {name: ast.ImportFrom(module, [ast.alias(name)], 0) for n in body for name in _names(n)}
    return found | own


def get_build_hook() -> type:
    """What hatch looks for."""
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    class StubHook(BuildHookInterface):
        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            write(Path(self.root))
            build_data["artifacts"] += ["/mnemo/remote.pyi", "/mnemo/sync.pyi"]  # git ignores them

    return StubHook


if __name__ == "__main__":
    write()
