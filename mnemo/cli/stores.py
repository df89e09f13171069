"""The commands on whole stores: serve, inspect, token; worker, copy and migrate."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import platform
import secrets
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import anyio
import typer

import mnemo
from mnemo.cli.opening import chat_model_of, chosen_embedder, existing, in_service
from mnemo.cli.options import KEY
from mnemo.cli.output import answer, as_data, complain, print_json, print_line, without_password
from mnemo.runtime.extras import needed
from mnemo.runtime.json_logs import written
from mnemo.runtime.processes import orphaned, supervise
from mnemo.runtime.sockets import address_of, listening, listening_at
from mnemo.runtime.spans import export_spans
from mnemo.runtime.text import counted

SWITCH_S = 0.001
"""Seconds after which a computing thread yields to the event loop (Python: 0.005) (S)."""
HEAPS = 2
"""Heaps that the threads share (glibc: eight per core); each keeps the most it ever held (S)."""
_ARENA_MAX = -8
"""``M_ARENA_MAX`` of glibc's ``malloc.h``."""
LOCAL_MODEL_TOKENS = 10_000_000
"""Tokens of models that the token of a service on this machine may use a day (S)."""
DAMAGED = 1
"""Exit code where damaged records were left out of a copy."""

Port = Annotated[int, {"min": 0, "max": 65_535}]


def serve(
    *,
    store: str = "mnemo.db",
    host: str = "127.0.0.1",
    port: Port = 8_642,
    uds: Path | None = None,
    token_file: Path | None = None,
    allow_host: list[str] | None = None,
    allow_origin: list[str] | None = None,
    embedder: str | None = None,
    model_url: str | None = None,
    model: str | None = None,
    api_key_env: str = KEY,
    log_level: Literal["debug", "info", "warning", "error"] = "warning",
    audit_log: Path | None = None,
    backup_folder: Path | None = None,
    workers: Annotated[int, {"min": 1}] = 1,
    as_json: bool = False,
) -> None:
    """
    Serve a store over HTTP, with a page to look into it, until interrupted.

    Without --token-file there is one random token, which the printed address holds. Requests
    that come before it is ready wait.

    Args:
        host: Address to listen on.
        port: 0: a free one.
        uds: A Unix socket to listen on, in place of host and port.
        token_file: Tokens that are accepted, read anew when it changes; `mnemo token` makes one.
        allow_host: A name that it is called by; repeatable.
        allow_origin: An origin whose pages may call it; repeatable.
        embedder: minilm, multilingual, static, or URL?model=NAME&dimensions=N of a server with
            OpenAI's protocol; default: each repository's own, or minilm.
        log_level: From which on JSON lines go to stderr; info: one for each request.
        audit_log: A file of JSON lines: each erasure, correction, export and refused right.
        backup_folder: A folder for the backups that clients ask for.
        workers: Processes that serve the store together; the first of them extracts.
    """
    local = uds is not None or host in ("127.0.0.1", "localhost", "[::1]", "::1")
    if token_file is None and not local:
        raise mnemo.UsageError(
            f"{host} can be reached from other machines: name their tokens with --token-file "
            "(`mnemo token` makes one), or listen on 127.0.0.1"
        )
    if not local and not allow_host:
        raise mnemo.UsageError(
            f"say by which name {host} is called: --allow-host memory.example.org"
        )
    if backup_folder is not None and not backup_folder.is_dir():
        raise mnemo.UsageError(f"{backup_folder} is no folder: make it first")
    if token_file is not None and not token_file.exists():
        raise mnemo.UsageError(
            f"there is no {token_file}: `mnemo token NAME >> {token_file}` adds a token to it"
        )
    if workers > 1 and (store == "memory:" or sys.platform == "win32"):
        raise mnemo.UsageError("workers share a store on disk or a database, on POSIX systems")
    models = partial(_models, embedder, model_url, model, api_key_env)
    mnemo.Mnemo(store, **models())  # a mistake is told before the address
    if Path(store).is_dir():
        raise mnemo.UsageError(f"{store!r} is a directory: name a file in it")
    if "://" not in store and not (folder := Path(store).parent).is_dir():
        raise mnemo.UsageError(f"the folder {str(folder)!r} does not exist: create it first")
    _require_extras(store)
    secret = None if token_file else secrets.token_urlsafe(32)
    with ExitStack() as stack:
        listener = stack.enter_context(listening_at(uds) if uds else listening(host, port))
        if uds:
            stack.callback(uds.unlink, missing_ok=True)
        _tell(address_of(listener), secret, as_json=as_json)
        logs = (log_level, {"mnemo.audit": audit_log} if audit_log else {})
        given: dict[str, Any] = {"origins": allow_origin or (), "backup_folder": backup_folder}
        tokens, hosts = token_file or str(secret), allow_host or ()
        served = partial(_served, listener, store, tokens, hosts, models, logs, **given)
        if workers == 1:
            served()
            return
        with written(log_level, {}), TemporaryDirectory(prefix="mnemo-") as shared:
            code = supervise(partial(_work, served, Path(shared)), workers)
    raise typer.Exit(code)


