"""Options of commands: from signatures, docstrings and declared operations."""

from typing import Annotated

import pytest
import typer.main

from mnemo.cli.app import app
from mnemo.cli.options import offered, with_options
from mnemo.operations import OPERATIONS

COMMANDS = typer.main.get_command(app).commands
EVERY = {**COMMANDS, **{f"notes {name}": one for name, one in COMMANDS["notes"].commands.items()}}
del EVERY["notes"]


def told(command):
    """The arguments and options of *command* as a program has them, by name."""
    alone = typer.Typer()
    alone.command()(with_options(lambda **given: given, command))
    return {one.name: one for one in typer.main.get_command(alone).params}


@pytest.mark.parametrize("command", EVERY)
def test_every_argument_and_option_says_what_it_is(command):
    """In a line of the command's help; each command has ``--json``."""
    shown = {one.name: getattr(one, "help", None) for one in EVERY[command].params}
    assert all(text for name, text in shown.items() if name != "help")
    assert "as_json" in shown


def test_a_docstring_gives_the_help_and_a_signature_the_rest():
    """Names alone are options; a flag has no second one unless it is on already."""

    def paint(
        colour: str,
        wall_ids: list[str] | None = None,
        *,
        coats: Annotated[int, {"min": 1}] = 2,
        dry: bool = False,
        clean: bool = True,
        store: str = "mnemo.db",
    ) -> None:
        """
        Paint walls.

        Args:
            colour: Of them,
                all.
            store: Of paint.
        """

    found = told(paint)
    assert (found["colour"].help, found["colour"].metavar) == ("Of them, all.", "COLOUR")
    assert (found["wall_ids"].metavar, found["wall_ids"].required) == ("[ID]...", False)
    assert (found["coats"].opts, found["coats"].min) == (["--coats"], 1)
    assert (found["dry"].opts, found["dry"].secondary_opts) == (["--dry"], [])
    assert (found["clean"].opts, found["clean"].secondary_opts) == (["--clean"], ["--no-clean"])
    assert (found["store"].help, found["store"].envvar) == ("Of paint.", "MNEMO_STORE")


def test_help_of_what_is_no_parameter_is_a_mistake():
    """A parameter that was renamed takes its text along."""

    def paint(*, colour: str = "red") -> None:
        """
        Paint.

        Args:
            color: Which one.
        """

    with pytest.raises(AssertionError, match="color"):
        told(paint)


def test_a_declared_operation_gives_types_defaults_and_texts():
    """A default of the command goes before that of the operation."""
    found = {one.name: one for one in offered("changes", "subject --since --limit=20")}
    texts = {one.name: one.description for one in OPERATIONS["changes"].parameters}
    kinds = {name: one.annotation.__origin__ for name, one in found.items()}
    assert kinds == {"subject": str | None, "since": str | None, "limit": int}
    assert [one.default for one in found.values()] == [None, None, 20]
    assert found["since"].annotation.__metadata__[0] == {"help": texts["since"]}
    (k,) = offered("recall", "--k")
    assert (k.default, k.kind) == (10, k.KEYWORD_ONLY)
