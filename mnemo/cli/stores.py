"""The commands on whole stores: ``worker``, ``copy`` and ``migrate``."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

from mnemo import Mnemo, MnemoError, RepositoryCopy, WorkerStatistics, __version__
from mnemo.cli.opening import AsJson, Model, ModelUrl, chat_model_of, existing, in_service
from mnemo.cli.output import answer, as_data, complain, print_json, print_line
from mnemo.runtime.text import counted

DAMAGED = 1
"""Exit code where damaged records were left out of a copy."""

_PASSWORDS = (re.compile(r"(://[^:/@]*:)[^/]*(?=@)"), re.compile(r"([?&]password=)[^&]*"))

Url = Annotated[str, typer.Argument(metavar="URL", help="The store: a file, or a database's URL.")]


def register(app: typer.Typer, panel: str) -> None:
    """Add the commands to *app*, under *panel* in its help."""
    for command in (worker, copy, migrate):
        app.command(rich_help_panel=panel)(command)


def worker(
    url: Url,
    repo: Annotated[str, typer.Option("--repo", help="A pattern of repositories.")] = "*",
    kinds: Annotated[
        list[str] | None, typer.Option("--kinds", help="Of jobs; repeatable; default: all.")
    ] = None,
    concurrency: Annotated[int, typer.Option(help="Jobs at once.", min=1)] = 4,
    health: Annotated[
        Path | None, typer.Option(help="A file that is written anew after each look for jobs.")
    ] = None,
    embedder: Annotated[
        str | None,
        typer.Option(
            envvar="MNEMO_EMBEDDER",
            help="minilm, multilingual or static; default: each repository's own, or minilm.",
        ),
    ] = None,
    model_url: ModelUrl = None,
    model: Model = None,
    as_json: AsJson = False,
) -> None:
    """
    Work off the background jobs of a store, until it is stopped.

    On SIGTERM or Ctrl-C it claims no more, finishes what it holds within `shutdown_grace_s`,
    and gives the rest back. As many workers as you like may share a store.
    """
    last: list[WorkerStatistics] = [WorkerStatistics()]

    async def looked(found: WorkerStatistics) -> None:
        for id in found.refused.keys() - last[0].refused.keys():
            complain(f"repository {id!r} is left to others: {found.refused[id]}")
        last[0] = found
        if health is not None:
            await anyio.to_thread.run_sync(_write_health, health, found)

    async def work(memory: Mnemo) -> None:
        await _until_stopped(lambda: memory.work(repo, kinds=_kinds(kinds), on_look=looked))

    chat_model = chat_model_of(model_url, model)
    try:
        in_service(url, work, chat_model=chat_model, workers=concurrency, embedder=embedder)
    finally:
        if health is not None:
            health.unlink(missing_ok=True)
    failed = f"{counted(last[0].failed, 'try', 'tries')} failed"
    told = f"{counted(last[0].done, 'job')} done, {failed}."
    answer({"url": _shown(url)} | as_data(last[0]), told, as_json=as_json)


def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="The store that is read.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Another store, made if it is new.")],
    repo: Annotated[str, typer.Option("--repo", help="A pattern of repositories.")] = "*",
    skip_damaged: Annotated[
        bool, typer.Option("--skip-damaged", help="Leave out what cannot be read.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """
    Copy repositories from one store to another, file or database.

    Each is there whole or not at all, and is compared with what was read. Stopped anywhere, run
    it again: what is there already is compared and not copied.
    """

    def told(one: RepositoryCopy) -> None:
        if not as_json:
            done = "copied" if one.fresh else "was there already"
            print_line(f"{one.repo_id}: {done}: {counted(sum(one.counts.values()), 'record')}.")
        for kind, key in one.damaged:
            complain(f"{one.repo_id}: the damaged {kind} {key!r} was left out")

    async def run(memory: Mnemo) -> list[RepositoryCopy]:
        return await memory.copy_to(target, repos=repo, skip_damaged=skip_damaged, on_copied=told)

    copied = in_service(existing(source), run, workers=0)
    if as_json:
        print_json({"from": _shown(source), "to": _shown(target), "repos": copied})
    if any(one.damaged for one in copied):
        raise typer.Exit(DAMAGED)


def migrate(url: Url, as_json: AsJson = False) -> None:
    """
    Make the tables of a store, or bring those of an older one to this version.

    Opening a store does the same; run this first where the application may not change tables.
    """
    in_service(url, _opened, workers=0)
    url = _shown(url)
    told = f"{url}: its tables are those of mnemo {__version__}."
    answer({"url": url, "version": __version__}, told, as_json=as_json)


async def _opened(_: Mnemo) -> None:
    """Nothing is left to do: opening has migrated."""


def _shown(url: str) -> str:
    """*url* without its password, for a terminal or a log."""
    for password in _PASSWORDS:
        url = password.sub(r"\1***", url)
    return url


def _kinds(given: list[str] | None) -> Any:
    """Kinds may be repeated or joined by commas."""
    return [kind for one in given for kind in one.split(",")] if given else None


async def _until_stopped(work: Callable[[], Any]) -> None:
    """Run *work* until SIGTERM or SIGINT; what it raises comes out as it is."""
    failures: list[Exception] = []
    async with anyio.create_task_group() as group:

        async def stop() -> None:
            with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                async for _ in signals:
                    group.cancel_scope.cancel()

        if os.name == "posix":
            group.start_soon(stop)
        try:
            await work()
        except (MnemoError, ValueError) as error:
            failures.append(error)
            group.cancel_scope.cancel()
    if failures:
        raise failures[0]


def _write_health(path: Path, found: WorkerStatistics) -> None:
    """Write *found* with the time; the file is whole at any moment."""
    told = as_data(found) | {"at": datetime.now(UTC).isoformat(), "pid": os.getpid()}
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(told) + "\n", encoding="utf-8")
    beside.replace(path)