def _models(embedder: str | None, url: str | None, name: str | None, key_env: str) -> Any:
    """Those that a service is given."""
    return {
        "chat_model": chat_model_of(url, name, key_env=key_env),
        "embedder": chosen_embedder(embedder, os.environ.get(key_env)),
    }


def _work(served: Callable[..., None], folder: Path, number: int, ready: Callable[[], None]) -> int:
    """Be the worker of a number; its exit code."""
    from mnemo.cli.app import outcome

    return outcome(partial(served, place=(folder, number), ready=ready))


def _served(
    listener: socket.socket,
    store: str,
    tokens: Path | str,
    hosts: Sequence[str],
    models: Callable[[], Any],
    logs: tuple[str, Mapping[str, Path]],
    place: tuple[Path, int] | None = None,
    ready: Callable[[], None] = lambda: None,
    **given: Any,
) -> None:
    """Serve a store on *listener*; *place*: as the worker of a number, with the others' folder."""
    share_heaps()
    export_spans()
    # Only now: importing it takes a second or two, in which requests wait.
    from mnemo.web import LOOPBACK, Worker, token_of
    from mnemo.web import serve as run_server

    known: Any = tokens
    if isinstance(tokens, str):
        models_a_day = LOCAL_MODEL_TOKENS
        known = [token_of(tokens, "local", rights="admin", model_tokens_per_day=models_a_day)]

    async def run(memory: mnemo.Mnemo) -> None:
        _let_requests_go_first()
        server = partial(
            run_server,
            memory,
            tokens=known,
            listener=listener,
            hosts=(*LOOPBACK, *hosts),
            worker=Worker(*place) if place else None,
            ready=lambda _: ready(),
            **given,
        )
        # A worker ends with the process that began it.
        await _run_until(orphaned if place else anyio.sleep_forever, server)

    with written(*logs):
        in_service(store, run, workers=0 if place and place[1] else None, **models())


async def _run_until(ended: Callable[[], Awaitable[None]], work: Callable[[], Any]) -> None:
    """Run *work*, cancelled when *ended* returns; what it raises comes out as it is."""

    async def watch() -> None:
        await ended()
        group.cancel_scope.cancel()

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            await work()
            group.cancel_scope.cancel()
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None


def _require_extras(store: str) -> None:
    """*Raises* ``ImportError``: one is not installed. Nothing of them is imported for that."""
    if None in map(find_spec, ("fastapi", "uvicorn", "sse_starlette", "httptools")):
        import mnemo.web  # noqa: F401  # says what to install
    if "://" in store and None in map(find_spec, ("psycopg", "psycopg_pool")):
        raise ImportError(needed("PostgreSQL", "postgres"))


