"""
Simulate a day of many users on several machines, from unit costs that were measured.

``--measure sqlite`` or ``postgres`` makes small stores, measures what each thing costs
(``unit_costs``), and writes it to ``scripts/simulation.json``; without it those costs are taken.
Users follow Zipf's law up to ``most`` turns a day, and come in visits of some turns. A turn is a
question that is recalled, two messages that are appended, and the job that extracts them. A machine
runs a service on each core. One service is simulated, turn by turn; all are alike. With ``sticky``
routing a user's turns go to one service, with ``random`` each goes to any. A day begins at its
quietest hour with services that hold nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import numpy as np
import unit_costs
from numpy.typing import NDArray

from mnemo.index.segments import SEALED_FROM, absorbed

KEPT = Path(__file__).with_name("simulation.json")
USERS = (10_000, 1_000_000, 100_000_000)
DAY_S, HOUR_S, GB, MB = 86_400, 3_600, 10**9, 10**6
SWING = 0.8
"""Of the daily curve: the busiest hour has 1.8 times the mean, the quietest a fifth of it."""
MESSAGES, STRATA = 2, 100_000
"""Of a turn; users that stand for all where something is summed over them."""
Costs: TypeAlias = Mapping[str, Any]
Reals: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """
    What is simulated.

    Attributes:
        mean, most: Turns of a user in a day: of all on average, and of one at most.
        slope: Of Zipf's law; 0, or *mean* as *most*, is the same activity for all.
        visit, gap_s: Turns of a visit, and seconds between two of them.
        days: For which messages are kept.
        cores: Of a machine, and services on it.
        full: Share of the processor time at which a machine or the server is full.
    """

    users: int = 1_000_000
    machines: int = 1
    routing: str = "sticky"
    mean: float = 2.0
    most: float = 50.0
    slope: float = 1.0
    visit: int = 5
    gap_s: float = 60.0
    days: float = 90.0
    cores: int = 4
    memory_mb: float = 512.0
    ram_gb: float = 16.0
    disk_gb: float = 1_000.0
    server_cores: int = 16
    server_ram_gb: float = 128.0
    server_disk_gb: float = 10_000.0
    server_connections: int = 1_000
    full: float = 0.7

    @property
    def services(self) -> int:
        """On all machines."""
        return self.machines * self.cores


# ── Who does what when ────────────────────────────────────────────────────────────────


class Activity:
    """Turns a day by rank: ``most`` for the first users, and from there on falling as a power."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet, self._all = fleet, fleet.mean * fleet.users
        low, high = 0.0, float(fleet.users)
        for _ in range(100):
            self._flat = (low + high) / 2
            mass = self._flat + self._flat**fleet.slope * self._power(self._flat, fleet.users)
            low, high = (self._flat, high) if mass * fleet.most < self._all else (low, self._flat)

    def _power(self, begin: float, end: float) -> float:
        """The integral of ``x ** -slope``."""
        rise = 1 - self._fleet.slope
        return (end**rise - begin**rise) / rise if rise else math.log(end / begin)

    def rate(self, ranks: Reals) -> Reals:
        """Turns a day of the users of *ranks*, from 0."""
        falling = (self._flat / np.maximum(ranks, self._flat)) ** self._fleet.slope
        return np.asarray(self._fleet.most * falling)

    def ranks(self, shares: Reals) -> Reals:
        """The ranks below which such *shares* of all turns lie."""
        mass, rise = shares * self._all / self._fleet.most, 1 - self._fleet.slope
        rest = np.maximum(mass - self._flat, 0) / self._flat**self._fleet.slope
        tail = (self._flat**rise + rise * rest) ** (1 / rise) if rise else self._flat * np.exp(rest)
        return np.asarray(np.minimum(np.where(rest > 0, tail, mass), self._fleet.users - 1e-3))


