"""Settings from ``MNEMO_*`` variables; apart, because pydantic-settings is slow to import."""

from __future__ import annotations

import os
from typing import Any

from mnemo.config import Config
from mnemo.errors import ConfigError

__all__ = ["read_environment"]

PREFIX = "MNEMO_"


def read_environment() -> dict[str, Any]:
    """
    Give the settings of the environment as nested keyword arguments of ``Config``.

    Raises:
        ConfigError: If a variable with the prefix names no section or setting.
    """
    from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

    class Shape(BaseSettings):
        model_config = SettingsConfigDict(extra="ignore")

    for name in os.environ:
        section = name.upper().removeprefix(PREFIX).split("__")[0].lower()
        if name.upper().startswith(PREFIX) and section not in Config.model_fields:
            raise ConfigError(f"{name}: there is no setting {section!r}")
    Shape.model_fields.update(Config.model_fields)
    source = EnvSettingsSource(
        Shape, env_prefix=PREFIX, env_nested_delimiter="__", case_sensitive=False
    )
    return source()
