"""Open the store and repository of a command."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qsl

import anyio
import numpy as np
import typer
from numpy.typing import NDArray

import mnemo
from mnemo.cli.options import KEY, names, offered, with_options
from mnemo.cli.output import Told, answer, without_password
from mnemo.protocols import ChatModel, Embedder, EmbeddingSpace


def conditions(given: Sequence[str] | None) -> dict[str, Any] | None:
    """``--where`` for ``where=``, JSON values read. *Raises* ``UsageError``: one has no ``=``."""
    found: dict[str, Any] = {}
    for one in given or ():
        key, equals, value = one.partition("=")
        if not (key and equals):
            raise mnemo.UsageError(f"--where takes KEY=VALUE, not {one!r}")
        try:
            found[key] = json.loads(value)
        except ValueError:
            found[key] = value
    return found or None


# ── The configuration file ───────────────────────────────────────────────────────────────

_OPTIONS = ("store", "repo", "embedder", "model_url", "model", "api_key_env")


def file_settings() -> tuple[dict[str, str], mnemo.Config]:
    """
    Read defaults of options and the sections of ``Config`` from ``mnemo.toml``, if there is one.

    ``MNEMO_*`` variables go before it, options of the command before those. *Raises*
    ``ConfigError``: it cannot be read, names no setting, or a value is out of range.
    """
    path = Path(typer.get_app_dir("mnemo")) / "mnemo.toml"
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}, mnemo.Config()
    except (OSError, ValueError) as error:
        raise mnemo.ConfigError(f"{path}: {error}") from error
    options = {name: found.pop(name) for name in _OPTIONS if name in found}
    if wrong := [name for name, value in options.items() if not isinstance(value, str)]:
        raise mnemo.ConfigError(f"{path}: {wrong[0]} must be a text")
    try:
        return options, mnemo.Config(**found)
    except mnemo.ConfigError as error:
        raise mnemo.ConfigError(f"{path}: {error}") from error


# ── Opening ─────────────────────────────────────────────────────────────────────────────

T = TypeVar("T")

_NAMED = 10
"""Repositories that an error names, at most."""


class EmptyRepository(mnemo.UsageError):
    """A repository that is only read holds nothing; *only* is the store's one other, if any."""

    def __init__(self, store: str, repo: str, others: Sequence[str]) -> None:
        self.store: str = store
        self.repo: str = repo
        self.only: str | None = others[0] if len(others) == 1 else None
        named = ", ".join(map(repr, others[:_NAMED])) + (", …" if len(others) > _NAMED else "")
        there = f"there is {named}" if others else "`mnemo import` fills one"
        super().__init__(f"repository {repo!r} in {store} holds nothing: is --repo right? {there}")


class AbsentEmbedder:
    """In place of the embedder that a repository was made with, which is not at hand here."""

    def __init__(self, space: EmbeddingSpace) -> None:
        self.space = space

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> NDArray[np.float32]:
        """Never give vectors: recall answers by words, and says so."""
        if not texts:
            return np.empty((0, self.space.dimensions), np.float32)
        what = f"no embedder for {self.space} is at hand; `mnemo reembed` moves the repository"
        raise mnemo.ModelUnavailable(what, retryable=False)


def chosen_embedder(name: str | None, key: str | None) -> str | Embedder | None:
    """
    An embedder by its name, or that of a server with OpenAI's protocol.

    *Raises* ``UsageError``: its URL does not name a model and the number of dimensions.
    """
    if name is None or "://" not in name:
        return name
    url, _, query = name.partition("?")
    asked = dict(parse_qsl(query))
    if set(asked) != {"model", "dimensions"} or not asked["dimensions"].isdecimal():
        raise mnemo.UsageError(f"--embedder {url} needs ?model=NAME&dimensions=N behind it")
    from mnemo.models import OpenAIEmbedder

    return OpenAIEmbedder(url, asked["model"], int(asked["dimensions"]), key)


def chat_model_of(url: str | None, name: str | None, *, key_env: str = KEY) -> ChatModel | None:
    """The model *name* behind OpenAI's protocol. *Raises* ``UsageError``: one of both lacks."""
    if not url and not name:
        return None
    if not url or not name:
        raise mnemo.UsageError("a model needs both --model-url and --model")
    from mnemo.models import OpenAIChatModel

    return OpenAIChatModel(url, name, os.environ.get(key_env))


def in_service(
    store: str,
    act: Callable[[mnemo.Mnemo], Awaitable[T]],
    *,
    config: mnemo.Config | None = None,
    **given: Any,
) -> T:
    """Run *act* on a ``Mnemo`` of *store*; *config* goes before file and environment."""

    async def opened() -> T:
        # Whose window is full is for the application to say, which has a model for it.
        quiet = mnemo.Config(viewport={"auto_evict": False})
        found = quiet.overlaid(file_settings()[1]).overlaid(mnemo.Config.from_env())
        async with mnemo.Mnemo(store, config=found.overlaid(config), **given) as memory:
            return await act(memory)

    return anyio.run(opened)


