"""Server addresses and keys, and failed tries as typed errors that quote no secret."""

from __future__ import annotations

import json
import math
import re
import socket
import ssl
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import SplitResult, unquote, unquote_plus, urlsplit

from pydantic import SecretStr

from mnemo.errors import ConfigError, ModelError, ModelUnavailable, RateLimited
from mnemo.runtime.text import clean, is_blank, one_line

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
        """Read it. *Raises* ``ConfigError``: it is no ``http(s)`` address, or more than a path."""
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
    """Take *api_key* out of sight, unless blank. *Raises* ``ConfigError``: HTTP cannot carry it."""
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
    """Take values out of sight. *Raises* ``ConfigError``, without them: HTTP cannot carry one."""
    hidden: dict[str, SecretStr] = {}
    for name, given in (headers or {}).items():
        value = given.get_secret_value() if isinstance(given, SecretStr) else given
        if not isinstance(name, str) or not _HEADER_NAME.match(name):
            raise ConfigError(f"headers: {name!r} is no name of an HTTP header")
        if not isinstance(value, str) or not _HEADER_VALUE.match(value):
            raise ConfigError(f"headers: the value of {name!r} must be printable ASCII")
        hidden[name] = SecretStr(value)
    return hidden


PASSING = frozenset((408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529))
"""Statuses after which the same request may succeed; 52x are those of proxies, 529 overload."""

SHOWN_CHARACTERS = 4_000
"""Characters of an answer that are looked through for what may be shown."""


class Failure(Exception):
    """One failed try, seen in the models only; *error* is the caller's, *text* the server's."""

    def __init__(
        self,
        error: ModelError,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        text: str = "",
    ) -> None:
        self.error = error
        self.status = status
        self.retry_after_s = retry_after_s
        self.text = text
        super().__init__(str(error))


class ErrorTranslator:
    """Translate failures of one server into typed errors without secrets."""

    def __init__(self, endpoint: Endpoint, scrubber: Scrubber, *, has_key: bool) -> None:
        self._endpoint = endpoint
        self._scrubber = scrubber
        self._has_key = has_key

    def status(
        self,
        status: int,
        headers: Mapping[str, str],
        body: bytes,
        *,
        path: str,
        model: object,
        now: datetime,
    ) -> Failure:
        """The failure of an answer to *path* that is no success."""
        text = self._scrubber.hide(_words_of(headers, body))
        wait = retry_after(headers, now)
        message = self._advice(status, path, model)
        if text.strip():
            message = f"{message}; it said: {self._scrubber.quote(text)}"
        error: ModelError
        if status == 429:
            error = RateLimited(message, retry_after_s=wait)
        else:
            error = ModelUnavailable(message, retryable=status in PASSING)
        return Failure(error, status=status, retry_after_s=wait, text=text)

    def _advice(self, status: int, path: str, model: object) -> str:
        url = self._endpoint.url
        if status in (401, 403):
            given = "refused the key" if self._has_key else "wants a key and none was given"
            return f"{url} {given} ({status}): give api_key= one that this server accepts"
        if status == 404:
            return (
                f"model name or path unknown (404): does {url} serve model {model!r}, "
                f"and is base_url right?{self._endpoint.hint(path)}"
            )
        if 300 <= status < 400:
            return f"{url} redirects elsewhere ({status}): is base_url right?"
        if status == 429:
            return f"{url} asks for patience (429): too many requests or tokens"
        if status in PASSING:
            return f"{url} cannot answer now ({status})"
        return f"{url} refused the request ({status})"

    def content_type(self, status: int, found: str) -> Failure:
        """The failure of an answer that is not JSON."""
        what = self._scrubber.quote(found, 80) or "no content type"
        message = f"{self._endpoint.url}: is base_url right? it answered with {what}, not with JSON"
        return Failure(ModelUnavailable(message, retryable=False), status=status)

    def unparsable(self, status: int) -> Failure:
        """The failure of JSON that is cut off or broken."""
        message = f"{self._endpoint.url} sent JSON that is cut off or broken"
        return Failure(ModelUnavailable(message), status=status)

    def broken(self, error: Exception, *, connected: bool) -> Failure:
        """The failure of a connection; *error* knows the headers, so only its words are kept."""
        said = self._scrubber.quote(f"{type(error).__name__}: {error}".rstrip(": "))
        url = self._endpoint.url
        if connected:
            return Failure(ModelUnavailable(f"the connection to {url} broke: {said}"))
        if _is_of(error, ssl.SSLError):
            message = f"no secure connection to {url}: is it https that this server speaks, "
            message += f"with a certificate that this machine trusts? ({said})"
            # Only a handshake that was cut off may go another way the next time.
            return Failure(ModelUnavailable(message, retryable=_is_of(error, ssl.SSLEOFError)))
        if _is_of(error, socket.gaierror):
            message = f"cannot find the host of {url}: is its name right? ({said})"
            return Failure(ModelUnavailable(message))
        return Failure(
            ModelUnavailable(f"cannot connect: is the server running at {url}? ({said})")
        )

    def unusable(self, error: Exception) -> Failure:
        """The failure of an environment that no client can be made in: its proxies, its files."""
        said = self._scrubber.quote(f"{type(error).__name__}: {error}")
        message = f"no HTTP client can be made; look at the environment's proxies: {said}"
        return Failure(ModelUnavailable(message, retryable=False))

    def raw(self, text: str) -> str:
        """The beginning of *text*, fit for an error."""
        return self._scrubber.hide(text[:SHOWN_CHARACTERS])


