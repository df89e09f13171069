"""The commands: read arguments, call the public API, print."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import typer

import mnemo
from mnemo.cli import conversations, memories, notes, opening, output, stores, transfer
from mnemo.cli.demo import demo as run_demo
from mnemo.cli.demo import guide
from mnemo.cli.options import add
from mnemo.runtime.text import counted

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

app = typer.Typer(
    name="mnemo",
    help="Durable memory for agents: sessions in, recall out.",
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command, of the process by default; its exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    return outcome(lambda: _called(arguments))


def outcome(act: Callable[[], int | None]) -> int:
    """The exit code of *act*, or of what it raises, which is one line on stderr."""
    try:
        code = act() or 0
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except typer.Exit as end:
        code = end.exit_code
    except _REFUSED as error:
        output.complain(f"{error.format_message()} (see mnemo --help)")
        code = output.WRONG
    except (mnemo.MnemoError, ValueError, OSError, ImportError) as error:
        output.complain(str(error) or type(error).__name__)
        code = output.WRONG
    if code == INTERRUPTED:
        output.complain(
            "interrupted; what was written is kept: run the same command again to go on"
        )
    return code


def _called(arguments: list[str]) -> int:
    """Run the command; where no repository is named and the default is empty, on the only one."""
    try:
        return int(app(args=list(arguments), prog_name="mnemo", standalone_mode=False) or 0)
    except opening.EmptyRepository as empty:
        # ``mnemo.toml`` names one, too.
        named = empty.repo != "default" or any(one.startswith("--repo") for one in arguments)
        if empty.only is None or named:
            raise
        output.complain(f"--repo {empty.only}: the only repository in {empty.store}")
        end = arguments.index("--") if "--" in arguments else len(arguments)
        return _called([*arguments[:end], "--repo", empty.only, *arguments[end:]])


_REFUSED: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
"""The base of what the argument parser raises, wherever this typer keeps its parser."""


# ── The commands ─────────────────────────────────────────────────────────────────────


@opening.on_repo(
    "recall",
    "query --k --mode --where --session_id --thread_id --actor --since --until"
    " --min_confidence --explain --use_model",
    first=lambda store, **_: {"in_store": store},
)
async def recall(
    opened: mnemo.Repository,
    *,
    budget: int | None = None,
    model_url: str | None = None,
    model: str | None = None,
    **asked: Any,
) -> opening.Answer:
    """
    Find what a repository knows, with the steps that it comes from.

    Args:
        query: What to look for, in words.
        k: Candidates, at most.
        mode: semantic, procedural, episodic or mixed.
        session_id: Of this session.
        thread_id: Of this conversation.
        actor: Said or done by this one.
        since: Evidence from this ISO time on.
        until: Evidence up to this ISO time.
        budget: Tokens of text, at most.
        min_confidence: Nothing, unless the answer is there with this confidence, 0 to 1.
        explain: Say why each one came.
        use_model: Have the model of --model plan and refine.
    """
    where = opening.options_to(asked.pop("in_store"), opened.id)
    if asked["use_model"] and not (model_url and model):
        raise mnemo.UsageError("--use-model needs --model-url and --model")
    found = await opened.recall(**asked)
    ids, text = await output.ids_to_view(opened, found.candidates), found.as_text(budget)
    shown = output.explained(found) if asked["explain"] else text
    told = f"{shown}\n{output.ids_told(found, ids, None if asked['explain'] else text, where)}"
    data = output.recall_data(asked["query"], found, ids) | {"text": text}
    nothing = f"nothing found in repository {opened.id!r}"
    return data, told if found.candidates else "", nothing


def _sure(
    repo: str, memory_ids: list[str], message_ids: list[str], yes: bool, dry_run: bool, **asked: Any
) -> None:
    """Ask whether to erase. *Raises* ``UsageError``: nothing was named; see ``confirm``."""
    ids, before = [*memory_ids, *message_ids], asked["before"]
    chosen = {"session": asked["session_id"], "thread": asked["thread_id"]}
    named = [f"{what} {id!r}" for what, id in chosen.items() if id is not None]
    if not (ids or named or before is not None):
        raise mnemo.UsageError(
            "say what to forget: an ID, --message, --session, --thread or --before"
        )
    what = ", ".join(map(repr, ids)) or " and ".join(named) or "everything"
    until = "" if ids or before is None else f" before {before}"
    output.confirm(f"Erase {what}{until} from {repo!r}, for good?", yes=yes or dry_run)


@opening.on_repo(
    "forget",
    "memory_ids --session_id --thread_id --before --message_ids --dry_run",
    may_be_empty=True,
    first=_sure,
)
async def forget(
    opened: mnemo.Repository, *, keep_sources: bool = False, yes: bool = False, **asked: Any
) -> opening.Answer:
    """
    Erase memories with what they rest on, or steps and messages with all that came of them.

    What is erased is gone from the store's files, too. A fact that also rests on something
    else stays without the erased part.

    Args:
        memory_ids: Of `mnemo memories`.
        session_id: This session's.
        thread_id: This conversation's, messages too.
        before: What happened before this ISO time; no zone is UTC.
        message_ids: This message; repeatable.
        keep_sources: The memories alone, not what was said.
        dry_run: Tell what would go; erase nothing.
    """
    report, dry_run = await opened.forget(**asked, sources=not keep_sources), asked["dry_run"]
    told = output.erasure_told(report, dry_run=dry_run)
    return {"dry_run": dry_run} | output.as_data(report), told


def repos(*, store: str = "mnemo.db", as_json: bool = False) -> None:
    """List the repositories of a store, by id."""
    found = opening.in_service(opening.existing(store), lambda memory: memory.repos())
    heads = ("repository", "threads", "sessions", "nodes", "changed")
    rows = [(r.id, r.threads, r.sessions, sum(r.nodes.values()), r.changed_at) for r in found]
    output.answer({"store": store, "repos": found}, (heads, rows), as_json=as_json)


@opening.on_repo()
async def sessions(opened: mnemo.Repository, *, unfinished: bool = False) -> opening.Answer:
    """
    List a repository's sessions, newest act first.

    Args:
        unfinished: Only these.
    """
    records = await (opened.unfinished_sessions() if unfinished else opened.sessions())
    heads = ("session", "state", "steps", "last act", "goal")
    rows = [(r.id, r.state, r.steps, r.updated_at, r.goal) for r in records]
    fields = ("id", "goal", "state", "steps", "updated_at")
    data = [{name: getattr(record, name) for name in fields} for record in records]
    return {"sessions": data}, (heads, rows)


@opening.on_repo()
async def stats(opened: mnemo.Repository) -> opening.Answer:
    """Count what a repository holds."""
    held, shown = await opened.statistics(), list[tuple[str, Any]]()
    # Levels of this short-lived process would say nothing.
    found = {
        "revision": held.revision,
        "sessions": len(await opened.sessions()),
        "unfinished_sessions": len(await opened.unfinished_sessions()),
        "steps": held.steps,
        "threads": len(await opened.threads()),
        "messages": held.messages,
        "notes": held.notes.notes,
        "vectors": held.vectors,
        "nodes": dict(held.nodes),
        "edges": dict(held.edges),
        "embedding_space": held.embedding_space,
    }
    for name, value in found.items():
        if isinstance(value, Mapping):
            shown += [(f"{name}: {part}", count) for part, count in value.items()]
        else:
            shown.append((name.replace("_", " "), str(value)))
    return found, ((f"repository {opened.id}", ""), shown)


def doctor(*, store: str = "mnemo.db", repair: bool = False, as_json: bool = False) -> None:
    """
    Check a store: its file, full text, vectors and edges. Exit code 1: problems found.

    Args:
        repair: First put right what follows from the other rows.
    """
    try:
        checked = opening.in_service(
            opening.existing(store), lambda memory: memory.check(repair=repair)
        )
        found = {"healthy": not checked.problems} | output.as_data(checked)
    except mnemo.StoreCorrupt as error:
        found = {"healthy": False, "problems": [str(error)], "repaired": [], "counts": {}}
    told = [f"Repaired: {done}." for done in found["repaired"]] + found["problems"]
    if found["healthy"]:
        counts = ", ".join(
            counted(count, name.removesuffix("s").replace("_", " "))
            for name, count in found["counts"].items()
        )
        told.append(f"No problems: {counts}.")
    output.answer(found, "\n".join(told), as_json=as_json)
    if not found["healthy"]:
        raise typer.Exit(1)


@opening.on_repo()
async def maintain(
    opened: mnemo.Repository,
    *,
    consolidate: bool = False,
    decay: bool = False,
    validate: bool = False,
) -> opening.Answer:
    """
    Keep a repository's knowledge small and true; without options all three, raw steps stay.

    Args:
        consolidate: Merge facts that say the same.
        decay: Delete what is old, unused and unrewarded.
        validate: Hold facts and instructions against evidence.
    """
    # In this order: the penalties of the first weigh in the scores of the others.
    calls = {opened.validate: validate, opened.consolidate: consolidate, opened.decay: decay}
    every = not any(calls.values())
    reports = [await call() for call, wanted in calls.items() if wanted or every]
    return {"reports": reports}, "\n".join(map(output.maintenance_told, reports))


def demo(*, store: str | None = None, as_json: bool = False) -> None:
    """
    Two sessions, one killed in the middle and resumed; then recall with its sources.

    Args:
        store: Default: a temporary file, removed at the end.
    """
    say = (lambda text: None) if as_json else output.print_line
    shown = anyio.run(run_demo, store, say)
    if as_json:
        output.print_json(shown)


def mcp(
    *,
    repo: str = "default",
    store: str = "mnemo.db",
    thread: str = "default",
    embedder: str | None = None,
    write: bool = False,
    as_json: bool = False,
) -> None:
    """
    Serve a repository to an MCP client over standard input and output, until that ends.

    Args:
        thread: The conversation that is written to.
        write: Let the client correct and erase, too.
        as_json: As it is: what the protocol writes is JSON.
    """
    from mnemo.mcp import serve_stdio

    serve = partial(serve_stdio, thread_id=thread, write=write)
    opening.in_repo(store, repo, serve, embedder=embedder, may_be_new=True)


def backup(file: Path, *, store: str = "mnemo.db", as_json: bool = False) -> None:
    """
    Copy a store that may be in use, consistently, to a new file.

    Args:
        file: A new file.
    """
    opening.in_service(opening.existing(store), lambda memory: memory.backup(file))
    told = f"{store} was copied to {file}."
    output.answer({"store": store, "file": str(file)}, told, as_json=as_json)


def reembed(
    *,
    repo: str = "default",
    store: str = "mnemo.db",
    embedder: str = "minilm",
    as_json: bool = False,
) -> None:
    """
    Move a repository to another embedder: all of its texts are embedded anew.

    Stopped anywhere, it goes on where it was when it is run again.

    Args:
        embedder: Which one: minilm, multilingual or static.
    """

    async def moved(memory: mnemo.Mnemo) -> mnemo.ReembeddingReport:
        await opening.check_there(memory, store, repo)
        return await memory.reembed(
            repo, embedder=embedder, on_progress=lambda now: show(now.done, now.total)
        )

    with output.texts_progress() as show:
        report = opening.in_service(opening.existing(store), moved)
    output.answer(
        {"repo": repo} | output.as_data(report), output.move_told(report, repo), as_json=as_json
    )


@opening.on_repo()
async def jobs(
    opened: mnemo.Repository,
    action: Literal["list", "retry", "cancel"] = "list",
    thread_ids: list[str] | None = None,
    *,
    dead: bool = False,
) -> opening.Answer:
    """
    Count the background work that is owed and tell why it has failed, try again, or cancel.

    Args:
        action: `retry`: try again now; `cancel`: extract nothing of what is there.
        thread_ids: Threads that it is of.
        dead: With `retry`: all given up.
    """
    if action != "list":
        return await _change_jobs(opened, action, thread_ids, dead)
    if thread_ids or dead:
        raise mnemo.UsageError("name threads, or --dead, behind `retry` or `cancel`")
    found = (await opened.statistics()).jobs
    failed = [
        {"kind": job.kind, "subject": job.subject, "error": job.error, "state": job.state}
        for job in await opened.inspection.jobs()
        if job.error
    ]
    levels = {"waiting": found.waiting, "running": found.running, "dead": found.dead}
    lines = [", ".join(f"{count} {level}" for level, count in levels.items())]
    lines += [f"{one['state']}: {one['kind']} {one['subject']}: {one['error']}" for one in failed]
    return levels | {"errors": failed}, "\n".join(lines)


async def _change_jobs(
    opened: mnemo.Repository, action: str, threads: list[str] | None, dead: bool
) -> opening.Answer:
    if action == "cancel" and (dead or not threads):
        raise mnemo.UsageError("name the threads whose extraction is to be cancelled")
    if dead == bool(threads):
        raise mnemo.UsageError("name the threads to try again, or all that were given up: --dead")
    if action == "cancel":
        changed = await opened.cancel_jobs(threads or [])
    else:
        changed = await opened.retry_jobs(threads)
        await _are_tried(opened, changed)
    done = "tried again" if action == "retry" else "cancelled"
    told = f"{len(changed)} {done}" + (f": {', '.join(changed)}" if changed else "")
    return {"action": action, "threads": list(changed)}, told


async def _are_tried(opened: mnemo.Repository, threads: Collection[str]) -> None:
    """
    Wait until *threads* were tried, whatever else waits. *Raises* ``ExtractionFailed``: in vain.
    """
    while True:
        owed = await opened.inspection.jobs(limit=1_000)
        left = [job for job in owed if job.kind == "extract" and job.subject in threads]
        if all(job.error for job in left):
            break
        with suppress(TimeoutError):
            await opened.settle(0.25)
    if left:
        raise mnemo.ExtractionFailed("; ".join(str(job.error) for job in left[:10]))


COMMANDS: dict[str, tuple[Callable[..., Any], ...]] = {
    "Everyday": (recall, forget, guide, *memories.COMMANDS, *transfer.COMMANDS),
    "Look inside": (repos, sessions, stats, *conversations.COMMANDS, jobs),
    "Operation": (doctor, maintain, *stores.COMMANDS, demo, mcp, backup, reembed),
}
"""Group in the help → its commands."""
for _panel, _commands in COMMANDS.items():
    add(app, _commands, _panel)
app.add_typer(notes.app, rich_help_panel="Look inside")


def _version(wanted: bool) -> None:
    if wanted:
        output.print_line(f"mnemo {mnemo.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Show the version and end."
        ),
    ] = False,
) -> None:
    context.default_map = _defaults(context.command, opening.file_settings()[0])


def _defaults(command: Any, options: Mapping[str, str]) -> dict[str, Any]:
    """Defaults of the options of every command below *command*."""
    inner = getattr(command, "commands", None)
    if inner is None:
        return dict(options)
    return {name: _defaults(one, options) for name, one in inner.items()}
