"""The modes of recall: what kind of memory a question asks for."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

__all__ = ["MODES", "Mode"]

Mode: TypeAlias = Literal["semantic", "procedural", "episodic", "mixed"]
MODES: tuple[Mode, ...] = get_args(Mode)
