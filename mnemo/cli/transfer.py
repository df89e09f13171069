"""The commands that move whole repositories and histories: ``import`` and ``export``."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from mnemo import Config, Conversation, InvalidArchive, Mnemo, Repository, StoredMessage, UsageError
from mnemo.cli import opening, output
from mnemo.cli.importing.chats import stream_messages
from mnemo.cli.importing.dialogues import stream_talks
from mnemo.cli.importing.json_stream import ImportFileError, begun
from mnemo.cli.importing.readers import items_of, size_of, source_of
from mnemo.cli.importing.records import KeyedRecord, MemoryRecord, Record
from mnemo.cli.importing.writing import Arrival, Preview, Tally, import_items, import_talks, preview
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
        counts = opening.in_known_repo(store, repo, lambda opened: export_text(opened, file, to))
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
    into = partial(opening.in_repo, store, repo, embedder=embedder)
    where = {"file": str(path), "repo": repo, "store": store}
    if found is not None and thread is None:
        run = (dry_run, strict, wait)
        _import_export(path, found, into, where, *run, as_json=as_json)
    elif dry_run or strict or wait:
        raise UsageError("--dry-run, --strict and --wait are for exports of other services")
    elif thread is not None:
        _import_chat(path, thread, into, where, as_json=as_json)
    else:
        _import_talks(path, into, where, as_json=as_json)


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


def _import_talks(file: Path, into: Any, where: dict[str, str], *, as_json: bool) -> None:
    with _progress("steps", file) as bar:
        talks = begun(stream_talks(file, bar.read))

        async def imported(opened: Repository) -> Tally:
            tally = await import_talks(opened, talks, bar.stored)
            bar.end()
            await _embedded(opened)
            return tally

        tally: Tally = into(imported)
    told = (
        f"Repository {where['repo']}: {plural(tally.new_steps, 'step')} added, "
        f"{plural(tally.known_steps, 'was there', 'were there')}; "
        f"{plural(tally.new_sessions, 'new session')}, {tally.resumed_sessions} continued, "
        f"{tally.complete_sessions} complete already."
    )
    problem = tally.problem and tally.problem.having_kept(tally.new_steps + tally.known_steps)
    _conclude(where | output.as_data(replace(tally, problem=None)), told, problem, as_json=as_json)


def _import_chat(
    file: Path, thread: str, into: Any, where: dict[str, str], *, as_json: bool
) -> None:
    """Append the messages of *file* to a conversation up to a mistake in it; tell how many."""
    records = (Record(thread, one, f"message {one.id}") for one in begun(stream_messages(file)))

    async def appended(opened: Repository) -> Arrival:
        done = await import_items(opened, records, strict=True, remembers=False)
        await opened.conversation(thread).settle()
        return done

    done: Arrival = into(appended)
    counts = {"thread": thread, "new_messages": done.added, "known_messages": done.known}
    told = f"{plural(done.added, 'message')} added, {plural(done.known, *KNOWN)}"
    problem = done.problem and done.problem.having_kept(done.added + done.known, "messages")
    _conclude(where | counts, f"Thread {thread}: {told}.", problem, as_json=as_json)


def _conclude(
    data: dict[str, Any], told: str, problem: ImportFileError | None, *, as_json: bool
) -> None:
    """Print what was imported. *Raises* *problem*, where the file ended before its time."""
    data |= {"problem": str(problem) if problem else None}
    output.answer(data, told, as_json=as_json)
    if problem:
        raise problem


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
    if file == STANDARD:
        raw = io.TextIOWrapper(
            sys.stdin.buffer, encoding="utf-8-sig", errors="surrogateescape", newline="\n"
        )
        try:
            yield raw
        finally:
            raw.detach()
        return
    with Path(file).open(encoding="utf-8-sig", errors="surrogateescape", newline="\n") as lines:
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


def _import_export(
    file: Path,
    source: str,
    into: Any,
    where: dict[str, str],
    dry_run: bool,
    strict: bool,
    wait: bool,
    *,
    as_json: bool,
) -> None:
    if dry_run:
        arrival: Arrival = preview(items_of(file, source), strict=strict)
    else:
        with _progress(_unit(source), file) as bar:
            items = items_of(file, source, bar.read)

            async def stored(opened: Repository) -> Arrival:
                return await import_items(opened, items, strict=strict, advance=bar.stored)

            # An index of all that is stored would grow with the file.
            unindexed = Config(jobs={"background": False})
            arrival = into(stored, config=unindexed)
        if wait:
            into(_embedded)
    if as_json:
        head = {"file": where["file"], "from": source} | where | {"dry_run": dry_run}
        output.print_json(head | output.as_data(replace(arrival, problem=None)))
    else:
        _tell(arrival, source, where["repo"])
    for broken in arrival.broken:
        output.complain(f"{file}: {broken.place}: {broken.what}")
    if arrival.broken_records > len(arrival.broken):
        output.complain(f"{file}: {arrival.broken_records} records are broken; these are the first")
    if arrival.problem is not None:
        kept = 0 if dry_run else arrival.added + arrival.known
        raise arrival.problem.having_kept(kept, _unit(source))
    if arrival.broken_records:
        raise typer.Exit(BROKEN)


def _tell(arrival: Arrival, source: str, repo: str) -> None:
    what = plural(arrival.added, _unit(source).removesuffix("s"))
    if isinstance(arrival, Preview):
        output.print_table(("thread", "at", "who", "text"), [_row(one) for one in arrival.first])
        output.print_line(f"Nothing was stored. An export of {source}: {what}.")
    else:
        output.print_line(
            f"Repository {repo}, from {source}: {what} added, {plural(arrival.known, *KNOWN)}."
        )
    for reason, count in sorted(arrival.skipped.items()):
        output.print_line(f"skipped, {count}: {reason}")


def _unit(source: str) -> str:
    memories = dict.fromkeys(("chroma", "mem0", "zep-facts"), "memories")
    return {**memories, "langgraph-store": "items", "letta": "records"}.get(source, "messages")


def _row(record: Record | KeyedRecord | MemoryRecord) -> tuple[str, datetime | None, str, str]:
    if isinstance(record, KeyedRecord):
        text = next(iter(record.texts.values()))
        return "/".join(record.namespace), None, record.key, text[:_SHOWN]
    if isinstance(record, MemoryRecord):
        who = str(record.metadata.get("user_id", ""))
        return "memories", record.at, who, record.text[:_SHOWN]
    who, text = output.said(record.message)
    return record.thread_id, record.message.at, who, text[:_SHOWN]


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
