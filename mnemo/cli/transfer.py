"""The commands that move whole repositories and histories: ``import`` and ``export``."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from mnemo import Config, Conversation, InvalidArchive, Mnemo, Repository, StoredMessage, UsageError
from mnemo.cli import opening, output
from mnemo.importing.json_stream import begun
from mnemo.importing.readers import items_of, size_of, source_of
from mnemo.importing.records import KeyedRecord, MemoryRecord, Record, Stored
from mnemo.importing.writing import Arrival, Preview, import_items, preview
from mnemo.runtime.text import counted as plural
from mnemo.values.archive import DEVELOPMENT_FORMAT, FORMAT
from mnemo.wire import to_openai

_HEAD_BYTES = 65_536

STANDARD = "-"
"""In place of a file's name: standard output, or standard input."""

BROKEN = 1
"""Exit code where some records were broken, and the others are stored."""
KNOWN = ("was there or is erased", "were there or are erased")
"""What became of records that an import did not add: of one, and of several."""
_LOOK_S = 0.25
"""Seconds between two looks at what is not embedded yet."""
_SHOWN = 60
"""Characters of a text in a preview."""


def export_(
    file: str,
    *,
    to: str = "archive",
    repo: str = "default",
    store: str = "mnemo.db",
    force: bool = False,
    as_json: bool = False,
) -> None:
    """
    Write a repository to a file.

    An archive is everything, to be imported elsewhere. The others are what was said, for other
    programs and for people: messages as JSON Lines, chats as OpenAI's API takes them, Markdown.

    Args:
        file: A new file; `-`: standard output.
        to: archive (everything), jsonl, openai or markdown.
        force: Overwrite a file that is there.
    """
    if as_json and file == STANDARD:
        raise UsageError("with - the export itself is on standard output: leave --json away")
    if file != STANDARD and not force and Path(file).exists():
        raise UsageError(f"{file} is there already: --force overwrites it")
    if to not in ("archive", *FORMATS):
        raise UsageError(f"--to takes archive, {', '.join(FORMATS)}, not {to!r}")

    async def archived(memory: Mnemo) -> str:
        await opening.check_there(memory, store, repo)
        head = ""
        async with memory.export_repo(repo) as lines:
            with departing(file) as out:
                async for line in lines:
                    head = head or line
                    out.write(line)
        return head

    shown: dict[str, Any] = {"repo": repo, "file": file}
    if to == "archive":
        shown |= json.loads(opening.in_service(opening.existing(store), archived))
        told = counted(shown)
    else:
        counts = opening.in_repo(store, repo, lambda opened: export_text(opened, file, to))
        shown |= {"to": to} | counts
        told = f"{plural(counts['messages'], 'message')} of {plural(counts['threads'], 'thread')}"
    if file != STANDARD:
        output.answer(shown, f"{file}: {told}.", as_json=as_json)


def import_(
    file: str,
    *,
    from_: str = "auto",
    repo: str = "default",
    store: str = "mnemo.db",
    thread: str | None = None,
    dry_run: bool = False,
    strict: bool = False,
    wait: bool = False,
    embedder: str | None = None,
    as_json: bool = False,
) -> None:
    """
    Put a file into a repository: an archive, another service's export, dialogues or messages.

    What it holds is recognised. An archive fills an empty repository, all or nothing; with
    others, running it again adds nothing that is there, and goes on where it was stopped.

    Args:
        file: What to read; `-`: an archive on standard input.
        from_: auto, archive, chatgpt, claude, claude-code, openai, mem0, langgraph-store, zep,
            zep-facts, letta, chroma or markdown.
        thread: As messages into this conversation.
        dry_run: Of a service's export: show what it holds.
        strict: End at the first broken record of an export.
        wait: Of an export: until its facts are extracted.
    """
    path = Path(file)
    if file == STANDARD or from_ == "archive" or is_archive(path):
        if from_ not in ("auto", "archive"):
            raise UsageError(f"{file}: this is an archive, no export of {from_}")
        _import_archive(file, repo, store, thread, as_json=as_json)
        return
    found = source_of(path, from_)
    if thread is not None and found not in (None, "openai"):
        raise UsageError(f"an export of {found} has conversations of its own: no --thread")
    source = found if thread is None else None
    if source is None and (dry_run or strict or wait):
        raise UsageError("--dry-run, --strict and --wait are for exports of other services")
    unit = _unit(source, thread)
    with _progress(unit, path) as bar:
        items = begun(items_of(path, source, bar.read, thread=thread))

        async def stored(opened: Repository) -> Arrival:
            kinds = {"strict": strict or thread is not None, "remembers": thread is None}
            done = await import_items(opened, items, **kinds, advance=bar.stored)
            bar.end()
            await (_embedded(opened) if thread is None else opened.conversation(thread).settle())
            return done

        into = partial(opening.in_repo, store, repo, embedder=embedder, may_be_new=True)
        # An index of all that an export holds would grow with it.
        config = Config(jobs={"background": False}) if source else None
        arrival = preview(items, strict=strict) if dry_run else into(stored, config=config)
    if wait and not dry_run:
        into(_embedded)
    problem = arrival.problem
    if problem:
        problem = problem.having_kept(0 if dry_run else arrival.added + arrival.known, unit)
    where = {"file": str(path), "repo": repo, "store": store}
    data, told = _told(arrival, source, thread, repo)
    if isinstance(arrival, Preview) and not as_json:
        output.print_table(("thread", "at", "who", "text"), map(_row, arrival.first))
    output.answer(where | data | {"problem": problem and str(problem)}, told, as_json=as_json)
    for broken in arrival.broken:
        output.complain(f"{file}: {broken.place}: {broken.what}")
    if arrival.broken_records > len(arrival.broken):
        output.complain(f"{file}: {arrival.broken_records} records are broken; these are the first")
    if problem:
        raise problem
    if arrival.broken_records:
        raise typer.Exit(BROKEN)