def in_repo(
    store: str,
    repo: str,
    act: Callable[[mnemo.Repository], Awaitable[T]],
    *,
    embedder: str | None = None,
    may_be_new: bool = False,
    may_be_empty: bool = False,
    **given: Any,
) -> T:
    """
    Run *act* on a repository.

    Args:
        embedder: Of one without vectors.
        may_be_new: It is made if it is not there; one that is only read may have been made with
            any embedder.

    Raises:
        UsageError: There is no such store.
        EmptyRepository: It holds nothing.
    """
    mnemo.Mnemo(store, embedder=embedder)  # a mistake is told before a store is made

    async def opened(memory: mnemo.Mnemo) -> T:
        found = await _open(memory, repo, embedder, writes=may_be_new)
        if not may_be_new:
            await check_there(memory, store, repo)
            if not may_be_empty and await _is_empty(found):
                raise EmptyRepository(store, repo, await _others(memory, repo))
        return await act(found)

    return in_service(store if may_be_new else existing(store), opened, **given)


Answer = tuple[dict[str, Any], Told] | tuple[dict[str, Any], Told, str]
"""What ``answer`` prints, but for the repository's id."""
_ON_REPO: dict[str, Any] = {"repo": "default", "store": "mnemo.db", "as_json": False}
"""Options of each command on a repository."""
Command = Callable[..., Awaitable[Answer]]


def on_repo(
    operation: str = "",
    usage: str = "",
    *,
    may_be_new: bool = False,
    may_be_empty: bool = False,
    first: Callable[..., Mapping[str, Any] | None] = lambda **_: None,
) -> Callable[[Command], Callable[..., None]]:
    """
    Make a command of a coroutine function whose first argument is the opened repository.

    It gets the options ``--repo``, ``--store`` and ``--json``, and its answer is printed.

    Args:
        operation, usage: See ``offered``: arguments and options that the command gets by name.
        may_be_new: The repository is made if it is not there.
        first: Called with all arguments before the store is opened; gives what it changes.
    """

    def made(command: Command) -> Callable[..., None]:
        def run(*, repo: str, store: str, as_json: bool, **given: Any) -> None:
            given |= first(repo=repo, store=store, **given) or {}
            if "where" in given:
                given["where"] = conditions(given["where"])
            model = None
            if given.get("use_model", True):
                model = chat_model_of(given.get("model_url"), given.get("model"))
            embedder, act = given.pop("embedder", None), partial(command, **given)
            allowed = {"may_be_new": may_be_new, "may_be_empty": may_be_empty}
            found = in_repo(store, repo, act, chat_model=model, embedder=embedder, **allowed)
            answer({"repo": repo} | found[0], *found[1:], as_json=as_json)

        passed = [*offered(operation, usage)]
        return with_options(run, command, *passed, *names(**_ON_REPO))

    return made


def options_to(store: str, repo: str) -> str:
    """What a command that is shown needs besides, to be about *repo* of *store*."""
    usual = os.environ.get("MNEMO_STORE") or file_settings()[0].get("store", _ON_REPO["store"])
    given = {} if store == usual else {"store": without_password(store)}
    given |= {} if repo == _ON_REPO["repo"] else {"repo": repo}
    return "".join(f" --{name} {quote(value)}" for name, value in given.items())


async def check_there(memory: mnemo.Mnemo, store: str, repo: str) -> None:
    """*Raises* ``EmptyRepository``: nothing was ever written to *repo*."""
    if not await memory.has_repo(repo):
        raise EmptyRepository(store, repo, await _others(memory, repo))


async def _others(memory: mnemo.Mnemo, repo: str) -> list[str]:
    return [one.id for one in await memory.repos(limit=_NAMED + 2) if one.id != repo]


async def _open(
    memory: mnemo.Mnemo, repo: str, embedder: str | None, *, writes: bool
) -> mnemo.Repository:
    """Open *repo* with the embedder that it has; what only reads can do without it."""
    try:
        return await memory.open_repo(repo, embedder=embedder)
    except mnemo.EmbeddingSpaceMismatch as mismatch:
        if embedder is not None:
            return await memory.open_repo(repo)
        if writes or mismatch.stored_space is None:
            raise
        space = EmbeddingSpace(*mismatch.stored_space)
        return await memory.open_repo(repo, embedder=AbsentEmbedder(space))


async def _is_empty(repo: mnemo.Repository) -> bool:
    found = await repo.statistics()
    if found.revision or found.steps or found.messages or found.notes.versions:
        return False
    return not (await repo.sessions(limit=1) or await repo.threads(limit=1))


def existing(store: str) -> str:
    """*store*, which must be there: a mistyped name must not make an empty one."""
    name = store.removeprefix("sqlite:///")
    path = Path(name)
    if "://" not in name and not (path.is_dir() or (path.exists() and path.stat().st_size)):
        raise mnemo.UsageError(
            f"there is no store at {path}: is the name right? `mnemo remember` makes one"
        )
    return store
