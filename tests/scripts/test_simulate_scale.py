"""``scripts/simulate_scale`` loses no turn, and agrees with what can be told without it."""

import json
import random
import re
import shutil
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from helpers import child_environment, ran
from postgres_server import ON_POSTGRES

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parents[2] / "scripts"
FREE = [0.0, 0.0]
"""Processor time of what costs nothing."""


@pytest.fixture
def simulate(monkeypatch) -> ModuleType:
    """``scripts/simulate_scale.py``."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return import_module("simulate_scale")


def costs(engine: str = "sqlite", **known: Any) -> dict[str, Any]:
    """Unit costs where nothing costs anything but memory: a kilobyte for a document."""
    sizes = [100, 1_000]
    free = {what: [FREE, FREE] for what in ("recall", "cold", "append", "open")}
    bytes_ = {f"{what}_bytes": [1_000 * n for n in sizes] for what in ("held", "row", "segment")}
    once = dict.fromkeys(("question", "embed", "job", "rest", "idle"), FREE)
    plain = {"facts": 1.0, "texts": 3.0, "open_bytes": 0.0, "base_bytes": 0.0, "connections": 6}
    told = {"day": "2026-01-01", "machine": "a machine", "engine": engine, "documents": sizes}
    return {**free, **bytes_, **once, **plain, **told, **known}


def test_no_turn_is_lost(simulate):
    """Each is a hit or a miss, in one hour, of one user who was seen first once."""
    fleet = simulate.Fleet(users=20_000, machines=2)
    day = simulate.Day(costs(), fleet)
    expected = fleet.users * fleet.mean / fleet.services
    assert len(day.users) == pytest.approx(expected, rel=0.05)
    assert len(day.users) % fleet.visit == 0
    assert (day.times[:-1] <= day.times[1:]).all()
    assert len(day.hits) == len(day.times) == int(day.hits.sum()) + len(day.found)
    assert np.bincount(day.hours, minlength=24).sum() == len(day.users)
    assert day.opened == day.first.sum() == len(set(day.users.tolist()))
    assert day.users.max() < fleet.users / fleet.services


@pytest.mark.parametrize("routing", ["sticky", "random"])
@pytest.mark.parametrize("machines", [1, 3, 50])
def test_services_share_all_turns(simulate, routing, machines):
    """Whoever is routed where, a service sees its part; random routing strews the users."""
    fleet = simulate.Fleet(users=100_000, machines=machines, routing=routing)
    day = simulate.Day(costs(), fleet)
    assert len(day.users) * fleet.services == pytest.approx(fleet.users * fleet.mean, rel=0.06)
    seen = np.unique(day.users)
    assert len(seen) < len(day.users)
    assert bool(seen.max() < fleet.users / fleet.services) is (routing == "sticky")


def test_one_service_sees_the_same_however_it_is_routed(simulate):
    """Sticky or random: there is no other one."""
    fleet = simulate.Fleet(users=5_000, cores=1)
    one, other = (
        simulate.Day(costs(), replace(fleet, routing=how)) for how in ("sticky", "random")
    )
    assert one.hits.mean() == pytest.approx(other.hits.mean(), abs=0.02)
    assert len(one.users) == pytest.approx(len(other.users), rel=0.06)


@pytest.mark.parametrize("seed", range(5))
def test_what_was_used_last_stays(simulate, seed):
    """A list in order of use, kept by hand, has the same hits."""
    chance, most = random.Random(seed), 60
    sizes = [chance.randint(1, 20) for _ in range(30)]
    keys = [min(chance.randrange(30), chance.randrange(30)) for _ in range(2_000)]
    in_order, hits = list[int](), list[bool]()
    for key in keys:
        hits.append(key in in_order)
        in_order = [other for other in in_order if other != key] + [key]
        while sum(sizes[other] for other in in_order) > most and in_order[1:]:
            in_order = in_order[1:]
    taken = np.array([sizes[key] for key in keys], float)
    assert simulate.replay(np.array(keys), taken, most).tolist() == hits


def test_of_users_who_are_all_alike_a_share_is_held(simulate):
    """Where each of n is as likely, and k fit, k of n turns find theirs, once memory is full."""
    keys = np.random.default_rng(0).integers(500, size=40_000)
    hits = simulate.replay(keys, np.full(len(keys), 10.0), 10.0 * 125)
    assert hits[5_000:].mean() == pytest.approx(125 / 500, abs=0.01)
    day = simulate.Day(costs(), simulate.Fleet(users=8_000, mean=40, most=40, visit=1, cores=1))
    assert day.everyone.min() == pytest.approx(day.everyone.max())
    fit = 512e6 / (1_000 * day.everyone[0])
    assert day.hits[200_000:].mean() == pytest.approx(fit / 8_000, abs=0.01)


@pytest.mark.parametrize("slope", [0.5, 1.0, 1.5])
def test_activity_is_zipfs_and_sums_up(simulate, slope):
    """No user passes the most, the mean is the mean, and draws fall where the turns are."""
    fleet = simulate.Fleet(users=10_000, slope=slope)
    activity = simulate.Activity(fleet)
    rates = activity.rate(np.arange(fleet.users) + 0.5)
    assert rates.max() <= fleet.most
    assert (np.diff(rates) <= 0).all()
    assert rates.mean() == pytest.approx(fleet.mean, rel=0.01)
    assert rates[9_999] / rates[4_999] == pytest.approx(0.5**slope, rel=0.01)
    ranks = activity.ranks(np.random.default_rng(0).random(100_000))
    for few in (50, 500, 5_000):
        assert (ranks < few).mean() == pytest.approx(rates[:few].sum() / rates.sum(), abs=0.01)


def test_the_same_seed_gives_the_same_day(simulate):
    """And another one another day."""
    fleet = simulate.Fleet(users=3_000)
    one, again, other = (simulate.Day(costs(), fleet, seed) for seed in (1, 1, 2))
    assert one.times.tolist() == again.times.tolist()
    assert one.hits.tolist() == again.hits.tolist()
    assert one.times[:100].tolist() != other.times[:100].tolist()


def test_more_of_a_resource_never_costs_more(simulate):
    """Memory holds more, machines do less each, dearer recalls keep the processor busier."""
    dear = costs(cold=[[20.0, 1.0]] * 2, recall=[[5.0, 0.5]] * 2)
    fleet = simulate.Fleet(users=50_000)
    held = [simulate.Day(dear, replace(fleet, memory_mb=mb)) for mb in (32, 128, 512)]
    assert [day.hits.sum() for day in held] == sorted(day.hits.sum() for day in held)
    assert [day.cores[0] for day in held] == sorted((d.cores[0] for d in held), reverse=True)
    alone, shared = (simulate.Day(dear, replace(fleet, machines=n)) for n in (1, 4))
    assert shared.cores[0] < alone.cores[0] / 3
    assert shared.cores[1] == pytest.approx(alone.cores[1], rel=0.3)
    assert shared.total("row_bytes") == alone.total("row_bytes")
    dearer = simulate.Day({**dear, "job": [5.0, 2.0]}, fleet)
    assert (dearer.cores > alone.cores).all()


def test_a_machine_bears_as_many_as_its_processor_allows(simulate):
    """Where each turn costs the same, that is the time of an hour by the turns of the busiest."""
    fixed = costs("postgres", job=[100.0, 0.0])
    fleet = simulate.Fleet(ram_gb=1e6, mean=10.0, most=10.0)
    borne = simulate.machine_bears(fixed, fleet)
    turn_to_noon = 2 * np.pi / 24
    of_the_day = 1 / 24 + simulate.SWING * np.sin(turn_to_noon) / (2 * np.pi)
    a_user = fleet.mean * of_the_day * 0.1
    assert next(iter(borne)) == "processor"
    assert borne["processor"] == pytest.approx(4 * 0.7 * 3_600 / a_user, rel=0.05)


def test_costs_lie_on_lines_between_the_sizes(simulate):
    """And go on beyond them; none is negative."""
    known = costs(held_bytes=[500, 9_500], recall=[[1.0, 0.0], [10.0, 9.0]])
    assert simulate.at(known, "held_bytes", np.array([0.0, 100, 550, 1_900])).tolist() == [
        0.0,
        500.0,
        5_000.0,
        18_500.0,
    ]
    assert simulate.at(known, "recall", np.array([550.0])).tolist() == [[5.5, 4.5]]


def test_what_is_printed_is_kept(simulate, tmp_path, capsys):
    """The table of each engine that was measured, and what breaks first."""
    file = tmp_path / "kept.json"
    dear = [[300.0, 90.0]] * 2  # so that a machine bears few
    measured = {
        name: {"costs": costs(name, recall=dear, cold=dear)} for name in ("sqlite", "postgres")
    }
    file.write_text(json.dumps(measured))
    assert simulate.main(["--file", str(file), "cores=2", "--keep", "--users", "1000", "4000"]) == 0
    out = capsys.readouterr().out
    kept = json.loads(file.read_text())
    for engine in measured:
        assert f"{engine}, unit costs of 2026-01-01, a machine" in out
        assert kept[engine]["costs"] == measured[engine]["costs"]
        for name, cells in kept[engine]["rows"].items():
            (line,) = re.findall(
                rf"^  {re.escape(name)}  +(.*)$",
                out.split(f"{engine}, unit")[1].partition("unit costs")[0],
                re.MULTILINE,
            )
            assert [cell for cell in re.split("  +", line) if cell] == cells
    assert set(kept["sqlite"]["first"]["a machine"]) == {"processor", "memory", "disk"}
    assert set(kept["postgres"]["first"]) == {"a machine", "a database server"}


def test_an_unknown_setting_is_refused(simulate):
    """With those that there are."""
    with pytest.raises(SystemExit, match="no setting 'user'; known: mean, most"):
        simulate.main(["user=3"])


@pytest.mark.long
@pytest.mark.parametrize("engine", ["sqlite", ON_POSTGRES])
def test_unit_costs_are_measured(simulate, engine, tmp_path):
    """Of small stores; with them a day can be simulated."""
    np.save(tmp_path / "bank.npy", np.random.default_rng(0).standard_normal((40, 384), np.float32))
    inside = "import json, pathlib, sys, anyio, unit_costs as costs\n"
    inside += "measured = anyio.run(costs.measure, pathlib.Path(sys.argv[1]), sys.argv[2], True)\n"
    inside += "print(json.dumps(measured))"
    # The server's user enters this folder; pytest closes its own to all but its user.
    with TemporaryDirectory() as folder:
        shutil.move(tmp_path / "bank.npy", folder)
        done = ran("-c", inside, folder, engine, env=child_environment())
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    assert measured.keys() == costs().keys()
    for what in ("cold", "recall", "append", "open"):
        assert all(own > 0 for own, _ in measured[what])
        assert all((server > 0) is (engine == "postgres") for _, server in measured[what])
    assert (measured["connections"] > 0) is (engine == "postgres")
    day = simulate.Day(measured, simulate.Fleet(users=1_000))
    assert day.cores[0] > 0