def turns(fleet: Fleet, activity: Activity, chance: np.random.Generator) -> tuple[Ints, Reals]:
    """The turns that one service sees in a day, in order: the user's place, and the second."""
    visits, here = fleet.users * fleet.mean / fleet.visit, 1 / fleet.services
    if fleet.routing == "sticky":
        seen, of_visit = visits * here, np.array([0.0] * (fleet.visit - 1) + [1.0])
    else:  # each turn of a visit by itself; a visit is seen if one of them is
        places = range(1, fleet.visit + 1)
        chosen = [math.comb(fleet.visit, k) * here**k for k in places]
        of_visit = np.array(chosen) * (1 - here) ** (fleet.visit - np.array(places))
        seen, of_visit = visits * of_visit.sum(), of_visit / of_visit.sum()
    count = chance.poisson(seen)
    ranks = activity.ranks(chance.random(count))
    users = (ranks / fleet.services if fleet.routing == "sticky" else ranks).astype(np.int64)
    hours = np.linspace(0, 2 * np.pi, 1_441)
    grown = (hours - SWING * np.sin(hours)) / (2 * np.pi)
    began = np.interp(chance.random(count), grown, hours * DAY_S / (2 * np.pi))
    many = chance.choice(np.arange(1, fleet.visit + 1), size=count, p=of_visit)
    after = chance.random(many.sum()) * fleet.visit * fleet.gap_s
    users, times = np.repeat(users, many), np.repeat(began, many) + after
    order = np.argsort(times, kind="stable")
    return users[order], times[order]


def replay(keys: Ints, sizes: Reals, most: float) -> NDArray[np.bool_]:
    """Whether each of *keys* is still held when it is used: used last stays, up to *most*."""
    held, total, hits = OrderedDict[int, float](), 0.0, np.zeros(len(keys), np.bool_)
    for place, (key, size) in enumerate(zip(keys.tolist(), sizes.tolist(), strict=True)):
        if key in held:
            held.move_to_end(key)
            hits[place] = True
            continue
        held[key] = size
        total += size
        while total > most and len(held) > 1:  # the one in use stays
            total -= held.popitem(last=False)[1]
    return hits


# ── What it costs ─────────────────────────────────────────────────────────────────────


def at(costs: Costs, what: str, documents: Reals) -> Reals:
    """A cost, or both sides of it, on straight lines between the sizes that were measured."""
    sizes, values = np.array(costs["documents"], float), np.array(costs[what], float)
    place = np.clip(np.searchsorted(sizes, documents) - 1, 0, len(sizes) - 2)
    share = (documents - sizes[place]) / (sizes[place + 1] - sizes[place])
    share = share.reshape(-1, *[1] * (values.ndim - 1))
    return np.asarray(np.maximum(values[place] + share * (values[place + 1] - values[place]), 0))