def _import_archive(file: str, repo: str, store: str, thread: str | None, *, as_json: bool) -> None:
    if thread is not None:
        raise UsageError("an archive has conversations of its own: leave --thread away")
    try:
        with arriving(file) as lines:
            head = opening.in_service(store, lambda memory: memory.import_repo(repo, lines))
    except InvalidArchive as error:
        name = "standard input" if file == STANDARD else file
        raise UsageError(f"{name}: {error}") from error
    found = {"revision": head.revision, "counts": dict(head.counts)}
    told = f"Repository {repo}: {counted(found)}."
    output.answer({"repo": repo, "file": file} | found, told, as_json=as_json)


# ── Archives ────────────────────────────────────────────────────────────────────────────


@contextmanager
def departing(file: str) -> Iterator[TextIO]:
    """Write to *file*; until it is whole an earlier one stays."""
    if file == STANDARD:
        yield sys.stdout
        sys.stdout.flush()
        return
    path = Path(file)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        # A line ends alike wherever it was written.
        with partial.open("w", encoding="utf-8", newline="\n") as out:
            yield out
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def arriving(file: str) -> Iterator[TextIO]:
    """The lines of *file*; a byte that is no UTF-8 is told with its line when it is read."""
    how: dict[str, Any] = {"encoding": "utf-8-sig", "errors": "surrogateescape", "newline": "\n"}
    if file == STANDARD:
        source: Any = sys.stdin
        source.reconfigure(**how)
        yield source
        return
    with Path(file).open(**how) as lines:
        yield lines


def counted(head: Mapping[str, Any]) -> str:
    """What an archive holds, for a person."""
    counts = ((kind.replace("_", " "), n) for kind, n in head["counts"].items() if n)
    shown = ", ".join(plural(n, kind) for kind, n in counts)
    return f"{shown or 'nothing'}, revision {head['revision']}"


def is_archive(file: Path) -> bool:
    """Whether *file* begins like what ``export`` writes; what cannot be read does not."""
    try:
        with file.open("rb") as found:
            head = json.loads(found.readline(_HEAD_BYTES))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(head, dict) and head.get("format") in (FORMAT, DEVELOPMENT_FORMAT)


# ── Exports of other services ────────────────────────────────────────────────────────────


def _unit(source: str | None, thread: str | None) -> str:
    """What the records of a file are, in words."""
    if source is None:
        return "steps" if thread is None else "messages"
    memories = dict.fromkeys(("chroma", "mem0", "zep-facts"), "memories")
    return {**memories, "langgraph-store": "items", "letta": "records"}.get(source, "messages")


def _told(
    arrival: Arrival, source: str | None, thread: str | None, repo: str
) -> tuple[dict[str, Any], str]:
    """What an import did, as data and in words."""
    units = _unit(source, thread)
    new = plural(arrival.added, "memory" if units == "memories" else units[:-1], units)
    known = plural(arrival.known, *KNOWN)
    if thread is not None:
        counts = {"new_messages": arrival.added, "known_messages": arrival.known}
        return {"thread": thread} | counts, f"Thread {thread}: {new} added, {known}."
    if source is None:
        kinds = ("new", "resumed", "complete")
        sessions = {f"{kind}_sessions": arrival.sessions[kind] for kind in kinds}
        first, resumed, complete = sessions.values()
        told = (
            f"Repository {repo}: {new} added, {plural(arrival.known, 'was there', 'were there')}; "
            f"{plural(first, 'new session')}, {resumed} continued, {complete} complete already."
        )
        return sessions | {"new_steps": arrival.added, "known_steps": arrival.known}, told
    kept = ("added", "known", "skipped", "broken_records", "broken")
    data = {"from": source, "dry_run": False} | {name: getattr(arrival, name) for name in kept}
    told = f"Repository {repo}, from {source}: {new} added, {known}."
    if isinstance(arrival, Preview):
        data |= {"dry_run": True, "first": arrival.first}
        told = f"Nothing was stored. An export of {source}: {new}."
    lines = [told, *(f"skipped, {n}: {why}" for why, n in sorted(arrival.skipped.items()))]
    return data, "\n".join(lines)


