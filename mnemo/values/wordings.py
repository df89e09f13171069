"""Wordings of intents and edits of claims as plain values, of stored bodies and archives."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from hashlib import blake2b
from typing import Any

import numpy as np

from mnemo.runtime.validation import stored_text, stored_time
from mnemo.values.graph import Edit, Vector, Wording

_MARK = "/wording-"
MOST_WORDINGS = 8
"""Wordings that an intent keeps, the first ones (S): bounds what a merge has to compare."""
MOST_SOURCES = 32
"""Steps that a wording names, the first ones (S)."""


def added(wordings: Sequence[Wording], wording: Wording) -> tuple[Wording, ...]:
    """Add *wording*: a known text gets its sources, a new one a place if there is one."""
    kept = list(wordings)
    for at, one in enumerate(kept):
        if one.text == wording.text:
            sources = tuple(dict.fromkeys((*one.sources, *wording.sources)))[:MOST_SOURCES]
            kept[at] = replace(one, sources=sources, vector=_either(one.vector, wording.vector))
            return tuple(kept)
    return (*kept, replace(wording, sources=wording.sources[:MOST_SOURCES]))[:MOST_WORDINGS]


def _either(one: Vector | None, other: Vector | None) -> Vector | None:
    return other if one is None else one


def wording_key(intent_id: str, text: str) -> str:
    """The key of a wording's vector while a repository moves to another space."""
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{intent_id}{_MARK}{digest}"


def wording_owner(key: str) -> str:
    """The id of the intent that a ``wording_key`` is of; any other key as it is."""
    return key.partition(_MARK)[0]


def plain_wordings(wordings: Iterable[Wording]) -> list[list[Any]]:
    """Text, sources and vector of each, as JSON has them."""
    return [[one.text, list(one.sources), packed_vector(one.vector)] for one in wordings]


def packed_vector(vector: Vector | None) -> str | None:
    """Base64 of little-endian float32."""
    if vector is None:
        return None
    return base64.b64encode(np.ascontiguousarray(vector, dtype="<f4").tobytes()).decode()


def read_wordings(plain: Any) -> tuple[Wording, ...]:
    """What ``plain_wordings`` was given. *Raises* ``ValueError`` for any other value."""
    try:
        return tuple(_read(*one) for one in plain)
    except (TypeError, binascii.Error) as error:
        raise ValueError(f"these are no wordings of an intent: {error}") from None


def _read(text: Any, sources: Any, vector: Any) -> Wording:
    if not isinstance(text, str) or not all(isinstance(source, str) for source in sources):
        raise ValueError("a wording is a text, the ids of its steps, and a vector")
    row = None
    if vector is not None:
        row = np.frombuffer(base64.b64decode(vector, validate=True), dtype="<f4")
    return Wording(
        text, tuple(sources), None if row is None else row.astype(np.float32, copy=False)
    )


def plain_edits(edits: Iterable[Edit]) -> list[list[str | None]]:
    """Time, who made it, the wording before and the reason of each, as JSON has them."""
    return [[edit.at.isoformat(), edit.by, edit.before, edit.reason] for edit in edits]


def read_edits(plain: Any) -> tuple[Edit, ...]:
    """What ``plain_edits`` was given. *Raises* ``ValueError`` for any other value."""
    try:
        return tuple(_read_edit(*one) for one in plain)
    except TypeError as error:
        raise ValueError(f"these are no edits of a fact or instruction: {error}") from None


def _read_edit(at: Any, by: Any, before: Any, reason: Any) -> Edit:
    if by != "hand":
        raise ValueError("an edit is made by hand")
    texts = (None if text is None else stored_text("an edit", text) for text in (before, reason))
    return Edit(stored_time("an edit", datetime.fromisoformat(at)), by, *texts)
