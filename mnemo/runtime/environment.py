"""Reading settings from ``MNEMO_*`` variables; pydantic-settings is slow to import."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import create_model
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, EnvSettingsSource

from mnemo.errors import ConfigError

PREFIX = "MNEMO_"

NOT_SETTINGS = frozenset(
    {
        "mnemo_embedder",
        "mnemo_store",
        "mnemo_venv",
        "mnemo_model_venv",
        "mnemo_model_url",
        "mnemo_model",
        "mnemo_model_key",
    }
)
"""Variables of the command line and the scripts that share the prefix."""


def read_environment(sections: Mapping[str, FieldInfo]) -> dict[str, Any]:
    """
    Read the settings of the environment as nested keyword arguments.

    Args:
        sections: Fields of the model that takes them.

    Raises:
        ConfigError: If a variable with the prefix names no section or setting, or its
            value is no JSON where JSON is needed.
    """
    _refuse_unknown(sections)
    fields: dict[str, Any] = {
        name: (field.annotation, field.default) for name, field in sections.items()
    }
    shape = create_model("Environment", __base__=BaseSettings, **fields)
    source = EnvSettingsSource(shape, env_prefix=PREFIX, env_nested_delimiter="__")
    source.env_vars = {k: v for k, v in source.env_vars.items() if k not in NOT_SETTINGS}
    try:
        return source()
    except ValueError as error:
        raise ConfigError(f"the environment cannot be read: {error}") from error


def _refuse_unknown(sections: Collection[str]) -> None:
    for variable in os.environ:
        name = variable.lower()
        if not name.startswith(PREFIX.lower()) or name in NOT_SETTINGS:
            continue
        section = name.removeprefix(PREFIX.lower()).partition("__")[0]
        if section not in sections:
            raise ConfigError(f"{variable}: there is no setting {section!r}")
