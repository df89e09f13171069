"""
Closings of labelled pairs: how many are right, how many of the changes are found.

Each pair of an older and a newer statement is remembered by one speaker, the newer a week
later, without a chat model. A pair counts as closed when a fact of the older no longer holds.

FILE is a list of ``{"older", "newer", "changed": bool}``.
"""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio

from mnemo import Mnemo
from mnemo.testing import HashingEmbedder

FIRST = datetime(2024, 5, 6, 9, tzinfo=UTC)


async def is_closed(service: Mnemo, name: str, pair: dict[str, Any]) -> bool:
    """Whether a fact of the older statement of *pair* was closed by the newer."""
    repo = await service.open_repo(name)
    await repo.remember(pair["older"], at=FIRST, wait=True)
    await repo.remember(pair["newer"], at=FIRST + timedelta(days=7), wait=True)
    facts = await repo.memories(types=("semantic",), superseded=True, limit=100)
    await service.close_repo(name)
    return any(fact.valid_to is not None for fact in facts)


async def measured(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts, precision and recall of *pairs*."""
    closed = right = 0
    async with Mnemo("memory:", embedder=HashingEmbedder()) as service:
        for number, pair in enumerate(pairs):
            if await is_closed(service, f"pair-{number}", pair):
                closed += 1
                right += bool(pair["changed"])
    changed = sum(bool(pair["changed"]) for pair in pairs)
    return {
        "pairs": len(pairs),
        "changed": changed,
        "closed": closed,
        "right": right,
        "precision": round(right / closed, 3) if closed else None,
        "recall": round(right / changed, 3) if changed else None,
    }


def main() -> None:
    """Print one JSON object for each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    for path in parser.parse_args().files:
        pairs = json.loads(path.read_text("utf-8"))
        print(json.dumps({"file": path.name, **anyio.run(measured, pairs)}))


if __name__ == "__main__":
    main()
