"""What a part of mnemo says where a package that it needs is missing, or too old."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NoReturn

DISTRIBUTION = "mnemo-sessions"
_BOUND = re.compile(r"([\w.-]+)[^;>]*>=([\w.]+)[^;]*;.*\bextra == ['\"]([\w-]+)['\"]")


def refuse(what: str, extra: str, error: ImportError, *modules: str) -> NoReturn:
    """
    Raise *error* of an import in *what* anew, as what to install.

    One that begins in none of *modules*, the extra's own, is raised as it is.
    """
    if modules and (error.name or "").split(".")[0] not in modules:
        raise error
    raise ImportError(needed(what, extra), name=error.name) from error


def needed(what: str, extra: str) -> str:
    """What to install for *what*; a package below its bound is named with both versions."""
    install = f"'{DISTRIBUTION}[{extra}]'"
    for name, least, found in _too_old(extra):
        return f"{what} needs {name} {least}, not {found}: pip install --upgrade {install}"
    return f"{what} needs pip install {install}"


def _too_old(extra: str) -> Iterator[tuple[str, str, str]]:
    """Packages of *extra* that are installed below their bounds: name, bound, version."""
    # Of no use before something is missing, and 30 modules.
    from importlib.metadata import PackageNotFoundError, requires, version

    try:
        wanted = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return
    for bound in filter(None, map(_BOUND.match, wanted)):
        name, least, of = bound.groups()
        try:
            found = version(name)
        except PackageNotFoundError:
            continue
        if of == extra and _numbers(found) < _numbers(least):
            yield name, least, found


def _numbers(text: str) -> tuple[int, ...]:
    """The release of a version, as numbers."""
    release = re.match(r"[\d.]*", text)
    return tuple(int(part) for part in (release[0] if release else "").split(".") if part)