def _row(record: Stored) -> Sequence[Any]:
    match record:
        case KeyedRecord():
            text = next(iter(record.texts.values()))
            row: Sequence[Any] = ("/".join(record.namespace), None, record.key, text)
        case MemoryRecord():
            row = ("memories", record.at, record.metadata.get("user_id"), record.text)
        case Record():
            row = (record.thread_id, record.message.at, *output.said(record.message))
    return *row[:3], row[3][:_SHOWN]


async def _embedded(repo: Repository) -> None:
    """Wait until all is extracted and embedded, or the embedder fails; show how far it is."""
    most = 0
    with output.texts_progress() as show:
        while repo.config.jobs.background:
            try:
                await repo.settle(_LOOK_S)
                break
            except TimeoutError:
                index = (await repo.statistics()).index
                most = max(most, index.waiting)
                show(most - index.waiting, most)
            if index.failing:
                output.complain(f"{index.waiting} texts wait for their vectors: {index.failing}")
                break


class _Bar:
    """How much of a file is read, and how many records of it are stored."""

    def __init__(self, progress: Progress, what: str, size: int) -> None:
        self._progress, self._what, self._count = progress, what, 0
        self._task = progress.add_task(f"0 {what}", total=size)

    def read(self, count: int) -> None:
        """So many bytes of the file."""
        self._progress.update(self._task, completed=count)

    def stored(self, count: int = 1) -> None:
        """So many records more."""
        self._count += count
        self._progress.update(self._task, description=f"{self._count} {self._what}")

    def end(self) -> None:
        """Leave the terminal to what is shown next."""
        self._progress.stop()


@contextmanager
def _progress(what: str, file: Path) -> Iterator[_Bar]:
    """A bar on stderr, if that is a terminal."""
    columns = (BarColumn(), DownloadColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with output.bar_of(*columns) as progress:
        yield _Bar(progress, what, size_of(file) if file.exists() else 0)


# ── Export as text ──────────────────────────────────────────────────────────────────────


AT_ONCE = 500
"""Messages, memories and threads that are in memory at once; a chat of ``openai`` is whole."""

FORMATS = ("jsonl", "openai", "markdown")
Write = Callable[[str], Any]


async def export_text(repo: Repository, file: str, to: str) -> dict[str, int]:
    """
    Write *repo* to *file* in the format *to*, one of ``FORMATS``; give the counts.

    The file appears when it is whole, and until then an earlier one stays.
    """
    counts = {"threads": 0, "messages": 0}
    with departing(file) as out:
        if to == "markdown":
            await _write_memories(repo, out.write)
        for record in await repo.threads():
            conversation = repo.conversation(record.thread_id)
            counts["messages"] += await _write_thread(conversation, out.write, to)
            counts["threads"] += 1
    return counts


async def _write_thread(conversation: Conversation, write: Write, to: str) -> int:
    end, count, chat = await conversation.next_seq(), 0, list[StoredMessage]()
    if to == "markdown":
        write(f"## Thread {conversation.thread_id}\n\n")
    for first in range(0, end, AT_ONCE):
        last = min(first + AT_ONCE, end) - 1
        page = await conversation.history(from_seq=first, to_seq=last)
        count += len(page)
        if to == "openai":
            chat += page
        elif to == "jsonl":
            write("".join(json.dumps(output.as_data(message)) + "\n" for message in page))
        else:
            write("".join(map(_as_markdown, page)))
    if to == "openai":
        line = {"id": conversation.thread_id, "messages": to_openai(chat)}
        write(json.dumps(line) + "\n")
    return count


def _as_markdown(message: StoredMessage) -> str:
    who, said = output.said(message, "(calls {})")
    return f"**{who}**, {message.at:%Y-%m-%d %H:%M}:\n\n{said}\n\n"


async def _write_memories(repo: Repository, write: Write) -> None:
    write(f"# Repository {repo.id}\n\n## Memories\n\n")
    after: str | None = None
    while True:
        page = await repo.memories(limit=AT_ONCE, after=after)
        for memory in page:
            write("- " + memory.text.replace("\n", "\n  ") + "\n")
        after = page.next
        if after is None:
            break
    write("\n## Notes\n\n")
    for info in await repo.notes.list():
        note = await repo.notes.read(info.topic)
        write(f"### {note.topic}\n\n{note.description}\n\n{note.body}\n\n")


COMMANDS = (export_, import_)