def _is_of(error: BaseException | None, kind: type[BaseException]) -> bool:
    """Whether *error*, or what it was raised for, is of *kind*."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, kind):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds to wait by ``Retry-After``, number or HTTP date; past: 0; ``None``: unknown."""
    millis = _number(headers.get("retry-after-ms", ""))
    if millis is not None:
        return millis / 1_000
    value = headers.get("retry-after", "").strip()
    seconds = _number(value)
    if seconds is not None or not value:
        return seconds
    try:
        at = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, (at - now).total_seconds())


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _words_of(headers: Mapping[str, str], body: bytes) -> str:
    """
    The message in an error's body, if it has one. Nothing of a web page, and nothing of JSON but
    messages: some servers send back the request that they refuse, and texts of a memory do not
    belong in errors.
    """
    if "html" in headers.get("content-type", ""):
        return ""
    text = body.decode("utf-8", "replace")
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return text[:SHOWN_CHARACTERS]
    return _message_of(value)[:SHOWN_CHARACTERS]


def _message_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "; ".join(filter(None, map(_message_of, value[:5])))
    if not isinstance(value, Mapping):
        return ""
    found = (value.get(key) for key in ("error", "message", "detail", "msg"))
    return next((text for text in map(_message_of, found) if text), "")


# ── What may be quoted of a server ──────────────────────────────────────────────────────

SHARED = 8
"""Characters in a row that a word may share with a secret before it is hidden."""
HIDDEN = "***"

_MASKED = re.compile(r"[*•…]{3,}|\.{4,}|x{6,}", re.IGNORECASE)
_USERINFO = re.compile(r"//[^/\s@]+@")
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_WORD = re.compile(r"""[^\s"'<>(){}\[\],;]+""")


class Scrubber:
    """Hides secrets in foreign texts: as they are, in part, in Base64, URL-escaped, or masked."""

    def __init__(self, secrets: Iterable[SecretStr]) -> None:
        values = (secret.get_secret_value() for secret in secrets)
        self._secrets = tuple(SecretStr(value) for value in values if value)
        told = (secret.get_secret_value() for secret in self._secrets)
        self._forms = tuple(SecretStr(form) for secret in told for form in _forms(secret))

    def hide(self, text: str) -> str:
        """*text* without secrets; its length and lines are otherwise kept."""
        text = _USERINFO.sub("//", clean(text))
        for secret in self._secrets:
            text = text.replace(secret.get_secret_value(), HIDDEN)
        return _WORD.sub(self._word, text)

    def quote(self, text: str, limit: int = 300) -> str:
        """*text* as one line of at most *limit* characters, without secrets."""
        line = one_line(self.hide(text[: 20 * limit]))
        return line if len(line) <= limit else f"{line[:limit]}…"

    def _word(self, found: re.Match[str]) -> str:
        word = found.group()
        once = unquote_plus(word)
        readings = {word, unquote(word), once, unquote_plus(once)}
        betrays = any(
            _shares(reading, form.get_secret_value())
            for form in self._forms
            for reading in readings
        )
        return HIDDEN if betrays else word


def _forms(secret: str) -> Iterator[str]:
    """*secret* as it may be quoted: itself, the parts of a Basic header, each in Base64 too."""
    scheme, _, encoded = secret.partition(" ")
    known = [secret]
    if scheme.lower() == "basic":
        try:
            pair = b64decode(encoded, validate=True).decode()
        except ValueError:
            pair = ""
        password = pair.partition(":")[2]
        known += [part for part in (encoded, pair, password) if len(part) >= SHARED]
    for one in known:
        yield one
        for before in range(3):
            # What stands before it in a longer text shifts its bits; the ends are not its own.
            written = b64encode(bytes(before) + one.encode())
            whole = written[-(-8 * before // 6) : len(written) - 4 or None]
            if len(whole) >= SHARED:
                yield whole.decode()
                yield whole.translate(_URL_SAFE).decode()


def _shares(word: str, secret: str) -> bool:
    if _MASKED.search(word) and (secret[:3] in word or secret[-3:] in word):
        return True  # "sk-ab******yz": a mask between the ends of the key
    return any(part in secret for part in _parts(word))


def _parts(word: str) -> Iterator[str]:
    """Every run of so many characters of *word*."""
    return (word[i : i + SHARED] for i in range(len(word) - SHARED + 1))
