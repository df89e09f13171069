"""Recall with a signal, a group of signals or a stage left out: what each of them gives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bench_floor import Floor, Scores, difference

from mnemo.recall.score import GROUPS, WEIGHTS

CUT = "the cut"


@dataclass(frozen=True)
class Without:
    """
    One way to ask without something.

    Attributes:
        signals: Names in ``WEIGHTS`` that weigh nothing.
        options: Of ``Repository.recall``.
    """

    signals: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


EVERYTHING: dict[str, Without] = {
    **{name: Without((name,)) for name in WEIGHTS},
    **{f"all of {group}": Without(names) for group, names in GROUPS.items()},
    "hops": Without(options={"max_hops": 0}),
    "facts": Without(options={"types": ("episodic",)}),
}
"""What can be left out, by name: each signal, each group, and the stages."""


@contextmanager
def left_out(signals: Sequence[str]) -> Iterator[None]:
    """Within this block these signals weigh nothing."""
    shipped = {name: WEIGHTS[name] for name in signals if name in WEIGHTS}
    WEIGHTS.update({name: dict.fromkeys(weights, 0.0) for name, weights in shipped.items()})
    try:
        yield
    finally:
        WEIGHTS.update(shipped)


async def ablated(ask: Callable[..., Awaitable[Scores]]) -> dict[str, Scores]:
    """
    Ask without each thing in turn.

    Args:
        ask: Asks every question, with these options of ``Repository.recall``.
    """
    found = {}
    for name, without in EVERYTHING.items():
        with left_out(without.signals):
            found[name] = await ask(**without.options)
    return found


def gains(
    mine: Scores, ablations: Mapping[str, Scores], measures: Sequence[str]
) -> dict[str, dict[str, dict[str, float]]]:
    """What each thing gives: the measures with it, less those without it."""
    return {
        name: {measure: difference(mine, scores, measure) for measure in measures}
        for name, scores in ablations.items()
    }


def verdict(floor: Floor, found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Say whether the floor held; where it did not, also what costs most of its measure."""
    if not floor.is_broken:
        return str(floor)
    costs = {name: -gain[floor.measure]["mean"] for name, gain in found.items()}
    worst = max(costs, key=lambda name: costs[name])
    if costs[worst] <= 0:
        return f"{floor}; leaving nothing out lifts it"
    return f"{floor}; without {worst} it is {100 * costs[worst]:.1f} higher"


def show(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    """Print what each thing gives: a line each, and one line for those that change nothing."""
    if not found:
        return
    idle = [name for name, gain in found.items() if not any(_changes(d) for d in gain.values())]
    print("\nwhat each gives: with it, less without it")
    for name, gain in found.items():
        if name not in idle:
            print(f"  {name:<26}{'; '.join(_shown(m, d) for m, d in gain.items())}")
    print(f"  nothing changes without: {', '.join(idle) or 'none'}")


def _changes(d: Mapping[str, float]) -> bool:
    return any(d.values())


def _shown(measure: str, d: Mapping[str, float]) -> str:
    return f"{measure} {100 * d['mean']:+.1f} ({100 * d['low']:+.1f} to {100 * d['high']:+.1f})"
