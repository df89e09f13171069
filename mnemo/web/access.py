"""Access: tokens, what routes take, and the repositories that requests use."""

from __future__ import annotations

import hmac
import logging
import secrets
import tomllib
import typing
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import anyio
import anyio.to_thread
from fastapi import Depends, Query, Request
from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
)
from starlette.exceptions import HTTPException

from mnemo import ConfigError, Mnemo, NotFound, Repository, UsageError
from mnemo.runtime.board import Board
from mnemo.runtime.clock import Bucket, SystemClock, elapsed
from mnemo.web.logs import REQUEST, audit

log = logging.getLogger("mnemo")
SYSTEM = SystemClock()
Rights: TypeAlias = Literal["read", "write", "manage", "admin"]
RIGHTS = typing.get_args(Rights)
"""From the least to the most: each includes those before it."""
ANY = "*"
"""In place of repository ids: all of them."""
RATE_PER_S = 2_000.0
"""Default of ``Token.rate_per_s`` (S)."""


class Token(BaseModel):
    """
    What one token permits; of the token itself only a hash is kept.

    Attributes:
        name: Names it in logs and metrics.
        sha256: SHA-256 of the token, 64 hexadecimal digits.
        prefixes: Beginnings of further ids that it may use, compared character by character.
        repositories: Ids of the repositories that it may use; ``*`` is all. Left out: all, or
            those of *prefixes* alone, where there are any.
        rights: ``read``; ``write``; ``manage``: to delete, export and import repositories;
            ``admin``: upkeep, and with all repositories, the check and the backup of the store.
            Each includes those before it.
        rate_per_s: Requests per second, at most; twice as many in a burst.
        expires: When it ends, with its zone; ``None``: never.
        model_tokens_per_day: The right ``model``: tokens, in and out, that a chat model may take
            for its calls in a day (UTC); the call that passes it by is answered. 0: none.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, max_length=100)
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    prefixes: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    repositories: tuple[str, ...] = Field(
        default_factory=lambda given: () if given.get("prefixes") else (ANY,)
    )
    rights: Rights = "read"
    rate_per_s: float = Field(default=RATE_PER_S, gt=0)
    expires: AwareDatetime | None = None
    model_tokens_per_day: int = Field(default=0, ge=0)

    def permits(self, repo_id: str) -> bool:
        """Whether it may use the repository."""
        listed = ANY in self.repositories or repo_id in self.repositories
        return listed or repo_id.startswith(self.prefixes)

    def may(self, right: str) -> bool:
        """Whether its rights include this one."""
        return RIGHTS.index(right) <= RIGHTS.index(self.rights)


class _TokenFile(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    tokens: list[Token] = Field(min_length=1)


def new_token() -> str:
    """A random token of 256 bits."""
    return secrets.token_urlsafe(32)


def token_of(secret: str, name: str, *, rights: Rights = "write", **given: Any) -> Token:
    """The entry of the token *secret*; *given* as ``Token`` has it."""
    return Token(name=name, sha256=_digest(secret), rights=rights, **given)


def read_tokens(path: Path) -> list[Token]:
    """
    Read a token file: TOML with one table ``[[tokens]]`` for each, keys as ``Token`` has them.

    Raises:
        ConfigError: It cannot be read, an entry is wrong, or two have one name or hash.
    """
    try:
        tokens = _TokenFile(**tomllib.loads(path.read_text(encoding="utf-8"))).tokens
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{path}: {place}: {first['msg']}") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error
    for what in ("name", "sha256"):
        if len({getattr(token, what) for token in tokens}) < len(tokens):
            raise ConfigError(f"{path}: two tokens have the same {what}")
    return tokens


def find_token(tokens: Iterable[Token], secret: str) -> Token | None:
    """The entry of *secret*; every entry is compared, in constant time."""
    digest, found = _digest(secret), None
    for token in tokens:
        if hmac.compare_digest(token.sha256, digest):
            found = token
    return found


def _digest(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


LOOK_S = 1.0
"""Seconds between two looks at the token file (S)."""


class Use:
    """What a token has used, on a board: its rate, when last, and tokens of models in a day."""

    def __init__(self, token: Token, board: Board) -> None:
        per_s = token.rate_per_s
        state = board.numbers(f"rate {per_s!r} {token.name}", 2)
        self._rate = Bucket(60 * per_s, size=2 * per_s, state=state)
        self._board, self._numbers = board, board.numbers(f"use {token.name}", 3)

    @property
    def last_at(self) -> float:
        """When it was used last, in Unix seconds; 0: never."""
        return self._numbers[0]

    def taken(self, now: float) -> float:
        """Take from the rate. Returns 0, or the seconds until there is some; nothing is taken."""
        with self._board:
            self._numbers[0] = now
            return taken(self._rate)

    def model_tokens(self, now: datetime, more: int = 0) -> int:
        """Count *more* tokens; those of the day of *now* so far."""
        with self._board:
            if now.toordinal() != self._numbers[1]:
                self._numbers[1:] = array("d", (now.toordinal(), 0))
            self._numbers[2] += more
            return int(self._numbers[2])


def taken(bucket: Bucket) -> float:
    """Take one. Returns 0, or the seconds until there is one; then nothing is taken."""
    wait_s = bucket.wait_for(1)
    if not wait_s:
        bucket.take(1)
    return wait_s


class Tokens:
    """
    The tokens that are accepted, and what each has used.

    Those of a file are read anew when it changes; while it cannot be read, or is wrong, the former
    ones stay. *Raises* ``ConfigError``: it is wrong from the start.
    """

    def __init__(
        self,
        given: Path | Iterable[Token],
        now: Callable[[], datetime] = SYSTEM.now,
        board: Board | None = None,
    ) -> None:
        self._path = given if isinstance(given, Path) else None
        self.now: Callable[[], datetime] = now
        self._board = board or Board()
        self._seen = self._state()
        self._accept(read_tokens(given) if isinstance(given, Path) else tuple(given))

    def _accept(self, known: Sequence[Token]) -> None:
        self.used: dict[str, Use] = {one.name: Use(one, self._board) for one in known}
        self._known = known

    def last_used(self, asking: Token) -> dict[str, float]:
        """When each was used last, Unix seconds, for a token of all repositories; else of none."""
        used = self.used if ANY in asking.repositories else {}
        return {name: use.last_at for name, use in used.items() if use.last_at}

    def find(self, secret: str) -> Token | None:
        """The entry of *secret*; one that has ended is given, too."""
        return find_token(self._known, secret)

    def _state(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat() if self._path else None
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_size, found.st_ino) if found else None

    async def watch(self) -> None:
        """Look at the file until cancelled; at once over where there is none."""
        while self._path is not None:
            await anyio.sleep(LOOK_S)
            await anyio.to_thread.run_sync(self.look)

    def look(self) -> None:
        """Read the file anew if it has changed."""
        state = self._state()
        if self._path is None or state in (None, self._seen):
            return
        self._seen = state
        try:
            self._accept(read_tokens(self._path))
        except ConfigError as error:
            log.error("the tokens are those of before: %s", error)
        else:
            log.warning("%s was read anew: %d tokens", self._path, len(self._known))


# ── What routes take ─────────────────────────────────────────────────────────────────────


LONGEST_ID = 200
"""Characters of a repository's id in a request, at most."""

