"""
Write ``mnemo/sync.py``: the public surface without asyncio, from the source of the async one.

It begins at ``Mnemo`` and follows return types: every class of mnemo with a public coroutine
gets a blocking handle. A new method needs no change here.
``--check`` writes nothing and fails when the file is stale; a test does the same.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import mnemo

TARGET = Path(mnemo.__file__).parent / "sync.py"
HEAD = '''"""
mnemo without asyncio: the same calls, blocking, over a private event loop in a thread.

Made by ``scripts/make_sync`` from the asynchronous classes, whose docstrings say more.
Usable from several threads. Observers and callbacks run on the private loop's thread.
"""

from __future__ import annotations

'''
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Source:
    """A class, its module, and what the module's names mean."""

    def __init__(self, cls: type) -> None:
        self.cls = cls
        self.names: dict[str, tuple[str, str | None]] = {}
        self.bodies: list[tuple[type, ast.ClassDef]] = []
        for base in cls.__mro__:
            if base.__module__.startswith("mnemo."):
                tree = ast.parse(inspect.getsource(importlib.import_module(base.__module__)))
                for name, meaning in _names(tree, base.__module__):
                    self.names.setdefault(name, meaning)
                found = (n for n in tree.body if isinstance(n, ast.ClassDef))
                self.bodies.extend((base, n) for n in found if n.name == base.__name__)

    def members(self) -> Iterator[Function | ast.AnnAssign]:
        """Public methods, properties and shown fields, those of the class itself first."""
        seen: set[str] = set()
        for _, body in self.bodies:
            for node in body.body:
                name = _member_name(node)
                if name is not None and not name.startswith("_") and name not in seen:
                    seen.add(name)
                    assert isinstance(node, Function | ast.AnnAssign)
                    yield node
                elif name == "__init__":
                    yield from (one for one in _attributes(node) if one.target.id not in seen)

    def resolve(self, annotation: ast.expr | None) -> Iterator[type]:
        """The classes of mnemo that *annotation* names."""
        for node in ast.walk(annotation) if annotation is not None else ():
            if isinstance(node, ast.Name) and node.id in self.names:
                module, name = self.names[node.id]
                if name is not None and module.startswith("mnemo"):
                    found = getattr(importlib.import_module(module), name, None)
                    if isinstance(found, type):
                        yield found


