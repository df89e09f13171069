"""Endpoint settings: parse and check the address, key and headers of a server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from pydantic import SecretStr

from mnemo.errors import ConfigError
from mnemo.runtime.text import is_blank

_PORTS = {"http": 80, "https": 443}
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*\Z")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server's base address; *url* has no slash at its end."""

    url: str
    host: str
    port: int

    @classmethod
    def parse(cls, base_url: str) -> Endpoint:
        """
        Read *base_url*.

        Raises:
            ConfigError: It is blank, no ``http(s)`` address, or carries more than a path.
        """
        if not isinstance(base_url, str) or is_blank(base_url):
            raise ConfigError('base_url is blank: give one like "http://localhost:8000/v1"')
        try:
            parts = urlsplit(base_url.strip())
            port = parts.port
        except ValueError:
            raise ConfigError("base_url is no address: its host or port cannot be read") from None
        _check(parts)
        host = parts.hostname or ""
        url = f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")
        return cls(url, host, port or _PORTS[parts.scheme])

    def hint(self, path: str) -> str:
        """What to look at first where the server does not know *path*; empty if it looks right."""
        base = urlsplit(self.url).path
        if base.endswith(("/completions", "/embeddings", "/messages")):
            return " It ends before what each request adds, like http://localhost:8000/v1"
        return "" if base or path.startswith("/v1/") else " With most servers it ends with /v1"

    @property
    def is_loopback(self) -> bool:
        """Whether the server is on this machine, where no proxy is wanted."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")


def _check(parts: SplitResult) -> None:
    if "@" in parts.netloc:
        raise ConfigError("base_url must not carry a user or password: give api_key= or headers=")
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ConfigError(
            'base_url must begin with http:// or https:// and a host, like "http://localhost:8000/v1"'
        )
    if parts.query or parts.fragment:
        raise ConfigError("base_url must end with its path: give what follows ? by headers=")


def secret_key(api_key: str | SecretStr | None) -> SecretStr | None:
    """
    Take *api_key* out of sight; a blank one is none.

    Raises:
        ConfigError: It is no text, or holds what no HTTP header can carry.
    """
    if api_key is None:
        return None
    value = api_key.get_secret_value() if isinstance(api_key, SecretStr) else api_key
    if not isinstance(value, str):
        raise ConfigError(f"api_key must be a text, not {type(value).__name__}")
    value = value.strip()
    if not _HEADER_VALUE.match(value) or " " in value:
        raise ConfigError("api_key holds blanks or characters that are not ASCII: copy it again")
    return SecretStr(value) if value else None


def secret_headers(headers: Mapping[str, str | SecretStr] | None) -> dict[str, SecretStr]:
    """
    Take the values of *headers* out of sight.

    Raises:
        ConfigError: A name or value is none that HTTP can carry; the value is not shown.
    """
    hidden: dict[str, SecretStr] = {}
    for name, given in (headers or {}).items():
        value = given.get_secret_value() if isinstance(given, SecretStr) else given
        if not isinstance(name, str) or not _HEADER_NAME.match(name):
            raise ConfigError(f"headers: {name!r} is no name of an HTTP header")
        if not isinstance(value, str) or not _HEADER_VALUE.match(value):
            raise ConfigError(f"headers: the value of {name!r} must be printable ASCII")
        hidden[name] = SecretStr(value)
    return hidden
