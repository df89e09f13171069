"""Arguments and options of commands, made of signatures, docstrings and declared operations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import Parameter, Signature, cleandoc, signature
from typing import Annotated, Any, get_args, get_origin

import typer

from mnemo.operations import OPERATIONS, described

KEY = "MNEMO_MODEL_KEY"
"""The variable with a model's key: an argument would be seen by others on the machine."""

_SHARED = {
    "api_key_env": "The variable of the environment with the model's key.",
    "as_json": "Print JSON on stdout, and nothing else.",
    "embedder": "Of a repository without vectors: minilm, multilingual or static.",
    "model": f"The model there; its key is in {KEY}.",
    "model_url": "A server with OpenAI's protocol.",
    "repo": "The repository in it.",
    "store": "The store's file.",
    "where": "KEY=VALUE: only with this metadata; repeatable.",
    "thread": "The conversation's id.",
    "topic": "The note's name.",
    "yes": "Do not ask.",
}
"""Help of options that several commands have, where a command's docstring says nothing else."""
_VARIABLES = frozenset(
    {"api_key_env", "audit_log", "embedder", "host", "log_level", "model", "model_url", "port"}
    | {"store", "token_file", "workers"}
)
"""Options that a variable ``MNEMO_…`` of their name gives, too."""
_NOT_SHOWN = re.compile(r"^as_|(?<=budget)_tokens$|_ids?$|_$")
"""What of a parameter's name is not in the option's: ``as_json`` is ``--json``."""


def add(app: typer.Typer, commands: Sequence[Callable[..., Any]], panel: str | None = None) -> None:
    """Add *commands* to *app* by their functions' names, under *panel* in its help."""
    for command in commands:
        made = command if hasattr(command, "__signature__") else with_options(command, command)
        app.command(made.__name__.rstrip("_"), rich_help_panel=panel)(made)


def with_options(
    run: Callable[..., Any], command: Callable[..., Any], *offered: Parameter
) -> Callable[..., Any]:
    """
    Give *run* the arguments and options of *command*, with those that are *offered* besides.

    Parameters by name alone are options, others arguments; the ``Args`` of the docstring are
    their help. An annotation may have bounds: ``Annotated[int, {"min": 0, "max": 9}]``.
    """
    texts = described(command.__doc__, "Args")
    own = signature(command, eval_str=True).parameters.values()
    taken = [one for one in own if one.kind is not one.VAR_KEYWORD and one.name != "opened"]
    every = sorted((*taken, *offered), key=lambda one: one.kind)
    unknown = texts.keys() - {one.name for one in every}
    assert not unknown, f"{command.__name__} has no parameter {unknown}"
    named = [_declared(one, texts).replace(kind=one.KEYWORD_ONLY) for one in every]
    run.__signature__ = Signature(named)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in named}
    run.__name__ = command.__name__
    run.__doc__ = re.sub(r"\n\nArgs:\n.*", "", cleandoc(command.__doc__ or ""), flags=re.DOTALL)
    return run


def offered(operation: str, usage: str) -> Iterator[Parameter]:
    """
    Parameters of a declared operation, with its texts.

    Args:
        usage: Their names, options with ``--``; ``=`` and a default go before the operation's.
    """
    for word in usage.split():
        declared = OPERATIONS[operation]
        name, _, given = word.removeprefix("--").partition("=")
        (text,) = (one.description for one in declared.parameters if one.name == name)
        kind, default = _plain(declared.hints[name]), declared.signature.parameters[name].default
        if given:
            default = kind(given)
        elif default == ():
            default = []
        elif default is None:
            kind, default = (bool, False) if kind is bool else (kind | None, None)
        place = Parameter.KEYWORD_ONLY if word.startswith("--") else Parameter.POSITIONAL_ONLY
        yield Parameter(name, place, default=default, annotation=Annotated[kind, {"help": text}])


def names(**defaults: Any) -> Iterator[Parameter]:
    """Options by name and default."""
    for name, default in defaults.items():
        yield Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=type(default))


def _plain(hint: Any) -> Any:
    """The type of a parameter as words of a command line are read."""
    kinds = (hint, *get_args(hint))
    if any(get_origin(one) in (Mapping, Sequence) for one in kinds):
        return list[str]
    return next((one for one in (bool, int, float) if one in kinds), str)


def _declared(one: Parameter, texts: Mapping[str, str]) -> Parameter:
    """*one* as typer reads it: its name, its variable, its help."""
    shown, kind, told = _NOT_SHOWN.sub("", one.name), one.annotation, dict[str, Any]()
    if get_origin(kind) is Annotated:
        kind, told = get_args(kind)
    help = texts.get(one.name) or _SHARED.get(one.name) or told.get("help", "")
    if one.kind is not one.KEYWORD_ONLY:
        name = "ID" if one.name.endswith(("id", "ids")) else shown.upper()
        name = f"[{name}]..." if "list[" in str(kind) else name
        made: Any = typer.Argument(**told | {"help": help, "metavar": name})
    else:
        # Without a name a flag has a second one, --no-…
        flags = [] if one.default is True else [f"--{shown.replace('_', '-')}"]
        variable = f"MNEMO_{one.name.upper()}" if one.name in _VARIABLES else None
        flags = [f"-{shown}"] if len(shown) == 1 else flags
        made = typer.Option(*flags, **told | {"help": help, "envvar": variable})
    return one.replace(annotation=Annotated[kind, made])
