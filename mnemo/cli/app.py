"""The commands: read arguments, call the public API, print."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import anyio
import typer

import mnemo
from mnemo.cli import conversations, memories, notes, opening, output, stores, transfer
from mnemo.cli.demo import demo as run_demo
from mnemo.cli.demo import guide
from mnemo.runtime.text import counted

T = TypeVar("T")

WRONG = 2
"""Exit code for whatever a user can put right."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

app = typer.Typer(
    name="mnemo",
    help="Durable memory for agents: sessions in, recall out.",
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command, of the process by default; what a user can cause is one line on stderr."""
    arguments = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        code = _called(arguments)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except typer.Exit as end:
        code = end.exit_code
    except _REFUSED as error:
        output.complain(f"{error.format_message()} (see mnemo --help)")
        code = WRONG
    except (mnemo.MnemoError, ValueError, OSError, ImportError) as error:
        output.complain(str(error) or type(error).__name__)
        code = WRONG
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


def recall(
    query: Annotated[str, typer.Argument(help="What to look for, in words.")],
    repo: opening.Repo = "default",
    store: opening.Store = "mnemo.db",
    k: Annotated[int, typer.Option("-k", help="Candidates, at most.")] = 10,
    mode: Annotated[
        str | None, typer.Option(help="semantic, procedural, episodic or mixed.")
    ] = None,
    where: opening.Where = None,
    session: Annotated[str | None, typer.Option("--session", help="Of this session.")] = None,
    thread: Annotated[str | None, typer.Option("--thread", help="Of this conversation.")] = None,
    actor: Annotated[str | None, typer.Option(help="Said or done by this one.")] = None,
    since: Annotated[str | None, typer.Option(help="Evidence from this ISO time on.")] = None,
    until: Annotated[str | None, typer.Option(help="Evidence up to this ISO time.")] = None,
    budget: Annotated[int | None, typer.Option(help="Tokens of text, at most.")] = None,
    min_confidence: Annotated[
        float,
        typer.Option(help="Nothing, unless the answer is there with this confidence, 0 to 1."),
    ] = 0.0,
    explain: Annotated[bool, typer.Option("--explain", help="Say why each one came.")] = False,
    use_model: Annotated[
        bool, typer.Option("--use-model", help="Have the model of --model plan and refine.")
    ] = False,
    model_url: opening.ModelUrl = None,
    model: opening.Model = None,
    as_json: opening.AsJson = False,
) -> None:
    """Find what a repository knows, with the steps that it comes from."""
    kept = opening.conditions(where)
    chat_model = opening.chat_model_of(model_url, model) if use_model else None
    if use_model and chat_model is None:
        raise mnemo.UsageError("--use-model needs --model-url and --model")

    async def recalled(opened: mnemo.Repository) -> tuple[mnemo.RecallResult, list[str | None]]:
        found = await opened.recall(
            query,
            k=k,
            mode=mode,
            where=kept,
            session_id=session,
            thread_id=thread,
            actor=actor,
            since=since,
            until=until,
            min_confidence=min_confidence,
            explain=explain,
            use_model=use_model,
        )
        return found, await output.ids_to_view(opened, found.candidates)

    found, ids = opening.in_known_repo(store, repo, recalled, chat_model=chat_model)
    text = found.as_text(budget)
    shown = output.explained(found) if explain else text
    told = f"{shown}\n{output.ids_told(found, ids, None if explain else text)}"
    output.answer(
        output.recall_data(query, found, ids) | {"text": text},
        told if found.candidates else "",
        f"nothing found in repository {repo!r}",
        as_json=as_json,
    )


def forget(
    memory_ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Of `mnemo memories`.")
    ] = None,
    repo: opening.Repo = "default",
    store: opening.Store = "mnemo.db",
    session: Annotated[str | None, typer.Option("--session", help="This session's.")] = None,
    thread: Annotated[
        str | None, typer.Option("--thread", help="This conversation's, messages too.")
    ] = None,
    before: Annotated[
        str | None, typer.Option(help="What happened before this ISO time; no zone is UTC.")
    ] = None,
    message: Annotated[
        list[str] | None, typer.Option("--message", help="This message; repeatable.")
    ] = None,
    keep_sources: Annotated[
        bool, typer.Option("--keep-sources", help="The memories alone, not what was said.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell what would go; erase nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: opening.AsJson = False,
) -> None:
    """
    Erase memories with what they rest on, or steps and messages with all that came of them.

    What is erased is gone from the store's files, too. A fact that also rests on something
    else stays without the erased part.
    """
    ids = [*(memory_ids or ()), *(message or ())]
    if not ids and session is None and thread is None and before is None:
        raise mnemo.UsageError(
            "say what to forget: an ID, --message, --session, --thread or --before"
        )
    what = ", ".join(map(repr, ids)) if ids else output.selected(session, thread, before)
    output.confirm(f"Erase {what} from {repo!r}, for good?", yes=yes or dry_run)
    report = opening.in_known_repo(
        store,
        repo,
        lambda opened: opened.forget(
            memory_ids=memory_ids or (),
            message_ids=message or (),
            session_id=session,
            thread_id=thread,
            before=before,
            sources=not keep_sources,
            dry_run=dry_run,
        ),
        may_be_empty=True,
    )
    told = output.erasure_told(report, dry_run=dry_run)
    output.answer(
        {"repo": repo, "dry_run": dry_run} | output.as_data(report), told, as_json=as_json
    )


def repos(store: opening.Store = "mnemo.db", as_json: opening.AsJson = False) -> None:
    """List the repositories of a store, by id."""
    found = opening.in_service(opening.existing(store), lambda memory: memory.repos())
    heads = ("repository", "threads", "sessions", "nodes", "changed")
    rows = [(r.id, r.threads, r.sessions, sum(r.nodes.values()), r.changed_at) for r in found]
    output.answer({"store": store, "repos": found}, (heads, rows), as_json=as_json)


@opening.on_repo
async def sessions(
    repo: mnemo.Repository,
    unfinished: Annotated[bool, typer.Option("--unfinished", help="Only these.")] = False,
) -> opening.Answer:
    """List a repository's sessions, newest act first."""
    records = await (repo.unfinished_sessions() if unfinished else repo.sessions())
    heads = ("session", "state", "steps", "last act", "goal")
    rows = [(r.id, r.state, r.steps, r.updated_at, r.goal) for r in records]
    fields = ("id", "goal", "state", "steps", "updated_at")
    data = [{name: getattr(record, name) for name in fields} for record in records]
    return {"sessions": data}, (heads, rows)


@opening.on_repo
async def stats(repo: mnemo.Repository) -> opening.Answer:
    """Count what a repository holds."""
    held, shown = await repo.statistics(), list[tuple[str, Any]]()
    # Levels of this short-lived process would say nothing.
    found = {
        "revision": held.revision,
        "sessions": len(await repo.sessions()),
        "unfinished_sessions": len(await repo.unfinished_sessions()),
        "steps": held.steps,
        "threads": len(await repo.threads()),
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
    return found, ((f"repository {repo.id}", ""), shown)


def doctor(
    store: opening.Store = "mnemo.db",
    repair: Annotated[
        bool, typer.Option("--repair", help="First put right what follows from the other rows.")
    ] = False,
    as_json: opening.AsJson = False,
) -> None:
    """Check a store: its file, full text, vectors and edges. Exit code 1: problems found."""
    try:
        checked = opening.in_service(
            opening.existing(store), lambda memory: memory.check(repair=repair)
        )
        found = {"healthy": not checked.problems} | output.as_data(checked)
    except mnemo.StoreCorrupt as error:
        found = {"healthy": False, "problems": [str(error)], "repaired": [], "counts": {}}
    if as_json:
        output.print_json(found)
    else:
        for done in found["repaired"]:
            output.print_line(f"Repaired: {done}.")
        counts = ", ".join(
            counted(count, name.removesuffix("s").replace("_", " "))
            for name, count in found["counts"].items()
        )
        output.print_line("\n".join(found["problems"]) or f"No problems: {counts}.")
    if not found["healthy"]:
        raise typer.Exit(1)


@opening.on_repo
async def maintain(
    repo: mnemo.Repository,
    consolidate: Annotated[
        bool, typer.Option("--consolidate", help="Merge facts that say the same.")
    ] = False,
    decay: Annotated[
        bool, typer.Option("--decay", help="Delete what is old, unused and unrewarded.")
    ] = False,
    validate: Annotated[
        bool, typer.Option("--validate", help="Hold facts and instructions against evidence.")
    ] = False,
) -> opening.Answer:
    """Keep a repository's knowledge small and true; without options all three, raw steps stay."""
    asked = {"consolidate": consolidate, "decay": decay, "validate": validate}
    chosen = [name for name, wanted in asked.items() if wanted]
    reports = await output.maintained(repo, chosen)
    return {"reports": reports}, "\n".join(map(output.maintenance_told, reports))


def demo(
    store: Annotated[
        str | None, typer.Option("--store", help="Default: a temporary file, removed at the end.")
    ] = None,
    as_json: opening.AsJson = False,
) -> None:
    """Two sessions, one killed in the middle and resumed; then recall with its sources."""
    say = (lambda text: None) if as_json else output.print_line
    shown = anyio.run(run_demo, store, say)
    if as_json:
        output.print_json(shown)


def mcp(
    repo: opening.Repo = "default",
    store: opening.Store = "mnemo.db",
    thread: Annotated[
        str, typer.Option("--thread", help="The conversation that is written to.")
    ] = "default",
    embedder: opening.NewEmbedder = None,
    write: Annotated[
        bool, typer.Option("--write", help="Let the client correct and erase, too.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="As it is: what the protocol writes is JSON.")
    ] = False,
) -> None:
    """Serve a repository to an MCP client over standard input and output, until that ends."""
    from mnemo.mcp import serve_stdio

    opening.in_repo(
        store,
        repo,
        lambda opened: serve_stdio(opened, thread_id=thread, write=write),
        embedder=embedder,
    )


def backup(
    file: Annotated[Path, typer.Argument(help="A new file.")],
    store: opening.Store = "mnemo.db",
    as_json: opening.AsJson = False,
) -> None:
    """Copy a store that may be in use, consistently, to a new file."""
    opening.in_service(opening.existing(store), lambda memory: memory.backup(file))
    output.answer(
        {"store": store, "file": str(file)}, f"{store} was copied to {file}.", as_json=as_json
    )


def reembed(
    repo: opening.Repo = "default",
    store: opening.Store = "mnemo.db",
    embedder: Annotated[
        str,
        typer.Option(
            "--embedder",
            envvar="MNEMO_EMBEDDER",
            help="Which one: minilm, multilingual or static.",
            show_default=True,
        ),
    ] = "minilm",
    as_json: opening.AsJson = False,
) -> None:
    """
    Move a repository to another embedder: all of its texts are embedded anew.

    Stopped anywhere, it goes on where it was when it is run again.
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


@opening.on_repo
async def jobs(
    repo: mnemo.Repository,
    action: Annotated[
        Literal["list", "retry", "cancel"],
        typer.Argument(help="`retry`: try again now; `cancel`: extract nothing of what is there."),
    ] = "list",
    threads: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Threads that it is of.")
    ] = None,
    dead: Annotated[bool, typer.Option("--dead", help="With `retry`: all given up.")] = False,
) -> opening.Answer:
    """Count the background work that is owed and tell why it has failed, try again, or cancel."""
    if action != "list":
        return await _change_jobs(repo, action, threads, dead)
    if threads or dead:
        raise mnemo.UsageError("name threads, or --dead, behind `retry` or `cancel`")
    found = (await repo.statistics()).jobs
    failed = [
        {"kind": kind, "subject": subject, "error": error}
        for (kind, subject), error in found.errors.items()
    ]
    levels = {"waiting": found.waiting, "running": found.running, "dead": found.dead}
    lines = [", ".join(f"{count} {level}" for level, count in levels.items())]
    lines += [f"dead: {one['kind']} {one['subject']}: {one['error']}" for one in failed]
    return levels | {"errors": failed}, "\n".join(lines)


async def _change_jobs(
    repo: mnemo.Repository, action: str, threads: list[str] | None, dead: bool
) -> opening.Answer:
    if action == "cancel" and (dead or not threads):
        raise mnemo.UsageError("name the threads whose extraction is to be cancelled")
    if dead == bool(threads):
        raise mnemo.UsageError("name the threads to try again, or all that were given up: --dead")
    if action == "cancel":
        changed = await repo.cancel_jobs(threads or [])
    else:
        changed = await repo.retry_jobs(threads)
        await repo.settle()
    done = "tried again" if action == "retry" else "cancelled"
    told = f"{len(changed)} {done}" + (f": {', '.join(changed)}" if changed else "")
    return {"action": action, "threads": list(changed)}, told


COMMANDS: dict[str, tuple[Callable[..., Any], ...]] = {
    "Everyday": (recall, forget, guide, *memories.COMMANDS, *transfer.COMMANDS),
    "Look inside": (repos, sessions, stats, *conversations.COMMANDS, jobs),
    "Operation": (doctor, maintain, *stores.COMMANDS, demo, mcp, backup, reembed),
}
"""Group in the help → its commands."""
for _panel, _commands in COMMANDS.items():
    opening.add(app, _commands, _panel)
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