RepoId: TypeAlias = Annotated[
    str,
    Query(alias="repo", min_length=1, max_length=LONGEST_ID, description="The repository's id."),
]


def _memory(request: Request) -> Mnemo:
    return request.app.state.memory


def _token(request: Request) -> Token:
    return request.state.token


def visited(
    request: Request, repo_id: str, *, make: bool
) -> AbstractAsyncContextManager[Repository]:
    """The repository, for the token of *request*; see ``OpenRepositories.visited``."""
    repositories: OpenRepositories = request.app.state.repositories
    return repositories.visited(_token(request), repo_id, make=make)


async def _readable(request: Request, repo: RepoId = "default") -> AsyncIterator[Repository]:
    async with visited(request, repo, make=False) as found:
        yield found


async def _writable(request: Request, repo: RepoId = "default") -> AsyncIterator[Repository]:
    check_right(_token(request), "write", repo)
    async with visited(request, repo, make=True) as found:
        yield found


def check_right(token: Token, right: str, repo_id: str = ANY) -> None:
    """
    Let a call pass that *token* permits to this repository, or to the store (``*``).

    *Raises* ``NotFound``: it may not use the repository; ``HTTPException``: 403, it has not the
    right, or may not use all repositories.
    """
    if not token.permits(repo_id) and repo_id != ANY:
        audit("refused", repo_id)
        raise NotFound("repository", repo_id)
    if not (token.may(right) and token.permits(repo_id)):
        audit("refused", repo_id)
        of_all = " to all repositories" if repo_id == ANY else ""
        detail = f"the call needs the right {right!r}{of_all}, and this token has {token.rights!r}"
        raise HTTPException(403, detail)


