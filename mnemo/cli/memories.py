"""The commands about facts and instructions: ``memories`` and ``edit``."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from mnemo import Memory, Repository, UsageError
from mnemo.cli.opening import AsJson, Repo, Store, in_known_repo
from mnemo.cli.output import answer, as_data, complain, print_json, print_table

__all__ = ["Where", "conditions", "register"]

Where = Annotated[
    list[str] | None,
    typer.Option("--where", metavar="KEY=VALUE", help="Only with this metadata; repeatable."),
]


def register(app: typer.Typer, panel: str) -> None:
    """Add the commands to *app*, under *panel* in its help."""
    for command in (memories, edit):
        app.command(rich_help_panel=panel)(command)


def memories(
    query: Annotated[str | None, typer.Argument(help="Only what fits these words.")] = None,
    repo: Repo = "default",
    store: Store = "mnemo.db",
    where: Where = None,
    limit: Annotated[int, typer.Option(help="Memories, at most.")] = 20,
    superseded: Annotated[
        bool, typer.Option("--superseded", help="What was replaced, too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List facts and instructions, the newest first or the best for a query."""
    kept = conditions(where)

    async def listed(opened: Repository) -> list[Memory]:
        if query is None:
            page = await opened.memories(where=kept, limit=limit, superseded=superseded)
            return list(page.items)
        found = await opened.recall(query, k=limit, types=("semantic", "procedural"))
        return [await opened.memory(candidate.node.id) for candidate in found.candidates]

    found = in_known_repo(store, repo, listed)
    if as_json:
        print_json({"repo": repo, "memories": [as_data(memory) for memory in found]})
    elif found:
        rows = [(m.id, m.type, f"{m.created_at:%Y-%m-%d}", m.text) for m in found if m.created_at]
        print_table(("id", "type", "since", "text"), rows)
    else:
        complain(f"there are no such memories in repository {repo!r}")


def edit(
    memory_id: Annotated[str, typer.Argument(metavar="ID", help="As `mnemo memories` has it.")],
    text: Annotated[
        str | None, typer.Argument(help="The new wording; without it $EDITOR is opened.")
    ] = None,
    repo: Repo = "default",
    store: Store = "mnemo.db",
    reason: Annotated[str | None, typer.Option(help="Why, for its history.")] = None,
    as_json: AsJson = False,
) -> None:
    """Correct what a memory says, from now on; its history keeps the wording before."""

    before = in_known_repo(store, repo, lambda opened: opened.memory(memory_id))
    wording = _edited(before.text) if text is None else text
    memory = in_known_repo(
        store,
        repo,
        lambda opened: opened.update_memory(
            memory_id, wording, reason=reason, expected_version=before.version
        ),
    )
    changed = memory.version != before.version
    told = f"{memory.id} is version {memory.version}: {memory.text}"
    answer(
        {"repo": repo, "changed": changed} | as_data(memory),
        told if changed else f"{memory.id} says that already.",
        as_json=as_json,
    )


def conditions(given: Sequence[str] | None) -> dict[str, Any] | None:
    """
    What ``--where`` was given, for ``where=``; a value that is JSON is what it says.

    Raises:
        UsageError: One has no ``=``.
    """
    found: dict[str, Any] = {}
    for one in given or ():
        key, equals, value = one.partition("=")
        if not (key and equals):
            raise UsageError(f"--where takes KEY=VALUE, not {one!r}")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found or None


def _edited(text: str) -> str:
    """
    *text* as a person leaves it in the editor.

    Raises:
        UsageError: There is no terminal, or the editor failed.
    """
    if not sys.stdin.isatty():
        raise UsageError("nobody is there to edit: give the new wording as an argument")
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "memory.txt"
        file.write_text(text, encoding="utf-8")
        try:
            code = subprocess.call([*shlex.split(editor), str(file)])
        except OSError as error:
            raise UsageError(f"$EDITOR {editor!r} cannot be started: {error}") from error
        if code:
            raise UsageError(f"the editor ended with {code}; nothing was changed")
        return file.read_text(encoding="utf-8").strip()