def _tell(url: str, secret: str | None, *, as_json: bool) -> None:
    """Say where the service is; the *secret* of the address, if it has one, opens it."""
    page = url if secret is None else f"{url}/#token={secret}"
    answer({"url": url, "token": secret, "page": page}, page, as_json=as_json)


def share_heaps() -> None:
    """Bound the heaps of threads that begin from now on; glibc alone makes one for each."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).mallopt(_ARENA_MAX, HEAPS)


def _let_requests_go_first() -> None:
    """Have a thread that computes yield sooner, and spare what is imported from collections."""
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()


def inspect(store: str = "mnemo.db", *, port: Port = 0, as_json: bool = False) -> None:
    """
    Look into a store with a browser, on this machine, until interrupted.

    The page cannot write, nothing is extracted or embedded meanwhile, and recalls are not
    counted; a recall keeps the vectors of a few texts that have none, if it embeds them.

    Args:
        store: The store's file.
        port: 0: a free one.
    """
    secret, store = secrets.token_urlsafe(32), existing(store)
    _require_extras(store)
    with listening("127.0.0.1", port) as listener:
        _tell(address_of(listener), secret, as_json=as_json)
        from mnemo.web import serve as run_server
        from mnemo.web import token_of

        async def served(memory: mnemo.Mnemo) -> None:
            tokens = [token_of(secret, "inspector", rights="read")]
            await run_server(memory, tokens=tokens, listener=listener)

        watching = mnemo.Config(
            recall={"record_access": False, "use_model": False}, jobs={"background": False}
        )
        in_service(store, served, config=watching, workers=0)


def token(
    name: str,
    *,
    repo: list[str] | None = None,
    prefix: list[str] | None = None,
    rights: Literal["read", "write", "manage", "admin"] = "write",
    read_only: bool = False,
    expires: str | None = None,
    model_tokens: Annotated[int, {"min": 0}] = 0,
    as_json: bool = False,
) -> None:
    """
    Make an access token; its entry for --token-file is printed, the token goes to stderr.

    So ``mnemo token desk >> tokens.toml`` adds the entry, which has a hash, and shows the token.

    Args:
        name: Names it in logs.
        repo: A repository; repeatable. Default: all.
        prefix: Repositories whose ids begin so; repeatable.
        rights: manage: it may delete, export and import, too; admin: upkeep and backups, too.
        read_only: As --rights read.
        expires: ISO time at which it ends.
        model_tokens: Tokens of models that it may use a day.
    """
    from mnemo.web import new_token, token_of

    secret = new_token()
    given = {
        "repositories": repo,
        "prefixes": prefix,
        "expires": expires,
        "model_tokens_per_day": model_tokens,
    }
    chosen = {name: value for name, value in given.items() if value}
    made = token_of(secret, name, rights="read" if read_only else rights, **chosen)
    entry = made.model_dump(mode="json", exclude_unset=True)
    if as_json:
        print_json({"token": secret, "entry": entry})
        return
    typer.echo(f"The token, shown this once: {secret}", err=True)
    print_line("[[tokens]]")
    for key, value in entry.items():
        print_line(f"{key} = {json.dumps(value, ensure_ascii=False)}")


def worker(
    url: str,
    *,
    repo: str = "*",
    kinds: list[str] | None = None,
    concurrency: Annotated[int, {"min": 1}] = 4,
    health: Path | None = None,
    embedder: str | None = None,
    model_url: str | None = None,
    model: str | None = None,
    as_json: bool = False,
) -> None:
    """
    Work off the background jobs of a store, until it is stopped.

    On SIGTERM or Ctrl-C it claims no more, finishes what it holds within `shutdown_grace_s`,
    and gives the rest back. As many workers as you like may share a store.

    Args:
        url: The store: a file, or a database's URL.
        repo: A pattern of repositories.
        kinds: Of jobs; repeatable; default: all.
        concurrency: Jobs at once.
        health: A file that is written anew after each look for jobs.
        embedder: minilm, multilingual or static; default: each repository's own, or minilm.
    """
    last: list[mnemo.WorkerStatistics] = [mnemo.WorkerStatistics()]

    async def looked(found: mnemo.WorkerStatistics) -> None:
        for id in found.refused.keys() - last[0].refused.keys():
            complain(f"repository {id!r} is left to others: {found.refused[id]}")
        last[0] = found
        if health is not None:
            await anyio.to_thread.run_sync(_write_health, health, found)

    async def work(memory: mnemo.Mnemo) -> None:
        stop = _stopped if os.name == "posix" else anyio.sleep_forever
        await _run_until(stop, partial(memory.work, repo, kinds=_kinds(kinds), on_look=looked))

    chat_model = chat_model_of(model_url, model)
    try:
        in_service(
            existing(url), work, chat_model=chat_model, workers=concurrency, embedder=embedder
        )
    finally:
        if health is not None:
            health.unlink(missing_ok=True)
    failed = f"{counted(last[0].failed, 'try', 'tries')} failed"
    told = f"{counted(last[0].done, 'job')} done, {failed}."
    answer({"url": without_password(url)} | as_data(last[0]), told, as_json=as_json)


def copy(
    from_: str, to: str, *, repo: str = "*", skip_damaged: bool = False, as_json: bool = False
) -> None:
    """
    Copy repositories from one store to another, file or database.

    Each is there whole or not at all, and is compared with what was read. Stopped anywhere, run
    it again: what is there already is compared and not copied.

    Args:
        from_: The store that is read.
        to: Another store, made if it is new.
        repo: A pattern of repositories.
        skip_damaged: Leave out what cannot be read.
    """

    def told(one: mnemo.RepositoryCopy) -> None:
        if not as_json:
            done = "copied" if one.fresh else "was there already"
            print_line(f"{one.repo_id}: {done}: {counted(sum(one.counts.values()), 'record')}.")
        for kind, key in one.damaged:
            complain(f"{one.repo_id}: the damaged {kind} {key!r} was left out")

    async def run(memory: mnemo.Mnemo) -> list[mnemo.RepositoryCopy]:
        return await memory.copy_to(to, repos=repo, skip_damaged=skip_damaged, on_copied=told)

    copied = in_service(existing(from_), run, workers=0)
    if as_json:
        print_json({"from": without_password(from_), "to": without_password(to), "repos": copied})
    if any(one.damaged for one in copied):
        raise typer.Exit(DAMAGED)


def migrate(url: str, *, as_json: bool = False) -> None:
    """
    Make the tables of a database, or bring those of an older store to this version.

    Opening a store does the same; run this first where the application may not change tables.

    Args:
        url: The store: a file, or a database's URL.
    """
    in_service(existing(url), _opened, workers=0)
    url = without_password(url)
    told = f"{url}: its tables are those of mnemo {mnemo.__version__}."
    answer({"url": url, "version": mnemo.__version__}, told, as_json=as_json)


async def _opened(_: mnemo.Mnemo) -> None:
    """Nothing is left to do: opening has migrated."""


def _kinds(given: list[str] | None) -> Any:
    """Kinds may be repeated or joined by commas."""
    return [kind for one in given for kind in one.split(",")] if given else None


async def _stopped() -> None:
    """Wait for SIGTERM or SIGINT."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        await anext(aiter(signals))


def _write_health(path: Path, found: mnemo.WorkerStatistics) -> None:
    """Write *found* with the time; the file is whole at any moment."""
    told = as_data(found) | {"at": datetime.now(UTC).isoformat(), "pid": os.getpid()}
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(told) + "\n", encoding="utf-8")
    beside.replace(path)


COMMANDS = (serve, inspect, token, worker, copy, migrate)