def _managed(request: Request, repo: RepoId) -> str:
    check_right(_token(request), "manage", repo)
    return repo


def _administered(request: Request, repo: RepoId = "default") -> str:
    check_right(_token(request), "admin", repo)
    return repo


def _of_all(request: Request) -> Token:
    check_right(_token(request), "admin")
    return _token(request)


Memory_: TypeAlias = Annotated[Mnemo, Depends(_memory)]
Token_: TypeAlias = Annotated[Token, Depends(_token)]
Readable: TypeAlias = Annotated[Repository, Depends(_readable)]
Writable: TypeAlias = Annotated[Repository, Depends(_writable)]
Managed: TypeAlias = Annotated[str, Depends(_managed)]
"""The id of a repository that the token may manage; it is named, as it may be deleted."""
Administered: TypeAlias = Annotated[str, Depends(_administered)]
OfAll: TypeAlias = Annotated[Token, Depends(_of_all)]
"""The token of a call that is of the whole store."""


Id: TypeAlias = Annotated[str, Query(min_length=1, max_length=512)]


class Body(BaseModel):
    """The base of request bodies: an unknown key is refused."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


ASKING = ("recall", "recall_in_context", "recall_many")
"""Operations that have a model asked only where their caller says so."""


def allow_model(repo: Repository, given: Mapping[str, Any]) -> None:
    """
    Let a call pass that asks for no model, or whose token may have one asked.

    *Raises* ``ConfigError``: there is no model; ``HTTPException``: 403, the token has no right
    to it; 429, what it may use today is used up.
    """
    request = REQUEST.get()
    if request is None or not (given.get("use_model") or given.get("reason")):
        return
    if not repo.has_model:
        raise ConfigError("use_model and reason need a chat model: the service was given none")
    token, use = request.token, request.use
    if not token.model_tokens_per_day:
        audit("refused", repo.id)
        raise HTTPException(403, "this token has no right to have a model asked")
    now = SYSTEM.now()
    if use.model_tokens(now) >= token.model_tokens_per_day:
        left_s = 86_400 - (now.hour * 60 + now.minute) * 60 - now.second
        used_up = "the tokens of models that this token may use a day are used up"
        raise HTTPException(429, used_up, {"Retry-After": str(left_s)})


# ── Repositories, opened on request, the least recently used closed again ────────────────


MOST_OPEN = 1_000
"""Repositories that requests have open at once (S)."""
MOST_OF_TOKEN = 750
"""Of these, those that one token has used last; the rest is left to other tokens (S)."""
PATIENCE_S = 2.0
"""Seconds that a request waits where all of them are in use, at most (S)."""
RETRY_S = "10"
"""Seconds after which a refused request may be sent again (S)."""


class OpenRepositories:
    """
    Opens repositories for requests, and closes the least recently used where there are too many.

    One is closed only while no request uses it (a stream is a request until it ends), and it is
    idle: without sessions, and nothing is on its way, such as jobs, vectors, summaries, notes. The
    next request opens it again. Those that were opened by somebody else are never closed here.
    A request waits *patience_s* seconds for one to be let go, at most.
    """

    def __init__(
        self,
        memory: Mnemo,
        *,
        most: int = MOST_OPEN,
        most_of_token: int = MOST_OF_TOKEN,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._memory = memory
        self._most, self._share, self._patience_s = most, most_of_token, patience_s
        # Id → name of the token that used it last; the least recently used comes first.
        self._users: dict[str, str] = {}
        self._visitors: Counter[str] = Counter()
        self._left = anyio.Event()
        self._vacated: set[str] = set()
        self._changing = anyio.Lock()
        self._looked_at = ""  # whether it can be closed; until somebody comes

    @asynccontextmanager
    async def visited(self, token: Token, repo_id: str, *, make: bool) -> AsyncIterator[Repository]:
        """
        The repository, kept open inside; *make* one that holds nothing, or not.

        Raises:
            NotFound: There is none, or *token* may not use it.
            HTTPException: 429: the token has too many in use; 503: all together have, or the
                repository is being deleted or imported. *Cancellation*: safe.
        """
        if not token.permits(repo_id):
            audit("refused", repo_id)
            raise NotFound("repository", repo_id)
        if repo_id in self._vacated:
            raise _in_use("it is being deleted or imported")
        # Before the look, and without a pause between: nobody closes it from now on.
        self._visitors[repo_id] += 1
        if self._looked_at == repo_id:
            self._looked_at = ""
        try:
            yield await self._found(token, repo_id, make=make)
        finally:
            self._visitors[repo_id] -= 1
            if not self._visitors[repo_id]:
                del self._visitors[repo_id]
            self._left.set()
            self._left = anyio.Event()

    async def _found(self, token: Token, repo_id: str, *, make: bool) -> Repository:
        try:
            repo = self._memory.repo(repo_id)
        except NotFound:
            if not make and not await self._memory.has_repo(repo_id):
                raise NotFound("repository", repo_id, "nothing was written to it yet") from None
            return await self._opened(token, repo_id)
        if repo_id in self._users:
            self._use(token, repo_id)
        return repo

    async def adopt(self, repo_id: str) -> None:
        """Take over one that was opened for its jobs and has none left: others may use it."""
        self._users.setdefault(repo_id, "")

    @asynccontextmanager
    async def vacated(self, repo_id: str) -> AsyncIterator[None]:
        """
        Have no request use the repository inside, and close it; who comes then gets 503.

        *Raises* ``HTTPException``: 503, those that use it do not end within *patience_s* seconds.
        *Cancellation*: safe.
        """
        if repo_id in self._vacated:
            raise _in_use("it is being deleted or imported")
        self._vacated.add(repo_id)
        try:
            with anyio.move_on_after(self._patience_s):
                while self._visitors[repo_id]:
                    await self._left.wait()
            if self._visitors[repo_id]:
                raise _in_use("other requests use it")
            async with self._changing:
                if repo_id in self._memory.list_repos():
                    await self._memory.close_repo(repo_id)
            yield
        finally:
            self._vacated.discard(repo_id)

    def _use(self, token: Token, repo_id: str) -> None:
        self._users.pop(repo_id, None)
        self._users[repo_id] = token.name

    async def _opened(self, token: Token, repo_id: str) -> Repository:
        until = elapsed() + self._patience_s
        while True:
            left = self._left
            async with self._changing:
                refusal = await self._refusal(token, repo_id)
                if refusal is None:
                    repo = await self._memory.open_repo(repo_id, exist_ok=True)
                    self._use(token, repo_id)
                    return repo
            with anyio.move_on_after(until - elapsed()):
                await left.wait()
            if elapsed() >= until:
                raise refusal

    async def _refusal(self, token: Token, repo_id: str) -> HTTPException | None:
        """Make room for one more; why there is none."""
        open_now = frozenset(self._memory.list_repos())
        self._users = {id: name for id, name in self._users.items() if id in open_now}
        if repo_id in open_now:
            return None
        own = [id for id, name in self._users.items() if name == token.name]
        again = {"Retry-After": RETRY_S}
        if len(own) >= self._share and not await self._close_one_of(token.name):
            return HTTPException(429, "this token has too many repositories in use", again)
        if len(self._users) >= self._most and not await self._close_one_of():
            return HTTPException(503, "too many repositories are in use", again)
        return None

    async def _close_one_of(self, token_name: str | None = None) -> bool:
        """Close the least recently used idle one, of *token_name* or all; whether one was."""
        owing: set[str] = set()
        while True:
            free = (
                id
                for id, name in self._users.items()
                if token_name in (None, name) and id not in owing and not self._visitors[id]
            )
            repo_id = next(free, None)
            if repo_id is None:
                return False
            is_idle = await self._is_idle(repo_id)
            if self._looked_at != repo_id:
                continue  # somebody came during the look, and may have gone again
            if is_idle:
                # No pause since the end of the look: closing begins with its removal.
                del self._users[repo_id]
                await self._memory.close_repo(repo_id)
                return True
            owing.add(repo_id)

    async def _is_idle(self, repo_id: str) -> bool:
        self._looked_at = repo_id
        try:
            return await self._memory.repo(repo_id).is_idle()
        except UsageError:
            return False  # somebody else has closed it


def _in_use(why: str) -> HTTPException:
    return HTTPException(503, f"the repository is in use: {why}", {"Retry-After": RETRY_S})
