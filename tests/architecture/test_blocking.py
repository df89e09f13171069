"""The blocking classes: none is missing, and the stub types what is made at import."""

import ast
import inspect
import runpy
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, get_args

import pytest

import mnemo
from mnemo import sync
from mnemo.runtime.portal import Blocking
from mnemo.runtime.twins import summary

SCRIPT = Path(mnemo.__file__).parents[1] / "scripts" / "sync_stub.py"
HANDLES = Blocking._handles
BY_NAME = {handle.__name__: handle for handle in HANDLES.values()}


def function_of(member: Any) -> Any:
    """A method, or the getter of a property."""
    return getattr(member, "fget", member)


def functions(cls: type) -> dict[str, FunctionType]:
    """The public methods and getters of a blocking class, and what the language calls."""
    shown = {name: function_of(member) for name, member in vars(cls).items()}
    return {
        name: function
        for name, function in shown.items()
        if isinstance(function, FunctionType) and (name.endswith("__") or name[0] != "_")
    }


def kinds(annotation: Any) -> Iterator[type]:
    """The classes in an annotation."""
    if isinstance(annotation, type):
        yield annotation
    for part in get_args(annotation):
        yield from kinds(part)


def waits(cls: type) -> bool:
    """Whether objects of *cls* want an event loop."""
    if not cls.__module__.startswith("mnemo.") or issubclass(cls, Blocking):
        return False
    public = [value for name, value in inspect.getmembers(cls) if not name.startswith("_")]
    is_awaited = hasattr(cls, "__await__") or hasattr(cls, "cancel")
    return is_awaited or any(map(inspect.iscoroutinefunction, public))


def test_every_blocking_class_is_exported():
    """Under the name of the class behind it."""
    assert sorted(BY_NAME) == sync.__all__
    assert [cls.__name__ for cls in HANDLES] == list(BY_NAME)


@pytest.mark.parametrize("name", BY_NAME)
def test_what_a_blocking_method_gives_wants_no_event_loop(name):
    """A class that a method of the surface gives, and that wants one, has a blocking one."""
    for function in functions(BY_NAME[name]).values():
        given = eval(function.__annotations__["return"], vars(sync))
        assert not [kind for kind in kinds(given) if waits(kind)], function


@pytest.mark.parametrize("cls", HANDLES)
def test_an_annotation_means_in_the_blocking_module_what_it_means_in_its_own(cls):
    """But for the handles; a name that two modules use for two things would mean one of them."""
    for name, function in functions(HANDLES[cls]).items():
        behind = function_of(inspect.getattr_static(cls, name, None))
        if isinstance(behind, FunctionType) and function.__code__.co_filename == "<string>":
            there = vars(sync) | behind.__globals__ | BY_NAME
            for text in function.__annotations__.values():
                assert eval(text, vars(sync)) == eval(text, there), (function, text)


def test_the_stub_has_what_is_made():
    """Methods, getters, parameters, types and summaries, of all classes."""
    stub = ast.parse(runpy.run_path(str(SCRIPT))["Stub"](SCRIPT.parents[1]).text())
    classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
    assert sorted(classes) == sync.__all__
    for name, cls in BY_NAME.items():
        assert summary(ast.get_docstring(classes[name])) == summary(cls.__doc__)
        typed = {n.name: typed_as(n) for n in classes[name].body if isinstance(n, ast.FunctionDef)}
        made = {function.__name__: made_as(function) for function in functions(cls).values()}
        assert typed == made


def typed_as(function: ast.FunctionDef) -> tuple[Any, ...]:
    given = [*function.args.args, *function.args.kwonlyargs]
    if function.args.vararg is not None:
        given.insert(len(function.args.args), function.args.vararg)
    kinds = {one.arg: one.annotation and ast.unparse(one.annotation) for one in given}
    assert function.returns is not None
    return kinds, ast.unparse(function.returns), ast.get_docstring(function)


def made_as(function: FunctionType) -> tuple[Any, ...]:
    given = inspect.signature(function).parameters.values()
    kinds = {one.name: None if one.annotation is one.empty else one.annotation for one in given}
    return kinds, function.__annotations__["return"], summary(function.__doc__)