class Day:
    """
    A day of one of the fleet's services, and what follows for all.

    Attributes:
        users, times, hours: Of each turn that it sees: whose, and when.
        everyone: Documents of users that stand for all.
        hits: Turns that find the index of their user in memory.
        memory: Bytes that the service holds for itself.
    """

    def __init__(self, costs: Costs, fleet: Fleet, seed: int = 0) -> None:
        self.costs, self.fleet, activity = costs, fleet, Activity(fleet)
        self.is_served = costs["engine"] == "postgres"
        self.users, self.times = turns(fleet, activity, np.random.default_rng(seed))
        self.hours = np.minimum(self.times // HOUR_S, 23).astype(np.int64)
        kept = fleet.days * (MESSAGES + costs["facts"])
        strata = min(STRATA, fleet.users)
        places = (np.arange(strata) + 0.5) * fleet.users / strata
        self.everyone = kept * activity.rate(places)
        stride = fleet.services if fleet.routing == "sticky" else 1
        self._documents = kept * activity.rate((self.users + 0.5) * stride)
        sizes = at(costs, "held_bytes", self._documents)
        self.hits = replay(self.users, sizes, fleet.memory_mb * MB)
        self.first = np.zeros(len(self.users), np.bool_)
        self.first[np.unique(self.users, return_index=True)[1]] = True
        self.opened = int(self.first.sum())
        held = min(float(sizes[self.first].sum()), fleet.memory_mb * MB)
        self.memory = costs["base_bytes"] + held + self.opened * costs["open_bytes"]

    @cached_property
    def found(self) -> NDArray[np.bool_]:
        """Of the turns that are no hits, those whose rows are in memory of whoever keeps them."""
        fleet = self.fleet
        free = fleet.ram_gb * GB / fleet.cores - self.memory
        if self.is_served:
            free = self.servers * fleet.server_ram_gb * GB / fleet.services
        rows, missed = at(self.costs, "row_bytes", self._documents), ~self.hits
        return replay(self.users[missed], rows[missed], max(0.0, free))

    @cached_property
    def cores(self) -> Reals:
        """Processor time a second in the busiest hour: of a service, and of the server for all."""
        costs, once, missed = self.costs, self.first[:, None], ~self.hits[:, None]
        recall, cold, append, opening = (
            at(costs, what, self._documents) for what in ("recall", "cold", "append", "open")
        )
        spent = np.where(missed, cold, recall) + MESSAGES * append + once * opening
        spent += costs["texts"] * np.array(costs["embed"]) + costs["question"]
        spent += costs["job"]
        is_open = np.cumsum(np.bincount(self.hours[self.first], minlength=24))[:, None]
        by_hour = HOUR_S * (np.array(costs["rest"]) + is_open * np.array(costs["idle"]))
        np.add.at(by_hour, self.hours, spent)
        return np.asarray(by_hour.max(axis=0) / 1_000 / HOUR_S * [1, self.fleet.services])

    def total(self, what: str) -> float:
        """Bytes of all users."""
        return float(at(self.costs, what, self.everyone).mean()) * self.fleet.users

    @cached_property
    def segments(self) -> float:
        """Of all users."""
        counts = np.array(segments(int(self.everyone.max()) // SEALED_FROM))
        said = MESSAGES / (MESSAGES + self.costs["facts"])  # messages and facts lie apart
        sealed = [(part * self.everyone // SEALED_FROM).astype(int) for part in (said, 1 - said)]
        return sum(float(counts[times].mean()) for times in sealed) * self.fleet.users

    def of_machine(self) -> dict[str, float]:
        """Resource of a machine → share of it that is used."""
        fleet, disk = self.fleet, self.total("row_bytes") / self.fleet.machines
        used = {
            "processor": self.cores[0] / fleet.full,
            "memory": self.memory * fleet.cores / (fleet.ram_gb * GB),
        }
        return used if self.is_served else used | {"disk": disk / (fleet.disk_gb * GB)}

    def of_server(self) -> dict[str, float]:
        """Resource of one database server → share of it that is used, if all use that one."""
        fleet, connected = self.fleet, self.fleet.services * self.costs["connections"]
        return {
            "processor": self.cores[1] / (fleet.full * fleet.server_cores),
            "connections": connected / fleet.server_connections,
            "disk": self.total("row_bytes") / (fleet.server_disk_gb * GB),
        }

    @cached_property
    def servers(self) -> int:
        """Database servers, as few as bear all."""
        return math.ceil(max(self.of_server().values()))


def segments(most: int) -> list[int]:
    """How many segments a repository has when it was sealed no, one, … up to *most* times."""
    sizes, counts = list[int](), [0]
    for _ in range(most):
        first = len(sizes) - absorbed(sizes, SEALED_FROM)
        sizes[first:] = [sum(sizes[first:]) + SEALED_FROM]
        counts.append(len(sizes))
    return counts


# ── Where it breaks ───────────────────────────────────────────────────────────────────


def machine_bears(costs: Costs, fleet: Fleet) -> dict[str, float]:
    """Resource of a machine → users at which it is used up, the first of them first."""
    fleet, before = replace(fleet, users=1_000, machines=1), dict[str, float]()
    while max((now := Day(costs, fleet).of_machine()).values()) < 1:
        fleet, before = replace(fleet, users=2 * fleet.users), now
    half, then = fleet.users / 2, {name: before.get(name, 0.0) for name in now}
    borne = {  # on a straight line through the last two
        name: half * (1 + (1 - then[name]) / max(share - then[name], 1e-9))
        for name, share in now.items()
    }
    return dict(sorted(borne.items(), key=lambda one: one[1]))


def table(costs: Costs, fleet: Fleet, numbers: Sequence[int]) -> dict[str, Any]:
    """The sizing table of *numbers* of users, with as few machines as bear them; what breaks."""
    first, rows = {"a machine": machine_bears(costs, fleet)}, dict[str, list[str]]()
    borne = min(first["a machine"].values())
    for users in numbers:
        fleet = replace(fleet, users=users, machines=math.ceil(users / borne))
        day, strewn = Day(costs, fleet), Day(costs, replace(fleet, routing="random"))
        for name, cell in column(day, strewn):
            rows.setdefault(name, []).append(cell)
    if day.is_served:
        server = {name: users / share for name, share in day.of_server().items()}
        first["a database server"] = dict(sorted(server.items(), key=lambda one: one[1]))
    breaks = {
        what: {name: shown(users) for name, users in one.items()} for what, one in first.items()
    }
    return {"users": numbers, "rows": rows, "first": breaks}


def column(day: Day, strewn: Day) -> Iterator[tuple[str, str]]:
    """Names and cells of the table, of sticky routing; *strewn*: the same day with random."""
    fleet, both, most = day.fleet, (day, strewn), shown(day.everyone.max())
    yield "machines", f"{fleet.machines:,}"
    yield "documents", shown(day.everyone.mean() * fleet.users)
    yield "documents of a user on average; of one, at most", f"{shown(day.everyone.mean())}; {most}"
    yield "rows", f"{shown(day.total('row_bytes'))}B"
    yield "of it segments", f"{shown(day.segments)}; {shown(day.total('segment_bytes'))}B"
    busiest = np.bincount(day.hours).max() / HOUR_S * fleet.services
    yield "turns, and jobs, a second in the busiest hour", shown(busiest)
    yield "index held when asked for", ", ".join(f"{one.hits.mean():.0%}" for one in both)
    yield "else its rows in memory", ", ".join(f"{one.found.mean():.0%}" for one in both)
    yield "busy cores of a machine", ", ".join(shown(one.cores[0] * fleet.cores) for one in both)
    yield "memory of a machine's services", f"{shown(day.memory * fleet.cores)}B"
    if day.is_served:
        yield "connections", f"{fleet.services * day.costs['connections']:,}"
        yield "busy cores of the database", ", ".join(shown(one.cores[1]) for one in both)
        yield "database servers", f"{day.servers:,}"


def shown(number: float) -> str:
    """Two digits that say something, and the letter of a power of a thousand."""
    power = min(max(0, int(math.log10(max(number, 1) * 1.005) // 3)), 5)
    scaled = number / 1_000**power
    digits = 0 if scaled >= 9.95 else 1 if scaled >= 0.95 else 2
    return f"{scaled:.{digits}f}" + ("", " k", " M", " G", " T", " P")[power]


KINDS = {field.name: type(field.default) for field in fields(Fleet)[3:]}


def setting(word: str) -> tuple[str, Any]:
    """Name and value of a setting. *Raises* ``SystemExit``: there is none of that name."""
    name, _, value = word.partition("=")
    if name not in KINDS:
        raise SystemExit(f"no setting {name!r}; known: {', '.join(KINDS)}")
    return name, KINDS[name](value)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure where that is asked for; simulate; print, and keep what was printed."""
    parser = argparse.ArgumentParser(prog="scripts/simulate_scale", description=__doc__)
    add = parser.add_argument
    add("settings", nargs="*", metavar="SETTING=VALUE", help=f"of {', '.join(KINDS)}")
    add("--users", type=int, nargs="+", default=USERS)
    add("--measure", action="append", choices=("sqlite", "postgres"), help="unit costs first")
    add("--quick", action="store_true", help="on stores so small that costs say little")
    add("--file", type=Path, default=KEPT, help="where unit costs are, and what is kept")
    add("--keep", action="store_true", help="keep what is printed, for the guide")
    given = parser.parse_args(argv)
    fleet = Fleet(**dict(map(setting, given.settings)))
    kept = json.loads(given.file.read_text("utf-8")) if given.file.exists() else {}
    for engine in given.measure or ():
        with tempfile.TemporaryDirectory(prefix="mnemo-costs-") as folder:
            costs = anyio.run(unit_costs.measure, Path(folder), engine, given.quick)
        kept[engine] = {"costs": costs}
        given.file.write_text(json.dumps(kept) + "\n", "utf-8")
    for engine, one in kept.items():
        made = table(one["costs"], fleet, given.users)
        print(f"\n{engine}, unit costs of {one['costs']['day']}, {one['costs']['machine']}")
        for name, cells in made["rows"].items():
            print(f"  {name:<62}" + "".join(f"{cell:>16}" for cell in cells))
        for what, limits in made["first"].items():
            told = ", ".join(f"{name} at {users} users" for name, users in limits.items())
            print(f"  {what} breaks by: {told}")
        kept[engine] = {"costs": one["costs"], **made}
    if given.keep:
        given.file.write_text(json.dumps(kept) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
