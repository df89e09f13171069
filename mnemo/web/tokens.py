"""Access tokens: which repositories a request may use, and whether it may write."""

from __future__ import annotations

import hmac
import secrets
import tomllib
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mnemo import ConfigError

Rights: TypeAlias = Literal["read", "write"]
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
        repositories: Ids of the repositories that it may use; ``*`` is all.
        rights: ``read``, or ``write``, which includes reading.
        rate_per_s: Requests per second, at most; twice as many in a burst.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, max_length=100)
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    repositories: tuple[str, ...] = (ANY,)
    rights: Rights = "read"
    rate_per_s: float = Field(default=RATE_PER_S, gt=0)

    def permits(self, repo_id: str) -> bool:
        """Whether it may use the repository."""
        return ANY in self.repositories or repo_id in self.repositories


class _TokenFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    tokens: list[Token] = Field(min_length=1)


def new_token() -> str:
    """A random token of 256 bits."""
    return secrets.token_urlsafe(32)


def token_of(
    secret: str, name: str, *, repositories: Sequence[str] = (ANY,), rights: Rights = "write"
) -> Token:
    """The entry of the token *secret*."""
    return Token(name=name, sha256=_digest(secret), repositories=repositories, rights=rights)


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


class TokenTable:
    """The tokens of a service, looked up in a time that tells nothing about them."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = [(bytes.fromhex(token.sha256), token) for token in tokens]

    def find(self, secret: str) -> Token | None:
        """The entry of *secret*; every entry is compared, in constant time."""
        digest, found = bytes.fromhex(_digest(secret)), None
        for stored, token in self._tokens:
            if hmac.compare_digest(stored, digest):
                found = token
        return found


def _digest(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
