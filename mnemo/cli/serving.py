"""``mnemo serve``, ``mnemo inspect``, ``mnemo token``: the HTTP service and its access tokens."""

from __future__ import annotations

import ctypes
import gc
import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from mnemo import Config, Mnemo, UsageError
from mnemo.cli.opening import AsJson, Store, existing, in_service
from mnemo.cli.output import answer, print_json, print_line

SWITCH_S = 0.001
"""Seconds after which a computing thread yields to the event loop (Python: 0.005) (S)."""
HEAPS = 2
"""Heaps that the threads share (glibc: eight per core); each keeps the most it ever held (S)."""
_ARENA_MAX = -8
"""``M_ARENA_MAX`` of glibc's ``malloc.h``."""


def register(app: typer.Typer, panel: str) -> None:
    """Add the commands to *app*, listed under *panel*."""
    app.command(rich_help_panel=panel)(serve)
    app.command(rich_help_panel=panel)(inspect)
    app.command(rich_help_panel=panel)(token)


def serve(
    store: Store = "mnemo.db",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: a free one.", min=0, max=65_535)] = 8_642,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help="Tokens that are accepted; `mnemo token` makes one."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", help="A name that it is called by; repeatable."),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option("--allow-origin", help="An origin whose pages may call it; repeatable."),
    ] = None,
    embedder: Annotated[
        str | None,
        typer.Option(
            envvar="MNEMO_EMBEDDER",
            help="minilm, multilingual or static; default: each repository's own, or minilm.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """
    Serve a store over HTTP, with a page to look into it, until interrupted.

    Without --token-file there is one random token, which the printed address holds.
    """
    from mnemo.web import LOOPBACK, new_token, read_tokens, token_of
    from mnemo.web import serve as run_server

    local = host in LOOPBACK or host == "::1"
    if token_file is None and not local:
        raise UsageError(
            f"{host} can be reached from other machines: name their tokens with --token-file "
            "(`mnemo token` makes one), or listen on 127.0.0.1"
        )
    if not local and not allow_host:
        raise UsageError(f"say by which name {host} is called: --allow-host memory.example.org")
    share_heaps()
    secret = new_token()
    tokens = read_tokens(token_file) if token_file else [token_of(secret, "local")]

    async def served(memory: Mnemo) -> None:
        _let_requests_go_first()
        await run_server(
            memory,
            tokens=tokens,
            host=host,
            port=port,
            hosts=(*LOOPBACK, *(allow_host or ())),
            origins=allow_origin or (),
            ready=_told(None if token_file else secret, as_json=as_json),
        )

    in_service(store, served, embedder=embedder)


def _told(secret: str | None, *, as_json: bool) -> Callable[[str], None]:
    """What says where the service is; the *secret* of the address, if it has one, opens it."""

    def ready(url: str) -> None:
        page = url if secret is None else f"{url}/#token={secret}"
        answer({"url": url, "token": secret, "page": page}, page, as_json=as_json)

    return ready


def share_heaps() -> None:
    """Bound the heaps of threads that begin from now on; glibc alone makes one for each."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).mallopt(_ARENA_MAX, HEAPS)


def _let_requests_go_first() -> None:
    """Have a thread that computes yield sooner, and spare what is imported from collections."""
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()


def inspect(
    store: Annotated[str, typer.Argument(help="The store's file.")] = "mnemo.db",
    port: Annotated[int, typer.Option(help="0: a free one.", min=0, max=65_535)] = 0,
    as_json: AsJson = False,
) -> None:
    """
    Look into a store with a browser, on this machine, until interrupted.

    The page cannot write, nothing is extracted or embedded meanwhile, and recalls are not
    counted; a recall keeps the vectors of a few texts that have none, if it embeds them.
    """
    from mnemo.web import new_token, token_of
    from mnemo.web import serve as run_server

    secret = new_token()

    async def served(memory: Mnemo) -> None:
        await run_server(
            memory,
            tokens=[token_of(secret, "inspector", rights="read")],
            port=port,
            ready=_told(secret, as_json=as_json),
        )

    watching = Config(
        recall={"record_access": False, "use_model": False}, jobs={"background": False}
    )
    in_service(existing(store), served, config=watching, workers=0)


def token(
    name: Annotated[str, typer.Argument(help="Names it in logs.")],
    repo: Annotated[
        list[str] | None, typer.Option("--repo", help="A repository; repeatable. Default: all.")
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="It cannot write.")] = False,
    as_json: AsJson = False,
) -> None:
    """
    Make an access token; its entry for --token-file is printed, the token goes to stderr.

    So ``mnemo token desk >> tokens.toml`` adds the entry, which has a hash, and shows the token.
    """
    from mnemo.web import new_token, token_of

    secret = new_token()
    made = token_of(
        secret, name, repositories=repo or ("*",), rights="read" if read_only else "write"
    )
    if as_json:
        print_json({"token": secret, "entry": made.model_dump(exclude_defaults=True)})
        return
    typer.echo(f"The token, shown this once: {secret}", err=True)
    print_line("[[tokens]]")
    for key, value in made.model_dump(exclude_defaults=True).items():
        print_line(f"{key} = {json.dumps(value, ensure_ascii=False)}")
