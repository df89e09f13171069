"""The commands about notes: ``mnemo notes …``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from mnemo import FolderReport, NoteChange, NoteUpdate, Progress, Repository, UsageError
from mnemo.cli import opening
from mnemo.cli.importing.chats import read_chat
from mnemo.cli.output import answer, as_data, bar_of, complain, print_json, print_line
from mnemo.runtime.text import visible

WRONG = 2

Topic = Annotated[str, typer.Argument(help="The note's name.")]


def update(
    file: Annotated[Path, typer.Argument(help="The task's conversation, as import reads it.")],
    repo: opening.Repo = "default",
    store: opening.Store = "mnemo.db",
    iterations: Annotated[
        int | None, typer.Option(help="Passes of the task's loop; default: its assistant messages.")
    ] = None,
    outcome: Annotated[
        str, typer.Option(help="completed, failed, interrupted or awaiting_user.")
    ] = "completed",
    task: Annotated[
        str | None, typer.Option("--task", help="Its id; looked back over once.")
    ] = None,
    thread: Annotated[
        str | None, typer.Option("--thread", help="The conversation that it is of.")
    ] = None,
    model_url: opening.ModelUrl = None,
    model: opening.Model = None,
    as_json: opening.AsJson = False,
) -> None:
    """
    Look back over a task's conversation once, and keep what will matter.

    Without a model only explicit requests are kept ("remember that …").
    """
    messages = read_chat(file)
    chat_model = opening.chat_model_of(model_url, model)
    passes = sum(m.role == "assistant" for m in messages) if iterations is None else iterations

    async def updated(opened: Repository) -> NoteUpdate:
        return await opened.notes.update_after_task(
            messages,
            iterations=passes,
            task_id=task,
            on_progress=told,
            outcome=outcome,
            thread_id=thread,
        )

    with _progress() as told:
        done = opening.in_repo(store, repo, updated, chat_model=chat_model)
    if as_json:
        where = {"file": str(file), "repo": repo, "store": store, "model": model}
        print_json(where | as_data(done))
    else:
        print_line(_update_told(done))
        if chat_model is None:
            complain("no model was named (--model-url, --model): only explicit requests are kept")
    if done.error is not None:
        complain(f"the update failed: {done.error or type(done.error).__name__}")
        raise typer.Exit(WRONG)


@opening.on_repo
async def list_(
    repo: Repository,
    query: Annotated[str | None, typer.Option(help="Best for these words first.")] = None,
    limit: Annotated[int | None, typer.Option(help="So many, at most.")] = None,
) -> opening.Answer:
    """List the notes, latest use first."""
    found = await repo.notes.list(query=query, limit=limit)
    heads = ("topic", "version", "updated", "description")
    rows = [(n.topic, n.version, n.updated_at, n.description) for n in found]
    return {"notes": found}, (heads, rows)


@opening.on_repo
async def show(repo: Repository, topic: Topic) -> opening.Answer:
    """Show a note."""
    note = await repo.notes.read(topic)
    head = f"{note.topic} (version {note.version}, {note.updated_at:%Y-%m-%d}): "
    return {"note": note}, f"{head}{note.description}\n\n{note.body}"


@opening.on_repo
async def history(repo: Repository, topic: Topic) -> opening.Answer:
    """Show every kept version of a note, oldest first: who made it, on what evidence."""
    versions = await repo.notes.history(topic)
    heads = ("version", "action", "at", "by", "trust", "update", "text")
    rows = [(v.version, v.action, v.at, v.by, v.trust, v.update_id, v.body) for v in versions]
    return {"topic": topic, "versions": versions}, (heads, rows)


@opening.on_repo
async def undo(
    repo: Repository,
    update_id: Annotated[str, typer.Argument(help="As update and history name it.")],
) -> opening.Answer:
    """Take back all that an update did."""
    changes = await repo.notes.undo(update_id)
    return {"undone": update_id, "changes": changes}, "\n".join(map(_change, changes))


def write(
    topic: Topic,
    file: Annotated[str, typer.Argument(help="Its text, Markdown; - is standard input.")],
    description: Annotated[str, typer.Option(help="What it is about, in one line.")],
    repo: opening.Repo = "default",
    store: opening.Store = "mnemo.db",
    as_json: opening.AsJson = False,
) -> None:
    """Create or replace a note; the former text stays in its history."""
    body = sys.stdin.read() if file == "-" else _text_of(Path(file))
    note = opening.in_repo(store, repo, lambda r: r.notes.write(topic, body, description))
    answer({"repo": repo, "note": note}, f"{note.topic}: version {note.version}.", as_json=as_json)


@opening.on_repo
async def delete(repo: Repository, topic: Topic) -> opening.Answer:
    """Retire a note; `restore` brings it back."""
    await repo.notes.delete(topic)
    return {"deleted": topic}, f"{topic}: deleted."


@opening.on_repo
async def restore(
    repo: Repository,
    topic: Topic,
    version: Annotated[int, typer.Argument(help="As history numbers them.")],
) -> opening.Answer:
    """Write an old version of a note as a new one."""
    note = await repo.notes.restore(topic, version)
    return {"note": note}, f"{note.topic}: version {note.version}."


@opening.on_repo
async def export_(
    repo: Repository, folder: Annotated[Path, typer.Argument(help="Made if it is not there.")]
) -> opening.Answer:
    """Write one Markdown file per note into a folder; what was edited there is not overwritten."""
    return _report(await repo.notes.export_folder(folder), folder)


def import_(
    folder: Annotated[Path, typer.Argument(help="Of Markdown files, as export writes them.")],
    repo: opening.Repo = "default",
    store: opening.Store = "mnemo.db",
    as_json: opening.AsJson = False,
) -> None:
    """Merge a folder of notes; where both sides changed neither is touched."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: there is no such folder")
    report = opening.in_repo(store, repo, lambda r: r.notes.import_folder(folder))
    data, told = _report(report, folder)
    answer({"repo": repo} | data, told, as_json=as_json)


