"""Settings of single purposes: checked where they are given, so that no call fails for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

from mnemo.errors import ConfigError
from mnemo.models.transport import number
from mnemo.protocols import Purpose
from mnemo.runtime.text import is_blank

__all__ = ["checked_overrides", "model_name", "output_bound", "temperature_of"]

Fields = Mapping[str, Any]


def model_name(value: Any, name: str = "model") -> str:
    """*value*, if it can name a model. *Raises* ``ConfigError``."""
    if not isinstance(value, str) or is_blank(value):
        raise ConfigError(f"{name} is blank: name the model as its server does")
    return value


def temperature_of(value: Any, name: str = "temperature") -> float | None:
    """*value*, if it is from 0 to 2 or ``None``. *Raises* ``ConfigError``."""
    if value is None:
        return None
    checked = number(name, value, least=0)
    if checked > 2:
        raise ConfigError(f"{name} must be at most 2, not {value!r}")
    return checked


def output_bound(value: Any, name: str = "max_output_tokens") -> int | None:
    """*value*, if it is a whole number from 1 or ``None``. *Raises* ``ConfigError``."""
    return None if value is None else int(number(name, value, least=1, whole=True))


def _timeout(value: Any, name: str) -> float | None:
    return None if value is None else number(name, value, above=0)


def _other_model(value: Any, name: str) -> str | None:
    return None if value is None else model_name(value, name)


_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "model": _other_model,
    "temperature": temperature_of,
    "max_output_tokens": output_bound,
    "timeout_s": _timeout,
}


def checked_overrides(overrides: Mapping[str, Fields] | None) -> dict[str, dict[str, Any]]:
    """
    A copy of *overrides*.

    Raises:
        ConfigError: A purpose or field is unknown, or a value out of range.
    """
    if not isinstance(overrides, Mapping | None):
        raise ConfigError("overrides must be a dict of purposes")
    checked: dict[str, dict[str, Any]] = {}
    for purpose, fields in (overrides or {}).items():
        if purpose not in get_args(Purpose):
            known = ", ".join(get_args(Purpose))
            raise ConfigError(f"overrides: {purpose!r} is no purpose; there are {known}")
        if not isinstance(fields, Mapping):
            raise ConfigError(f"overrides[{purpose!r}] must be a dict of settings")
        checked[purpose] = {key: _field(purpose, key, fields[key]) for key in fields}
    return checked


def _field(purpose: str, key: str, value: Any) -> Any:
    if key not in _CHECKS:
        known = ", ".join(_CHECKS)
        raise ConfigError(f"overrides[{purpose!r}]: {key!r} is no setting; there are {known}")
    return _CHECKS[key](value, f"overrides[{purpose!r}].{key}")
