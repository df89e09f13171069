"""The commands about notes: ``mnemo notes …``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from mnemo import FolderReport, NoteChange, NoteUpdate, Progress, Repository, UsageError
from mnemo.cli.opening import Answer, chat_model_of, in_repo, on_repo
from mnemo.cli.options import add
from mnemo.cli.output import WRONG, answer, as_data, bar_of, complain
from mnemo.importing.chats import read_chat
from mnemo.runtime.text import visible


def update(
    file: Path,
    *,
    repo: str = "default",
    store: str = "mnemo.db",
    iterations: int | None = None,
    outcome: str = "completed",
    task: str | None = None,
    thread: str | None = None,
    model_url: str | None = None,
    model: str | None = None,
    as_json: bool = False,
) -> None:
    """
    Look back over a task's conversation once, and keep what will matter.

    Without a model only explicit requests are kept ("remember that …").

    Args:
        file: The task's conversation, as import reads it.
        iterations: Passes of the task's loop; default: its assistant messages.
        outcome: completed, failed, interrupted or awaiting_user.
        task: Its id; looked back over once.
        thread: The conversation that it is of.
    """
    messages = read_chat(file)
    chat_model = chat_model_of(model_url, model)
    passes = sum(m.role == "assistant" for m in messages) if iterations is None else iterations
    asked = {"iterations": passes, "outcome": outcome, "task_id": task, "thread_id": thread}

    async def updated(opened: Repository) -> NoteUpdate:
        return await opened.notes.update_after_task(messages, on_progress=told, **asked)  # type: ignore[arg-type]

    with _progress() as told:
        done = in_repo(store, repo, updated, chat_model=chat_model, may_be_new=True)
    where = {"file": str(file), "repo": repo, "store": store, "model": model}
    answer(where | as_data(done), _update_told(done), as_json=as_json)
    if chat_model is None and not as_json:
        complain("no model was named (--model-url, --model): only explicit requests are kept")
    if done.error is not None:
        complain(f"the update failed: {done.error or type(done.error).__name__}")
        raise typer.Exit(WRONG)


@on_repo("notes.list", "--query --limit")
async def list_(opened: Repository, **asked: Any) -> Answer:
    """
    List the notes, latest use first.

    Args:
        query: Best for these words first.
        limit: So many, at most.
    """
    found = await opened.notes.list(**asked)
    heads = ("topic", "version", "updated", "description")
    rows = [(n.topic, n.version, n.updated_at, n.description) for n in found]
    return {"notes": found}, (heads, rows)


@on_repo()
async def show(opened: Repository, topic: str) -> Answer:
    """Show a note."""
    note = await opened.notes.read(topic)
    head = f"{note.topic} (version {note.version}, {note.updated_at:%Y-%m-%d}): "
    return {"note": note}, f"{head}{note.description}\n\n{note.body}"


@on_repo()
async def history(opened: Repository, topic: str) -> Answer:
    """Show every kept version of a note, oldest first: who made it, on what evidence."""
    versions = await opened.notes.history(topic)
    heads = ("version", "action", "at", "by", "trust", "update", "text")
    rows = [(v.version, v.action, v.at, v.by, v.trust, v.update_id, v.body) for v in versions]
    return {"topic": topic, "versions": versions}, (heads, rows)


@on_repo()
async def undo(opened: Repository, update_id: str) -> Answer:
    """
    Take back all that an update did.

    Args:
        update_id: As update and history name it.
    """
    changes = await opened.notes.undo(update_id)
    return {"undone": update_id, "changes": changes}, "\n".join(map(_change, changes))


@on_repo(may_be_new=True, first=lambda file, **_: {"file": _text_of(file)})
async def write(opened: Repository, topic: str, file: str, *, description: str) -> Answer:
    """
    Create or replace a note; the former text stays in its history.

    Args:
        file: Its text, Markdown; - is standard input.
        description: What it is about, in one line.
    """
    note = await opened.notes.write(topic, file, description)
    return {"note": note}, f"{note.topic}: version {note.version}."


@on_repo()
async def delete(opened: Repository, topic: str) -> Answer:
    """Retire a note; `restore` brings it back."""
    await opened.notes.delete(topic)
    return {"deleted": topic}, f"{topic}: deleted."


@on_repo("notes.restore", "topic version")
async def restore(opened: Repository, **asked: Any) -> Answer:
    """
    Write an old version of a note as a new one.

    Args:
        version: As history numbers them.
    """
    note = await opened.notes.restore(**asked)
    return {"note": note}, f"{note.topic}: version {note.version}."


@on_repo()
async def export_(opened: Repository, folder: Path) -> Answer:
    """
    Write one Markdown file per note into a folder; what was edited there is not overwritten.

    Args:
        folder: Made if it is not there.
    """
    return _report(await opened.notes.export_folder(folder), folder)


@on_repo(may_be_new=True, first=lambda folder, **_: _check_folder(folder))
async def import_(opened: Repository, folder: Path) -> Answer:
    """
    Merge a folder of notes; where both sides changed neither is touched.

    Args:
        folder: Of Markdown files, as export writes them.
    """
    return _report(await opened.notes.import_folder(folder), folder)


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


def _text_of(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except FileNotFoundError:
        raise UsageError(f"{file}: there is no such file") from None


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise UsageError(f"{folder}: there is no such folder")


app = typer.Typer(name="notes", help="What was learned, as notes.", rich_markup_mode="markdown")
add(app, (update, show, history, undo, write, delete, restore, list_, export_, import_))
