"""A recall's arguments, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import get_args

from mnemo.graph.nodes import NodeType
from mnemo.prompts.asked import Asked
from mnemo.recall.candidates import Window
from mnemo.recall.plan import MODES, Mode
from mnemo.recall.question import MAX_QUERY_CHARACTERS, RecallContext
from mnemo.runtime.text import clean, is_blank
from mnemo.runtime.validation import whole_number

__all__ = ["Request"]

_TYPES: tuple[NodeType, ...] = get_args(NodeType)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """
    What a recall was asked for; see ``Recall.recall``.

    Attributes:
        mode: The caller's; ``None`` where the question decides.
        reason: ``None`` where it depends on whether there is a model.
        explain: Whether candidates are to say why they came.
    """

    query: str
    k: int
    mode: Mode | None
    max_hops: int
    reason: bool | None
    window: Window
    types: tuple[NodeType, ...] | None
    context: RecallContext | None
    explain: bool = False

    @classmethod
    def checked(
        cls,
        query: str,
        *,
        k: int,
        mode: str | None,
        max_hops: int,
        reason: bool | None,
        since: datetime | None,
        until: datetime | None,
        types: Sequence[str] | None,
        context: RecallContext | None,
        explain: bool = False,
    ) -> Request:
        """Check the arguments. *Raises* ``ValueError`` for a blank query or one out of range."""
        return cls(
            query=_checked_query(query),
            k=whole_number("k", k, 1),
            mode=_checked_mode(mode),
            max_hops=whole_number("max_hops", max_hops, 0),
            reason=reason if reason is None else bool(reason),
            window=Window.checked(since, until),
            types=_checked_types(types),
            context=context,
            explain=bool(explain),
        )

    def asked(self, at: datetime) -> Asked:
        """The question as models are shown it, asked *at*."""
        if self.context is None:
            return Asked(query=self.query, at=at)
        return Asked(query=self.query, at=at, goal=self.context.goal, steps=self.context.steps)


def _checked_query(query: str) -> str:
    if query is not None and not isinstance(query, str):
        raise ValueError(f"query must be text, not {type(query).__name__}")
    if is_blank(query):
        raise ValueError("Query cannot be blank")
    return clean(query[:MAX_QUERY_CHARACTERS])


def _checked_mode(mode: str | None) -> Mode | None:
    for known in MODES:
        if mode == known:
            return known
    if mode is not None:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
    return None


def _checked_types(types: Sequence[str] | None) -> tuple[NodeType, ...] | None:
    if types is None:
        return None
    chosen = tuple(known for known in _TYPES if known in types)
    unknown = [type for type in types if type not in _TYPES]
    if isinstance(types, str) or unknown or not chosen:
        raise ValueError(f"types must be some of {', '.join(_TYPES)}, not {types!r}")
    return chosen