def _names(tree: ast.Module, module: str) -> Iterator[tuple[str, tuple[str, str | None]]]:
    """Name → module and name to import it by; ``None``: the module itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield alias.asname or alias.name, (node.module, alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name, (alias.name, None)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name, (module, node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    yield target.id, (module, target.id)


def _attributes(init: ast.stmt) -> Iterator[ast.AnnAssign]:
    """The public attributes that ``__init__`` sets, as if the class had declared them."""
    assert isinstance(init, Function)
    kinds = {one.arg: one.annotation for one in [*init.args.args, *init.args.kwonlyargs]}
    for node in ast.walk(init):
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if not isinstance(target, ast.Attribute) or target.attr.startswith("_"):
            continue
        if ast.unparse(target.value) == "self":
            value = getattr(node, "value", None)
            kind = getattr(node, "annotation", None)
            if kind is None and isinstance(value, ast.Name):
                kind = kinds.get(value.id)
            name = ast.Name(target.attr)
            yield ast.AnnAssign(name, kind or ast.Name("object"), None, simple=1)


def _member_name(node: ast.stmt) -> str | None:
    if isinstance(node, Function):
        return node.name
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        hidden = node.value is not None and "repr=False" in ast.unparse(node.value)
        return None if hidden else node.target.id
    return None


def is_asynchronous(cls: type) -> bool:
    """Whether a handle of *cls* needs the loop."""
    public = (value for name, value in inspect.getmembers(cls) if not name.startswith("_"))
    return (
        cls.__module__.startswith("mnemo.")
        and not getattr(cls, "_is_protocol", False)
        and (
            hasattr(cls, "__await__")
            or hasattr(cls, "cancel")
            or any(map(inspect.iscoroutinefunction, public))
        )
    )


def discovered() -> dict[type, Source]:
    """Every class that gets a blocking handle, from the service on, leaves last."""
    found: dict[type, Source] = {}
    waiting: list[type] = [mnemo.Mnemo]
    while waiting:
        cls = waiting.pop(0)
        if cls in found:
            continue
        found[cls] = source = Source(cls)
        for member in source.members():
            told = member.annotation if isinstance(member, ast.AnnAssign) else member.returns
            waiting.extend(kind for kind in source.resolve(told) if is_asynchronous(kind))
    return found


class Writer:
    """Writes the module; collects what it has to import."""

    def __init__(self) -> None:
        self.sources = discovered()
        self.imports: dict[tuple[str, str | None], str] = {}
        self._taken = {cls.__name__ for cls in self.sources}
        self._taken |= {"Self", "TracebackType", "Blocking", "Portal"}
        self._imported("typing", "Any", "Any")
        self._imported("mnemo.errors", "UsageError", "UsageError")

    def module(self) -> str:
        """The whole text, not yet formatted."""
        classes = [self._class(source) for source in reversed(self.sources.values())]
        exported = sorted(cls.__name__ for cls in self.sources)
        return "\n\n".join([HEAD + self._imports(), f"__all__ = {exported!r}", *classes]) + "\n"

    def _imports(self) -> str:
        lines = [
            "from types import TracebackType",
            "from typing import NoReturn, Self",
            "from mnemo.runtime.portal import Blocking, Portal",
        ]
        for (module, name), local in self.imports.items():
            if name is None:
                lines.append(f"import {module}")
            else:
                lines.append(f"from {module} import {name}" + f" as {local}" * (name != local))
        return "\n".join(sorted(set(lines)))

    def _imported(self, module: str, name: str | None, local: str) -> str:
        """The name by which *name* of *module* is known in the written module."""
        known = self.imports.get((module, name))
        if known is None:
            if name is None and "." in module:
                raise SystemExit(f"{module} is imported whole; import the name instead")
            known = local
            while known in self._taken:
                known += "_"
            self._taken.add(known)
            self.imports[module, name] = known
        return known

    def _inner(self, cls: type) -> str:
        return self._imported(cls.__module__, cls.__name__, f"_{cls.__name__}")

    def _text(self, source: Source, expression: ast.expr | None) -> str:
        """An annotation or default as it is written here, its names imported."""
        if expression is None:
            return "Any"
        writer = self

        class Renamed(ast.NodeTransformer):
            def visit_Name(self, node: ast.Name) -> ast.Name:
                if node.id not in source.names:
                    return node
                module, name = source.names[node.id]
                found = getattr(importlib.import_module(module), name, None) if name else None
                if isinstance(found, type) and found in writer.sources:
                    return ast.Name(found.__name__)
                return ast.Name(writer._imported(module, name, node.id))

        return ast.unparse(Renamed().visit(ast.parse(ast.unparse(expression), mode="eval").body))

    def _class(self, source: Source) -> str:
        cls = source.cls
        summary = _summary(inspect.getdoc(cls) or "")
        is_service = cls is mnemo.Mnemo
        lines = [
            f"class {cls.__name__}(Blocking[{self._inner(cls)}]):",
            '    """',
            f"    {summary}\n\n    Blocking; see ``{cls.__module__}.{cls.__name__}``.",
            '    """',
        ]
        if is_service:
            lines.append(self._service(source))
        members = [m for m in source.members() if not (is_service and m in self._opening(source))]
        lines.extend(self._member(source, member) for member in members)
        if hasattr(cls, "__await__"):
            lines.append(_indented(RESULT))
        return "\n\n".join(lines)

    def _opening(self, source: Source) -> list[Function]:
        return [
            m for m in source.members() if isinstance(m, Function) and m.name in ("open", "aclose")
        ]

    def _service(self, source: Source) -> str:
        (body,) = (body for base, body in source.bodies if base is source.cls)
        (init,) = (n for n in body.body if isinstance(n, Function) and n.name == "__init__")
        head = f"def __init__{self._parameters(source, init)} -> None:"
        made = (
            f"super().__init__(Portal(), {self._inner(source.cls)}({self._passed(source, init)}))"
        )
        return _indented(f"{head}\n    {made}\n\n{SERVICE}")

    def _member(self, source: Source, member: Function | ast.AnnAssign) -> str:
        if isinstance(member, ast.AnnAssign):
            assert isinstance(member.target, ast.Name)
            name, kind = member.target.id, self._text(source, member.annotation)
            text = f"@property\ndef {name}(self) -> {kind}:\n    return self._inner.{name}"
            return _indented(text)
        return _indented(self._function(source, member))

    def _function(self, source: Source, function: Function) -> str:
        called = f"self._inner.{function.name}"
        decorated = [ast.unparse(one) for one in function.decorator_list]
        is_property = "property" in decorated
        if not is_property:
            called += f"({self._passed(source, function)})"
        handles = [kind for kind in source.resolve(function.returns) if kind in self.sources]
        returns = self._text(source, function.returns)
        run = "run" if isinstance(function, ast.AsyncFunctionDef) else "call"
        value = f"self._portal.{run}(lambda: {called})"
        if returns.startswith("AbstractAsyncContextManager[AsyncIterator["):
            returns = self._stream(returns)
            value = f"self._portal.entered(lambda: {called})"
        elif handles:
            value = _wrapped(handles[0].__name__, returns, value)
        head = f"def {function.name}{self._parameters(source, function)} -> {returns}:"
        summary = _summary(ast.get_docstring(function) or "")
        prefix = "@property\n" if is_property else ""
        end = f"return {value}" if returns != "None" else value
        if len(summary) > 80:
            summary = "\n    " + "\n    ".join(textwrap.wrap(summary, 90)) + "\n    "
        return f'{prefix}{head}\n    """{summary}"""\n    {end}'

    def _stream(self, returns: str) -> str:
        inner = returns.removeprefix("AbstractAsyncContextManager[AsyncIterator[").removesuffix(
            "]]"
        )
        manager = self._imported("contextlib", "AbstractContextManager", "AbstractContextManager")
        iterator = self._imported("collections.abc", "Iterator", "Iterator")
        return f"{manager}[{iterator}[{inner}]]"

    def _passed(self, source: Source, function: Function) -> str:
        """The arguments as the call of the asynchronous method hands them on."""
        given = function.args
        parts = [self._value(source, one) for one in [*given.posonlyargs, *given.args][1:]]
        if given.vararg:
            parts.append(f"*{given.vararg.arg}")
        parts.extend(f"{one.arg}={self._value(source, one)}" for one in given.kwonlyargs)
        return ", ".join(parts)

    def _value(self, source: Source, argument: ast.arg) -> str:
        """The argument; where it may be a blocking handle, what that stands for."""
        told = argument.annotation
        may_be = any(kind in self.sources for kind in source.resolve(told))
        is_any = told is not None and ast.unparse(told) == "Any"
        return f"self._unwrapped({argument.arg})" if may_be or is_any else argument.arg

    def _parameters(self, source: Source, function: Function) -> str:
        given = function.args
        parts = ["self"]
        positional = [*given.posonlyargs, *given.args][1:]
        defaults = [None] * (len(positional) - len(given.defaults)) + list(given.defaults)
        for argument, default in zip(positional, defaults, strict=True):
            parts.append(self._parameter(source, argument, default))
        if given.vararg:
            parts.append("*" + self._parameter(source, given.vararg, None))
        elif given.kwonlyargs:
            parts.append("*")
        for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
            parts.append(self._parameter(source, argument, default))
        return f"({', '.join(parts)})"

    def _parameter(self, source: Source, argument: ast.arg, default: ast.expr | None) -> str:
        written = f"{argument.arg}: {self._text(source, argument.annotation)}"
        return written if default is None else f"{written} = {self._text(source, default)}"