# ── Around them ──────────────────────────────────────────────────────────────────────


@contextmanager
def _progress() -> Iterator[Callable[[Progress], None]]:
    """A line on stderr that follows the update, if that is a terminal; it ends with it."""
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with bar_of(*columns) as bar:
        task = bar.add_task("Reading", total=None)

        def told(progress: Progress) -> None:
            over = progress.phase == "finished"
            bar.update(task, description=visible(progress.label), total=1, completed=int(over))

        try:
            yield told
        finally:
            bar.update(task, visible=bar.finished)


def _update_told(done: NoteUpdate) -> str:
    if done.skipped_because is not None:
        return f"Nothing was done: {done.skipped_because.replace('_', ' ')}."
    lines = list(map(_change, done.notes)) or ["Nothing was kept."]
    lines += [f"refused ({r.refused}): {r.text}" for r in done.requests if r.refused]
    cost = f", {done.usage.cost_usd:.4f} USD" if done.usage.cost_usd else ""
    tokens = done.usage.input_tokens + done.usage.output_tokens
    return "\n".join([*lines, f"update {done.id}: {tokens} tokens{cost}"])


def _change(change: NoteChange) -> str:
    return f"{change.topic}: {change.action}, version {change.version}, by {change.by}"


def _report(report: FolderReport, folder: Path) -> tuple[dict[str, Any], str]:
    counts = {"written": report.written, "unchanged": report.unchanged, "removed": report.removed}
    told = ", ".join(f"{len(topics)} {what}" for what, topics in counts.items())
    lines = [f"{folder}: {told}."]
    lines += [f"conflict: {topic} was changed on both sides" for topic in report.conflicts]
    lines += [f"refused: {name}: {reason}" for name, reason in report.refused]
    return {"folder": str(folder), "report": report}, "\n".join([*lines, *report.warnings])


def _text_of(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        raise UsageError(f"{file}: there is no such file") from None


app = typer.Typer(name="notes", help="What was learned, as notes.", rich_markup_mode="markdown")
opening.add(app, (update, show, history, undo, write, delete, restore, list_, export_, import_))
