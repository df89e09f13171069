"""Make the members of a blocking class from those of the asynchronous class behind it."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from inspect import Parameter, Signature
from types import FunctionType
from typing import Any

_PASSED: dict[Any, str] = {
    Parameter.VAR_POSITIONAL: "*{0}",
    Parameter.KEYWORD_ONLY: "{0}=self._unwrapped({0})",
}
"""How a parameter is passed on, if not by position."""
_FIELD = (lambda self: None).__code__
"""The code of a method that stands for a field."""


def members(of: type, owner: str, names: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """
    Make a blocking method or property of each public member of *of*.

    Declared fields are read in the thread of the caller, all else on the loop.

    *owner*, *names*: As of ``like``.
    """
    for base in reversed(of.__mro__):
        fields = vars(base).get("__dataclass_fields__", {})
        for name, kind in inspect.get_annotations(base).items():
            if not name.startswith("_") and (name not in fields or fields[name].repr):
                field = FunctionType(_FIELD, vars(sys.modules[base.__module__]), name)
                field.__annotations__["return"] = kind
                yield name, property(like(field, f"self._inner.{name}", owner, names))
        for name, member in vars(base).items():
            if name.startswith("_"):
                continue
            if isinstance(member, FunctionType):
                yield name, like(member, _call(member), owner, names)
            elif isinstance(member, property) and isinstance(member.fget, FunctionType):
                value = f"self._shown(self._portal.call(lambda: self._inner.{name}))"
                yield name, property(like(member.fget, value, owner, names))


def _call(method: FunctionType) -> str:
    """The expression that a blocking method returns."""
    call = f"lambda: self._inner.{method.__name__}({{passed}})"
    returns = method.__annotations__["return"]
    if returns != blocking_type(returns):
        return f"self._portal.entered({call})"
    way = "run" if inspect.iscoroutinefunction(method) else "call"
    return f"self._shown(self._portal.{way}({call}))"


def like(function: FunctionType, value: str, owner: str, names: dict[str, Any]) -> FunctionType:
    """
    Make a function with the name, parameters, annotations and summary of *function*.

    It is compiled, so that wrong arguments are refused in the thread of the caller, and a
    framework that looks at it sees what it would see of a written one.

    Args:
        value: The expression that it returns; ``{passed}`` stands for its arguments after
            ``self``, where each blocking handle is replaced by what it stands for.
        owner: The name of its class.
        names: Its globals; what the annotations of *function* name is added.
    """
    parameters = inspect.signature(function).parameters.values()
    bare = [
        one.replace(annotation=one.empty, default=one.empty if one.default is one.empty else 0)
        for one in parameters
    ]
    passed = [_PASSED.get(one.kind, "self._unwrapped({0})").format(one.name) for one in parameters]
    returned = value.format(passed=", ".join(passed[1:]))
    made: dict[str, FunctionType] = {}
    exec(f"def {function.__name__}{Signature(bare)}: return {returned}", names, made)
    (blocking,) = made.values()
    annotations = function.__annotations__
    blocking.__defaults__, blocking.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    blocking.__annotations__ = annotations | {"return": blocking_type(annotations["return"])}
    blocking.__doc__ = summary(function.__doc__)
    blocking.__qualname__ = f"{owner}.{function.__name__}"
    for name in re.findall(r"\w+", " ".join(annotations.values())):
        if name in function.__globals__:
            names.setdefault(name, function.__globals__[name])
    return blocking


def blocking_type(returned: str) -> str:
    """The annotation of a blocking method: a context with a stream becomes one with an iterator."""
    is_stream = returned.startswith("AbstractAsyncContextManager[")
    return returned.replace("Async", "") if is_stream else returned


def summary(doc: str | None) -> str | None:
    """The first paragraph of a docstring, without what holds for coroutines only."""
    text = " ".join((doc or "").split("\n\n")[0].split())
    return re.sub(r" ?\*Cancellation\*.*", "", text).replace("async ", "") or None