RESULT = '''\
def result(self) -> Any:
    """Wait for the operation to end; gives its value or raises its error."""
    async def waited() -> Any:
        return await self._inner

    return self._portal.run(waited)'''

SERVICE = '''\
def __enter__(self) -> Self:
    self.open()
    return self

def __exit__(
    self,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
) -> None:
    # A forked process that leaves the block has nothing to close; its parent has.
    if not self._portal.is_forked:
        self.aclose()

async def __aenter__(self) -> NoReturn:
    raise UsageError(
        "write `with mnemo.sync.Mnemo(…)`, or in a coroutine `async with mnemo.Mnemo(…)`"
    )

__aexit__ = __aenter__  # ``async with`` looks for both first

def open(self) -> None:
    """
    Start the private loop and open the store.

    Whoever forgets to close it has it closed at the interpreter's exit.
    """
    self._portal.open(
        self._inner.open, self._inner.aclose, self._inner._config.shutdown_grace_s
    )

def aclose(self) -> None:
    """Close everything in order, then end the private loop; idempotent."""
    self._portal.close()

close = aclose'''


def _wrapped(name: str, returns: str, value: str) -> str:
    """*value*, whose asynchronous handles become blocking ones."""
    if returns == name:
        return f"{name}(self._portal, {value})"
    if returns == f"list[{name}]":
        return f"[{name}(self._portal, one) for one in {value}]"
    if returns == f"{name} | None":
        return f"None if (one := {value}) is None else {name}(self._portal, one)"
    raise SystemExit(f"no rule turns {returns} into a blocking handle")


def _summary(doc: str) -> str:
    """The first paragraph, without what holds of coroutines only."""
    text = " ".join(doc.split("\n\n")[0].split())
    return re.sub(r" ?\*Cancellation\*.*", "", text).replace("async ", "")


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.split("\n"))


def made() -> str:
    """The module as it ought to be, formatted."""
    text = Writer().module()
    for command in (["check", "--fix", "--select", "I,F401", "-q"], ["format", "-q"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(TARGET), "-"],
            input=text, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if not done.stdout:
            raise SystemExit(done.stderr)
        text = done.stdout
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if it is stale")
    check = parser.parse_args().check
    text = made()
    stale = not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text
    if stale:
        print(f"{'stale' if check else 'written'}: {TARGET.name}")
        if not check:
            TARGET.write_text(text, encoding="utf-8")
    return int(check and stale)


if __name__ == "__main__":
    sys.exit(main())
